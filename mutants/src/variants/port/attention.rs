//! The same attention otherwise (K8, K12, K13).

use mlx_rs::fast::ScaledDotProductAttentionMask;
use mlx_rs::{Array, Dtype, fast, ops};
use port::engine::{Op, dim, length};
use port::mask::Mask;
use port::{Correct, Steps};

/// What is added to the score of a key that is not visible: its weight is then 0.
const HIDDEN: f32 = -1e9;

/// `exp(q k^T) v`, divided by the sums of its weights afterwards, in f32, rounded once.
pub struct Explicit;

impl Steps for Explicit {
    fn attend(&self, q: &Array, keys: &Array, values: &Array, mask: &Mask) -> Op {
        let (keys, values) = (repeated(keys, q)?, repeated(values, q)?);
        let wide = |x: &Array| x.as_dtype(Dtype::Float32);
        let scores = ops::matmul(wide(q)?, wide(&keys)?.swap_axes(-1, -2)?)?;
        let mut scores = scores.multiply(Array::from_f32(scale(q)))?;
        if let Some(visible) = visible(mask, length(q, 2), length(&keys, 2))? {
            scores = scores.add(additive(&visible, Dtype::Float32)?)?;
        }
        let weights = scores.subtract(scores.max_axis(-1, true)?)?.exp()?;
        ops::matmul(&weights, wide(&values)?)?.divide(weights.sum_axis(-1, true)?)?.as_dtype(q.dtype())
    }
}

/// Keys and values repeated for every query head.
pub struct KvRepeated;

impl Steps for KvRepeated {
    fn attend(&self, q: &Array, keys: &Array, values: &Array, mask: &Mask) -> Op {
        Correct.attend(q, &repeated(keys, q)?, &repeated(values, q)?, mask)
    }
}

/// A mask of zeros and large negative numbers, which is added to the scores.
pub struct MaskAdded;

impl Steps for MaskAdded {
    fn attend(&self, q: &Array, keys: &Array, values: &Array, mask: &Mask) -> Op {
        let Some(visible) = visible(mask, length(q, 2), length(keys, 2))? else {
            return Correct.attend(q, keys, values, mask);
        };
        let added = additive(&visible, q.dtype())?;
        let mask = Some(ScaledDotProductAttentionMask::Array(&added));
        fast::scaled_dot_product_attention(q, keys, values, scale(q), mask, None)
    }
}

fn scale(q: &Array) -> f32 {
    (q.dim(-1) as f32).sqrt().recip()
}

/// Key-value heads, `[1, Nkv, S, D]`, each as often as query heads read it, `[1, Nq, S, D]`.
fn repeated(heads: &Array, q: &Array) -> Op {
    let [one, count, keys, width] = [0, 1, 2, 3].map(|axis| heads.dim(axis));
    let each = q.dim(1) / count;
    let beside = ops::broadcast_to(heads.expand_dims(2)?, &[one, count, each, keys, width])?;
    beside.reshape(&[one, count * each, keys, width])
}

/// What a mask lets each query see, `[T, S]` bool; `None`: everything.
fn visible(mask: &Mask, queries: usize, keys: usize) -> Op<Option<Array>> {
    Ok(match mask {
        Mask::All => None,
        Mask::Visible(visible) => Some(visible.clone()),
        Mask::Causal => {
            let query = ops::arange::<_, i32>(dim(keys - queries), dim(keys), None)?.reshape(&[-1, 1])?;
            Some(query.ge(ops::arange::<_, i32>(None, dim(keys), None)?)?)
        }
    })
}

/// 0 where visible, else [`HIDDEN`].
fn additive(visible: &Array, dtype: Dtype) -> Op {
    let hidden = visible.logical_not()?.as_dtype(Dtype::Float32)?;
    hidden.multiply(Array::from_f32(HIDDEN))?.as_dtype(dtype)
}
