//! The same products otherwise (K5, K8, K14, K18).

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, Dtype, ops};
use port::engine::Op;
use port::{Correct, Steps, Weight};

/// Rows of the vocabulary that [`LogitsInBlocks`] takes at a time.
const BLOCK: i32 = 100;

/// Two sums, of either half of the terms, in f32; their sum is rounded once.
pub struct InHalves;

impl Steps for InHalves {
    fn linear(&self, x: &Array, weight: &Weight) -> Op {
        in_halves(x, &weight.dense()?)
    }
}

fn in_halves(x: &Array, weight: &Array) -> Op {
    let half = x.dim(-1) / 2;
    let (x32, w32) = (x.as_dtype(Dtype::Float32)?, weight.as_dtype(Dtype::Float32)?);
    let low = ops::matmul(x32.try_index((.., .., ..half))?, w32.try_index((.., ..half))?.transpose()?)?;
    let high = ops::matmul(x32.try_index((.., .., half..))?, w32.try_index((.., half..))?.transpose()?)?;
    low.add(high)?.as_dtype(x.dtype())
}

/// `(w x^T)^T`.
pub struct WeightFirst;

impl Steps for WeightFirst {
    fn linear(&self, x: &Array, weight: &Weight) -> Op {
        weight_first(x, &weight.dense()?.as_dtype(x.dtype())?)
    }
}

/// `(w x^T)^T`, of the router.
pub struct GateFirst;

impl Steps for GateFirst {
    fn router_logits(&self, x: &Array, gate: &Array) -> Op {
        weight_first(&x.as_dtype(Dtype::Float32)?, gate)
    }
}

fn weight_first(x: &Array, weight: &Array) -> Op {
    ops::matmul(weight, x.swap_axes(-1, -2)?)?.swap_axes(-1, -2)
}

/// The router's logits from each half of the hidden width.
pub struct RouterInHalves;

impl Steps for RouterInHalves {
    fn router_logits(&self, x: &Array, gate: &Array) -> Op {
        in_halves(&x.as_dtype(Dtype::Float32)?, gate)
    }
}

/// Logits of [`BLOCK`] rows of the vocabulary at a time.
pub struct LogitsInBlocks;

impl Steps for LogitsInBlocks {
    fn logits(&self, x: &Array, lm_head: &Weight) -> Op {
        let rows = lm_head.arrays()[0].dim(0);
        let block = |first: i32| {
            let part = lm_head.map(|array| array.try_index((first..(first + BLOCK).min(rows), ..)))?;
            Correct.logits(x, &part)
        };
        let blocks: Vec<Array> = (0..rows).step_by(BLOCK as usize).map(block).collect::<Op<_>>()?;
        ops::concatenate(&blocks, -1)
    }
}

/// Rows of the embedding as a product with rows of one 1 and zeros.
pub struct OneHotEmbedding;

impl Steps for OneHotEmbedding {
    fn embed(&self, table: &Weight, ids: &Array) -> Op {
        let table = table.dense()?;
        let vocabulary = ops::arange::<_, u32>(None, table.dim(0), None)?;
        let one_hot = ids.expand_dims(-1)?.eq(vocabulary)?.as_dtype(table.dtype())?;
        ops::matmul(one_hot, &table)
    }
}
