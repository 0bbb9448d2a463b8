//! Edited checkpoints: what is written anew, what is a link, and what the loaders make of it.
mod support;

use half::{bf16, f16};
use mutants::edit::{Edit, Narrow, apply};
use rstest::rstest;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use spec::{Error, LayerId, Precision, Side};
use std::collections::BTreeSet;
use support::edited::{Edited, INDEX, SHARDS, Tensors, original, read};
use support::{Feed, checkpoint, config, moved, port};

/// Files that are written when these shards, or the single file, and the index (if there is one) change.
fn files(sharded: bool, shards: &[usize], index: bool) -> BTreeSet<String> {
    if !sharded {
        return BTreeSet::from(["model.safetensors".to_owned()]);
    }
    shards.iter().map(|&shard| SHARDS[shard].into()).chain(index.then(|| INDEX.into())).collect()
}

const Q0: &str = "model.layers.0.self_attn.q_proj.weight";
const Q1: &str = "model.layers.1.self_attn.q_proj.weight";
const Q7: &str = "model.layers.7.self_attn.q_proj.weight";

#[rstest]
fn nothing_edited_is_all_links_and_the_same_model(#[values(false, true)] sharded: bool) {
    let same = Edited::new(sharded, &[]);
    assert_eq!(same.written(), BTreeSet::new());
    let right = port(Precision::F32);
    let feed = Feed::of(&right, Precision::F32, &[0, 9]);
    assert!(moved(&feed.rows(&right), &feed.rows(&same.port().unwrap())).is_empty());
    same.reference().unwrap();
}

#[rstest]
fn a_removed_tensor_is_missing(#[values(false, true)] sharded: bool) {
    let edited = Edited::new(sharded, &[Edit::Remove(Q7.into())]);
    assert_eq!(edited.written(), files(sharded, &[1], true));
    let mut expected = read(&edited.from);
    let bytes = expected.remove(Q7).unwrap().2.len() as u64;
    assert!(read(edited.to.path()) == expected);
    if sharded {
        let (index, total) = (edited.index(), read(&edited.from).values().map(|t| t.2.len()).sum::<usize>());
        assert_eq!(index["metadata"]["total_size"], total as u64 - bytes);
        assert_eq!(index["weight_map"].as_object().unwrap().len(), expected.len());
    }
}

#[rstest]
fn an_added_tensor_is_of_zeros(#[values(false, true)] sharded: bool) {
    let name = "model.layers.3.extra".to_owned();
    let edited = Edited::new(sharded, &[Edit::Add { name: name.clone(), shape: vec![2, 3] }]);
    assert_eq!(edited.written(), files(sharded, &[0], true));
    let mut expected = read(&edited.from);
    expected.insert(name.clone(), (Dtype::BF16, vec![2, 3], vec![0; 12]));
    assert!(read(edited.to.path()) == expected);
    if sharded {
        assert_eq!(edited.index()["weight_map"][name], SHARDS[0]);
    }
}

#[rstest]
fn swapped_dimensions_keep_the_bytes(#[values(false, true)] sharded: bool) {
    let edited = Edited::new(sharded, &[Edit::SwapDims(Q0.into())]);
    assert_eq!(edited.written(), files(sharded, &[0], false));
    let mut expected = read(&edited.from);
    let tensor = expected.get_mut(Q0).unwrap();
    assert_eq!(tensor.1, [128, 96]);
    tensor.1 = vec![96, 128];
    assert!(read(edited.to.path()) == expected);
}

#[rstest]
fn a_zeroed_tensor_is_zero(#[values(false, true)] sharded: bool) {
    let edited = Edited::new(sharded, &[Edit::Zero(Q7.into())]);
    assert_eq!(edited.written(), files(sharded, &[1], false));
    let mut expected = read(&edited.from);
    expected.get_mut(Q7).unwrap().2.fill(0);
    assert!(read(edited.to.path()) == expected);
    edited.port().unwrap();
    edited.reference().unwrap();
}

#[rstest]
fn a_copied_tensor_is_there_twice(#[values(false, true)] sharded: bool) {
    let edited = Edited::new(sharded, &[Edit::Copy { from: Q0.into(), to: Q7.into() }]);
    assert_eq!(edited.written(), files(sharded, &[1], false));
    let mut expected = read(&edited.from);
    expected.insert(Q7.to_owned(), expected[Q0].clone());
    assert!(read(edited.to.path()) == expected);
}

#[rstest]
fn interleaved_rows_take_turns(#[values(false, true)] sharded: bool) {
    // 128 rows of 96 in 16 groups of 8
    let edited = Edited::new(sharded, &[Edit::Interleave { name: Q0.into(), groups: 16 }]);
    assert_eq!(edited.written(), files(sharded, &[0], false));
    let mut expected = read(&edited.from);
    let original = expected[Q0].2.clone();
    let row = |row: usize| &original[row * 192..(row + 1) * 192];
    let rows = (0..128).flat_map(|i| row(i % 16 * 8 + i / 16)).copied();
    expected.get_mut(Q0).unwrap().2 = rows.collect();
    assert!(original != expected[Q0].2 && read(edited.to.path()) == expected);
    edited.port().unwrap();
}

/// A checkpoint of one tensor, edited.
fn one_edited(dtype: Dtype, shape: &[usize], bytes: &[u8], edits: &[Edit]) -> Vec<u8> {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let view = TensorView::new(dtype, shape.into(), bytes).unwrap();
    safetensors::serialize_to_file([("x", view)], None, &from.path().join("model.safetensors")).unwrap();
    apply(from.path(), edits, to.path()).unwrap();
    let (found, dims, bytes) = read(to.path()).remove("x").unwrap();
    assert_eq!((found, &dims[..]), (dtype, shape));
    bytes
}

fn le_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn a_transposed_matrix_has_columns_for_rows() {
    let matrix = le_bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    let found = one_edited(Dtype::F32, &[3, 3], &matrix, &[Edit::Transpose("x".into())]);
    assert_eq!(found, le_bytes(&[1.0, 4.0, 7.0, 2.0, 5.0, 8.0, 3.0, 6.0, 9.0]));
    let twice = [Edit::Transpose("x".into()), Edit::Transpose("x".into())];
    assert_eq!(one_edited(Dtype::F32, &[3, 3], &matrix, &twice), matrix);
}

/// 1e-8 in bf16: 172 / 128 of a power of two.
const TINY: f32 = 1.343_75 / 134_217_728.0;

#[rstest]
#[case(Narrow::Bf16, [1.003_906_3, 1.011_718_8, -70_000.0, 1e-8], [1.0, 1.015_625, -70_144.0, TINY])]
#[case(Narrow::F16, [1.000_488_3, 1.001_464_8, -70_000.0, 1e-8], [1.0, 1.001_953_1, f32::NEG_INFINITY, 0.0])]
fn wide_values_are_rounded_to_even(#[case] to: Narrow, #[case] x: [f32; 4], #[case] rounded: [f32; 4]) {
    let round = [Edit::Round { name: "x".into(), to }];
    assert_eq!(one_edited(Dtype::F32, &[4], &le_bytes(&x), &round), le_bytes(&rounded));
}

#[test]
fn a_bf16_number_below_the_range_of_f16_loses_bits_and_others_keep_theirs() {
    let x = [1.0, -0.007_781_982_4, 3e-5, 3e-6, 2e-8].map(bf16::from_f32);
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let found = one_edited(Dtype::BF16, &[5], &bytes, &[Edit::Round { name: "x".into(), to: Narrow::F16 }]);
    let found: Vec<bf16> = found.chunks(2).map(|x| bf16::from_le_bytes([x[0], x[1]])).collect();
    assert_eq!(found[..3], x[..3]);
    // steps of 2^-24
    for (found, x) in found[3..].iter().zip(&x[3..]) {
        let steps = (x.to_f32() * 2_f32.powi(24)).round();
        assert_eq!(*found, bf16::from_f32(steps * 2_f32.powi(-24)));
    }
    assert!(found[3] != x[3] && found[4] == bf16::ZERO);
    assert_eq!(f16::from_f32(x[4].to_f32()), f16::ZERO);
}

#[rstest]
#[case::within_one_file(Q1, &[0])]
#[case::across_shards(Q7, &[0, 1])]
fn exchanged_tensors_have_each_others_values(
    #[case] other: &str,
    #[case] shards: &[usize],
    #[values(false, true)] sharded: bool,
) {
    let edited = Edited::new(sharded, &[Edit::Exchange(Q0.into(), other.into())]);
    assert_eq!(edited.written(), files(sharded, shards, false));
    let mut expected = read(&edited.from);
    let (a, b) = (expected[Q0].clone(), expected[other].clone());
    assert!(a != b);
    expected.extend([(Q0.to_owned(), b), (other.to_owned(), a)]);
    assert!(read(edited.to.path()) == expected);
    edited.port().unwrap();
    edited.reference().unwrap();
}

#[rstest]
fn exchanged_layers_have_each_others_tensors(#[values(false, true)] sharded: bool) {
    let edited = Edited::new(sharded, &[Edit::ExchangeLayers(LayerId(2), LayerId(7))]);
    assert_eq!(edited.written(), files(sharded, &[0, 1], false));
    let renamed = |name: &str| match name.strip_prefix("model.layers.2.") {
        Some(tail) => format!("model.layers.7.{tail}"),
        None => name.replace("model.layers.7.", "model.layers.2."),
    };
    let expected: Tensors = read(&edited.from).into_iter().map(|(name, t)| (renamed(&name), t)).collect();
    assert!(expected != read(&edited.from));
    assert!(read(edited.to.path()) == expected);
    edited.reference().unwrap();
}

#[rstest]
fn a_key_of_the_configuration_is_set(#[values(false, true)] sharded: bool) {
    let set = |key: &str, value: Value| Edit::SetConfig { key: key.into(), value };
    let edits = [set("sliding_window", json!(32)), set("attention_bias", json!(false))];
    let edited = Edited::new(sharded, &edits);
    assert_eq!(edited.written(), BTreeSet::from(["config.json".to_owned()]));
    let mut expected = config();
    expected.sliding_window = Some(32);
    assert_eq!(edited.reference().unwrap().config(), &expected);
    assert_eq!(edited.port().unwrap().config(), &expected);
}

#[test]
fn edits_are_made_in_order() {
    let gone = "model.norm.weight".to_owned();
    let again = Edit::Add { name: gone.clone(), shape: vec![96] };
    let edited = Edited::new(true, &[Edit::Remove(gone.clone()), again]);
    assert_eq!(read(edited.to.path())[&gone], (Dtype::BF16, vec![96], vec![0; 192]));
    edited.port().unwrap();
    edited.reference().unwrap();
}

#[rstest]
#[case::remove(Edit::Remove("no.such".into()), "no.such")]
#[case::zero(Edit::Zero("no.such".into()), "no.such")]
#[case::swap(Edit::SwapDims("no.such".into()), "no.such")]
#[case::swap_of_a_vector(Edit::SwapDims("model.norm.weight".into()), "[96]")]
#[case::exchange(Edit::Exchange(Q0.into(), "no.such".into()), "no.such")]
#[case::exchange_of_other_shapes(Edit::Exchange(Q0.into(), "model.norm.weight".into()), "[128, 96]")]
#[case::transpose(Edit::Transpose("no.such".into()), "no.such")]
#[case::transpose_of_an_oblong(Edit::Transpose(Q0.into()), "[128, 96]")]
#[case::interleave(Edit::Interleave { name: "no.such".into(), groups: 2 }, "no.such")]
#[case::interleave_of_a_remainder(Edit::Interleave { name: Q0.into(), groups: 7 }, "[128, 96]")]
#[case::round(Edit::Round { name: "no.such".into(), to: Narrow::F16 }, "no.such")]
#[case::copy(Edit::Copy { from: "no.such".into(), to: Q0.into() }, "no.such")]
#[case::copy_to_nothing(Edit::Copy { from: Q0.into(), to: "no.such".into() }, "no.such")]
#[case::copy_to_another_shape(Edit::Copy { from: "model.norm.weight".into(), to: Q0.into() }, "[128, 96]")]
#[case::add(Edit::Add { name: Q0.into(), shape: vec![1] }, "[128, 96]")]
#[case::layers(Edit::ExchangeLayers(LayerId(0), LayerId(10)), "layer 10")]
#[case::layer(Edit::ExchangeLayers(LayerId(11), LayerId(0)), "layer 11")]
fn an_edit_of_what_is_not_there_is_refused(
    #[case] edit: Edit,
    #[case] named: &str,
    #[values(false, true)] sharded: bool,
) {
    let ((from, _copy), to) = (original(sharded), tempfile::tempdir().unwrap());
    let error = apply(&from, &[edit], to.path()).unwrap_err();
    assert!(matches!(error, Error::Tensor { .. } | Error::Argument { .. }), "{error}");
    assert!(error.to_string().contains(named), "{error}");
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_without_a_checkpoint_and_one_that_is_full_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(apply(empty.path(), &[], empty.path()), Err(Error::Io { .. })));
    let full = tempfile::tempdir().unwrap();
    std::fs::write(full.path().join("config.json"), "{}").unwrap();
    assert!(matches!(apply(&checkpoint(), &[], full.path()), Err(Error::Io { .. })));
}
