//! Numbers of packed, FP8 and stacked checkpoints that are not finite: refused when they are read, found by
//! the scan, each under the name and index that it has in the files.

mod support;

use rstest::rstest;
use safetensors::Dtype;
use spec::side::Nothing;
use spec::{Error, Precision, Result, Side};
use std::path::Path;
use support::damage::{Kind, damaged, named, sound};
use support::{Tensor, folder, free, open, random_case, write_shard};

const UP: &str = "model.layers.1.mlp.experts.4.up_proj";
const STACK: &str = "model.layers.1.mlp.switch_mlp.up_proj";

fn read_all(dir: &Path) -> Result<()> {
    open(dir).tensors(&mut |_, _| Ok(()))
}

/// Name and words of a refused value.
fn words(error: &Error) -> (&str, &str) {
    let Error::Tensor { name, expected, found, .. } = error else { panic!("{error}") };
    assert_eq!(expected, "finite values");
    (name, found)
}

fn assert_found(dir: &Path, tensor: &str, found: &str) {
    assert_eq!(words(&read_all(dir).unwrap_err()), (tensor, found));
    let scan = reference::scan(dir, &|_| {}).unwrap();
    let [bad] = scan.not_finite.as_slice() else { panic!("{scan:?}") };
    assert_eq!((bad.tensor.as_str(), bad.found.as_str()), (tensor, found));
}

// of an expert 32 x 32, in groups of 16: [2, 1] is number 5; in blocks of 16 x 8: [1, 2] is number 6
#[rstest]
#[case::scale(Kind::Affine, UP, "scales", 5, f32::NAN, "NaN at [2, 1]")]
#[case::scale_that_meets_code_0(Kind::Affine, UP, "scales", 5, f32::INFINITY, "infinity at [2, 1]")]
#[case::bias(Kind::Affine, UP, "biases", 5, f32::NEG_INFINITY, "-infinity at [2, 1]")]
#[case::embedding(Kind::Affine, "model.embed_tokens", "biases", 37, f32::NAN, "NaN at [18, 1]")]
#[case::stacked_scale(Kind::AffineStacked, STACK, "scales", 4 * 64 + 5, f32::NAN, "NaN at [4, 2, 1]")]
#[case::stacked_bias(Kind::AffineStacked, STACK, "biases", 0, f32::INFINITY, "infinity at [0, 0, 0]")]
#[case::fp8_scale(Kind::Fp8, UP, "weight_scale_inv", 6, f32::NAN, "NaN at [1, 2]")]
#[case::infinite_fp8_scale(Kind::Fp8, UP, "weight_scale_inv", 6, f32::INFINITY, "infinity at [1, 2]")]
fn a_number_that_is_not_finite_is_refused(
    #[case] kind: Kind,
    #[case] module: &str,
    #[case] tail: &str,
    #[case] flat: usize,
    #[case] value: f32,
    #[case] found: &str,
) {
    let (config, mut tensors) = sound(kind);
    named(&mut tensors, module, tail).set(flat, value);
    let dir = folder(&config.to_string());
    write_shard(dir.path(), "model.safetensors", &tensors);
    assert_found(dir.path(), &format!("{module}.{tail}"), found);
}

#[rstest]
#[case::positive(0x7f)]
#[case::negative(0xff)]
fn an_fp8_code_that_is_nan_is_refused(#[case] code: u8) {
    let (config, mut tensors) = sound(Kind::Fp8);
    named(&mut tensors, UP, "weight").bytes[31 * 32 + 7] = code;
    let dir = folder(&config.to_string());
    write_shard(dir.path(), "model.safetensors", &tensors);
    assert_found(dir.path(), &format!("{UP}.weight"), "NaN at [31, 7]");
}

#[test]
fn a_stacked_value_has_the_index_of_its_stack() {
    let (config, tensors) = sound(Kind::Plain);
    let mut tensors = support::pack::stacked(&tensors);
    named(&mut tensors, STACK, "weight").set((4 * 32 + 2) * 32 + 7, f32::NAN);
    let dir = folder(&config.to_string());
    write_shard(dir.path(), "model.safetensors", &tensors);
    assert_found(dir.path(), &format!("{STACK}.weight"), "NaN at [4, 2, 7]");
}

#[test]
fn finite_numbers_whose_value_overflows_are_refused_at_the_weight() {
    let dir = damaged(Kind::Affine, |_, tensors| {
        let [scales, biases] = ["scales", "biases"].map(|tail| {
            let values = [if tail == "scales" { 3e38 } else { 0.0 }; 64];
            Tensor::new(&format!("{UP}.{tail}"), &[32, 2], Dtype::F32, &values)
        });
        *named(tensors, UP, "scales") = scales;
        *named(tensors, UP, "biases") = biases;
        // all codes 0 but one of 2, the second of row 3: bits 3 to 5 of the row's first word
        let weight = named(tensors, UP, "weight");
        weight.bytes.fill(0);
        weight.bytes[3 * 12] = 2 << 3;
    });
    assert_eq!(
        words(&read_all(dir.path()).unwrap_err()),
        (format!("{UP}.weight").as_str(), "infinity at [3, 1]")
    );
    assert_eq!(reference::scan(dir.path(), &|_| {}).unwrap().not_finite, []);
}

#[test]
fn a_bad_scale_of_the_embedding_is_refused_only_where_its_row_is_read() {
    let case = random_case(6, 19, 3);
    let used = case.tokens[2].index();
    let unused = (0..19).find(|&id| case.tokens.iter().all(|token| token.index() != id)).unwrap();
    for (row, refused) in [(used, true), (unused, false)] {
        let (config, mut tensors) = sound(Kind::Affine);
        named(&mut tensors, "model.embed_tokens", "scales").set(row * 2 + 1, f32::NAN);
        let dir = folder(&config.to_string());
        write_shard(dir.path(), "model.safetensors", &tensors);
        let done = open(dir.path()).forward(&[free(&case, Precision::F32)], &mut Nothing);
        assert_eq!(done.is_err(), refused);
        if let Err(error) = done {
            let found = format!("NaN at [{row}, 1]");
            assert_eq!(words(&error), ("model.embed_tokens.scales", found.as_str()));
        }
    }
}
