//! The same experts otherwise (K17).

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, Dtype, ops};
use port::engine::{Op, dim};
use port::experts::{Routed, Shared};
use port::weights::{ExpertWeights, SharedWeights};
use port::{Correct, Steps, Weight};

/// Each token's experts as they were chosen: nothing is sorted.
pub struct Unsorted;

impl Steps for Unsorted {
    fn routed(&self, weights: &ExpertWeights, x: &Array, ids: &Array) -> Op<Routed> {
        in_order(weights, x, ids, &as_chosen(ids)?)
    }
}

/// The expert of the highest id first.
pub struct Descending;

impl Steps for Descending {
    fn routed(&self, weights: &ExpertWeights, x: &Array, ids: &Array) -> Op<Routed> {
        in_order(weights, x, ids, &descending(ids)?)
    }
}

fn as_chosen(ids: &Array) -> Op {
    ops::arange::<_, u32>(None, dim(ids.size()), None)
}

fn descending(ids: &Array) -> Op {
    ops::argsort_axis(ids.reshape(&[-1])?.as_dtype(Dtype::Int32)?.negative()?, 0)
}

/// The `T * k` rows of a gather in any order, `order`: `[T * k]` u32.
fn in_order(weights: &ExpertWeights, x: &Array, ids: &Array, order: &Array) -> Op<Routed> {
    let (k, hidden) = (ids.dim(2), x.dim(2));
    let back = ops::argsort_axis(order, 0)?;
    let expert = ids.reshape(&[-1])?.take_axis(order, 0)?;
    let token = order.floor_divide(Array::from_slice(&[k.unsigned_abs()], &[]))?;
    let rows = x.reshape(&[-1, 1, hidden])?.take_axis(token, 0)?;
    let product = |rows: &Array, stack: &Weight| Correct.expert_product(rows, stack, &expert, false);
    let active = Correct.activate(&product(&rows, &weights.gate)?, &product(&rows, &weights.up)?)?;
    let down = product(&active, &weights.down)?;
    let outputs = down.take_axis(&back, 0)?.reshape(&[x.dim(0), x.dim(1), k, hidden])?;
    Ok(Routed { outputs, ids: expert.take_axis(&back, 0)?.reshape(ids.shape())? })
}

/// Experts in another order, with a map from their ids to their places.
pub struct Permuted;

impl Steps for Permuted {
    fn routed(&self, weights: &ExpertWeights, x: &Array, ids: &Array) -> Op<Routed> {
        let places = places(weights.gate.arrays()[0].dim(0));
        // the map is its own inverse: at place p is expert places[p]
        let stack = |stack: &Weight| stack.map(|array| array.take_axis(&places, 0));
        let permuted = ExpertWeights {
            gate: stack(&weights.gate)?,
            up: stack(&weights.up)?,
            down: stack(&weights.down)?,
        };
        let routed = Correct.routed(&permuted, x, &places.take_axis(ids, 0)?)?;
        Ok(Routed { ids: places.take_axis(&routed.ids, 0)?, ..routed })
    }
}

/// Where each expert is: at `2 - id`, counted round. `[E]` u32.
fn places(experts: i32) -> Array {
    let places: Vec<u32> = (0..experts).map(|id| ((2 * experts + 2 - id) % experts).unsigned_abs()).collect();
    Array::from_slice(&places, &[experts])
}

/// Gate and up projection of the shared expert as one product.
pub struct SharedFused;

impl Steps for SharedFused {
    fn shared(&self, weights: &SharedWeights, x: &Array) -> Op<Shared> {
        let fused = self.linear(x, &side_by_side(&weights.gate, &weights.up, 0)?)?;
        let [gate, up] = <[Array; 2]>::try_from(fused.split_equal(2, -1)?).expect("two halves");
        let active = self.activate(&gate, &up)?;
        let output = self.linear(&active, &weights.down)?;
        Ok(Shared { gate, up, active, output })
    }
}

/// Rows of two matrices, or of two stacks of them, one after the other along `axis`.
fn side_by_side(gate: &Weight, up: &Weight, axis: i32) -> Op<Weight> {
    Ok(ops::concatenate(&[gate.dense()?, up.dense()?], axis)?.into())
}

/// Gate and up projection of the routed experts as one product.
pub struct RoutedFused;

impl Steps for RoutedFused {
    fn routed(&self, weights: &ExpertWeights, x: &Array, ids: &Array) -> Op<Routed> {
        let width = weights.gate.arrays()[0].dim(1);
        let fused = ExpertWeights {
            gate: side_by_side(&weights.gate, &weights.up, 1)?,
            up: weights.up.clone(),
            down: weights.down.clone(),
        };
        port::experts::routed(&Halves { width }, &fused, x, ids)
    }
}

/// Takes `gate` for `[gate, up]` of twice the width.
struct Halves {
    width: i32,
}

impl Steps for Halves {
    fn activate(&self, fused: &Array, _up: &Array) -> Op {
        let gate = fused.try_index((.., .., ..self.width))?;
        Correct.activate(&gate, &fused.try_index((.., .., self.width..))?)
    }
}

/// Two sums, of either half of the terms.
pub struct ProductInHalves;

impl Steps for ProductInHalves {
    fn expert_product(&self, rows: &Array, stack: &Weight, ids: &Array, sorted: bool) -> Op {
        let stack = stack.dense()?;
        let half = rows.dim(-1) / 2;
        let wide = rows.as_dtype(Dtype::Float32)?;
        let low = Correct.expert_product(
            &wide.try_index((.., .., ..half))?,
            &stack.try_index((.., .., ..half))?.into(),
            ids,
            sorted,
        )?;
        let high = Correct.expert_product(
            &wide.try_index((.., .., half..))?,
            &stack.try_index((.., .., half..))?.into(),
            ids,
            sorted,
        )?;
        low.add(high)?.as_dtype(rows.dtype())
    }
}

/// `x / (1 + exp(-x))`.
pub struct SiluByExp;

impl Steps for SiluByExp {
    fn activate(&self, gate: &Array, up: &Array) -> Op {
        let wide = gate.as_dtype(Dtype::Float32)?;
        let silu = wide.divide(wide.negative()?.exp()?.add(Array::from_f32(1.0))?)?;
        silu.multiply(up)?.as_dtype(gate.dtype())
    }
}

/// `(gate * up) * sigmoid(gate)`.
pub struct SigmoidLast;

impl Steps for SigmoidLast {
    fn activate(&self, gate: &Array, up: &Array) -> Op {
        let wide = gate.as_dtype(Dtype::Float32)?;
        wide.multiply(up)?.multiply(ops::sigmoid(&wide)?)?.as_dtype(gate.dtype())
    }
}

/// The last of the k first, in f32, rounded once.
pub struct LastFirst;

impl Steps for LastFirst {
    fn combine(&self, outputs: &Array, weights: &Array) -> Op {
        let weighted = outputs.multiply(weights.expand_dims(-1)?)?;
        let term = |slot: i32| weighted.try_index((.., .., slot, ..));
        let last = outputs.dim(2) - 1;
        (0..last).rev().try_fold(term(last)?, |sum, slot| sum.add(term(slot)?))?.as_dtype(outputs.dtype())
    }
}

/// The weights as a row that multiplies the outputs as a matrix, in f32, rounded once.
pub struct CombinedAsProduct;

impl Steps for CombinedAsProduct {
    fn combine(&self, outputs: &Array, weights: &Array) -> Op {
        let sums = ops::matmul(weights.expand_dims(2)?, outputs.as_dtype(Dtype::Float32)?)?;
        sums.squeeze_axes(&[2])?.as_dtype(outputs.dtype())
    }
}

/// The shared expert first.
pub struct SharedFirst;

impl Steps for SharedFirst {
    fn moe_sum(&self, routed: &Array, shared: &Array) -> Op {
        Correct.moe_sum(shared, routed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::engine::values;

    /// Two tokens of two experts each.
    fn ids() -> Array {
        Array::from_slice(&[1_u32, 3, 3, 0], &[1, 2, 2])
    }

    /// The experts of [`ids`] in the order of their rows in the gather.
    fn visited(order: &Array) -> Vec<u32> {
        values(&ids().reshape(&[-1]).unwrap().take_axis(order, 0).unwrap()).unwrap()
    }

    #[test]
    fn rows_are_in_another_order_than_that_of_ids() {
        assert_eq!(visited(&as_chosen(&ids()).unwrap()), [1, 3, 3, 0]);
        assert_eq!(visited(&descending(&ids()).unwrap()), [3, 3, 1, 0]);
        // of 4 experts: 0 is at 2, 1 at 1, 2 at 0, 3 at 3
        let at = places(4).take_axis(ids().reshape(&[-1]).unwrap(), 0).unwrap();
        assert_eq!(visited(&ops::argsort_axis(at, 0).unwrap()), [1, 0, 3, 3]);
    }

    #[test]
    fn all_experts_but_one_or_two_are_elsewhere_and_the_map_is_its_own_inverse() {
        for experts in [3, 10, 16, 32, 64, 384] {
            let places = values::<u32>(&places(experts)).unwrap();
            assert_eq!(places[2], 0);
            let back: Vec<u32> = places.iter().map(|&place| places[place as usize]).collect();
            assert!(back.into_iter().eq(0..experts.unsigned_abs()));
            let stay = places.iter().enumerate().filter(|(id, place)| *id == **place as usize);
            assert!(stay.count() <= 2, "{places:?}");
        }
    }
}
