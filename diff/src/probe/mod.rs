//! A port's kernels at the shapes of a model and at the boundaries at which kernels have failed.
//!
//! Job: call each kernel three times, beside another way to the same result (an unsorted gather, rows and
//! heads one by one), and hold every row of both against f64. Inputs: [`spec::Kernels`], a model's shapes.
//! Output: a [`Finding`] for each shape. Operands come from a seed, so that every run has the same.
//!
//! Architecture invariant: no engine is known here, and what is right is worked out from the definition
//! (K10, K13, K17). Absent on purpose: weights of a checkpoint, and speed.

mod attention;
mod finding;
mod gather;
mod rotation;
mod shapes;

pub use finding::{Finding, Kind, RATIO_MAX};
pub use shapes::Extent;

use crate::compare::Progress;
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spec::{Kernels, ModelConfig, Result};

/// Of all operands.
const SEED: u64 = 64;
/// How often the same call is made.
const CALLS: usize = 3;

/// Calls every kernel at every shape of an extent. Errors: whatever the kernels return.
pub fn run(
    kernels: &dyn Kernels,
    config: &ModelConfig,
    extent: Extent,
    progress: &mut dyn Progress,
) -> Result<Vec<Finding>> {
    let gathers = shapes::gathers(config, extent);
    let (rotations, attentions) = (shapes::rotations(config), shapes::attentions(config));
    progress.phase("kernels", gathers.len() + rotations.len() + attentions.len());
    let mut findings = Vec::new();
    for shape in &gathers {
        findings.push(gather::measure(kernels, shape)?);
        progress.step(1);
    }
    for shape in &rotations {
        findings.push(rotation::measure(kernels, shape, config)?);
        progress.step(1);
    }
    for shape in &attentions {
        findings.push(attention::measure(kernels, shape)?);
        progress.step(1);
    }
    Ok(findings)
}

/// The first result of [`CALLS`] equal calls, and how many values of the others have other bits.
fn repeated(call: impl Fn() -> Result<Array2<f32>>) -> Result<(Array2<f32>, usize)> {
    let first = call()?;
    let mut differing = 0;
    for _ in 1..CALLS {
        let again = call()?;
        let bits = |(a, b): &(&f32, &f32)| a.to_bits() != b.to_bits();
        differing += first.iter().zip(&again).filter(bits).count();
    }
    Ok((first, differing))
}

/// Numbers of a shape's own stream.
struct Draws(ChaCha8Rng);

impl Draws {
    fn new() -> Self {
        Self(ChaCha8Rng::seed_from_u64(SEED))
    }

    /// Within 1 of 0.
    fn number(&mut self) -> f32 {
        self.0.random_range(-1.0_f32..1.0)
    }

    /// The same, as bf16 holds it.
    fn bf16(&mut self) -> f32 {
        half::bf16::from_f32(self.number()).to_f32()
    }

    /// Below `end`.
    fn index(&mut self, end: u32) -> u32 {
        self.0.random_range(0..end)
    }
}
