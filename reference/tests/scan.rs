//! The scan's hashes are those of the files, and its progress adds up.

mod support;

use safetensors::Dtype;
use spec::{Error, Side};
use std::sync::atomic::{AtomicU64, Ordering};
use support::{TINY, folder, random_tensors, tiny, trained, write_index, write_shard};

#[test]
fn one_file_has_its_own_hash_and_every_byte_is_reported() {
    let seen = AtomicU64::new(0);
    let scan = reference::scan(&trained(), &|bytes| {
        seen.fetch_add(bytes, Ordering::Relaxed);
    })
    .unwrap();
    let hash = |name| spec::hash::of_file(&trained().join(name), &mut |_| {}).unwrap();
    assert_eq!(scan.weights_sha256, hash("model.safetensors"));
    assert_eq!(scan.config_sha256, hash("config.json"));
    let size = std::fs::metadata(trained().join("model.safetensors")).unwrap().len();
    assert_eq!((scan.bytes, seen.into_inner()), (size, size));
    assert_eq!((scan.tensors_checked, scan.not_finite), (1113, vec![]));
}

#[test]
fn shards_have_the_hash_of_their_sorted_lines() {
    let dir = folder(TINY);
    let tensors = random_tensors(TINY, Dtype::F32);
    let (one, two) = tensors.split_at(20);
    write_shard(dir.path(), "b.safetensors", one);
    write_shard(dir.path(), "a.safetensors", two);
    let places = one.iter().map(|t| (&*t.name, "b.safetensors"));
    let places = places.chain(two.iter().map(|t| (&*t.name, "a.safetensors")));
    write_index(dir.path(), &places.collect::<Vec<_>>());
    let scan = reference::scan(dir.path(), &|_| {}).unwrap();
    let hash = |name: &str| spec::hash::of_bytes(&std::fs::read(dir.path().join(name)).unwrap());
    let lines = ["a.safetensors", "b.safetensors"].map(|name| format!("{name}  {}\n", hash(name)));
    assert_eq!(scan.weights_sha256, spec::hash::of_bytes(lines.concat().as_bytes()));
}

#[test]
fn a_folder_without_weights_and_a_damaged_file_are_errors() {
    assert!(matches!(reference::scan(folder(TINY).path(), &|_| {}), Err(Error::Checkpoint { .. })));
    let dir = tiny(Dtype::BF16);
    let path = dir.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(path, &bytes[..bytes.len() - 2]).unwrap();
    assert!(matches!(reference::scan(dir.path(), &|_| {}), Err(Error::Checkpoint { .. })));
}

#[test]
fn a_bad_value_far_into_a_large_tensor_is_found_at_its_index() {
    let config = TINY.replace("\"vocab_size\": 19", "\"vocab_size\": 70000");
    let mut tensors = random_tensors(&config, Dtype::BF16);
    let head = tensors.last_mut().unwrap();
    assert_eq!((head.name.as_str(), head.bytes.len()), ("lm_head.weight", 3_080_000));
    head.set(60_000 * 22 + 21, f32::NAN);
    head.set(69_999 * 22, f32::INFINITY);
    let dir = folder(&config);
    write_shard(dir.path(), "model.safetensors", &tensors);
    let scan = reference::scan(dir.path(), &|_| {}).unwrap();
    let [bad] = scan.not_finite.as_slice() else { panic!("{scan:?}") };
    assert_eq!((bad.tensor.as_str(), bad.found.as_str()), ("lm_head.weight", "NaN at [60000, 21]"));
    let case = support::random_case(1, 19, 1);
    let mut logits = support::Keep::only(&[spec::Site::Logits]);
    let run = support::free(&case, spec::Precision::F32);
    let error = support::open(dir.path()).forward(&[run], &mut logits).unwrap_err();
    assert!(error.to_string().contains("NaN at [60000, 21]"), "{error}");
}
