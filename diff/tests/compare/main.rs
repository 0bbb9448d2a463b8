//! Metrics and comparison against values worked out by hand, on sides that are tables.

mod end_to_end;
mod fake;
mod layers;
mod metrics;
mod output;
mod pairing;
mod spool;
mod stats;

use diff::compare::{Comparison, Options, PortRuns, sides};
use fake::Fake;
use spec::{Case, Precision, Result, Schedule};

/// All layers, forced and free, f32 on both sides.
fn options() -> Options {
    Options {
        layers: None,
        schedule: Schedule::chunks_of(128),
        reference_precision: Precision::F32,
        port_precision: Precision::F32,
        routing: PortRuns::ForcedAndFree,
    }
}

fn compare(reference: &Fake, port: &Fake, cases: &[Case]) -> Result<Comparison> {
    sides(reference, port, cases, &options(), &mut ())
}

/// Whether two numbers are equal up to a relative `1e-6`, what f32 inputs allow.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * b.abs()
}
