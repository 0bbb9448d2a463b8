//! Every kind of malformed file is refused, with the place and what to do.

use super::file::{IDS, Parts, read_bytes};
use rstest::rstest;
use safetensors::Dtype;
use spec::Error;

fn ids(changes: &[(usize, i16)]) -> Parts {
    let mut ids = IDS;
    changes.iter().for_each(|&(index, id)| ids[index] = id);
    let mut parts = Parts::least();
    parts.ids(&ids);
    parts
}

/// Ids 8..12 are token 2's; of those 8 and 9 are in the first recorded layer, which is decoder layer 1.
#[rstest]
#[case::too_large(&[(9, 6)], "6 at token 2, layer 1")]
#[case::too_small(&[(10, -2)], "-2 at token 2, layer 3")]
#[case::repeated(&[(2, 5)], "expert 5 twice at token 0, layer 3")]
#[case::partly_missing(&[(5, -1)], "[2, -1] at token 1, layer 1")]
#[case::never_captured(&[(2, 0), (3, 0), (6, 0), (7, 0), (10, 0), (11, 0)], "the layer is all zeros")]
#[case::half_captured(&[(10, 0), (11, 0)], "expert 0 twice at token 2, layer 3")]
fn ids_that_are_no_routes_are_refused(#[case] changes: &[(usize, i16)], #[case] place: &str) {
    let refusal = ids(changes).refusal();
    assert!(refusal.contains(place), "{refusal}");
    assert!(refusal.starts_with("failed to use trace"), "{refusal}");
    assert!(refusal.contains("record it again"), "{refusal}");
}

#[test]
fn a_half_captured_layer_is_not_called_all_zeros() {
    assert!(!ids(&[(10, 0), (11, 0)]).refusal().contains("all zeros"));
}

#[rstest]
#[case::of_another_schema("schema", Some("moe-trace/2"), "metadata `schema` \"moe-trace/1\"")]
#[case::of_another_decision("decision", Some("indexer_topk"), "metadata `decision`")]
#[case::of_physical_ids("id_space", Some("physical"), "metadata `id_space`")]
#[case::without_a_number_of_experts("num_experts", None, "metadata `num_experts`")]
#[case::with_a_word_for_k("k", Some("two"), "found \"two\"")]
#[case::with_another_k("k", Some("3"), "ids of shape [tokens, layers, 3]")]
#[case::with_too_few_layers("num_hidden_layers", Some("3"), "ascending layers below 3")]
#[case::with_an_unknown_order("slot_order", Some("sorted"), "metadata `slot_order`")]
#[case::with_too_few_rows("pos0", Some("2"), "found 3 rows")]
#[case::with_too_many_experts("num_experts", Some("70000"), "dtype I32, found I16")]
#[case::with_the_hash_of_other_ids("ids_sha256", Some("00"), "found 00")]
#[case::without_a_hash("ids_sha256", None, "no such key")]
#[case::with_the_hash_of_other_tokens("tokens_sha256", Some("00"), "found 00")]
#[case::with_kinds_of_other_layers("layer_kinds", Some("[\"full\"]"), "`layer_kinds` of shape [2]")]
fn a_file_is_refused(#[case] key: &str, #[case] value: Option<&str>, #[case] said: &str) {
    let mut parts = Parts::least();
    parts.strings.remove(key);
    parts.strings.extend(value.map(|value| (key.to_owned(), value.to_owned())));
    let refusal = parts.refusal();
    assert!(refusal.contains(said), "{refusal}");
}

#[rstest]
#[case("ids")]
#[case("layers")]
#[case("tokens")]
fn a_missing_tensor_is_named(#[case] name: &str) {
    let mut parts = Parts::least();
    parts.tensors.remove(name);
    let refusal = parts.refusal();
    assert!(refusal.contains(&format!("expected a tensor `{name}`, found no such tensor")), "{refusal}");
}

#[test]
fn ids_of_another_width_are_refused() {
    let mut parts = Parts::least();
    parts.i32s("ids", &[3, 2, 2], &IDS.map(i32::from));
    parts.hash_ids();
    assert!(parts.refusal().contains("tensor `ids` of dtype I16, found I32"));
}

#[rstest]
#[case::of_too_few_dimensions("ids", &[6, 2], "`ids` of 3 dimensions")]
#[case::of_layers_nobody_named("ids", &[2, 3, 2], "3 ascending layers")]
#[case::of_tokens_in_a_table("tokens", &[3, 1], "`tokens` of one dimension")]
fn a_shape_that_does_not_fit_is_refused(#[case] name: &str, #[case] shape: &[usize], #[case] said: &str) {
    let mut parts = Parts::least();
    parts.tensors.get_mut(name).unwrap().1 = shape.into();
    let refusal = parts.refusal();
    assert!(refusal.contains(said), "{refusal}");
}

#[test]
fn no_rows_are_refused() {
    let mut parts = Parts::least();
    parts.i16s("ids", &[0, 2, 2], &[]);
    parts.i32s("tokens", &[1], &[7]);
    parts.hash_ids();
    assert!(parts.refusal().contains("shape [0, 2, 2]"));
}

#[rstest]
#[case::descending(&[3, 1])]
#[case::repeated(&[1, 1])]
#[case::beyond_the_model(&[1, 4])]
#[case::negative(&[-1, 1])]
fn layers_that_are_no_ascending_layers_are_refused(#[case] layers: &[i32]) {
    let mut parts = Parts::least();
    parts.i32s("layers", &[2], layers);
    assert!(parts.refusal().contains("`layers`") || parts.refusal().contains("ascending layers below 4"));
}

#[rstest]
#[case::one_token_short(2, false)]
#[case::as_many(3, true)]
#[case::all_but_the_last_token(4, true)]
#[case::two_tokens_more(5, false)]
fn rows_are_for_every_token_or_all_but_the_last(#[case] tokens: usize, #[case] sound: bool) {
    let mut parts = Parts::least();
    let ids: Vec<i32> = (7..).take(tokens).collect();
    parts.i32s("tokens", &[tokens], &ids);
    assert_eq!(parts.read().is_ok(), sound, "{:?}", parts.read());
}

#[rstest]
#[case::weights("weights", &[3, 2, 3], "`weights` of shape [3, 2, 2]")]
#[case::candidate_scores("cand_sel", &[3, 2, 4], "a tensor `cand_ids`")]
fn optional_tensors_that_do_not_fit_are_refused(
    #[case] name: &str,
    #[case] shape: &[usize],
    #[case] said: &str,
) {
    let mut parts = Parts::least();
    parts.f32s(name, shape, &vec![0.5; shape.iter().product()]);
    let refusal = parts.refusal();
    assert!(refusal.contains(said), "{refusal}");
}

/// Six rows of four candidates, each the row's two experts and two more, scores 4, 3, 2, 1.
fn with_candidates(change: impl FnOnce(&mut [i16], &mut [f32])) -> Parts {
    let mut parts = Parts::least();
    let others = |row: &[i16]| (0..6).filter(|id| !row.contains(id)).take(2).collect::<Vec<i16>>();
    let mut ids: Vec<i16> = IDS.chunks(2).flat_map(|row| [row.to_vec(), others(row)].concat()).collect();
    let mut scores = [4.0, 3.0, 2.0, 1.0].repeat(6);
    change(&mut ids, &mut scores);
    parts.i16s("cand_ids", &[3, 2, 4], &ids);
    parts.f32s("cand_sel", &[3, 2, 4], &scores);
    parts.f32s("cand_logit", &[3, 2, 4], &[0.5; 24]);
    parts
}

#[test]
fn candidates_best_first_are_sound_whatever_the_ids_say() {
    let trace = with_candidates(|_, _| {}).read().unwrap();
    assert_eq!(trace.gap(2, 1), Some(1.0), "3 - 2");
}

#[test]
fn candidates_out_of_order_are_refused() {
    let parts = with_candidates(|_, scores| scores[21] = 5.0);
    assert!(parts.refusal().contains("at 4 before expert 2 at 5 at token 2, layer 3"), "{}", parts.refusal());
}

#[test]
fn equal_scores_are_in_order_of_id() {
    // row 0 is experts 4, 1, 0, 2
    let refusal = with_candidates(|_, scores| scores[1] = 4.0).refusal();
    assert!(refusal.contains("expert 4 at 4 before expert 1 at 4 at token 0, layer 1"), "{refusal}");
    assert!(with_candidates(|_, scores| scores[3] = 2.0).read().is_ok(), "expert 0 before expert 2");
}

#[test]
fn a_repeated_candidate_is_refused() {
    let refusal = with_candidates(|ids, _| ids[3] = 4).refusal();
    assert!(refusal.contains("`cand_ids`, found expert 4 twice at token 0, layer 1"), "{refusal}");
}

#[test]
fn an_origin_of_no_meaning_or_at_odds_with_the_ids_is_refused() {
    let mut parts = Parts::least();
    parts.put("origin", Dtype::U8, &[3, 2], vec![1, 1, 1, 5, 1, 1]);
    assert!(parts.refusal().contains("`origin` from 0 to 4, found 5"));
    parts.put("origin", Dtype::U8, &[3, 2], vec![1, 1, 1, 0, 1, 1]);
    assert!(parts.refusal().contains("Missing at token 1, layer 3"), "{}", parts.refusal());
}

#[test]
fn a_file_cut_short_anywhere_is_refused() {
    let bytes = Parts::least().bytes();
    for length in 0..bytes.len() {
        let error = read_bytes(&bytes[..length]).unwrap_err();
        assert!(matches!(error, Error::Trace { .. }), "{length} bytes: {error}");
    }
    assert!(read_bytes(&bytes).is_ok());
}

#[test]
fn bytes_after_the_last_tensor_are_refused() {
    let bytes = [Parts::least().bytes(), vec![0]].concat();
    assert!(matches!(read_bytes(&bytes), Err(Error::Trace { .. })));
}

#[test]
fn a_header_longer_than_the_file_is_refused_before_it_is_read() {
    let mut bytes = Parts::least().bytes();
    bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(read_bytes(&bytes).unwrap_err().to_string().contains("a safetensors header inside the file"));
}

#[test]
fn a_file_that_does_not_exist_is_an_io_error() {
    let error = spec::trace::Trace::read(std::path::Path::new("no-such.trace.safetensors")).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[rstest]
#[case::a_path("../../evil", "`../../evil`")]
#[case::an_absolute_path("/evil", "`/evil`")]
#[case::a_hidden_file(".evil", "`.evil`")]
#[case::nothing("", "``")]
#[case::control_characters("a\u{1b}[2J\n", "`a\\u{1b}[2J\\n`")]
fn a_case_that_cannot_name_a_file_is_refused(#[case] name: &str, #[case] said: &str) {
    let mut parts = Parts::least();
    parts.strings.insert("case".into(), name.into());
    let error = parts.read().unwrap_err();
    assert!(matches!(error, Error::Trace { .. }), "{error}");
    let expected = format!("metadata `case`, a name of letters, digits, `-`, `_`, `.`, found {said}");
    assert!(error.to_string().contains(&expected), "{error}");
}

#[rstest]
#[case::schema("schema")]
#[case::a_number("k")]
#[case::a_word("slot_order")]
#[case::a_list("layer_kinds")]
#[case::hash_of_ids("ids_sha256")]
#[case::hash_of_tokens("tokens_sha256")]
fn control_characters_of_a_file_do_not_reach_the_message(#[case] key: &str) {
    let mut parts = Parts::least();
    parts.strings.insert(key.into(), "\u{1b}[2J\r\n".into());
    let refusal = parts.refusal();
    assert!(refusal.contains("\\u{1b}[2J") && !refusal.contains(char::is_control), "{refusal:?}");
}

#[test]
fn control_characters_of_a_header_do_not_reach_the_message() {
    let header = r#"{"x":{"dtype":"\u001b[2J","shape":[0],"data_offsets":[0,0]}}"#.as_bytes();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header].concat();
    let refusal = read_bytes(&bytes).unwrap_err().to_string();
    assert!(refusal.contains("\\u{1b}[2J") && !refusal.contains(char::is_control), "{refusal:?}");
}

#[test]
fn control_characters_of_a_checkpoints_hash_do_not_reach_the_message() {
    let mut parts = Parts::least();
    parts.strings.insert("weights_sha256".into(), "\u{1b}[2J".into());
    let refusal = parts.read().unwrap().check_same_checkpoint("aa", "bb").unwrap_err().to_string();
    assert!(refusal.contains("(\\u{1b}[2J)") && !refusal.contains(char::is_control), "{refusal:?}");
}
