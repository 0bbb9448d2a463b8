//! Metrics on two sides, and their comparison.
//!
//! Job: pair what two sides recorded, row by row, and reduce it to numbers with their places. Inputs: two
//! `dyn spec::Side`, or recorded traces. Outputs: findings.
//!
//! Architecture invariant: neither the reference nor the port is known here; both are seen through
//! [`spec::Side`] alone, so that nothing can be computed by the same code for both.

pub mod bench;
mod beside;
pub mod bisect;
pub mod compare;
pub mod explain;
pub mod gate;
pub mod matrix;
pub mod metrics;
pub mod number;
pub mod probe;
pub mod spool;
pub mod stats;
pub mod trace;
