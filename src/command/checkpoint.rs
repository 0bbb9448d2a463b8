//! What every verb does with a checkpoint before it trusts it: census, then one pass over all bytes.

use crate::console::Bar;
use reference::{Scan, Survey};
use spec::{Error, Result};
use std::path::Path;

/// Takes the census and refuses the first problem; then hashes all bytes and refuses values that are not
/// finite. Errors: those of [`reference::survey`], and [`Error::Tensor`].
pub fn examine(dir: &Path) -> Result<Scan> {
    let survey = reference::survey(dir)?;
    if let Some(problem) = survey.problems.first() {
        return Err(problem.clone().into());
    }
    let scan = scan(dir, &survey)?;
    refuse_not_finite(dir, &scan)?;
    Ok(scan)
}

/// Errors: [`Error::Tensor`], the first value that is NaN or infinite.
pub fn refuse_not_finite(dir: &Path, scan: &Scan) -> Result<()> {
    match scan.not_finite.first() {
        None => Ok(()),
        Some(bad) => Err(Error::Tensor {
            path: dir.join(&bad.file),
            name: bad.tensor.clone(),
            expected: "finite values".into(),
            found: bad.found.clone(),
            next: "fetch the file again, or convert the checkpoint again".into(),
        }),
    }
}

/// One pass over all bytes, with a progress bar.
pub fn scan(dir: &Path, survey: &Survey) -> Result<Scan> {
    let bar = Bar::bytes("hashing the checkpoint", survey.files.iter().map(|file| file.bytes).sum());
    reference::scan(dir, &|bytes| bar.add(bytes))
}
