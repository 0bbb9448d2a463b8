//! The census of a checkpoint, as text.

use super::{count, say, table};
use reference::Survey;
use spec::LayerKind;
use std::path::Path;

/// Prints a census and what is wrong with the checkpoint.
pub fn print_survey(checkpoint: &Path, survey: &Survey, out: &mut String) {
    say!(out, "{}\n", checkpoint.display());
    let mut files = table(&["file", "tensors", "bytes"], 1);
    for file in &survey.files {
        files.add_row([file.name.clone(), count(file.tensors as u64), count(file.bytes)]);
    }
    say!(out, "{files}\n");
    let mut dtypes = table(&["dtype", "tensors", "bytes"], 1);
    for dtype in &survey.dtypes {
        dtypes.add_row([dtype.dtype.clone(), count(dtype.tensors as u64), count(dtype.bytes)]);
    }
    say!(out, "{dtypes}\n");
    let of_kind = |kind| survey.layers.iter().filter(|&&k| k == kind).count();
    let (sliding, full) = (of_kind(LayerKind::Sliding), of_kind(LayerKind::Full));
    let mut summary = table(&["whole checkpoint", ""], 1);
    summary.add_row(["tensors".into(), count(survey.tensors as u64)]);
    summary.add_row(["parameters".into(), count(survey.parameters)]);
    summary.add_row(["active parameters per token".into(), count(survey.active_parameters)]);
    summary.add_row(["layers".into(), format!("{} ({sliding} sliding, {full} full)", survey.layers.len())]);
    say!(out, "{summary}\n");
    match survey.problems.len() {
        0 => say!(out, "Nothing missing, extra or mis-shaped."),
        1 => say!(out, "1 problem:"),
        several => say!(out, "{several} problems:"),
    }
    for problem in &survey.problems {
        say!(out, "- {}", spec::Error::from(problem.clone()));
    }
}
