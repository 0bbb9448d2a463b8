//! The gate against values worked out by hand: its limits, its findings, its files, and whole runs on sides
//! that are tables.

mod batch;
mod controls;
mod fake;
mod findings;
mod folder;
mod gates;
mod judge;
mod kernels;
mod limits;
mod lock;
mod matrix;
mod resume;
mod tensors;
mod verdict;

/// Whether two numbers are equal up to a relative `1e-6`, what f32 inputs allow.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * b.abs()
}

/// Panics unless they are.
#[track_caller]
fn assert_close(found: f64, expected: f64) {
    assert!(close(found, expected), "found {found:e}, expected {expected:e}");
}
