//! The port's kernels by themselves, as legs of `kernel.gather`.
//!
//! Inputs: kernels, a model's shapes. Outputs: the worst of each leg over all shapes of
//! [`Extent::Short`]. Absent on purpose: shapes and judging of rows ([`crate::probe`]).

use super::finding::Measurement;
use crate::compare::Progress;
use crate::probe::{self, Extent, Finding, Kind};
use crate::stats::is_worse;
use spec::{Kernels, ModelConfig, Result};

/// Errors: whatever the kernels return.
pub(crate) fn measure(
    kernels: &dyn Kernels,
    config: &ModelConfig,
    progress: &mut dyn Progress,
) -> Result<Vec<Measurement>> {
    let findings = probe::run(kernels, config, Extent::Short, progress)?;
    let of = |kind| findings.iter().filter(move |found| found.kind == kind);
    let bad = |found: &Finding| found.bad_rows as f64;
    let mut legs: Vec<Measurement> = of(Kind::Gather).map(|found| leg("ratio", found, found.ratio)).collect();
    legs.push(sum("bad_rows", of(Kind::Gather), bad));
    legs.push(sum("rotation", of(Kind::Rotation), bad));
    legs.push(sum("attention", of(Kind::Attention), bad));
    legs.push(sum("repeats", findings.iter(), |found| found.differing as f64));
    Ok(legs)
}

fn leg(name: &'static str, found: &Finding, value: f64) -> Measurement {
    let place = format!("{}, {}, {}", found.kernel, found.what, found.shape);
    Measurement::new("kernel.gather", name, found.rows, value).at(place)
}

/// A count over several shapes, and the shape with the most.
fn sum<'a>(
    name: &'static str,
    findings: impl Iterator<Item = &'a Finding>,
    count: impl Fn(&Finding) -> f64,
) -> Measurement {
    let (mut most, mut all) = (Measurement::new("kernel.gather", name, 0, 0.0), (0, 0.0));
    for found in findings {
        let new = leg(name, found, count(found));
        all = (all.0 + new.rows, all.1 + new.value);
        if is_worse(new.value, most.value) {
            most = new;
        }
    }
    Measurement { rows: all.0, value: all.1, ..most }
}
