//! What a recording holds, and that there is none unless it is whole.

use super::fake::{Fake, cases};
use diff::trace::SitesFile;
use ndarray::{array, s};
use rstest::rstest;
use spec::trace::tensors::TensorFile;
use spec::trace::{Origin, Trace};
use spec::{Choices, Error, ExpertId, LayerId, Routing, Site};
use std::path::Path;

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = folder.read_dir().unwrap().map(name).collect();
    names.sort();
    names
}

/// Choices that are nobody's own.
fn given() -> Choices {
    let mut choices = Choices::unset(3, 2, 2);
    for (token, layer) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)] {
        choices.set(token, LayerId(layer), &[ExpertId(4), ExpertId(token as u16)]);
    }
    choices
}

#[rstest]
#[case::at_once(3, false)]
#[case::in_chunks(2, false)]
#[case::row_by_row(1, false)]
#[case::scores_before_logits(2, true)]
fn a_free_run_is_recorded_whatever_the_order_of_its_rows(#[case] chunk: usize, #[case] reversed: bool) {
    let folder = tempfile::tempdir().unwrap();
    let mut side = Fake::port();
    side.chunk = chunk;
    if reversed {
        side.order.reverse();
    }
    let out = folder.path().join("out");
    let recorded = side.record(&cases(&["a", "b"]), Routing::Free, &out).unwrap();
    assert_eq!(
        names(&out),
        ["a.sites.safetensors", "a.trace.safetensors", "b.sites.safetensors", "b.trace.safetensors"]
    );
    let trace = Trace::read(&recorded.cases[1].trace).unwrap();
    assert_eq!(trace.ids, array![[[0, 1], [1, 0]], [[0, 2], [1, 0]], [[2, 0], [1, 0]]]);
    let weights =
        array![[[0.5, 0.25], [1.5, 1.25]], [[0.75, 0.125], [1.75, 1.125]], [[1.0, 0.5], [2.0, 1.5]]];
    assert_eq!(trace.weights, Some(weights));
    let candidates = trace.candidates.as_ref().unwrap();
    assert_eq!(candidates.ids, ndarray::Array3::from_shape_fn((3, 2, 4), |(_, _, slot)| slot as i32));
    assert_eq!(candidates.sel.slice(s![1, 0, ..]), array![5.0, 4.0, 4.0, 2.0]);
    assert_eq!(candidates.logit.slice(s![1, 0, ..]), array![4.25, 3.25, 3.25, 1.25]);
    assert_eq!([trace.gap(0, 0), trace.gap(1, 0), trace.gap(2, 0)], [Some(1.0), Some(0.0), Some(0.5)]);
    assert_eq!(trace.call, Some(vec![0, 0, 1]));
    assert!(trace.origin.as_ref().unwrap().iter().all(|&origin| origin == Origin::Live));
    assert!(trace.shadow.is_none());
    assert_eq!((trace.meta.case.as_str(), trace.meta.side()), ("b", Some("reference")));
    assert_eq!(trace.meta.schedule().unwrap().prefill_chunk, 2);
}

#[test]
fn kept_sites_are_one_tensor_for_each_site_and_layer() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let side = Fake { chunk: 2, ..Fake::port() };
    let sites = [Site::Logits, Site::AttnBranch, Site::Logits, Site::TopkWeights];
    let recorded = side.record_sites(&cases(&["a"]), Routing::Free, &sites, &out).unwrap();
    let path = recorded.cases[0].sites.as_ref().unwrap();
    let bytes = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut found = file.names();
    found.sort_unstable();
    assert_eq!(found, ["attn_branch.0", "attn_branch.1", "logits", "topk_weights.0", "topk_weights.1"]);
    let attn = file.tensor("attn_branch.0").unwrap();
    assert_eq!((attn.dtype(), attn.shape()), (safetensors::Dtype::F32, &[3, 2][..]));
    let values = [3.0_f32, 4.0, 3.0, 4.5, 3.0, 4.0];
    assert_eq!(attn.data(), values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
    let header = TensorFile::open(path).unwrap();
    let trace = Trace::read(&recorded.cases[0].trace).unwrap();
    for (key, value) in [
        ("schema", "assay-sites/1"),
        ("case", "a"),
        ("side", "reference"),
        ("ids_sha256", &trace.ids_sha256()),
    ] {
        assert_eq!(header.metadata(key), Some(value), "{key}");
    }
    let sites = SitesFile::open(path, &trace).unwrap();
    assert_eq!(sites.width(Site::Logits, None), Some(3));
    assert_eq!(sites.width(Site::MoeBranch, Some(LayerId(0))), None);
    let rows = sites.rows(Site::Logits, None, 1..3).unwrap();
    assert_eq!(rows, array![[0.0, 0.0, 0.0], [2.0_f32.ln(), 0.0, 0.0]]);
}

#[test]
fn sites_of_another_trace_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let record = |side: Fake, name| {
        side.record(&cases(&["a"]), Routing::Free, &folder.path().join(name)).unwrap().cases.remove(0)
    };
    let (first, second) = (record(Fake::reference(), "first"), record(Fake::port(), "second"));
    let trace = Trace::read(&first.trace).unwrap();
    let refusal = SitesFile::open(&second.sites.unwrap(), &trace).unwrap_err().to_string();
    assert!(refusal.contains("metadata `ids_sha256`"), "{refusal}");
}

#[test]
fn a_forced_run_keeps_the_given_ids_and_the_sides_own_as_shadow() {
    let folder = tempfile::tempdir().unwrap();
    let given = given();
    let side = Fake::port();
    let out = folder.path().join("out");
    let recorded = side.record(&cases(&["a"]), Routing::Forced(&given), &out).unwrap();
    let trace = Trace::read(&recorded.cases[0].trace).unwrap();
    assert_eq!(trace.choices().unwrap(), given);
    assert_eq!(trace.shadow, Some(array![[[0, 1], [1, 0]], [[0, 2], [1, 0]], [[2, 0], [1, 0]]]));
    assert!(trace.origin.as_ref().unwrap().iter().all(|&origin| origin == Origin::Forced));
}

#[test]
fn without_sites_there_is_no_sites_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let recorded = Fake::port().record_sites(&cases(&["a"]), Routing::Free, &[], &out).unwrap();
    assert_eq!(names(&out), ["a.trace.safetensors"]);
    assert_eq!(recorded.cases[0].sites, None);
}

#[test]
fn an_existing_folder_is_refused_before_any_work_and_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("mine"), "kept").unwrap();
    let side = Fake::port();
    let error = side.record(&cases(&["a"]), Routing::Free, &out).unwrap_err();
    assert!(matches!(error, Error::Argument { .. }), "{error}");
    assert_eq!(side.forwards.get(), 0);
    assert_eq!((names(&out), names(folder.path())), (vec!["mine".to_owned()], vec!["out".to_owned()]));
    assert_eq!(std::fs::read_to_string(out.join("mine")).unwrap(), "kept");
}

fn forgets(site: Site) -> Fake {
    Fake { forgets: Some(site), ..Fake::port() }
}

#[rstest]
#[case::a_side_that_fails_at_once(Fake { fails_after: 0, ..Fake::port() }, Routing::Free)]
#[case::a_side_that_fails_midway(Fake { fails_after: 11, ..Fake::port() }, Routing::Free)]
#[case::a_side_that_forgets_a_kept_site(forgets(Site::MoeBranch), Routing::Free)]
#[case::a_side_that_forgets_its_scores(forgets(Site::SelectionScores), Routing::Free)]
#[case::a_side_that_runs_an_expert_twice(Fake { own: [[[3, 3]; 3]; 2], ..Fake::port() }, Routing::Free)]
#[case::a_side_that_ignores_forcing(Fake { obeys_forcing: false, ..Fake::port() }, Routing::Forced(&given()))]
fn a_recording_that_fails_leaves_nothing_behind(#[case] side: Fake, #[case] routing: Routing<'_>) {
    let folder = tempfile::tempdir().unwrap();
    side.record(&cases(&["a", "b"]), routing, &folder.path().join("out")).unwrap_err();
    assert_eq!(side.forwards.get(), 1);
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn ignored_forcing_is_refused_with_its_first_row() {
    let folder = tempfile::tempdir().unwrap();
    let side = Fake { obeys_forcing: false, ..Fake::port() };
    let out = folder.path().join("out");
    let error = side.record(&cases(&["a"]), Routing::Forced(&given()), &out).unwrap_err();
    assert!(matches!(error, Error::Unpaired { .. }), "{error}");
    assert!(error.to_string().contains("[0, 1] instead of [4, 0] at token 0, layer 0"), "{error}");
}

#[rstest]
#[case::two_of_one_name(&["a", "a"])]
#[case::none(&[])]
fn cases_that_cannot_be_told_apart_are_refused_before_any_work(#[case] given: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let side = Fake::port();
    side.record(&cases(given), Routing::Free, &folder.path().join("out")).unwrap_err();
    assert_eq!(side.forwards.get(), 0);
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn a_nan_score_is_recorded_and_its_gap_is_nan() {
    let folder = tempfile::tempdir().unwrap();
    let mut side = Fake::port();
    side.at(0, Site::SelectionScores)[[1, 4]] = f32::NAN;
    let recorded = side.record(&cases(&["a"]), Routing::Free, &folder.path().join("out")).unwrap();
    let trace = Trace::read(&recorded.cases[0].trace).unwrap();
    assert_eq!(trace.candidates.as_ref().unwrap().ids.slice(s![1, 0, ..]), array![4, 0, 1, 2]);
    assert!(trace.candidates.as_ref().unwrap().sel[[1, 0, 0]].is_nan());
    assert!(trace.gap(1, 0).unwrap().is_nan());
}
