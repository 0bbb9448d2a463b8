//! Bugs of the experts and of their sum (K17).

use super::scaled;
use mlx_rs::Array;
use mlx_rs::ops::indexing::TryIndexOp;
use port::engine::Op;
use port::experts::Shared;
use port::weights::SharedWeights;
use port::{Correct, Steps};

/// `silu(up) * gate`.
pub struct SwappedGate;

impl Steps for SwappedGate {
    fn activate(&self, gate: &Array, up: &Array) -> Op {
        Correct.activate(up, gate)
    }
}

/// Sigmoid and both products each rounded to the rows' dtype.
pub struct ActivationRounded;

impl Steps for ActivationRounded {
    fn activate(&self, gate: &Array, up: &Array) -> Op {
        gate.multiply(mlx_rs::ops::sigmoid(gate)?)?.multiply(up)
    }
}

/// Half the shared expert.
pub struct SharedHalf;

impl Steps for SharedHalf {
    fn shared(&self, weights: &SharedWeights, x: &Array) -> Op<Shared> {
        let right = Correct.shared(weights, x)?;
        Ok(Shared { output: scaled(&right.output, 0.5)?, ..right })
    }
}

/// Every weighted output, and every sum of some of them, rounded to the outputs' dtype.
pub struct RoundedPerTerm;

impl Steps for RoundedPerTerm {
    fn combine(&self, outputs: &Array, weights: &Array) -> Op {
        let term = |slot: i32| {
            let (output, weight) =
                (outputs.try_index((.., .., slot, ..))?, weights.try_index((.., .., slot))?);
            output.multiply(weight.expand_dims(-1)?)?.as_dtype(outputs.dtype())
        };
        (1..outputs.dim(2)).try_fold(term(0)?, |sum, slot| sum.add(term(slot)?)?.as_dtype(outputs.dtype()))
    }
}
