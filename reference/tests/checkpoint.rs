//! Sound checkpoints open whatever their layout and dtype; every bad one is refused in the right words, by
//! opening with the first problem and by the survey with all of them.

mod support;

use reference::{Options, ProblemKind, Reference, survey};
use rstest::rstest;
use safetensors::Dtype;
use spec::{Error, LayerKind, Precision, Result, Side, Site};
use std::path::Path;
use support::{
    Keep, TINY, Tensor, folder, free, open, random_case, random_tensors, tiny, trained, write_index,
    write_shard,
};
use tempfile::TempDir;

const ONE: &str = "model-00001-of-00002.safetensors";
const TWO: &str = "model-00002-of-00002.safetensors";
const UP: &str = "model.layers.1.mlp.experts.4.up_proj.weight";

/// Two shards, cut in the middle of the census, and their index.
fn sharded(tensors: &[Tensor]) -> TempDir {
    let dir = folder(TINY);
    let (one, two) = tensors.split_at(tensors.len() / 2);
    write_shard(dir.path(), ONE, one);
    write_shard(dir.path(), TWO, two);
    let places = one.iter().map(|t| (&*t.name, ONE)).chain(two.iter().map(|t| (&*t.name, TWO)));
    write_index(dir.path(), &places.collect::<Vec<_>>());
    dir
}

fn logits(dir: &Path) -> Vec<u32> {
    let case = random_case(9, 19, 2);
    let mut keep = Keep::only(&[Site::Logits]);
    open(dir).forward(&[free(&case, Precision::F32)], &mut keep).unwrap();
    support::bits(&keep.get(0, None, Site::Logits))
}

#[test]
fn shards_hold_what_one_file_holds() {
    let expected = logits(tiny(Dtype::BF16).path());
    assert_eq!(logits(sharded(&random_tensors(TINY, Dtype::BF16)).path()), expected);
    let dir = tiny(Dtype::BF16);
    let tensors = random_tensors(TINY, Dtype::BF16);
    let places: Vec<_> = tensors.iter().map(|t| (&*t.name, "model.safetensors")).collect();
    write_index(dir.path(), &places);
    assert_eq!(logits(dir.path()), expected, "an index that names the single file");
}

#[test]
fn f16_and_f32_are_widened_exactly() {
    // numbers of few bits are the same in all three dtypes
    let coarse = |dtype| -> Vec<Tensor> {
        let value = |i: usize| ((i * 7 % 31) as f32 - 15.0) / 16.0;
        let same = |t: Tensor| {
            let values: Vec<f32> = (0..t.shape.iter().product()).map(value).collect();
            Tensor::new(&t.name, &t.shape, dtype, &values)
        };
        random_tensors(TINY, dtype).into_iter().map(same).collect()
    };
    let of = |dtype| {
        let dir = folder(TINY);
        write_shard(dir.path(), "model.safetensors", &coarse(dtype));
        logits(dir.path())
    };
    assert_eq!(of(Dtype::F16), of(Dtype::BF16));
    assert_eq!(of(Dtype::F32), of(Dtype::BF16));
}

/// The error of opening; checks that the survey lists the same one first.
fn refusal(dir: &Path) -> Error {
    let error = Reference::open(dir, Options { threads: Some(1) }).err().expect("it does not open");
    let problems = survey(dir).unwrap().problems;
    assert_eq!(Error::from(problems[0].clone()).to_string(), error.to_string());
    error
}

fn edited(edit: impl FnOnce(&mut Vec<Tensor>)) -> TempDir {
    let mut tensors = random_tensors(TINY, Dtype::BF16);
    edit(&mut tensors);
    let dir = folder(TINY);
    write_shard(dir.path(), "model.safetensors", &tensors);
    dir
}

fn up(tensors: &mut [Tensor]) -> &mut Tensor {
    tensors.iter_mut().find(|t| t.name == UP).unwrap()
}

#[rstest]
#[case::missing(|t: &mut Vec<Tensor>| t.retain(|t| t.name != UP), UP, "[10, 22]", "no such tensor")]
#[case::shape(|t: &mut Vec<Tensor>| up(t).shape = vec![22, 10], UP, "[10, 22]", "[22, 10]")]
#[case::flat(|t: &mut Vec<Tensor>| up(t).shape = vec![220], UP, "[10, 22]", "[220]")]
#[case::extra(
    |t: &mut Vec<Tensor>| t.push(Tensor::new("model.extra", &[1], Dtype::BF16, &[0.0])),
    "model.extra", "only the tensors", "BF16 [1]"
)]
#[case::dtype(
    |t: &mut Vec<Tensor>| { up(t).dtype = Dtype::I16; },
    UP, "BF16, F16 or F32", "I16"
)]
fn a_wrong_tensor_is_refused(
    #[case] edit: fn(&mut Vec<Tensor>),
    #[case] tensor: &str,
    #[case] wanted: &str,
    #[case] got: &str,
) {
    let dir = edited(edit);
    let error = refusal(dir.path());
    let Error::Tensor { name, expected, found, .. } = &error else { panic!("{error}") };
    assert_eq!(name, tensor);
    assert!(expected.contains(wanted) && found.contains(got), "{error}");
}

/// Edits the file's bytes.
fn damaged(edit: impl FnOnce(&mut Vec<u8>)) -> TempDir {
    let dir = tiny(Dtype::BF16);
    let path = dir.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    edit(&mut bytes);
    std::fs::write(path, bytes).unwrap();
    dir
}

#[rstest]
#[case::truncated(|b: &mut Vec<u8>| b.truncate(b.len() - 1), "truncated")]
#[case::trailing(|b: &mut Vec<u8>| b.push(0), "bytes left over")]
#[case::empty(|b: &mut Vec<u8>| b.clear(), "a file of 0 bytes")]
#[case::cut_header(|b: &mut Vec<u8>| b.truncate(100), "in a file of 100 bytes")]
#[case::long_header(|b: &mut Vec<u8>| b[..8].fill(0xff), "a header of 18446744073709551615 bytes")]
#[case::no_json(|b: &mut Vec<u8>| b[8] = b'[', "a header that is not")]
fn a_damaged_file_is_refused(#[case] edit: fn(&mut Vec<u8>), #[case] words: &str) {
    let dir = damaged(edit);
    let error = refusal(dir.path());
    assert!(matches!(&error, Error::Checkpoint { found, .. } if found.contains(words)), "{error}");
    let problems = survey(dir.path()).unwrap().problems;
    assert_eq!(problems.len(), 1, "tensors that could not be seen are not called missing: {problems:?}");
}

#[test]
fn a_header_that_lists_a_tensor_twice_is_refused() {
    let dir = folder(TINY);
    let entry = r#""a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}"#;
    let json = format!("{{{entry},{entry}}}");
    let bytes = [&(json.len() as u64).to_le_bytes(), json.as_bytes(), b".."].concat();
    std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    let error = refusal(dir.path());
    assert!(matches!(&error, Error::Checkpoint { found, .. } if found.contains("`a` twice")), "{error}");
}

#[test]
fn the_survey_of_absurd_sizes_ends_at_the_largest_number() {
    let config = std::fs::read_to_string(folder(TINY).path().join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    // the largest that are accepted: 8 layers of 4096 chosen experts of 3 * 2^48 values, 3 * 2^63 in all
    for key in ["hidden_size", "moe_intermediate_size"] {
        config[key] = (1 << 24).into();
    }
    for key in ["num_experts", "num_experts_per_tok"] {
        config[key] = 4096.into();
    }
    config["num_hidden_layers"] = 8.into();
    config["layer_types"] = vec!["full_attention"; 8].into();
    let dir = folder(&config.to_string());
    assert_eq!(survey(dir.path()).unwrap().active_parameters, u64::MAX);
}

#[test]
fn a_folder_without_weights_is_refused() {
    let error = refusal(folder(TINY).path());
    assert!(matches!(&error, Error::Checkpoint { found, .. } if found == "neither"), "{error}");
}

#[test]
fn a_stale_single_file_beside_an_index_is_refused() {
    let tensors = random_tensors(TINY, Dtype::BF16);
    let dir = sharded(&tensors);
    write_shard(dir.path(), "model.safetensors", &tensors);
    let error = refusal(dir.path());
    assert!(matches!(&error, Error::Checkpoint { next, .. } if next.contains("stale")), "{error}");
}

#[test]
fn a_shard_that_is_not_there_is_refused() {
    let dir = sharded(&random_tensors(TINY, Dtype::BF16));
    std::fs::remove_file(dir.path().join(TWO)).unwrap();
    let error = refusal(dir.path());
    let Error::Checkpoint { path, found, .. } = &error else { panic!("{error}") };
    assert!(path.ends_with(TWO) && found == "no such file", "{error}");
}

#[test]
fn an_index_that_names_the_wrong_shard_is_refused() {
    let tensors = random_tensors(TINY, Dtype::BF16);
    let dir = sharded(&tensors);
    let (one, two) = tensors.split_at(tensors.len() / 2);
    let mut places: Vec<_> = one.iter().map(|t| (&*t.name, ONE)).collect();
    places.extend(two.iter().map(|t| (&*t.name, TWO)));
    places[3].1 = TWO;
    write_index(dir.path(), &places);
    let error = refusal(dir.path());
    let Error::Tensor { name, expected, found, .. } = &error else { panic!("{error}") };
    assert_eq!(name, &one[3].name);
    assert!(expected.contains(TWO) && found.contains(ONE), "{error}");
}

#[test]
fn an_index_that_names_a_tensor_of_no_shard_is_refused() {
    let tensors = random_tensors(TINY, Dtype::BF16);
    let dir = sharded(&tensors);
    let (one, two) = tensors.split_at(tensors.len() / 2);
    write_shard(dir.path(), TWO, &two[1..]);
    let error = refusal(dir.path());
    let Error::Tensor { name, found, .. } = &error else { panic!("{error}") };
    assert_eq!((name, found.as_str()), (&two[0].name, "it in no shard"));
    assert_eq!(one.len() + two.len(), tensors.len());
}

#[test]
fn a_tensor_that_the_index_does_not_list_is_refused() {
    let tensors = random_tensors(TINY, Dtype::BF16);
    let dir = sharded(&tensors);
    let (one, two) = tensors.split_at(tensors.len() / 2);
    let places = one.iter().map(|t| (&*t.name, ONE)).chain(two.iter().skip(1).map(|t| (&*t.name, TWO)));
    write_index(dir.path(), &places.collect::<Vec<_>>());
    let error = refusal(dir.path());
    let Error::Tensor { name, found, .. } = &error else { panic!("{error}") };
    assert_eq!(name, &two[0].name);
    assert!(found.contains("does not list"), "{error}");
}

#[rstest]
#[case::listed_in_the_first(ONE)]
#[case::listed_in_the_second(TWO)]
fn a_tensor_in_two_shards_is_refused(#[case] listed: &str) {
    let tensors = random_tensors(TINY, Dtype::BF16);
    let dir = sharded(&tensors);
    let (one, two) = tensors.split_at(tensors.len() / 2);
    let mut again = two.to_vec();
    again.push(one[0].clone());
    write_shard(dir.path(), TWO, &again);
    let mut places: Vec<_> = one.iter().map(|t| (&*t.name, ONE)).collect();
    places.extend(two.iter().map(|t| (&*t.name, TWO)));
    places[0].1 = listed;
    write_index(dir.path(), &places);
    let error = refusal(dir.path());
    let Error::Tensor { name, found, .. } = &error else { panic!("{error}") };
    assert_eq!(name, &one[0].name);
    assert!(found.contains(ONE), "{error}");
    let problems = survey(dir.path()).unwrap().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].kind, ProblemKind::Duplicate);
}

#[rstest]
#[case::no_json("[")]
#[case::no_map("{\"metadata\": {}}")]
#[case::empty_map("{\"weight_map\": {}}")]
#[case::a_name_twice("{\"weight_map\": {\"a\": \"b\", \"a\": \"b\"}}")]
#[case::outside("{\"weight_map\": {\"lm_head.weight\": \"../model.safetensors\"}}")]
fn an_index_that_is_none_is_refused(#[case] text: &str) {
    let dir = folder(TINY);
    std::fs::write(dir.path().join("model.safetensors.index.json"), text).unwrap();
    let error = refusal(dir.path());
    let Error::Checkpoint { path, .. } = &error else { panic!("{error}") };
    assert!(path.ends_with("model.safetensors.index.json"), "{error}");
}

fn forward(dir: &Path) -> Result<Vec<spec::Executed>> {
    let tokens = (0..19).map(spec::TokenId).collect();
    let case = spec::Case::new("every-token", tokens).unwrap();
    open(dir).forward(&[free(&case, Precision::F32)], &mut Keep::only(&[Site::Logits]))
}

#[rstest]
#[case::embedding("model.embed_tokens.weight", 17 * 22 + 3, f32::NAN, "NaN at [17, 3]")]
#[case::norm("model.layers.2.input_layernorm.weight", 21, f32::INFINITY, "infinity at [21]")]
#[case::projection("model.layers.0.self_attn.o_proj.weight", 120, f32::NEG_INFINITY, "-infinity at [5, 0]")]
#[case::expert(UP, 9 * 22 + 21, f32::NAN, "NaN at [9, 21]")]
#[case::head("lm_head.weight", 0, f32::NAN, "NaN at [0, 0]")]
fn a_value_that_is_not_finite_is_refused_with_its_index(
    #[case] tensor: &str,
    #[case] flat: usize,
    #[case] value: f32,
    #[case] words: &str,
    #[values(Dtype::BF16, Dtype::F16, Dtype::F32)] dtype: Dtype,
) {
    let mut tensors = random_tensors(TINY, dtype);
    tensors.iter_mut().find(|t| t.name == tensor).unwrap().set(flat, value);
    let dir = folder(TINY);
    write_shard(dir.path(), "model.safetensors", &tensors);
    let error = forward(dir.path()).unwrap_err();
    let Error::Tensor { name, found, .. } = &error else { panic!("{error}") };
    assert_eq!((name.as_str(), found.as_str()), (tensor, words), "{error}");
    let scan = reference::scan(dir.path(), &|_| {}).unwrap();
    let [bad] = scan.not_finite.as_slice() else { panic!("{scan:?}") };
    assert_eq!((bad.tensor.as_str(), bad.found.as_str()), (tensor, words));
}

#[test]
fn the_survey_lists_every_problem() {
    let dir = edited(|tensors| {
        tensors.retain(|t| !t.name.ends_with("layers.0.post_attn_norm.weight"));
        up(tensors).shape = vec![22, 10];
        tensors.push(Tensor::new("model.extra", &[1], Dtype::BF16, &[0.0]));
    });
    let kinds: Vec<_> = survey(dir.path()).unwrap().problems.iter().map(|p| p.kind).collect();
    assert_eq!(kinds, [ProblemKind::Missing, ProblemKind::Shape, ProblemKind::Extra]);
}

#[test]
fn the_survey_of_the_trained_checkpoint_counts_its_parameters() {
    let survey = survey(&trained()).unwrap();
    assert!(survey.problems.is_empty());
    assert_eq!(survey.tensors, 3 + 10 * (15 + 3 * 32));
    // by hand, from K3 and the config: hidden 96, 8 and 2 heads of 16, 32 experts of width 32, vocabulary 256
    let attention = 96 * 128 + 2 * 96 * 32 + 128 * 96 + 4 * 96 + 2 * 16;
    let (router, expert) = (32 * 96 + 32, 3 * 96 * 32);
    assert_eq!(survey.parameters, 2 * 256 * 96 + 96 + 10 * (attention + router + 33 * expert));
    assert_eq!(survey.active_parameters, 257 * 96 + 96 + 10 * (attention + router + 5 * expert));
    assert_eq!(survey.layers.iter().filter(|&&kind| kind == LayerKind::Full).count(), 2);
    let [dtype] = survey.dtypes.as_slice() else { panic!("{:?}", survey.dtypes) };
    assert_eq!((dtype.dtype.as_str(), dtype.bytes), ("BF16", 2 * survey.parameters));
    let size = std::fs::metadata(trained().join("model.safetensors")).unwrap().len();
    assert_eq!(survey.files.iter().map(|f| (f.bytes, f.tensors)).collect::<Vec<_>>(), [(size, 1113)]);
    let json = serde_json::to_value(&survey).unwrap();
    assert_eq!(json["layers"][4], "full");
}
