//! What is written is read back, and another program's reader sees what the document says.

use super::file::{IDS, Parts};
use ndarray::{Array2, Array3, array};
use rstest::rstest;
use safetensors::{Dtype, SafeTensors};
use spec::trace::{Candidates, Meta, Origin, SlotOrder, Trace};
use spec::{LayerId, LayerKind, Precision, Schedule, SideInfo, TokenId, hash};
use std::path::PathBuf;

/// Two tokens, two layers, two of `experts`; everything that a trace can hold, the candidates from id 0 up.
fn full(experts: usize) -> Trace {
    let top = i32::try_from(experts).unwrap() - 1;
    let width = 4.min(experts);
    let ids = Array3::from_shape_fn((2, 2, width), |(_, _, slot)| i32::try_from(slot).unwrap());
    let sel = ids.mapv(|id| 2.5 - id as f32);
    let meta = Meta {
        case: "hand".into(),
        model: Some("kolibri-tiny".into()),
        weights_sha256: Some("ab".repeat(32)),
        config_sha256: Some("cd".repeat(32)),
        num_experts: experts,
        k: 2,
        num_hidden_layers: 2,
        pos0: 0,
        slot_order: SlotOrder::Executed,
        tie_rule: Some("value_desc_id_asc".into()),
        router: Some(serde_json::json!({"score": "sigmoid", "groups": 1})),
        shared_experts: Some(serde_json::json!({"count": 1, "in_ids": false})),
        engine: None,
        calls: None,
        source: Some(serde_json::json!({"importer": "by hand"})),
        precision: None,
        layer_kinds: Some(vec![LayerKind::Sliding, LayerKind::Full]),
    };
    let mut trace = Trace {
        path: PathBuf::from("hand.trace.safetensors"),
        meta,
        ids: array![[[top, 0], [0, top]], [[0, 1], [1, 0]]],
        layers: vec![LayerId(0), LayerId(1)],
        tokens: vec![TokenId(65), TokenId(127_999)],
        weights: Some(array![[[0.25, 0.75], [1.0, 0.0]], [[0.5, 1e-30], [-0.0, 3.0]]]),
        candidates: Some(Candidates { ids, logit: &sel - 1.0, sel }),
        origin: Some(Array2::from_elem((2, 2), Origin::Forced)),
        call: Some(vec![0, 1]),
        shadow: Some(array![[[0, 1], [top, 0]], [[1, 0], [0, 1]]]),
    };
    let side = SideInfo {
        side: "port".into(),
        engine: "MLX 0.32.2 (mlx-rs 0.33.0)".into(),
        device: "cpu".into(),
        precision: Precision::Bf16,
        notes: vec![("threads".into(), "2".into())],
    };
    trace.meta.set_run(&side, Schedule::chunks_of(1).decoding_from(1), Precision::F32);
    trace
}

fn written(trace: &Trace) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hand.trace.safetensors");
    trace.write(&path).unwrap();
    (folder, path)
}

#[rstest]
#[case::as_many_experts_as_k(2)]
#[case::fewer_than_k_and_two_more(3)]
#[case::an_ordinary_number(384)]
#[case::the_last_that_fits_i16(32_767)]
#[case::the_first_that_does_not(32_768)]
#[case::the_most(65_535)]
fn a_trace_is_read_back_as_it_was_written(#[case] experts: usize) {
    let trace = full(experts);
    let (_folder, path) = written(&trace);
    assert_eq!(Trace { path: trace.path.clone(), ..Trace::read(&path).unwrap() }, trace);
}

#[test]
fn a_trace_with_nan_weights_is_read_back_bit_for_bit() {
    let mut trace = full(6);
    let weights = trace.weights.as_mut().unwrap();
    weights[[1, 0, 1]] = f32::from_bits(0x7fc0_1234);
    let expected: Vec<u32> = weights.iter().map(|weight| weight.to_bits()).collect();
    let (_folder, path) = written(&trace);
    let found = Trace::read(&path).unwrap().weights.unwrap();
    assert_eq!(found.iter().map(|weight| weight.to_bits()).collect::<Vec<_>>(), expected);
}

/// (name, dtype, shape) as the document has them, seen by the safetensors crate alone.
#[rstest]
#[case(384, Dtype::I16)]
#[case(32_767, Dtype::I16)]
#[case(32_768, Dtype::I32)]
fn another_reader_sees_the_documented_tensors(#[case] experts: usize, #[case] ids: Dtype) {
    let (_folder, path) = written(&full(experts));
    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let expected: [(&str, Dtype, &[usize]); 10] = [
        ("ids", ids, &[2, 2, 2]),
        ("layers", Dtype::I32, &[2]),
        ("tokens", Dtype::I32, &[2]),
        ("weights", Dtype::F32, &[2, 2, 2]),
        ("cand_ids", ids, &[2, 2, 4]),
        ("cand_sel", Dtype::F32, &[2, 2, 4]),
        ("cand_logit", Dtype::F32, &[2, 2, 4]),
        ("origin", Dtype::U8, &[2, 2]),
        ("call", Dtype::I32, &[2]),
        ("shadow_ids", ids, &[2, 2, 2]),
    ];
    assert_eq!(file.len(), expected.len());
    for (name, dtype, shape) in expected {
        let tensor = file.tensor(name).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, shape), "{name}");
        let width = dtype.bitsize() / 8;
        assert_eq!((tensor.data().as_ptr().addr() - bytes.as_ptr().addr()) % width, 0, "{name} is aligned");
    }
    assert_eq!(file.tensor("origin").unwrap().data(), [2; 4]);
    assert_eq!(file.tensor("call").unwrap().data(), [0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(file.tensor("tokens").unwrap().data(), [65, 0, 0, 0, 0xff, 0xf3, 1, 0]);
}

#[test]
fn another_reader_sees_the_documented_strings() {
    let (_folder, path) = written(&full(6));
    let bytes = std::fs::read(&path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let strings = header.metadata().as_ref().unwrap();
    let ids = hash::of_bytes(&[5, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 1, 0, 0, 0]);
    for (key, value) in [
        ("schema", "moe-trace/1"),
        ("decision", "moe_topk"),
        ("id_space", "logical"),
        ("slot_order", "executed"),
        ("num_experts", "6"),
        ("k", "2"),
        ("num_hidden_layers", "2"),
        ("pos0", "0"),
        ("model", "kolibri-tiny"),
        ("precision", "f32"),
        ("layer_kinds", r#"["sliding","full"]"#),
        ("shared_experts", r#"{"count":1,"in_ids":false}"#),
        ("calls", r#"{"prefill_chunk":1,"decode_from":1,"batch":1}"#),
        ("ids_sha256", &ids),
        ("tokens_sha256", &hash::of_bytes(&[65, 0, 0, 0, 0xff, 0xf3, 1, 0])),
    ] {
        assert_eq!(strings.get(key).map(String::as_str), Some(value), "{key}");
    }
    let engine: serde_json::Value = serde_json::from_str(&strings["engine"]).unwrap();
    assert_eq!(engine["name"], "MLX");
    assert_eq!(engine["version"], "0.32.2 (mlx-rs 0.33.0)");
    assert_eq!(engine["flags"], serde_json::json!([["threads", "2"]]));
}

#[test]
fn equal_traces_are_equal_bytes() {
    let (_a, first) = written(&full(6));
    let (_b, second) = written(&full(6));
    assert_eq!(std::fs::read(first).unwrap(), std::fs::read(second).unwrap());
}

#[test]
fn a_file_of_another_program_that_holds_the_least_is_read() {
    let trace = Parts::least().read().unwrap();
    assert_eq!(trace.meta.case, "hand", "named by its file");
    assert_eq!(trace.meta.slot_order, SlotOrder::Unknown);
    assert_eq!(trace.layers, [LayerId(1), LayerId(3)]);
    assert_eq!(trace.ids.iter().copied().collect::<Vec<_>>(), IDS.map(i32::from));
    assert!(trace.weights.is_none() && trace.candidates.is_none() && trace.shadow.is_none());
}

#[test]
fn a_malformed_trace_is_not_written_and_an_older_file_stays() {
    let (folder, path) = written(&full(6));
    let before = std::fs::read(&path).unwrap();
    let mut bad = full(6);
    bad.ids[[0, 0, 1]] = 5;
    assert!(bad.write(&path).unwrap_err().to_string().contains("expert 5 twice at token 0, layer 0"));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(folder.path().read_dir().unwrap().count(), 1, "and no temporary file");
}
