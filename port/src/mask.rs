//! Who sees whom (K11, K12).
//!
//! Inputs: a window, the number of a call's queries and of the keys its cache returned; of a batch, their
//! positions. Outputs: what `fast::scaled_dot_product_attention` takes as its mask. Absent on purpose:
//! positions of a sequence that has a call to itself; keys of a call of several tokens are in order and end
//! with the call's own, so only their distance matters.

use crate::engine::{Op, dim};
use mlx_rs::fast::ScaledDotProductAttentionMask;
use mlx_rs::{Array, ops};

/// A mask over `[T, S]` queries and keys.
#[derive(Debug)]
pub enum Mask {
    /// Every key is visible: a call of one token, whose cache holds just what it sees.
    All,
    /// Causal, the last query aligned with the last key.
    Causal,
    /// True where visible, `[T, S]` bool, or `[B, 1, T, S]` of a batch.
    Visible(Array),
}

impl Mask {
    /// As MLX's attention takes it.
    pub fn as_mlx(&self) -> Option<ScaledDotProductAttentionMask<'_>> {
        match self {
            Mask::All => None,
            Mask::Causal => Some(ScaledDotProductAttentionMask::Causal),
            Mask::Visible(array) => Some(ScaledDotProductAttentionMask::Array(array)),
        }
    }
}

/// The mask of `queries` tokens over `keys >= queries` keys, the last of which are the tokens' own.
///
/// Without a window, or with all keys within it: causal. Else the key `d` places before a query's own is
/// visible iff `0 <= d < window` (K12).
pub fn mask(window: Option<usize>, queries: usize, keys: usize) -> Op<Mask> {
    match window {
        _ if queries == 1 => Ok(Mask::All),
        Some(window) if keys > window => {
            let query = ops::arange::<_, i32>(dim(keys - queries), dim(keys), None)?.reshape(&[-1, 1])?;
            let key = ops::arange::<_, i32>(None, dim(keys), None)?.reshape(&[1, -1])?;
            let distance = query.subtract(key)?;
            let past = distance.ge(Array::from_int(0))?;
            let near = distance.lt(Array::from_int(dim(window)))?;
            Ok(Mask::Visible(past.logical_and(near)?))
        }
        _ => Ok(Mask::Causal),
    }
}

/// The mask of a batch, `[B, 1, T, S]`. `queries`: position of each row's columns, `[B, T]` i32; `keys`: of
/// its slots, `[B, S]` i32; below 0: no token.
///
/// A key is visible iff it is of a token and `0 <= query - key < window` (K12). A column without a token
/// sees everything, so that no softmax is over nothing; nobody sees what comes of it.
pub fn batch_mask(window: Option<usize>, queries: &Array, keys: &Array) -> Op<Mask> {
    let none = Array::from_int(0);
    let (query, key) = (queries.expand_dims_axes(&[1, 3])?, keys.expand_dims_axes(&[1, 2])?);
    let distance = query.subtract(&key)?;
    let mut visible = distance.ge(&none)?.logical_and(key.ge(&none)?)?;
    if let Some(window) = window {
        visible = visible.logical_and(distance.lt(Array::from_int(dim(window)))?)?;
    }
    Ok(Mask::Visible(visible.logical_or(query.lt(&none)?)?))
}
