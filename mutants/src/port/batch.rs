//! Bugs of batches: positions, masks and rows of several sequences in one call (K10, K12).
//!
//! A sequence that has its calls to itself does not pass these steps.

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, ops};
use port::batch::Row;
use port::batch_cache::BatchCache;
use port::engine::{Op, dim};
use port::mask::Mask;
use port::{Correct, Steps};

/// Positions count the columns of padding.
pub struct PaddedFrame;

impl Steps for PaddedFrame {
    fn batch_offsets(&self, rows: &[Row]) -> Vec<i32> {
        rows.iter().map(|row| dim(row.columns)).collect()
    }
}

/// In decode each row stays at the position after its prompt.
pub struct FrozenRows;

impl Steps for FrozenRows {
    fn batch_offsets(&self, rows: &[Row]) -> Vec<i32> {
        rows.iter().map(|row| row.position().min(dim(row.prompt))).collect()
    }
}

/// In calls of one token only the first row turns.
pub struct FirstRowTurns;

impl Steps for FirstRowTurns {
    fn rotate_rows(&self, x: &Array, periods: &Array, offsets: &Array) -> Op {
        let turned = Correct.rotate_rows(x, periods, offsets)?;
        match x.dim(2) {
            1 => ops::concatenate(&[turned.try_index(..1)?, x.try_index(1..)?], 0),
            _ => Ok(turned),
        }
    }
}

/// Calls of one token see every slot that holds no token's key.
pub struct PaddingInDecode;

impl Steps for PaddingInDecode {
    fn batch_mask(&self, window: Option<usize>, queries: &Array, keys: &Array) -> Op<Mask> {
        let mask = Correct.batch_mask(window, queries, keys)?;
        if queries.dim(1) > 1 { Ok(mask) } else { with(mask, &is_padding(keys)?) }
    }
}

/// Calls of several tokens see the padding before a query as if it were tokens.
pub struct PaddingInPrefill;

impl Steps for PaddingInPrefill {
    fn batch_mask(&self, window: Option<usize>, queries: &Array, keys: &Array) -> Op<Mask> {
        let mask = Correct.batch_mask(window, queries, keys)?;
        let (tokens, slots) = (queries.dim(1), keys.dim(1));
        if tokens == 1 {
            return Ok(mask);
        }
        let own = ops::arange::<_, i32>(slots - tokens, slots, None)?.reshape(&[-1, 1])?;
        let before = ops::arange::<_, i32>(None, slots, None)?.reshape(&[1, -1])?.le(own)?;
        with(mask, &is_padding(keys)?.logical_and(before)?)
    }
}

/// Padding sees nothing, and a softmax over nothing is NaN.
pub struct NanOfNothing;

impl Steps for NanOfNothing {
    fn batch_mask(&self, window: Option<usize>, queries: &Array, keys: &Array) -> Op<Mask> {
        let Mask::Visible(visible) = Correct.batch_mask(window, queries, keys)? else {
            unreachable!("a batch has a mask of its own")
        };
        let is_token = queries.ge(Array::from_int(0))?.expand_dims_axes(&[1, 3])?;
        Ok(Mask::Visible(visible.logical_and(is_token)?))
    }

    fn attend(&self, q: &Array, keys: &Array, values: &Array, mask: &Mask) -> Op {
        let out = Correct.attend(q, keys, values, mask)?;
        let Mask::Visible(visible) = mask else { return Ok(out) };
        let nan = Array::from_f32(f32::NAN).as_dtype(out.dtype())?;
        ops::select(visible.any_axis(-1, true)?, &out, nan)
    }
}

/// Whichever row leaves, caches lose their last.
pub struct LastRowLeaves;

impl Steps for LastRowLeaves {
    fn leave(&self, cache: &mut BatchCache, stay: &[usize]) -> Op<()> {
        Correct.leave(cache, &(0..stay.len()).collect::<Vec<_>>())
    }
}

/// In caches a row that joins comes first, everywhere else last.
pub struct JoinsInFront;

impl Steps for JoinsInFront {
    fn join(&self, cache: &mut BatchCache, new: BatchCache) -> Op<()> {
        let before = std::mem::replace(cache, new);
        Correct.join(cache, before)
    }
}

/// Slots that hold no token's key, `[B, 1, 1, S]`. `keys`: `[B, S]` i32.
fn is_padding(keys: &Array) -> Op {
    keys.lt(Array::from_int(0))?.expand_dims_axes(&[1, 2])
}

/// The mask with more to see.
fn with(mask: Mask, more: &Array) -> Op<Mask> {
    match mask {
        Mask::Visible(visible) => Ok(Mask::Visible(visible.logical_or(more)?)),
        all => Ok(all),
    }
}
