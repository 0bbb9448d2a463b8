//! `assay run` writes traces that any safetensors reader reads, and `assay compare` reads two of them.

mod support;

use std::fs;
use std::path::Path;
use support::{TEXT, TRAINED, json, stdout};

const LENGTH: usize = 130;

fn record(side: &str, dir: &Path, more: &[&str]) -> String {
    let out = dir.join(format!("{side}{}", more.len())).to_str().unwrap().to_owned();
    let length = LENGTH.to_string();
    let text = ["--text", TEXT, "--sequences", "2", "--length", &length, "-o", &out];
    stdout(&[&["run", TRAINED, "--side", side][..], &text, more].concat());
    out
}

fn read(path: impl AsRef<Path>, look: impl Fn(&safetensors::SafeTensors<'_>)) {
    let bytes = fs::read(path).unwrap();
    look(&safetensors::SafeTensors::deserialize(&bytes).unwrap());
}

#[test]
fn a_recording_of_the_port_forced_onto_the_reference_agrees_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let reference = record("reference", folder.path(), &[]);
    let forced = record("port", folder.path(), &["--routing", "forced", "--trace", &reference]);
    let found = json(&["compare", &reference, &forced, "--json"]);
    assert_eq!(found["routing"]["differing"], 0);
    assert_eq!(found["routing"]["forced_rows"], 2 * LENGTH * 10);
    assert_eq!(found["end_to_end"]["kl_nats"]["count"], 2 * LENGTH);
    let kl = found["end_to_end"]["kl_nats"]["mean"].as_f64().unwrap();
    assert!(kl <= 1e-8, "{kl}");
    assert_eq!(found["layers"].as_array().unwrap().len(), 10);
    for layer in found["layers"].as_array().unwrap() {
        let worst = layer["moe_branch"]["max"].as_f64().unwrap();
        assert!(worst <= 1e-3, "layer {}: {worst}", layer["layer"]);
        assert_eq!(layer["beyond_tie"], 0);
    }
    let table = stdout(&["compare", &reference, &forced]);
    assert!(table.contains("| layer | kind"), "{table}");
}

#[test]
fn the_port_forced_onto_its_own_recording_repeats_it_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    for precision in ["f32", "bf16"] {
        let dir = folder.path().join(precision);
        fs::create_dir(&dir).unwrap();
        let free = record("port", &dir, &["--precision", precision]);
        let more = ["--precision", precision, "--routing", "forced", "--trace", &free];
        let forced = record("port", &dir, &more);
        for case in ["kjv-heldout.0", "kjv-heldout.1"] {
            let file = |dir: &str| Path::new(dir).join(format!("{case}.sites.safetensors"));
            read(file(&free), |free| {
                assert!(free.names().len() > 40);
                read(file(&forced), |forced| {
                    for name in free.names() {
                        let (a, b) = (free.tensor(name).unwrap(), forced.tensor(name).unwrap());
                        assert_eq!(a.data(), b.data(), "{precision} {case} {name}");
                    }
                });
            });
        }
    }
}

#[test]
fn chunks_only_number_the_calls_of_a_recording_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let whole = record("reference", folder.path(), &[]);
    let chunks = record("reference", folder.path(), &["--chunk", "7"]);
    let found = json(&["compare", &whole, &chunks, "--json"]);
    assert_eq!(found["end_to_end"]["kl_nats"]["max"].as_f64(), Some(0.0));
    assert_eq!(found["layers"][9]["moe_branch"]["max"].as_f64(), Some(0.0));
}

#[test]
fn only_the_sites_asked_for_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let some = record("port", folder.path(), &["--sites", "q_rope,final_norm"]);
    read(Path::new(&some).join("kjv-heldout.0.sites.safetensors"), |file| {
        assert_eq!(file.names().len(), 11);
        assert_eq!(file.tensor("q_rope.4").unwrap().shape(), [LENGTH, 128]);
        assert_eq!(file.tensor("final_norm").unwrap().shape(), [LENGTH, 96]);
    });
    let none = record("port", folder.path(), &["--sites", "none", "--chunk", "50"]);
    let mut files: Vec<_> = fs::read_dir(&none).unwrap().map(|e| e.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["kjv-heldout.0.trace.safetensors", "kjv-heldout.1.trace.safetensors"]);
    read(Path::new(&none).join("kjv-heldout.0.trace.safetensors"), |file| {
        assert_eq!(file.tensor("ids").unwrap().shape(), [LENGTH, 10, 4]);
        let call = file.tensor("call").unwrap();
        let calls: Vec<i32> =
            call.data().chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(calls, [vec![0; 50], vec![1; 50], vec![2; 30]].concat());
    });
}
