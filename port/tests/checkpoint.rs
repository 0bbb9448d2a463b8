//! Checkpoints that must be refused, and the words that say why.
mod support;

use port::Port;
use rstest::rstest;
use safetensors::tensor::Dtype;
use spec::{Case, Choices, Error, ExpertId, Precision, Routing, Schedule, Side, Site, TokenId};
use std::path::Path;
use support::{Checkpoint, Rows, Stored, run, tiny, write, write_file, write_shards};

const UP: &str = "model.layers.1.mlp.experts.10.up_proj.weight";
const FIRST: &str = "model-00001-of-00002.safetensors";
const SECOND: &str = "model-00002-of-00002.safetensors";
const INDEX: &str = "model.safetensors.index.json";

#[derive(Debug, PartialEq)]
enum Variant {
    Checkpoint,
    Tensor,
}

/// Loading must fail with this variant, and the message must hold all these words.
fn refused(dir: &Path, variant: Variant, words: &[&str]) {
    for precision in [Precision::F32, Precision::Bf16] {
        let error = Port::load(dir, precision).err().expect("a refusal");
        let found = match error {
            Error::Checkpoint { .. } => Variant::Checkpoint,
            Error::Tensor { .. } => Variant::Tensor,
            other => panic!("{other}"),
        };
        let message = error.to_string();
        assert_eq!(found, variant, "{message}");
        for word in words {
            assert!(message.contains(word), "`{word}` in: {message}");
        }
    }
}

fn folder(checkpoint: &Checkpoint) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), checkpoint);
    dir
}

fn shards() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_shards(dir.path(), &tiny());
    dir
}

/// One value of `UP` (12 columns) replaced, at row 3, column 5.
fn spoiled(value: f32) -> Checkpoint {
    let mut all = tiny();
    let bytes = &mut all.get_mut(UP).unwrap().bytes[(3 * 12 + 5) * 2..][..2];
    bytes.copy_from_slice(&half::bf16::from_f32(value).to_le_bytes());
    all
}

fn changed(name: &str, tensor: Stored) -> Checkpoint {
    let mut all = tiny();
    all.insert(name.into(), tensor);
    all
}

fn without(name: &str) -> Checkpoint {
    let mut all = tiny();
    all.remove(name).unwrap();
    all
}

#[rstest]
#[case::missing(without(UP), &[UP, "no such tensor", "[7, 12]"])]
#[case::missing_bias(
    without("model.layers.0.moe.router.expert_bias"),
    &["model.layers.0.moe.router.expert_bias", "no such tensor"]
)]
#[case::extra(
    changed("model.layers.0.self_attn.g_proj.weight", Stored::bf16(&[1], &[1.0])),
    &["model.layers.0.self_attn.g_proj.weight", "no tensor beyond"]
)]
#[case::one_expert_too_many(
    changed("model.layers.0.mlp.experts.12.up_proj.weight", Stored::bf16(&[7, 12], &[0.0; 84])),
    &["model.layers.0.mlp.experts.12.up_proj.weight", "no tensor beyond"]
)]
#[case::transposed(changed(UP, Stored::bf16(&[12, 7], &[0.0; 84])), &[UP, "[7, 12]", "[12, 7]"])]
#[case::flat(changed(UP, Stored::bf16(&[84], &[0.0; 84])), &[UP, "[7, 12]", "[84]"])]
#[case::unsupported_dtype(
    changed(UP, Stored { dtype: Dtype::F8_E5M2, shape: vec![7, 12], bytes: vec![0; 84] }),
    &[UP, "BF16, F16, F32", "F8_E5M2"]
)]
#[case::fp8_without_scales(
    changed(UP, Stored { dtype: Dtype::F8_E4M3, shape: vec![7, 12], bytes: vec![0; 84] }),
    &["model.layers.1.mlp.experts.10.up_proj.weight_scale_inv", "[1, 1]", "no such tensor"]
)]
#[case::words_without_a_block_in_the_config(
    changed(UP, Stored { dtype: Dtype::U32, shape: vec![7, 2], bytes: vec![0; 56] }),
    &[UP, "`quantization` block", "none"]
)]
#[case::integers(
    changed(UP, Stored { dtype: Dtype::I32, shape: vec![7, 12], bytes: vec![0; 336] }),
    &[UP, "BF16, F16, F32", "I32"]
)]
#[case::nan(spoiled(f32::NAN), &[UP, "finite", "NaN at index 41"])]
#[case::infinite(spoiled(f32::NEG_INFINITY), &[UP, "finite", "-inf at index 41"])]
#[case::nan_in_an_f32_bias(
    changed("model.layers.1.moe.router.expert_bias", Stored::f32(&[12], &[f32::NAN; 12])),
    &["model.layers.1.moe.router.expert_bias", "NaN at index 0"]
)]
fn tensors_that_are_not_those_of_the_model_are_refused(#[case] all: Checkpoint, #[case] words: &[&str]) {
    refused(folder(&all).path(), Variant::Tensor, words);
}

#[rstest]
fn a_truncated_file_is_refused(#[values(1, 100, 4_000)] missing: u64) {
    let dir = folder(&tiny());
    let path = dir.path().join("model.safetensors");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - missing).unwrap();
    refused(dir.path(), Variant::Checkpoint, &["model.safetensors", "bytes of data, as its header says"]);
}

#[test]
fn a_truncated_shard_is_refused_by_its_name() {
    let dir = shards();
    let file = std::fs::OpenOptions::new().write(true).open(dir.path().join(SECOND)).unwrap();
    file.set_len(file.metadata().unwrap().len() - 2).unwrap();
    refused(dir.path(), Variant::Checkpoint, &[SECOND, "bytes of data"]);
}

/// A file that says its header is `bytes` long, then `rest`.
fn header(bytes: u64, rest: &str) -> Vec<u8> {
    [&bytes.to_le_bytes(), rest.as_bytes()].concat()
}

#[rstest]
#[case::empty(b"".to_vec(), &["0 bytes"])]
#[case::header_beyond_the_file(header(100, "{}"), &["a header of 100 bytes"])]
#[case::header_beyond_any_file(header(u64::MAX, ""), &["a header of 18446744073709551615 bytes"])]
#[case::no_json(header(2, "{["), &["a valid safetensors header"])]
#[case::a_tensor_twice(
    {
        let entry = r#""a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}"#;
        let json = format!("{{{entry},{entry}}}");
        header(json.len() as u64, &format!("{json}.."))
    },
    &["a valid safetensors header", "`a` is listed twice"]
)]
#[case::data_after_the_end(header(2, "{}.."), &["0 bytes of data", "2 bytes"])]
fn a_file_that_is_no_safetensors_is_refused(#[case] bytes: Vec<u8>, #[case] words: &[&str]) {
    let dir = folder(&tiny());
    std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    refused(dir.path(), Variant::Checkpoint, &[&["model.safetensors"], words].concat());
}

#[test]
fn an_index_naming_a_missing_shard_is_refused() {
    let dir = shards();
    std::fs::remove_file(dir.path().join(SECOND)).unwrap();
    refused(dir.path(), Variant::Checkpoint, &[SECOND, "no such file"]);
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let dir = shards();
    let all = tiny();
    let name = all.keys().next().unwrap();
    let mut second: Checkpoint = all.clone().into_iter().skip(1).step_by(2).collect();
    second.insert(name.clone(), all[name].clone());
    write_file(&dir.path().join(SECOND), &second);
    refused(dir.path(), Variant::Tensor, &[name, "one file only", FIRST, SECOND]);
}

#[test]
fn an_index_and_shards_that_disagree_are_refused() {
    let dir = shards();
    let index = std::fs::read_to_string(dir.path().join(INDEX)).unwrap();
    let name = "model.norm.weight";
    let mut json: serde_json::Value = serde_json::from_str(&index).unwrap();
    let other = if json["weight_map"][name] == FIRST { SECOND } else { FIRST };
    json["weight_map"][name] = other.into();
    std::fs::write(dir.path().join(INDEX), json.to_string()).unwrap();
    refused(dir.path(), Variant::Tensor, &[name, INDEX, other]);

    json["weight_map"].as_object_mut().unwrap().remove(name);
    std::fs::write(dir.path().join(INDEX), json.to_string()).unwrap();
    refused(dir.path(), Variant::Tensor, &[name, "it is not listed"]);

    let mut json: serde_json::Value = serde_json::from_str(&index).unwrap();
    json["weight_map"]["model.extra.weight"] = FIRST.into();
    std::fs::write(dir.path().join(INDEX), json.to_string()).unwrap();
    refused(dir.path(), Variant::Tensor, &["model.extra.weight", "no such tensor"]);
}

#[rstest]
#[case::no_json("{", "EOF")]
#[case::no_map("{}", "missing field")]
#[case::a_name_twice(r#"{"weight_map": {"a": "b", "a": "c"}}"#, "`a` is listed twice")]
#[case::a_path(r#"{"weight_map": {"a": "../model.safetensors"}}"#, "no plain file name")]
fn a_malformed_index_is_refused(#[case] text: &str, #[case] word: &str) {
    let dir = shards();
    std::fs::write(dir.path().join(INDEX), text).unwrap();
    refused(dir.path(), Variant::Checkpoint, &[INDEX, "weight_map", word]);
}

#[test]
fn a_folder_with_no_weights_or_with_a_stale_single_file_is_refused() {
    let dir = shards();
    write_file(&dir.path().join("model.safetensors"), &tiny());
    refused(dir.path(), Variant::Checkpoint, &["both", "does not name model.safetensors"]);
    let dir = folder(&tiny());
    std::fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    refused(dir.path(), Variant::Checkpoint, &["neither"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_path_that_is_not_utf8_is_refused_as_such() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
    std::fs::create_dir(&folder).unwrap();
    write(&folder, &tiny());
    let error = Port::load(&folder, Precision::F32).err().expect("a refusal");
    let Error::Argument { expected, .. } = &error else { panic!("{error}") };
    assert_eq!(expected, "a path that is UTF-8 (MLX takes no other)");
}

#[test]
fn shards_load_as_one_file_does() {
    let (one, many) = (folder(&tiny()), shards());
    let named = folder(&tiny());
    let homes: serde_json::Map<_, _> =
        tiny().into_keys().map(|name| (name, "model.safetensors".into())).collect();
    let index = serde_json::json!({ "weight_map": homes });
    std::fs::write(named.path().join(INDEX), index.to_string()).unwrap();
    let text = Case::new("t", (0..11).map(TokenId).collect()).unwrap();
    let run = run(&text, Schedule::chunks_of(4), Routing::Free, Precision::F32);
    let logits = |dir: &Path| {
        let mut rows = Rows::of(&[Site::Logits]);
        Port::load(dir, Precision::F32).unwrap().forward(&[run], &mut rows).unwrap();
        rows.outer(Site::Logits).to_vec()
    };
    let expected = logits(one.path());
    assert_eq!(expected.len(), 11 * 11);
    assert_eq!(logits(many.path()), expected);
    assert_eq!(logits(named.path()), expected, "an index that names the single file");
}

#[rstest]
#[case::f16(Dtype::F16)]
#[case::f32(Dtype::F32)]
fn other_dtypes_load_as_the_same_numbers_in_bf16_do(#[case] dtype: Dtype) {
    let numbers: Vec<f32> = (0..12).map(|i| (i as f32 - 4.0) / 8.0).collect();
    let f16 = || numbers.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect();
    let other = match dtype {
        Dtype::F16 => Stored { dtype, shape: vec![12], bytes: f16() },
        _ => Stored::f32(&[12], &numbers),
    };
    let text = Case::new("t", (0..11).map(TokenId).collect()).unwrap();
    for precision in [Precision::F32, Precision::Bf16] {
        let run = run(&text, Schedule::chunks_of(4), Routing::Free, precision);
        let logits = |norm: Stored| {
            let mut rows = Rows::of(&[Site::Logits]);
            let dir = folder(&changed("model.norm.weight", norm));
            Port::load(dir.path(), precision).unwrap().forward(&[run], &mut rows).unwrap();
            rows.outer(Site::Logits).to_vec()
        };
        assert_eq!(logits(other.clone()), logits(Stored::bf16(&[12], &numbers)));
    }
}

#[test]
fn experts_are_stacked_in_numeric_order() {
    // all experts alike but the tenth, whose down projection is zero: only tokens of expert 10 lose its part
    let mut all = tiny();
    for part in ["gate_proj", "up_proj", "down_proj"] {
        let first = all[&format!("model.layers.0.mlp.experts.0.{part}.weight")].clone();
        for expert in 1..12 {
            all.insert(format!("model.layers.0.mlp.experts.{expert}.{part}.weight"), first.clone());
        }
    }
    let zero = Stored::bf16(&[12, 7], &[0.0; 84]);
    all.insert("model.layers.0.mlp.experts.10.down_proj.weight".into(), zero);
    let port = Port::load(folder(&all).path(), Precision::F32).unwrap();
    let text = Case::new("t", vec![TokenId(4); 12]).unwrap();
    let mut choices = Choices::unset(12, 2, 3);
    for token in 0..12 {
        let ids = [token, (token + 1) % 12, (token + 2) % 12].map(|id| ExpertId(id as u16));
        choices.set(token, spec::LayerId(0), &ids);
        choices.set(token, spec::LayerId(1), &ids);
    }
    let mut rows = Rows::of(&[Site::Routed, Site::TopkWeights]);
    let run = run(&text, Schedule::chunks_of(1), Routing::Forced(&choices), Precision::F32);
    port.layer(spec::LayerId(0), &[run], &[ndarray::Array2::from_elem((12, 12), 0.5)], &mut rows).unwrap();
    let (routed, weights) =
        (rows.matrix(Some(0), Site::Routed, 12), rows.matrix(Some(0), Site::TopkWeights, 3));
    // every token has the same input, so its routed sum is one vector times the weights of experts other
    // than 10
    let sum = |token: usize| -> f64 {
        let slots = choices.at(token, spec::LayerId(0)).iter().enumerate().filter(|(_, id)| id.0 != 10);
        slots.map(|(slot, _)| f64::from(weights[[token, slot]])).sum()
    };
    for token in 0..12 {
        let ratio = f64::from(routed[[token, 0]]) / f64::from(routed[[0, 0]]);
        let expected = sum(token) / sum(0);
        assert!((ratio - expected).abs() <= 1e-5, "token {token}: {ratio} for {expected}");
    }
}

#[test]
fn runs_that_cannot_be_run_are_refused() {
    let port = Port::load(folder(&tiny()).path(), Precision::F32).unwrap();
    let text = Case::new("t", vec![TokenId(4); 3]).unwrap();
    let alien = Case::new("t", vec![TokenId(4), TokenId(11)]).unwrap();
    let unset = Choices::unset(3, 2, 3);
    let whole = Schedule::chunks_of(3);
    let refused = |run: spec::Run<'_>| port.forward(&[run], &mut spec::side::Nothing).unwrap_err();
    let error = refused(run(&text, whole, Routing::Free, Precision::Bf16));
    assert!(matches!(&error, Error::Argument { what, .. } if what.contains("precision")), "{error}");
    let error = refused(run(&text, Schedule { batch: 0, ..whole }, Routing::Free, Precision::F32));
    assert!(matches!(&error, Error::Argument { what, .. } if what.contains("batch")), "{error}");
    let error = refused(run(&alien, whole, Routing::Free, Precision::F32));
    assert!(matches!(&error, Error::Case { found, .. } if found.contains("id 11")), "{error}");
    let error = refused(run(&text, whole, Routing::Forced(&unset), Precision::F32));
    assert!(matches!(error, Error::Routing { .. }), "{error}");
}

#[test]
fn the_port_says_what_computes() {
    let info = Port::load(folder(&tiny()).path(), Precision::Bf16).unwrap().describe();
    assert_eq!(info.side, "port");
    assert_eq!(info.precision, Precision::Bf16);
    let (mlx, binding) = info.engine.split_once(" (mlx-rs ").expect("the binding's version");
    let entry = format!("name = \"mlx-rs\"\nversion = \"{}\"\n", binding.strip_suffix(')').unwrap());
    assert!(include_str!("../../Cargo.lock").contains(&entry), "Cargo.lock has another version: {binding}");
    // the version of MLX that this mlx-rs is bound to
    assert_eq!(mlx, "MLX 0.32.2");
    let note = |key: &str| info.notes.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone());
    assert!(note("MLX_ENABLE_TF32").is_some());
    if cfg!(target_os = "linux") {
        assert_eq!(info.device, "cpu");
        assert!(note("blas").unwrap().starts_with("OpenBLAS"), "{:?}", info.notes);
    }
}
