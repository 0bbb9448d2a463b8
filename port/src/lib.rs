//! The MLX side: Kolibri-1 on mlx-rs, as somebody who ports models to MLX would write it.
//!
//! Job: load a checkpoint with MLX's own loader, run it with MLX's own kernels (fast norm, RoPE and
//! attention, sorted gather for the experts, KV and rotating caches, chunked prefill, decode), and report
//! what it computed through [`spec::Side`]. Inputs: a checkpoint folder, [`spec::Run`]s. Outputs: rows of
//! [`spec::Site`]s and what was executed.
//!
//! A model reads as [`weights`] → [`attention`] → [`router`] and [`experts`] → [`layer`] → [`Port`]. Every
//! step is a method of [`Steps`] with the correct body as its default, so that a planted bug overrides one
//! step and nothing else can drift.
//!
//! Architecture invariant: written from `docs/kolibri-1.md` alone; nothing of the reference is seen here,
//! and no tensor name, loader or number is shared with it. Absent on purpose: sampling, tokenising.

pub mod attention;
pub mod batch;
pub mod batch_cache;
pub mod cache;
pub mod convert;
pub mod engine;
pub mod experts;
pub mod fp8;
pub mod head;
pub mod header;
pub mod kernels;
pub mod layer;
pub mod load;
pub mod mask;
pub mod record;
pub mod rope;
pub mod router;
mod side;
pub mod source;
pub mod steps;
mod tensors;
mod unique;
pub mod weight;
pub mod weights;
mod write;

pub use side::Port;
pub use steps::{Correct, Steps};
pub use weight::Weight;
