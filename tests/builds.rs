//! Packed builds: `assay convert`, both sides on what it writes, and the gate by the checkpoint they are of.
#[path = "support/gate.rs"]
mod gate_support;
mod support;

use gate_support::{Scratch, lean, list};
use half::{bf16, f16};
use port::Port;
use reference::{Options, Reference};
use rstest::rstest;
use serde_json::{Value, json};
use spec::{Precision, Side};
use std::collections::BTreeMap;
use std::path::Path;
use support::{Checkpoint, TRAINED, assay, json as json_of, refusal, stdout};

fn held(side: &dyn Side) -> BTreeMap<String, Vec<u32>> {
    let mut all = BTreeMap::new();
    side.tensors(&mut |name, values| {
        all.insert(name.to_owned(), values.iter().map(|value| value.to_bits()).collect());
        Ok(())
    })
    .unwrap();
    all
}

/// Both sides hold the same bits; the port's are those of MLX's `dequantize`.
fn agree(dir: &Path) {
    let port = held(&Port::load(dir, Precision::F32).unwrap());
    let reference = held(&Reference::open(dir, Options::default()).unwrap());
    assert_eq!(port.len(), 1113);
    assert!(port.keys().eq(reference.keys()));
    for (name, values) in &port {
        assert!(reference[name] == *values, "{name}");
    }
}

fn converted(scratch: &Scratch, bits: u32) -> String {
    let folder = scratch.path(&format!("bits-{bits}"));
    stdout(&["convert", TRAINED, "--bits", &bits.to_string(), "-o", &folder]);
    folder
}

#[rstest]
fn both_sides_unpack_the_same_bits(#[values(2, 3, 4, 5, 6, 8)] bits: u32) {
    let scratch = Scratch::new();
    agree(Path::new(&converted(&scratch, bits)));
}

#[test]
fn seeded_checkpoints_are_packed_where_their_rows_allow_it_and_both_sides_agree() {
    let scratch = Scratch::new();
    let (made, folder) = (scratch.path("made"), scratch.path("packed"));
    stdout(&["make", "pattern5", "--seed", "3", "-o", &made]);
    let kinds = json_of(&["convert", &made, "--bits", "4", "-o", &folder, "--json"]);
    let find = |module: &str| {
        let kinds = kinds.as_array().unwrap();
        kinds.iter().find(|kind| kind["module"] == module).unwrap_or_else(|| panic!("no {module}")).clone()
    };
    // rows of 40 are divided by neither 64 nor 32
    let down = find("model.layers.*.mlp.shared_experts.down_proj");
    assert_eq!((&down["packed"], &down["kept"]), (&Value::Null, &json!("no group divides its rows")));
    assert_eq!(find("model.layers.*.mlp.experts.*.down_proj")["packed"], json!([4, 32]));
    assert_eq!(find("model.layers.*.self_attn.o_proj")["packed"], json!([4, 64]));
    let port = held(&Port::load(Path::new(&folder), Precision::F32).unwrap());
    assert!(port == held(&Reference::open(Path::new(&folder), Options::default()).unwrap()));
}

/// What mlx-lm itself writes of a model of experts: the router is packed too, at 8 bits.
#[test]
fn a_build_with_a_packed_router_is_read_by_both_sides() {
    let scratch = Scratch::new();
    let folder = converted(&scratch, 4);
    let mut build = Checkpoint::of(Path::new(&folder));
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{folder}/config.json")).unwrap()).unwrap();
    for layer in 0..10 {
        let module = format!("model.layers.{layer}.mlp.gate");
        let (_, _, bytes) = build.tensors.remove(&format!("{module}.weight")).unwrap();
        let values: Vec<f32> =
            bytes.chunks(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]]).to_f32()).collect();
        let array = mlx_rs::Array::from_slice(&values, &[32, 96]).as_dtype(mlx_rs::Dtype::Float16).unwrap();
        let (words, scales, biases) = mlx_rs::ops::quantize(&array, 32, 8).unwrap();
        words.eval().unwrap();
        let words = words.as_slice::<u32>().iter().flat_map(|word| word.to_le_bytes()).collect();
        build.tensors.insert(format!("{module}.weight"), (safetensors::Dtype::U32, vec![32, 24], words));
        for (part, array) in [("scales", scales), ("biases", biases)] {
            let wide = array.as_dtype(mlx_rs::Dtype::Float32).unwrap();
            wide.eval().unwrap();
            let halves = wide.as_slice::<f32>().iter().flat_map(|value| f16::from_f32(*value).to_le_bytes());
            let stored = (safetensors::Dtype::F16, vec![32, 3], halves.collect());
            build.tensors.insert(format!("{module}.{part}"), stored);
        }
        for key in ["quantization", "quantization_config"] {
            config[key][&module] = json!({"group_size": 32, "bits": 8});
        }
    }
    build.configure(&[
        ("quantization", config["quantization"].clone()),
        ("quantization_config", config["quantization_config"].clone()),
    ]);
    agree(&build.write());
}

/// K4: the attention projections and all experts, codes and one scale a block; with a planted bug of reading
/// the scales.
#[test]
fn both_sides_read_the_fp8_release_alike_and_a_transposed_grid_changes_one_matrix() {
    let mut release = Checkpoint::trained();
    let quantised = |name: &str| name.contains("_proj.weight");
    let names: Vec<String> = release.tensors.keys().filter(|name| quantised(name)).cloned().collect();
    // blocks that cut rows and columns: the o projections are [96, 128], in 2 x 4 blocks
    let block = [64, 40];
    for name in &names {
        let (_, shape, bytes) = release.tensors.remove(name).unwrap();
        let grid = [shape[0].div_ceil(block[0]), shape[1].div_ceil(block[1])];
        let scale = |at: usize| 0.001 * (1 + at % 7) as f32;
        let value = |at: usize| bf16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]).to_f32();
        let of = |at: usize| at / shape[1] / block[0] * grid[1] + at % shape[1] / block[1];
        let scaled: Vec<f32> = (0..bytes.len() / 2).map(|at| value(at) / scale(of(at))).collect();
        let codes =
            mlx_rs::Array::from_slice(&scaled, &[i32::try_from(scaled.len()).unwrap()]).to_fp8().unwrap();
        codes.eval().unwrap();
        let scales = (0..grid[0] * grid[1]).flat_map(|at| scale(at).to_le_bytes()).collect();
        let scales = (safetensors::Dtype::F32, grid.to_vec(), scales);
        release.tensors.insert(name.replace(".weight", ".weight_scale_inv"), scales);
        let stored = (safetensors::Dtype::F8_E4M3, shape, codes.as_slice::<u8>().to_vec());
        release.tensors.insert(name.clone(), stored);
    }
    release.configure(&[("quantization_config", json!({"quant_method": "fp8", "weight_block_size": block}))]);
    let folder = release.write();
    agree(&folder);
    let folder = folder.to_str().unwrap();
    let compared = json_of(&["compare", folder, "--random-tokens", "40", "--json"]);
    let worst = list(&compared, "layers").iter().map(|layer| layer["moe_branch"]["max"].as_f64().unwrap());
    assert!(worst.fold(0.0, f64::max) < 1e-5, "{compared}");
    let bug = "scale_grid_transposed";
    let scratch = Scratch::new();
    stdout(&["mutate", folder, "--mutant", bug, "-o", &scratch.path("bug")]);
    let port = held(&Port::load(Path::new(&scratch.path("bug")), Precision::F32).unwrap());
    let right = held(&Port::load(Path::new(folder), Precision::F32).unwrap());
    let differing: Vec<&String> = right.keys().filter(|name| port[*name] != right[*name]).collect();
    assert_eq!(differing, ["model.layers.0.self_attn.o_proj.weight"]);
}

#[rstest]
fn a_sound_build_passes_the_gate_of_the_checkpoint_it_was_made_of(#[values(4, 8)] bits: u32) {
    let scratch = Scratch::new();
    let folder = converted(&scratch, bits);
    let gate = scratch.file("gate.json", &lean().to_string());
    let out = scratch.path("out");
    let arguments = ["gate", &folder, "--reference", TRAINED, "--gate", &gate, "-o", &out, "--json"];
    let record = json_of(&arguments);
    assert_eq!(record["verdict"], "PASS", "{}", record["reasons"]);
    assert_eq!(record["inputs"]["reference"]["name"], "kolibri-tiny-kjv");
    // another model than the checkpoint, which no check holds against the port
    let build = &list(&record, "sets")[0]["build"];
    assert!(build["kl_nats"]["mean"].as_f64().unwrap() > 1e-6, "{build}");
    assert!(build["differing_sets"]["count"].as_u64().unwrap() > 0, "{build}");
}

#[test]
fn a_build_read_otherwise_than_it_was_packed_is_caught() {
    let scratch = Scratch::new();
    let (made, folder) = (scratch.path("made"), scratch.path("packed"));
    stdout(&["make", "pattern5", "--seed", "3", "-o", &made]);
    stdout(&["convert", &made, "--bits", "4", "-o", &folder]);
    let bugs = "codes_reversed,zero_point_negated,group_size_doubled";
    let matrix = json_of(&["mutants", "run", &folder, "--only", bugs, "--tokens", "40", "--format", "json"]);
    let rows = list(&matrix["sheets"][0], "rows");
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row["outcome"] == "caught"), "{rows:?}");
}

#[test]
fn bad_builds_and_options_are_refused_and_leave_nothing() {
    let scratch = Scratch::new();
    let out = scratch.path("out");
    let words = refusal(&["convert", TRAINED, "--bits", "8", "--group", "64", "-o", &out]);
    assert!(words.contains("a group that divides the rows") && words.contains("found rows of"), "{words}");
    let words = refusal(&["convert", TRAINED, "--bits", "7", "-o", &out]);
    assert!(words.contains("[2, 3, 4, 5, 6, 8]") && words.contains("found 7"), "{words}");
    assert!(!Path::new(&out).exists());
    let folder = converted(&scratch, 8);
    let words = refusal(&["convert", TRAINED, "--bits", "8", "-o", &folder]);
    assert!(words.contains("a name that is free"), "{words}");
    let words = refusal(&["convert", &folder, "--bits", "4", "-o", &out]);
    assert!(words.contains("not packed") && words.contains("`quantization`"), "{words}");
    // the trained gate wants golden outputs, which are the checkpoint's
    let words = refusal(&["gate", &folder, "-o", &out]);
    assert!(words.contains("--reference"), "{words}");
    let made = scratch.path("made");
    stdout(&["make", "pattern5", "--seed", "3", "-o", &made]);
    let words = refusal(&["gate", &folder, "--reference", &made, "-o", &out]);
    assert!(words.contains("another model"), "{words}");
    let build = Checkpoint::of(Path::new(&folder));
    build.configure(&[("quantization", json!({"bits": 4, "group_size": 32, "mode": "mxfp4"}))]);
    build.configure(&[("quantization_config", Value::Null)]);
    let words = refusal(&["inspect", build.write().to_str().unwrap()]);
    assert!(
        words.contains("key `mode`") && words.contains("mxfp4") && words.contains("\"affine\""),
        "{words}"
    );
    let output = assay(&["convert", TRAINED, "--bits", "8", "--head", "none", "-o", &out]);
    assert_eq!(output.status.code(), Some(2));
}
