//! Bugs of the experts and of their sum (K17).

use super::scaled;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, Dtype, ops};
use port::engine::Op;
use port::experts::{Routed, Shared, routed};
use port::weights::{ExpertWeights, SharedWeights};
use port::{Correct, Steps};
use spec::ModelConfig;
use std::f32::consts::FRAC_1_SQRT_2;
use std::sync::Mutex;

const HELD: &str = "no thread panics while it holds the lock";

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

/// GELU for SiLU, the exact one.
pub struct Gelu;

impl Steps for Gelu {
    fn activate(&self, gate: &Array, up: &Array) -> Op {
        let wide = gate.as_dtype(Dtype::Float32)?;
        let share = ops::erf(wide.multiply(Array::from_f32(FRAC_1_SQRT_2))?)?.add(Array::from_f32(1.0))?;
        let active = wide.multiply(share)?.multiply(Array::from_f32(0.5))?;
        active.multiply(up)?.as_dtype(gate.dtype())
    }
}

/// Rows of the routed experts' gate and up projections, `[gate; up]` of `2 I`, read as if they took turns.
pub struct InterleavedHalves;

impl Steps for InterleavedHalves {
    fn routed(&self, weights: &ExpertWeights, x: &Array, ids: &Array) -> Op<Routed> {
        routed(&ActivatesTurns, weights, x, ids)
    }
}

/// Takes `[gate, up]`, as long as both together, for a sequence of pairs. Which row of a matrix makes which
/// column of its product is all that the fused matrix decides.
struct ActivatesTurns;

impl Steps for ActivatesTurns {
    fn activate(&self, gate: &Array, up: &Array) -> Op {
        let fused = ops::concatenate(&[gate, up], -1)?;
        let pairs = fused.reshape(&[gate.dim(0), gate.dim(1), gate.dim(2), 2])?;
        let turn = |which: i32| pairs.try_index((.., .., .., which));
        Correct.activate(&turn(0)?, &turn(1)?)
    }
}

/// The routing weight multiplies what an expert takes; what it gives is weighted again, or only added up.
pub struct WeightedInput {
    again: bool,
    /// Of the layer and call at hand: `[1, T, k]`.
    weights: Mutex<Option<Array>>,
}

impl WeightedInput {
    pub fn new(again: bool) -> Self {
        Self { again, weights: Mutex::default() }
    }
}

impl Steps for WeightedInput {
    fn topk_weights(&self, logits: &Array, bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        let weights = Correct.topk_weights(logits, bias, ids, config)?;
        *self.weights.lock().expect(HELD) = Some(weights.clone());
        Ok(weights)
    }

    fn routed(&self, weights: &ExpertWeights, x: &Array, ids: &Array) -> Op<Routed> {
        let by = self.weights.lock().expect(HELD).take().expect("a layer routes before its experts run");
        let (k, hidden) = (ids.dim(2), x.dim(2));
        // each token k times, each time for one expert
        let inputs = x.expand_dims(2)?.multiply(by.expand_dims(-1)?)?.as_dtype(x.dtype())?;
        let each = Correct.routed(weights, &inputs.reshape(&[1, -1, hidden])?, &ids.reshape(&[1, -1, 1])?)?;
        let outputs = each.outputs.reshape(&[x.dim(0), x.dim(1), k, hidden])?;
        Ok(Routed { outputs, ids: each.ids.reshape(ids.shape())? })
    }

    fn combine(&self, outputs: &Array, weights: &Array) -> Op {
        match self.again {
            true => Correct.combine(outputs, weights),
            false => Correct.combine(outputs, &ops::ones_like(weights)?),
        }
    }
}

/// No shared expert in the sum.
pub struct SharedMissing;

impl Steps for SharedMissing {
    fn moe_sum(&self, routed: &Array, _shared: &Array) -> Op {
        Ok(routed.clone())
    }
}

/// The shared expert's output times a number.
pub struct SharedScaled(pub f32);

impl Steps for SharedScaled {
    fn shared(&self, weights: &SharedWeights, x: &Array) -> Op<Shared> {
        let right = Correct.shared(weights, x)?;
        Ok(Shared { output: scaled(&right.output, self.0)?, ..right })
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
