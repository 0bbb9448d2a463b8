//! Recordings that are not of the same thing are refused.

use super::fake::{Fake, cases, checkpoint};
use diff::trace::{Checkpoint, DEFAULT_SITES, compare};
use rstest::rstest;
use spec::trace::Trace;
use spec::{Case, Error, Result, Routing, TokenId};
use std::path::{Path, PathBuf};

fn refused<T: std::fmt::Debug>(result: Result<T>, said: &str) -> Error {
    let error = result.unwrap_err();
    assert!(error.to_string().contains(said), "{error}");
    error
}

/// The reference's recording of `names` in `folder`.
fn recorded(folder: &Path, name: &str, cases: &[Case]) -> PathBuf {
    recorded_of(folder, name, cases, &checkpoint())
}

fn recorded_of(folder: &Path, name: &str, cases: &[Case], checkpoint: &Checkpoint) -> PathBuf {
    let out = folder.join(name);
    Fake::reference().record_of(checkpoint, cases, Routing::Free, &DEFAULT_SITES, &out).unwrap();
    out
}

#[rstest]
#[case::other_weights(Checkpoint { weights_sha256: "00".into(), ..checkpoint() })]
#[case::another_config(Checkpoint { config_sha256: "00".into(), ..checkpoint() })]
fn recordings_of_two_checkpoints_are_refused(#[case] other: Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    let left = recorded(folder.path(), "left", &cases(&["a"]));
    let right = recorded_of(folder.path(), "right", &cases(&["a"]), &other);
    let error = refused(compare(&left, &right, None, &mut ()), "a trace of another checkpoint (00)");
    assert!(error.to_string().contains("right/a.trace.safetensors"), "{error}");
}

#[test]
fn recordings_of_two_texts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let left = recorded(folder.path(), "left", &cases(&["a"]));
    let other = Case::new("a", [2, 0, 2].map(TokenId).into()).unwrap();
    let right = recorded(folder.path(), "right", &[other]);
    refused(compare(&left, &right, None, &mut ()), "other tokens, id 2 at position 2 of 3");
}

/// The first recorded trace of a folder, changed.
fn rewrite(folder: &Path, case: &str, change: impl FnOnce(&mut Trace)) {
    let path = folder.join(format!("{case}.trace.safetensors"));
    let mut trace = Trace::read(&path).unwrap();
    change(&mut trace);
    trace.write(&path).unwrap();
}

/// Leaves the trace without its second layer, and without what goes with it.
fn drop_layer(trace: &mut Trace) {
    trace.layers.truncate(1);
    trace.meta.layer_kinds = None;
    trace.ids = trace.ids.slice(ndarray::s![.., ..1, ..]).as_standard_layout().into_owned();
    (trace.weights, trace.candidates, trace.origin) = (None, None, None);
}

#[test]
fn recordings_of_other_layers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let left = recorded(folder.path(), "left", &cases(&["a"]));
    let right = recorded(folder.path(), "right", &cases(&["a"]));
    std::fs::remove_file(right.join("a.sites.safetensors")).unwrap();
    rewrite(&right, "a", drop_layer);
    refused(compare(&left, &right, None, &mut ()), "another number or set, 1 layers [0]");
}

#[test]
fn cases_of_other_layers_than_the_first_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = recorded(folder.path(), "out", &cases(&["a", "b"]));
    std::fs::remove_file(out.join("b.sites.safetensors")).unwrap();
    rewrite(&out, "b", drop_layer);
    refused(compare(&out, &out, None, &mut ()), "expected 2 layers [0, 1] of 5 experts");
}

#[rstest]
#[case::one_missing(&["a", "b"], &["a"])]
#[case::one_more(&["a"], &["a", "b"])]
#[case::other_names(&["a"], &["b"])]
fn cases_that_do_not_pair_are_refused(#[case] left: &[&str], #[case] right: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let left = recorded(folder.path(), "left", &cases(left));
    let right = recorded(folder.path(), "right", &cases(right));
    let error = refused(compare(&left, &right, None, &mut ()), "record both sides on the same cases");
    assert!(matches!(error, Error::Unpaired { .. }));
}

#[test]
fn two_single_files_are_a_pair_whatever_their_names_with_the_sites_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let left = recorded(folder.path(), "left", &cases(&["a"])).join("a.trace.safetensors");
    let right = recorded(folder.path(), "right", &cases(&["b"])).join("b.trace.safetensors");
    let found = compare(&left, &right, None, &mut ()).unwrap();
    assert_eq!((found.layers[0].rows, found.end_to_end.unwrap().kl_nats.count), (3, 3));
}

#[test]
fn a_folder_without_traces_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let left = recorded(folder.path(), "left", &cases(&["a"]));
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    refused(compare(&left, &empty, None, &mut ()), "files named *.trace.safetensors, found none");
}

#[test]
fn traces_without_a_common_route_compare_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = recorded(folder.path(), "out", &cases(&["a"]));
    std::fs::remove_file(out.join("a.sites.safetensors")).unwrap();
    rewrite(&out, "a", |trace| {
        trace.ids.fill(-1);
        trace.origin = None;
    });
    let error = refused(compare(&out, &out, None, &mut ()), "rows with a route on both sides");
    assert_eq!(error.blame(), spec::error::Blame::Void);
}

#[test]
fn a_reference_without_hashes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = recorded(folder.path(), "out", &cases(&["a"]));
    rewrite(&out, "a", |trace| trace.meta.weights_sha256 = None);
    refused(compare(&out, &out, None, &mut ()), "weights_sha256 and config_sha256");
}

#[test]
fn a_damaged_sites_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = recorded(folder.path(), "out", &cases(&["a"]));
    let path = out.join("a.sites.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 4]).unwrap();
    refused(compare(&out, &out, None, &mut ()), "as the header says");
}

/// The recording of case `a` by a side of that name.
fn recorded_by(folder: &Path, name: &str, side: Option<&str>) -> PathBuf {
    let out = recorded(folder, name, &cases(&["a"]));
    rewrite(&out, "a", |trace| trace.meta.engine = side.map(|side| serde_json::json!({ "side": side })));
    out
}

#[test]
fn the_ports_recording_in_the_references_place_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let port = recorded_by(folder.path(), "left", Some("port"));
    let reference = recorded_by(folder.path(), "right", Some("reference"));
    let said = "expected the reference's recording first and the port's second";
    let error = refused(compare(&port, &reference, None, &mut ()), said);
    assert!(matches!(error, Error::Trace { .. }), "{error}");
    assert!(error.to_string().contains("left/a.trace.safetensors"), "{error}");
}

#[rstest]
#[case::in_order(Some("reference"), Some("port"))]
#[case::two_references(Some("reference"), Some("reference"))]
#[case::two_ports(Some("port"), Some("port"))]
#[case::a_port_against_nobody_known(Some("port"), None)]
#[case::nobody_known_against_a_reference(None, Some("reference"))]
fn recordings_that_are_not_swapped_are_compared(#[case] left: Option<&str>, #[case] right: Option<&str>) {
    let folder = tempfile::tempdir().unwrap();
    let (left, right) =
        (recorded_by(folder.path(), "left", left), recorded_by(folder.path(), "right", right));
    assert_eq!(compare(&left, &right, None, &mut ()).unwrap().layers[0].rows, 3);
}

#[test]
fn control_characters_of_a_file_name_do_not_reach_the_message() {
    let folder = tempfile::tempdir().unwrap();
    let left = recorded(folder.path(), "left", &cases(&["a"]));
    let right = recorded(folder.path(), "right", &cases(&["a"]));
    std::fs::write(right.join("b\u{1b}[2J.trace.safetensors"), "").unwrap();
    let error = refused(compare(&left, &right, None, &mut ()), "found a, b\\u{1b}[2J in");
    assert!(!error.to_string().contains(char::is_control), "{error:?}");
}
