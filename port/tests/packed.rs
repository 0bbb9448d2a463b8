//! Builds of MLX's affine quantiser: what the port holds of them, what it multiplies, what it refuses.
mod support;

use half::bf16;
use mlx_rs::{Array, Dtype};
use ndarray::Array2;
use port::convert::{Policy, convert};
use port::engine::{dim, values};
use port::weight::{Packed, Weight};
use port::{Port, Steps};
use rstest::rstest;
use safetensors::tensor::{Dtype as Stored32, SafeTensors};
use serde_json::{Value, json};
use spec::{Affine, Error, Precision, Routing, Schedule, Side, Site};
use std::collections::BTreeMap;
use std::path::Path;
use support::{Checkpoint, Random, Stored, fixtures, forward, kjv_text, relative_l2, run, write_file};

const O_PROJ: &str = "model.layers.0.self_attn.o_proj";

/// The trained checkpoint, packed.
fn build(bits: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let policy = Policy { bits, group: None, embedding: Some(bits), head: Some(bits) };
    convert(&fixtures().join("kolibri-tiny-kjv"), policy, &dir.path().join("build"), &|_| {}).unwrap();
    dir
}

fn tensors(dir: &Path) -> Checkpoint {
    let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let stored = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        let (dtype, shape, bytes) = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
        (name, Stored { dtype, shape, bytes })
    };
    file.tensors().into_iter().map(stored).collect()
}

fn config(dir: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(dir.join("config.json")).unwrap()).unwrap()
}

/// Code number `place` of a row of words: its bits lie end to end, lowest first.
fn code(row: &[u8], bits: usize, place: usize) -> u32 {
    let bit = |at: usize| u32::from(row[at / 8] >> (at % 8) & 1);
    (0..bits).map(|i| bit(place * bits + i) << i).sum()
}

/// scale * code + bias, picked bit by bit, in f64 and rounded once: the product is exact in f32.
fn unpacked(all: &Checkpoint, module: &str, packing: Affine) -> Vec<f32> {
    let part = |name: &str| &all[&format!("{module}.{name}")];
    let numbers = |stored: &Stored| -> Vec<f64> {
        stored.bytes.chunks(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f64()).collect()
    };
    let (words, scales, biases) = (part("weight"), numbers(part("scales")), numbers(part("biases")));
    let bits = packing.bits as usize;
    let row_bytes = words.shape.last().unwrap() * 4;
    let columns = row_bytes * 8 / bits;
    let groups = columns / packing.group;
    let value = |row: usize, column: usize| {
        let at = row * groups + column / packing.group;
        let code = code(&words.bytes[row * row_bytes..][..row_bytes], bits, column);
        (scales[at] * f64::from(code) + biases[at]) as f32
    };
    let rows = words.bytes.len() / row_bytes;
    (0..rows).flat_map(|row| (0..columns).map(move |column| value(row, column))).collect()
}

#[rstest]
fn what_is_held_is_scale_times_code_plus_bias_bit_for_bit(#[values(2, 3, 4, 5, 6, 8)] bits: u32) {
    let dir = build(bits);
    let dir = dir.path().join("build");
    let all = tensors(&dir);
    let mut held = BTreeMap::new();
    let port = Port::load(&dir, Precision::F32).unwrap();
    port.tensors(&mut |name, values| {
        held.insert(name.to_owned(), values.to_vec());
        Ok(())
    })
    .unwrap();
    let of = |group| Affine { bits, group };
    assert_eq!(held[&format!("{O_PROJ}.weight")], unpacked(&all, O_PROJ, of(64)));
    assert_eq!(held["lm_head.weight"], unpacked(&all, "lm_head", of(32)));
    // experts lie in one stack, in order of their ids
    let stack = unpacked(&all, "model.layers.3.mlp.switch_mlp.down_proj", of(32));
    let experts =
        (0..32).map(|expert| &held[&format!("model.layers.3.mlp.experts.{expert}.down_proj.weight")]);
    assert_eq!(experts.flatten().copied().collect::<Vec<f32>>(), stack);
}

#[rstest]
fn products_in_either_precision_are_those_of_the_unpacked_values(
    #[values(3, 4, 8)] bits: u32,
    #[values(Dtype::Float32, Dtype::Bfloat16)] dtype: Dtype,
    #[values(true, false)] sorted: bool,
) {
    let (experts, out, columns, rows) = (5, 32, 256, 70);
    let mut random = Random(9);
    let matrices = Array::from_slice(&random.numbers(experts * out * columns), &[5, 32, 256]);
    let (words, scales, biases) = mlx_rs::ops::quantize(&matrices, 64, bits.cast_signed()).unwrap();
    let stack = Weight::Packed(Packed { words, scales, biases, packing: Affine { bits, group: 64 } });
    let dense = values::<f32>(&stack.dense().unwrap()).unwrap();
    let x = Array::from_slice(&random.numbers(rows * columns), &[dim(rows), 1, dim(columns)]);
    let x = x.as_dtype(dtype).unwrap();
    let mut ids: Vec<u32> = (0..rows).map(|row| (row * 7 % experts) as u32).collect();
    if sorted {
        ids.sort_unstable();
    }
    let found = port::Correct.expert_product(&x, &stack, &Array::from_slice(&ids, &[dim(rows)]), sorted);
    let found = values::<f32>(&found.unwrap().as_dtype(Dtype::Float32).unwrap()).unwrap();
    let x = values::<f32>(&x.as_dtype(Dtype::Float32).unwrap()).unwrap();
    let expected: Vec<f64> = (0..rows)
        .flat_map(|row| (0..out).map(move |column| (row, column)))
        .map(|(row, column)| {
            let weight = &dense[(ids[row] as usize * out + column) * columns..][..columns];
            weight.iter().zip(&x[row * columns..]).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()
        })
        .collect();
    // f32 sums of 256 terms; in bf16 one rounding of each sum, 2^-9 at most
    let limit = if dtype == Dtype::Float32 { 1e-6 } else { 2e-3 };
    let error = relative_l2(&found, &expected);
    assert!(error <= limit, "{error:e}");
}

#[test]
fn token_by_token_a_build_says_what_it_says_in_one_call() {
    let dir = build(4);
    let port = Port::load(&dir.path().join("build"), Precision::F32).unwrap();
    let case = kjv_text(60);
    // 60 tokens of 4 experts are gathered sorted, one token is not
    let (_, whole) = forward(&port, run(&case, Schedule::chunks_of(60), Routing::Free, Precision::F32));
    let schedule = Schedule::chunks_of(20).decoding_from(20);
    let (_, single) = forward(&port, run(&case, schedule, Routing::Free, Precision::F32));
    let expected = support::wide(whole.outer(Site::Logits));
    let error = relative_l2(single.outer(Site::Logits), &expected);
    assert!(error <= 1e-5, "{error:e}");
}

#[test]
fn router_bias_and_norms_are_never_packed_and_a_matrix_can_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("build");
    let policy = Policy { bits: 4, group: None, embedding: None, head: Some(8) };
    let kinds = convert(&fixtures().join("kolibri-tiny-kjv"), policy, &out, &|_| {}).unwrap();
    let packed = |module: &str| kinds.iter().find(|kind| kind.module == module).unwrap().packed;
    assert_eq!(packed("model.layers.*.mlp.gate"), None);
    assert_eq!(packed("model.layers.*.moe.router.expert_bias"), None);
    assert_eq!(packed("model.layers.*.post_ffn_norm"), None);
    assert_eq!(packed("model.embed_tokens"), None);
    assert_eq!(packed("lm_head"), Some((8, 32)));
    assert_eq!(packed("model.layers.*.mlp.experts.*.up_proj"), Some((4, 32)));
    // what is kept is what it was
    let (before, after) = (tensors(&fixtures().join("kolibri-tiny-kjv")), tensors(&out));
    for name in ["model.embed_tokens.weight", "model.layers.2.mlp.gate.weight", "model.norm.weight"] {
        assert_eq!(before[name].bytes, after[name].bytes, "{name}");
    }
    let block = &config(&out)["quantization"];
    assert_eq!(
        (&block["bits"], &block["group_size"], &block["mode"]),
        (&json!(4), &json!(32), &json!("affine"))
    );
    assert_eq!(block["lm_head"]["bits"], 8);
    assert_eq!(block, &config(&out)["quantization_config"]);
}

/// A change of a build's tensors and of the block in its config.
type Change = fn(&mut Checkpoint, &mut Value);

#[rstest]
#[case::narrow(
    |all: &mut Checkpoint, _: &mut Value|
        { all.get_mut("lm_head.weight").unwrap().shape = vec![512, 12]; },
    "lm_head.weight", "[256, 24]", "[512, 12]")]
#[case::other_bits(
    |_: &mut Checkpoint, block: &mut Value|
        block["lm_head"] = json!({"bits": 4, "group_size": 32}),
    "lm_head.weight", "[256, 12]", "[256, 24]")]
#[case::no_scales(
    |all: &mut Checkpoint, _: &mut Value|
        { all.remove("model.layers.0.self_attn.o_proj.scales"); },
    "o_proj.scales", "[96, 2]", "no such tensor")]
#[case::no_biases(
    |all: &mut Checkpoint, _: &mut Value|
        { all.remove("model.layers.0.mlp.switch_mlp.up_proj.biases"); },
    "switch_mlp.up_proj.biases", "[32, 32, 3]", "no such tensor")]
#[case::few_scales(
    |all: &mut Checkpoint, _: &mut Value|
        {
        all.insert("lm_head.scales".into(), Stored::bf16(&[256, 2], &[0.5; 512]));
    },
    "lm_head.scales", "[256, 3]", "[256, 2]")]
#[case::nan(
    |all: &mut Checkpoint, _: &mut Value|
        {
        let mut values = vec![0.5; 768];
        values[41] = f32::NAN;
        all.insert("lm_head.scales".into(), Stored::bf16(&[256, 3], &values));
    }, "lm_head.scales", "finite", "NaN at index 41")]
#[case::group(
    |_: &mut Checkpoint, block: &mut Value|
        block["lm_head"] = json!({"bits": 8, "group_size": 64}),
    "lm_head.weight", "divides rows of 96", "groups of 64")]
#[case::no_kernel(
    |_: &mut Checkpoint, block: &mut Value|
        block["lm_head"] = json!({"bits": 7, "group_size": 32}),
    "lm_head.weight", "MLX can multiply", "7 bits")]
#[case::not_packed_it_says(
    |_: &mut Checkpoint, block: &mut Value|
        block["lm_head"] = json!(false),
    "lm_head.weight", "`quantization` block", "says it is not")]
#[case::words_for_numbers(
    |all: &mut Checkpoint, _: &mut Value|
        {
        let bytes = vec![0; 96 * 4];
        all.insert("model.norm.weight".into(), Stored { dtype: Stored32::U32, shape: vec![96], bytes });
    }, "model.norm.weight", "BF16, F16 or F32", "U32")]
fn a_build_that_is_not_whole_is_refused(
    #[case] change: Change,
    #[case] name: &str,
    #[case] expected: &str,
    #[case] found: &str,
) {
    let dir = build(8);
    let dir = dir.path().join("build");
    let (mut all, mut config) = (tensors(&dir), config(&dir));
    change(&mut all, &mut config["quantization"]);
    config["quantization_config"] = config["quantization"].clone();
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    std::fs::remove_file(dir.join("model.safetensors.index.json")).unwrap();
    write_file(&dir.join("model.safetensors"), &all);
    let error = Port::load(&dir, Precision::F32).err().expect("a refusal");
    assert!(matches!(error, Error::Tensor { .. }), "{error}");
    let words = error.to_string();
    assert!(words.contains(name) && words.contains(expected) && words.contains(found), "{words}");
}

#[rstest]
#[case::bits(Policy { bits: 7, ..POLICY }, "--bits", "[2, 3, 4, 5, 6, 8]", "7")]
#[case::group(Policy { group: Some(48), ..POLICY }, "--group", "[32, 64, 128]", "48")]
#[case::group_of_a_row(Policy { group: Some(64), ..POLICY }, "--group 64", "divides the rows", "rows of 32")]
#[case::head(Policy { head: Some(1), ..POLICY }, "--head", "[2, 3, 4, 5, 6, 8]", "1")]
fn a_packing_that_mlx_has_not_is_refused_and_leaves_nothing(
    #[case] policy: Policy,
    #[case] what: &str,
    #[case] expected: &str,
    #[case] found: &str,
) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("build");
    let error = convert(&fixtures().join("kolibri-tiny-kjv"), policy, &out, &|_| {}).unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, Error::Argument { .. }), "{words}");
    assert!(words.contains(what) && words.contains(expected) && words.contains(found), "{words}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

const POLICY: Policy = Policy { bits: 8, group: None, embedding: None, head: None };

#[test]
fn a_build_is_not_packed_again() {
    let dir = build(4);
    let error = convert(&dir.path().join("build"), POLICY, &dir.path().join("again"), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("expected a checkpoint that is not packed"), "{error}");
}

#[test]
fn rows_of_a_packed_table_are_rows_of_its_values() {
    let table = Array::from_slice(&Random(3).numbers(20 * 64), &[20, 64]);
    let (words, scales, biases) = mlx_rs::ops::quantize(&table, 32, 4).unwrap();
    let packed = Weight::Packed(Packed { words, scales, biases, packing: Affine { bits: 4, group: 32 } });
    let dense = Array2::from_shape_vec((20, 64), values::<f32>(&packed.dense().unwrap()).unwrap()).unwrap();
    let ids = [7_u32, 0, 19, 7];
    let rows = values::<f32>(&packed.rows(&Array::from_slice(&ids, &[2, 2])).unwrap()).unwrap();
    let expected: Vec<f32> = ids.iter().flat_map(|&id| dense.row(id as usize).to_vec()).collect();
    assert_eq!(rows, expected);
}
