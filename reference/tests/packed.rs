//! Packed, FP8 and stacked checkpoints hold what their codes stand for, and run bit for bit as a checkpoint
//! that holds those values in F32.

mod support;

use ndarray::Array2;
use rstest::rstest;
use safetensors::Dtype;
use serde_json::{Value, json};
use spec::{Precision, Side};
use std::collections::BTreeMap;
use std::path::Path;
use support::pack::{self, Packed};
use support::{
    Keep, Lcg, TINY, Tensor, bits, folder, free, held_out, open, random_tensors, trained, write_shard,
};
use tempfile::TempDir;

/// A checkpoint under test, one of the same values in F32, and those values.
struct Twins {
    packed: TempDir,
    plain: TempDir,
    values: BTreeMap<String, Vec<f32>>,
}

/// The trained checkpoint, matrices packed as `pack` says (`None`: left as they are), experts stacked or not.
fn twins(block: Value, stacked: bool, pack: impl Fn(&Tensor) -> Option<Packed>) -> Twins {
    let text = std::fs::read_to_string(trained().join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let (mut tensors, mut plain, mut values) = (vec![], vec![], BTreeMap::new());
    for tensor in pack::trained_tensors() {
        let packed = if tensor.shape.len() == 2 { pack(&tensor) } else { None };
        let Packed { tensors: written, values: decoded } = packed.unwrap_or_else(|| {
            let values = pack::values_of(&tensor);
            Packed { tensors: vec![tensor.clone()], values }
        });
        tensors.extend(written);
        plain.push(pack::in_f32(&tensor, &decoded));
        values.insert(tensor.name, decoded);
    }
    let plain_folder = folder(&text);
    write_shard(plain_folder.path(), "model.safetensors", &plain);
    for (key, value) in block.as_object().unwrap() {
        config[key] = value.clone();
    }
    let packed = folder(&config.to_string());
    let tensors = if stacked { pack::stacked(&tensors) } else { tensors };
    write_shard(packed.path(), "model.safetensors", &tensors);
    Twins { packed, plain: plain_folder, values }
}

/// Bits, group and dtype of the scales of each matrix; layer 9's `q_proj` stays as it is.
fn packing(name: &str) -> Option<(usize, usize, Dtype)> {
    let expert = name.contains(".experts.");
    Some(match name {
        "model.embed_tokens.weight" => (8, 32, Dtype::BF16),
        "lm_head.weight" => (2, 16, Dtype::BF16),
        "model.layers.9.self_attn.q_proj.weight" => return None,
        _ if name.ends_with("q_proj.weight") => (3, 24, Dtype::BF16),
        _ if name.ends_with("k_proj.weight") => (5, 16, Dtype::F16),
        _ if name.ends_with("v_proj.weight") => (6, 48, Dtype::BF16),
        _ if name.ends_with("o_proj.weight") => (7, 64, Dtype::F32),
        _ if name.ends_with("mlp.gate.weight") => (8, 96, Dtype::F32),
        _ if name.ends_with("gate_proj.weight") && expert => (4, 32, Dtype::BF16),
        _ if name.ends_with("up_proj.weight") && expert => (3, 16, Dtype::F32),
        _ if name.ends_with("down_proj.weight") && expert => (5, 8, Dtype::BF16),
        _ => (6, 32, Dtype::F16),
    })
}

/// The block `quantization` for [`packing`]: 4 bits in groups of 32, and every module that differs.
fn quantization(stacked: bool) -> Value {
    let mut block = json!({ "bits": 4, "group_size": 32 });
    for tensor in pack::trained_tensors().iter().filter(|t| t.shape.len() == 2) {
        let mut module = tensor.name.strip_suffix(".weight").unwrap().to_owned();
        if let Some((layer, rest)) = module.split_once(".experts.").filter(|_| stacked) {
            module = format!("{layer}.switch_mlp.{}", rest.split_once('.').unwrap().1);
        }
        match packing(&tensor.name) {
            Some((4, 32, _)) => {}
            Some((bits, group, _)) => block[module] = json!({ "bits": bits, "group_size": group }),
            None => block[module] = Value::Bool(false),
        }
    }
    json!({ "quantization": block, "quantization_config": block })
}

fn affine_twins(stacked: bool) -> Twins {
    twins(quantization(stacked), stacked, |tensor| {
        packing(&tensor.name).map(|(bits, group, dtype)| pack::affine(tensor, bits, group, dtype))
    })
}

/// FP8 in blocks of 50 x 40, so that every matrix has partial ones; with embedding, head and router, or as
/// the release without.
fn fp8_twins(stacked: bool, every: bool) -> Twins {
    let method = json!({ "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [50, 40] });
    twins(json!({ "quantization_config": method }), stacked, |tensor| {
        let linear = tensor.name.ends_with("_proj.weight");
        (linear || every).then(|| pack::fp8(tensor, [50, 40]))
    })
}

fn assert_tensors(dir: &Path, expected: &BTreeMap<String, Vec<f32>>) {
    let mut seen = 0;
    let visit = &mut |name: &str, values: &[f32]| {
        assert!(bits(values) == bits(&expected[name]), "{name}");
        seen += 1;
        Ok(())
    };
    open(dir).tensors(visit).unwrap();
    assert_eq!(seen, expected.len());
}

fn forward(dir: &Path, precision: Precision) -> Keep {
    let mut keep = Keep::all();
    open(dir).forward(&[free(&held_out("text", 700, 60), precision)], &mut keep).unwrap();
    keep
}

fn assert_twins(twins: &Twins) {
    assert_tensors(twins.packed.path(), &twins.values);
    let [packed, plain] = [&twins.packed, &twins.plain].map(|dir| forward(dir.path(), Precision::F32));
    assert!(packed.bits(0) == plain.bits(0), "the forward pass differs");
}

#[rstest]
fn packed_matrices_are_scale_times_code_plus_bias(#[values(false, true)] stacked: bool) {
    assert_twins(&affine_twins(stacked));
}

#[rstest]
#[case::as_the_release(false, false)]
#[case::embedding_head_and_router_too(false, true)]
#[case::stacked(true, true)]
fn fp8_matrices_are_code_times_the_scale_of_their_block(#[case] stacked: bool, #[case] every: bool) {
    assert_twins(&fp8_twins(stacked, every));
}

#[test]
fn stacked_experts_are_those_of_one_tensor_each() {
    let stacked = twins(json!({}), true, |_| None);
    assert_twins(&stacked);
    for precision in [Precision::F32, Precision::Bf16] {
        let [a, b] = [stacked.packed.path(), &trained()].map(|dir| forward(dir, precision));
        assert!(a.bits(0) == b.bits(0), "{precision:?}");
    }
}

#[test]
fn the_emulation_multiplies_unpacked_weights_as_they_are() {
    // values of few bits are the same numbers in BF16: eighths from -1 on
    let coarse = |tensor: &Tensor| pack::affine_with(tensor, 4, 32, Dtype::F32, |_| (0.125, -1.0));
    let affine = json!({ "quantization": { "bits": 4, "group_size": 32 } });
    let packed = twins(affine, false, |tensor| Some(coarse(tensor)));
    let of_bf16 = pack::trained_tensors().into_iter().map(|tensor| {
        let values = &packed.values[&tensor.name];
        Tensor::new(&tensor.name, &tensor.shape, Dtype::BF16, values)
    });
    let bf16 = folder(&std::fs::read_to_string(trained().join("config.json")).unwrap());
    write_shard(bf16.path(), "model.safetensors", &of_bf16.collect::<Vec<_>>());
    let [packed, bf16] = [&packed.packed, &bf16].map(|dir| forward(dir.path(), Precision::Bf16));
    assert!(packed.bits(0) == bf16.bits(0));
    let fp8 = fp8_twins(false, false);
    forward(fp8.packed.path(), Precision::Bf16);
}

#[test]
fn edge_blocks_of_128_are_partial() {
    // q_proj is 130 x 200, o_proj 200 x 130
    let config = TINY.replace("\"hidden_size\": 22", "\"hidden_size\": 200");
    let config = config.replace("\"num_attention_heads\": 4", "\"num_attention_heads\": 13");
    let config = config.replace("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 1");
    let config = config.replace("\"head_dim\": 6", "\"head_dim\": 10");
    let name = "model.layers.1.self_attn.q_proj.weight";
    let mut tensors = random_tensors(&config, Dtype::BF16);
    let at = tensors.iter().position(|t| t.name == name).unwrap();
    assert_eq!(tensors[at].shape, [130, 200]);
    let codes: Vec<u8> = (0..130 * 200_usize).map(|i| (i * 37 % 254) as u8).collect();
    let codes: Vec<u8> = codes.iter().map(|&c| if c >= 127 { c + 1 } else { c }).collect();
    tensors[at] = Tensor { dtype: Dtype::F8_E4M3, bytes: codes.clone(), ..tensors[at].clone() };
    let scales = [0.37, 1.5e-3, -2.0, 7.7];
    let grid = "model.layers.1.self_attn.q_proj.weight_scale_inv";
    tensors.push(Tensor::new(grid, &[2, 2], Dtype::F32, &scales));
    let dir = folder(&config);
    write_shard(dir.path(), "model.safetensors", &tensors);
    let mut got = vec![];
    let reference = open(dir.path());
    let visit = &mut |tensor: &str, values: &[f32]| {
        if tensor == name {
            got = values.to_vec();
        }
        Ok(())
    };
    reference.tensors(visit).unwrap();
    for (flat, value) in got.iter().enumerate() {
        let (row, column) = (flat / 200, flat % 200);
        let scale = scales[usize::from(row >= 128) * 2 + usize::from(column >= 128)];
        let (e, m) = (i32::from(codes[flat] >> 3 & 15), f64::from(codes[flat] & 7));
        let size = if e == 0 { m * 2_f64.powi(-9) } else { 2_f64.powi(e - 7) * (1.0 + m / 8.0) };
        let exact = f64::from(scale) * if codes[flat] < 128 { size } else { -size };
        assert_eq!(value.to_bits(), (exact as f32).to_bits(), "[{row}, {column}] of code {}", codes[flat]);
    }
    assert_eq!(got.len(), 130 * 200);
}

#[rstest]
#[case::affine(affine_twins(false))]
#[case::affine_stacked(affine_twins(true))]
#[case::fp8(fp8_twins(false, true))]
#[case::stacked(twins(json!({}), true, |_| None))]
fn the_survey_counts_values_and_reading_counts_stored_bytes(#[case] twins: Twins) {
    let [ours, plain] = [trained(), twins.packed.path().into()].map(|dir| reference::survey(&dir).unwrap());
    assert_eq!(plain.problems, []);
    assert_eq!(plain.parameters, ours.parameters);
    assert_eq!(plain.active_parameters, ours.active_parameters);
    let stored: u64 = plain.dtypes.iter().map(|dtype| dtype.bytes).sum();
    let tensors: usize = plain.dtypes.iter().map(|dtype| dtype.tensors).sum();
    assert_eq!(tensors, plain.tensors);
    let reference = open(twins.packed.path());
    reference.tensors(&mut |_, _| Ok(())).unwrap();
    assert_eq!(reference.bytes_read(), stored);
    let scan = reference::scan(twins.packed.path(), &|_| {}).unwrap();
    assert_eq!((scan.not_finite.len(), scan.tensors_checked), (0, plain.tensors));
}

#[test]
fn rows_of_a_packed_embedding_count_their_own_bytes() {
    let twins = affine_twins(false);
    let reference = open(twins.packed.path());
    let case = spec::Case::new("bytes", vec![spec::TokenId(7), spec::TokenId(7), spec::TokenId(9)]).unwrap();
    struct Stop;
    impl spec::Recorder for Stop {
        fn wants(&self, _run: usize, _layer: Option<spec::LayerId>, site: spec::Site) -> bool {
            site == spec::Site::Embedding
        }
        fn record(&mut self, _at: &spec::At, _rows: ndarray::ArrayView2<'_, f32>) -> spec::Result<()> {
            Err(spec::Error::io("write", "trace", "make room")(std::io::ErrorKind::StorageFull.into()))
        }
    }
    reference.forward(&[free(&case, Precision::F32)], &mut Stop).unwrap_err();
    // two rows of 96 codes of 8 bits, and of three scales and three biases in BF16
    assert_eq!(reference.bytes_read(), 2 * (96 + 2 * 3 * 2));
}

#[test]
fn threads_and_cuts_change_no_unpacked_bit() {
    // 9000 rows of 32: more than one block of rows
    let mut random = Lcg(5);
    let values: Array2<f32> = random.matrix(9000, 32);
    let config = TINY.replace("\"vocab_size\": 19", "\"vocab_size\": 9000");
    let config = config.replace("\"hidden_size\": 22", "\"hidden_size\": 32");
    let config = config.replace('{', "{\"quantization\": {\"bits\": 3, \"group_size\": 16},");
    let mut tensors = random_tensors(&config, Dtype::BF16);
    let head = Tensor::new("lm_head.weight", &[9000, 32], Dtype::F32, values.as_slice().unwrap());
    let packed = pack::affine(&head, 3, 16, Dtype::BF16);
    tensors.retain(|tensor| tensor.name != head.name);
    tensors.extend(packed.tensors);
    let dir = folder(&config);
    write_shard(dir.path(), "model.safetensors", &tensors);
    for threads in [1, 2, 5] {
        let reference = reference::Reference::open(dir.path(), reference::Options { threads: Some(threads) });
        let visit = &mut |name: &str, values: &[f32]| {
            assert!(name != "lm_head.weight" || bits(values) == bits(&packed.values), "{threads} threads");
            Ok(())
        };
        reference.unwrap().tensors(visit).unwrap();
    }
}
