//! The reference: the slow, plain f32 side of a comparison.
//!
//! Job: run a checkpoint as `docs/kolibri-1.md` says (K1 to K18), in f32, one layer at a time. Inputs: a
//! checkpoint folder and [`spec::Run`]s. Outputs: rows to a [`spec::Recorder`], and what was executed.
//!
//! Where to find a step: [`steps`] names every one and points at the file with its arithmetic (`norm`,
//! `rope`, `attention`, `router`, `experts`, `product`, `precision`); `layer` and `model` put them in
//! order; `checkpoint`, `resolve`, [`survey`](fn@survey), [`scan`](fn@scan) and `weights` are about files,
//! `storage`, `affine` and `decode` about how they hold values (K3, K4).
//!
//! Deliberately absent: caches of keys and values, chunked or batched execution, any engine but the CPU,
//! and any code shared with the port. **A schedule changes nothing here, because nothing reads it**: a
//! run's whole sequence passes each layer at once, and [`spec::Schedule`] only fills in
//! [`spec::Executed::call`]. Every output element is one sum in a fixed order, so no bit depends on the
//! number of threads or of runs in a pass, and the first `n` rows of a longer text are the rows of its
//! first `n` tokens.
//!
//! Architecture invariant: this crate depends on `spec` alone among this workspace's crates.

mod affine;
mod attention;
mod checkpoint;
mod decode;
mod experts;
mod head;
mod lane;
mod layer;
mod model;
mod norm;
mod precision;
mod product;
mod reference;
mod resolve;
mod rope;
mod router;
mod scan;
pub mod steps;
mod storage;
mod survey;
mod unique;
mod weights;
mod workers;

pub use lane::Lane;
pub use reference::{Options, Reference};
pub use rope::RopeTable;
pub use scan::{NotFinite, Scan, scan};
pub use steps::{Correct, Steps};
pub use survey::{DtypeCount, FileSummary, Problem, ProblemKind, Survey, survey};
