//! Who sees whom (K11, K12).
//!
//! Inputs: a window, the number of a call's queries and of the keys its cache returned. Outputs: what
//! `fast::scaled_dot_product_attention` takes as its mask. Absent on purpose: positions; keys of a call of
//! several tokens are in order and end with the call's own, so only their distance matters.

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
    /// True where visible, `[T, S]` bool.
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
