//! Packed, FP8 and stacked tensors that are not sound are refused, each in its own words, by opening and by
//! the survey.

mod support;

use reference::{Options, ProblemKind, Reference, survey};
use rstest::rstest;
use safetensors::Dtype;
use serde_json::{Value, json};
use spec::{Error, Side};
use std::path::Path;
use support::damage::{Edit, Kind, damaged, named, sound};
use support::{Tensor, folder, open, write_index, write_shard};

const UP: &str = "model.layers.1.mlp.experts.4.up_proj";
const STACK: &str = "model.layers.1.mlp.switch_mlp.up_proj";
const O: &str = "model.layers.1.self_attn.o_proj";
const NORM: &str = "model.layers.1.input_layernorm";

fn remove(tensors: &mut Vec<Tensor>, module: &str, tail: &str) {
    let count = tensors.len();
    tensors.retain(|tensor| tensor.name != format!("{module}.{tail}"));
    assert_eq!(tensors.len(), count - 1);
}

fn add(tensors: &mut Vec<Tensor>, name: &str, shape: &[usize], dtype: Dtype) {
    let values = vec![0.5; shape.iter().product()];
    tensors.push(Tensor::new(name, shape, dtype, &values));
}

/// A tensor of the same bytes in another dtype of that size.
fn as_bf16_of_its_bytes(tensor: &mut Tensor) {
    tensor.dtype = Dtype::BF16;
    *tensor.shape.last_mut().unwrap() *= 2;
}

#[rstest]
fn what_the_cases_damage_is_sound(
    #[values(Kind::Affine, Kind::AffineStacked, Kind::Fp8, Kind::Plain)] kind: Kind,
) {
    let dir = damaged(kind, |_, _| {});
    assert_eq!(survey(dir.path()).unwrap().problems, []);
    open(dir.path()).tensors(&mut |_, _| Ok(())).unwrap();
}

/// Opening refuses with the only problem of the survey.
fn assert_refused(dir: &Path, kind: ProblemKind, tensor: &str, words: [&str; 2]) {
    let problems = survey(dir).unwrap().problems;
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    let error = Reference::open(dir, Options { threads: Some(1) }).err().expect("it does not open");
    assert_eq!(Error::from(problem.clone()).to_string(), error.to_string());
    let Error::Tensor { name, expected, found, .. } = &error else { panic!("{error}") };
    assert_eq!((name.as_str(), [expected.as_str(), found.as_str()]), (tensor, words));
    assert_eq!(problem.kind, kind);
}

#[rstest]
#[case::width(
    |_: &mut Value, t: &mut Vec<Tensor>| {
        let weight = named(t, UP, "weight");
        (weight.shape, weight.bytes) = (vec![32, 4], vec![0; 32 * 4 * 4]);
    },
    ProblemKind::Shape, "weight", ["shape [32, 3] (32 columns of 3 bits in 32-bit words)", "[32, 4]"]
)]
#[case::unpacked_width(
    |_: &mut Value, t: &mut Vec<Tensor>| {
        let weight = named(t, UP, "weight");
        (weight.shape, weight.bytes) = (vec![32, 32], vec![0; 32 * 32 * 4]);
    },
    ProblemKind::Shape, "weight", ["shape [32, 3] (32 columns of 3 bits in 32-bit words)", "[32, 32]"]
)]
#[case::other_bits(
    |c: &mut Value, _: &mut Vec<Tensor>| {
        c["quantization"][UP] = json!({ "bits": 6, "group_size": 16 });
    },
    ProblemKind::Shape, "weight", ["shape [32, 6] (32 columns of 6 bits in 32-bit words)", "[32, 3]"]
)]
#[case::group(
    |c: &mut Value, _: &mut Vec<Tensor>| {
        c["quantization"][UP] = json!({ "bits": 3, "group_size": 24 });
    },
    ProblemKind::Packing, "weight", ["a group size that divides the row of 32 values", "groups of 24"]
)]
#[case::the_module_is_said_to_be_plain(
    |c: &mut Value, _: &mut Vec<Tensor>| c["quantization"][UP] = false.into(),
    ProblemKind::Packing, "weight",
    [
        "BF16, F16 or F32 values, as config.json has no `quantization` for \
         `model.layers.1.mlp.experts.4.up_proj`",
        "U32 codes",
    ]
)]
#[case::plain_weight_beside_scales(
    |_: &mut Value, t: &mut Vec<Tensor>| as_bf16_of_its_bytes(named(t, UP, "weight")),
    ProblemKind::Dtype, "weight",
    ["U32 codes, as `model.layers.1.mlp.experts.4.up_proj.scales` is there", "BF16"]
)]
#[case::integers_that_are_no_codes(
    |_: &mut Value, t: &mut Vec<Tensor>| {
        remove(t, UP, "scales");
        remove(t, UP, "biases");
        let weight = named(t, UP, "weight");
        (weight.dtype, weight.shape, weight.bytes) = (Dtype::I32, vec![32, 32], vec![0; 32 * 32 * 4]);
    },
    ProblemKind::Dtype, "weight", ["BF16, F16 or F32 values, U32 codes or F8_E4M3", "I32"]
)]
fn codes_that_are_not_what_the_config_says_are_refused(
    #[case] edit: Edit,
    #[case] kind: ProblemKind,
    #[case] tail: &str,
    #[case] words: [&str; 2],
) {
    assert_refused(damaged(Kind::Affine, edit).path(), kind, &format!("{UP}.{tail}"), words);
}

#[rstest]
#[case::no_scales(
    |_: &mut Value, t: &mut Vec<Tensor>| remove(t, UP, "scales"),
    ProblemKind::Missing, "scales", ["a tensor of shape [32, 2] (groups of 16 values)", "no such tensor"]
)]
#[case::no_biases(
    |_: &mut Value, t: &mut Vec<Tensor>| remove(t, UP, "biases"),
    ProblemKind::Missing, "biases", ["a tensor of shape [32, 2] (groups of 16 values)", "no such tensor"]
)]
#[case::transposed_scales(
    |_: &mut Value, t: &mut Vec<Tensor>| named(t, UP, "scales").shape = vec![2, 32],
    ProblemKind::Shape, "scales", ["shape [32, 2] (groups of 16 values)", "[2, 32]"]
)]
#[case::flat_biases(
    |_: &mut Value, t: &mut Vec<Tensor>| named(t, UP, "biases").shape = vec![64],
    ProblemKind::Shape, "biases", ["shape [32, 2] (groups of 16 values)", "[64]"]
)]
#[case::scales_of_integers(
    |_: &mut Value, t: &mut Vec<Tensor>| named(t, UP, "scales").dtype = Dtype::I16,
    ProblemKind::Dtype, "scales", ["BF16, F16 or F32", "I16"]
)]
#[case::biases_of_integers(
    |_: &mut Value, t: &mut Vec<Tensor>| named(t, UP, "biases").dtype = Dtype::U16,
    ProblemKind::Dtype, "biases", ["BF16, F16 or F32", "U16"]
)]
fn wrong_scales_and_biases_are_refused(
    #[case] edit: Edit,
    #[case] kind: ProblemKind,
    #[case] tail: &str,
    #[case] words: [&str; 2],
) {
    assert_refused(damaged(Kind::Affine, edit).path(), kind, &format!("{UP}.{tail}"), words);
}

#[test]
fn rows_of_a_fraction_of_a_word_are_refused() {
    let dir = damaged(Kind::Affine, |c, _| c["quantization"][O] = json!({ "bits": 3, "group_size": 8 }));
    let words = ["rows of whole 32-bit words", "24 columns of 3 bits, 72 bits"];
    assert_refused(dir.path(), ProblemKind::Packing, &format!("{O}.weight"), words);
}

#[test]
fn packed_matrices_without_a_block_in_the_config_are_all_refused() {
    let dir = damaged(Kind::Affine, |config, _| config["quantization"] = Value::Null);
    let problems = survey(dir.path()).unwrap().problems;
    // embedding, head, and of each of 3 layers 4 projections, router, 8 experts of 3 matrices
    assert_eq!(problems.len(), 2 + 3 * (4 + 1 + 8 * 3));
    assert!(problems.iter().all(|problem| problem.kind == ProblemKind::Packing), "{problems:?}");
    let error = Error::from(problems[0].clone()).to_string();
    let words = "no `quantization` for `model.embed_tokens`, found U32 codes";
    assert!(error.contains(words), "{error}");
}

#[rstest]
#[case::no_weight(
    Kind::Affine, |_: &mut Value, t: &mut Vec<Tensor>| remove(t, UP, "weight"),
    ProblemKind::Missing, "model.layers.1.mlp.experts.4.up_proj.weight",
    ["a tensor of shape [32, 32]", "no such tensor"]
)]
#[case::no_weight_of_a_stack(
    Kind::AffineStacked, |_: &mut Value, t: &mut Vec<Tensor>| remove(t, STACK, "weight"),
    ProblemKind::Missing, "model.layers.1.mlp.switch_mlp.up_proj.weight",
    ["a tensor of shape [7, 32, 32]", "no such tensor"]
)]
#[case::no_scales(
    Kind::AffineStacked, |_: &mut Value, t: &mut Vec<Tensor>| remove(t, STACK, "scales"),
    ProblemKind::Missing, "model.layers.1.mlp.switch_mlp.up_proj.scales",
    ["a tensor of shape [7, 32, 2] (groups of 16 values)", "no such tensor"]
)]
#[case::the_shape_of_one_expert(
    Kind::AffineStacked, |_: &mut Value, t: &mut Vec<Tensor>| {
        let weight = named(t, STACK, "weight");
        (weight.shape, weight.bytes) = (vec![32, 3], vec![0; 32 * 3 * 4]);
    },
    ProblemKind::Shape, "model.layers.1.mlp.switch_mlp.up_proj.weight",
    ["shape [7, 32, 3] (32 columns of 3 bits in 32-bit words)", "[32, 3]"]
)]
#[case::one_expert_too_many(
    Kind::AffineStacked, |_: &mut Value, t: &mut Vec<Tensor>| {
        let weight = named(t, STACK, "weight");
        (weight.shape, weight.bytes) = (vec![8, 32, 3], vec![0; 8 * 32 * 3 * 4]);
    },
    ProblemKind::Shape, "model.layers.1.mlp.switch_mlp.up_proj.weight",
    ["shape [7, 32, 3] (32 columns of 3 bits in 32-bit words)", "[8, 32, 3]"]
)]
#[case::other_bits(
    Kind::AffineStacked, |c: &mut Value, _: &mut Vec<Tensor>| {
        c["quantization"][STACK] = json!({ "bits": 8, "group_size": 16 });
    },
    ProblemKind::Shape, "model.layers.1.mlp.switch_mlp.up_proj.weight",
    ["shape [7, 32, 8] (32 columns of 8 bits in 32-bit words)", "[7, 32, 3]"]
)]
fn a_wrong_stack_is_refused_once(
    #[case] sound: Kind,
    #[case] edit: Edit,
    #[case] kind: ProblemKind,
    #[case] tensor: &str,
    #[case] words: [&str; 2],
) {
    assert_refused(damaged(sound, edit).path(), kind, tensor, words);
}

#[rstest]
#[case::a_stack_beside_one_tensor_each(
    Kind::Plain, |_: &mut Value, t: &mut Vec<Tensor>| {
        add(t, "model.layers.1.mlp.switch_mlp.up_proj.weight", &[7, 32, 32], Dtype::BF16);
    },
    ProblemKind::Extra, "model.layers.1.mlp.switch_mlp.up_proj.weight",
    ["only the tensors of docs/kolibri-1.md (K3, K4)", "an extra one, BF16 [7, 32, 32]"]
)]
#[case::one_tensor_beside_a_stack(
    Kind::AffineStacked, |_: &mut Value, t: &mut Vec<Tensor>| {
        add(t, "model.layers.1.mlp.experts.4.up_proj.weight", &[32, 32], Dtype::BF16);
    },
    ProblemKind::Extra, "model.layers.1.mlp.experts.4.up_proj.weight",
    ["only the tensors of docs/kolibri-1.md (K3, K4)", "an extra one, BF16 [32, 32]"]
)]
#[case::scales_of_a_norm(
    Kind::Affine, |_: &mut Value, t: &mut Vec<Tensor>| {
        add(t, "model.layers.1.input_layernorm.scales", &[2], Dtype::BF16);
    },
    ProblemKind::Extra, "model.layers.1.input_layernorm.scales",
    ["only the tensors of docs/kolibri-1.md (K3, K4)", "an extra one, BF16 [2]"]
)]
#[case::an_fp8_scale_beside_a_plain_matrix(
    Kind::Plain, |_: &mut Value, t: &mut Vec<Tensor>| {
        add(t, "model.layers.1.self_attn.o_proj.weight_scale_inv", &[1, 1], Dtype::F32);
    },
    ProblemKind::Extra, "model.layers.1.self_attn.o_proj.weight_scale_inv",
    ["only the tensors of docs/kolibri-1.md (K3, K4)", "an extra one, F32 [1, 1]"]
)]
fn a_tensor_that_no_matrix_needs_is_refused(
    #[case] sound: Kind,
    #[case] edit: Edit,
    #[case] kind: ProblemKind,
    #[case] tensor: &str,
    #[case] words: [&str; 2],
) {
    assert_refused(damaged(sound, edit).path(), kind, tensor, words);
}

#[rstest]
#[case::no_scale(
    |_: &mut Value, t: &mut Vec<Tensor>| remove(t, UP, "weight_scale_inv"),
    ProblemKind::Missing, "weight_scale_inv",
    ["a tensor of shape [2, 4] (blocks of 16 x 8)", "no such tensor"]
)]
#[case::transposed_grid(
    |_: &mut Value, t: &mut Vec<Tensor>| named(t, UP, "weight_scale_inv").shape = vec![4, 2],
    ProblemKind::Shape, "weight_scale_inv", ["shape [2, 4] (blocks of 16 x 8)", "[4, 2]"]
)]
#[case::bf16_scale(
    |_: &mut Value, t: &mut Vec<Tensor>| {
        remove(t, UP, "weight_scale_inv");
        add(t, "model.layers.1.mlp.experts.4.up_proj.weight_scale_inv", &[2, 4], Dtype::BF16);
    },
    ProblemKind::Dtype, "weight_scale_inv", ["F32", "BF16"]
)]
#[case::shape(
    |_: &mut Value, t: &mut Vec<Tensor>| named(t, UP, "weight").shape = vec![16, 64],
    ProblemKind::Shape, "weight", ["shape [32, 32]", "[16, 64]"]
)]
#[case::another_fp8(
    |_: &mut Value, t: &mut Vec<Tensor>| {
        remove(t, UP, "weight_scale_inv");
        named(t, UP, "weight").dtype = Dtype::F8_E5M2;
    },
    ProblemKind::Dtype, "weight", ["BF16, F16 or F32 values, U32 codes or F8_E4M3", "F8_E5M2"]
)]
fn a_wrong_fp8_matrix_is_refused(
    #[case] edit: Edit,
    #[case] kind: ProblemKind,
    #[case] tail: &str,
    #[case] words: [&str; 2],
) {
    assert_refused(damaged(Kind::Fp8, edit).path(), kind, &format!("{UP}.{tail}"), words);
}

#[test]
fn grids_of_another_block_size_are_all_refused() {
    let dir = damaged(Kind::Fp8, |c, _| c["quantization_config"]["weight_block_size"] = json!([8, 16]));
    let problems = survey(dir.path()).unwrap().problems;
    let problem = problems.iter().find(|p| p.tensor == Some(format!("{UP}.weight_scale_inv"))).unwrap();
    assert_eq!([&*problem.expected, &*problem.found], ["shape [4, 2] (blocks of 8 x 16)", "[2, 4]"]);
}

#[rstest]
#[case::codes(true)]
#[case::scales_and_biases(false)]
fn what_may_be_in_a_missing_shard_is_neither_missing_nor_extra(
    #[values(Kind::Affine, Kind::AffineStacked, Kind::Fp8)] kind: Kind,
    #[case] codes: bool,
) {
    let (config, tensors) = sound(kind);
    let dir = folder(&config.to_string());
    let is_code = |t: &&Tensor| matches!(t.dtype, Dtype::U32 | Dtype::F8_E4M3);
    let (kept, lost): (Vec<&Tensor>, Vec<_>) = tensors.iter().partition(|t| is_code(t) != codes);
    write_shard(dir.path(), "a.safetensors", &kept.iter().map(|&t| t.clone()).collect::<Vec<_>>());
    let places = kept.iter().map(|t| (&*t.name, "a.safetensors"));
    let places = places.chain(lost.iter().map(|t| (&*t.name, "b.safetensors")));
    write_index(dir.path(), &places.collect::<Vec<_>>());
    let problems = survey(dir.path()).unwrap().problems;
    assert_eq!(problems.iter().map(|p| p.kind).collect::<Vec<_>>(), [ProblemKind::File], "{problems:?}");
}

#[rstest]
#[case::u32(Dtype::U32, 4)]
#[case::fp8(Dtype::F8_E4M3, 1)]
fn a_norm_is_neither_packed_nor_fp8(#[case] dtype: Dtype, #[case] size: usize) {
    let (config, mut tensors) = sound(Kind::Affine);
    let norm = named(&mut tensors, NORM, "weight");
    (norm.dtype, norm.bytes) = (dtype, vec![0; 32 * size]);
    let dir = folder(&config.to_string());
    write_shard(dir.path(), "model.safetensors", &tensors);
    let words = ["BF16, F16 or F32", &*dtype.to_string()];
    assert_refused(dir.path(), ProblemKind::Dtype, &format!("{NORM}.weight"), words);
}
