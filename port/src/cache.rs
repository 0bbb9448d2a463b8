//! Keys and values of the tokens that came before.
//!
//! Inputs: a call's keys and values, `[1, Nkv, T, D]`. Outputs: the keys and values its queries may see,
//! `[1, Nkv, S, D]`. Absent on purpose: who sees which of them ([`crate::mask`]), positions in RoPE (keys are
//! stored rotated).

use crate::engine::{Op, dim, length};
use mlx_rs::Array;
use mlx_rs::ops::indexing::{TryIndexMutOp, TryIndexOp};
use mlx_rs::ops::{concatenate, zeros_dtype};
use std::fmt::Debug;

/// Slots by which caches that decode grow.
pub const STEP: usize = 256;

/// What a layer's attention remembers between calls.
pub trait Cache: Debug + Send {
    /// Tokens taken so far: the absolute position of the next one. A plain number, so that no graph grows
    /// with it.
    fn offset(&self) -> usize;

    /// Takes a call's keys and values, `[1, Nkv, T, D]`, and gives all that its queries may need,
    /// `[1, Nkv, S, D]`: in order of position if `T > 1`, else in any order.
    fn update(&mut self, keys: &Array, values: &Array) -> Op<(Array, Array)>;

    /// What must be evaluated before the next call, so that graphs do not grow from call to call.
    fn arrays(&self) -> Vec<&Array>;
}

/// Cache of a full layer: everything, in order, in a buffer that grows by [`STEP`] slots (K11).
#[derive(Debug, Default)]
pub struct KvCache {
    buffers: Option<(Array, Array)>,
    offset: usize,
}

impl Cache for KvCache {
    fn offset(&self) -> usize {
        self.offset
    }

    fn update(&mut self, keys: &Array, values: &Array) -> Op<(Array, Array)> {
        let (start, stop) = (self.offset, self.offset + length(keys, 2));
        let (mut k, mut v) = match self.buffers.take() {
            None => (grown(None, 0, stop, keys)?, grown(None, 0, stop, values)?),
            Some((k, v)) if length(&k, 2) < stop => {
                (grown(Some(&k), start, stop, keys)?, grown(Some(&v), start, stop, values)?)
            }
            Some(buffers) => buffers,
        };
        write(&mut k, start, keys)?;
        write(&mut v, start, values)?;
        self.offset = stop;
        let seen = (slots(&k, 0, stop)?, slots(&v, 0, stop)?);
        self.buffers = Some((k, v));
        Ok(seen)
    }

    fn arrays(&self) -> Vec<&Array> {
        self.buffers.iter().flat_map(|(k, v)| [k, v]).collect()
    }
}

/// Cache of a sliding layer: what a window of W keys, the query's own included, can still reach (K12).
///
/// A call of several tokens lays the last W-1 keys before its own, in order. A call of one token writes
/// over the oldest slot of a ring of W, which then holds exactly the keys that the token sees, in ring
/// order. Each call leaves the buffer as it made it; the next one brings it into the form it needs.
#[derive(Debug)]
pub struct RotatingCache {
    window: usize,
    buffers: Option<(Array, Array)>,
    /// Slots that hold a key; the buffers may be longer while the ring is filling.
    held: usize,
    /// Slot of the oldest key once the ring has wrapped; 0 while slots are in order of position.
    oldest: usize,
    offset: usize,
}

impl RotatingCache {
    /// An empty cache for a window of `window >= 1` keys.
    pub fn new(window: usize) -> Self {
        assert!(window > 0, "a window holds at least the query's own key");
        Self { window, buffers: None, held: 0, oldest: 0, offset: 0 }
    }

    /// The newest `keep` of the held slots of one buffer, in order of position; `None` if that is none.
    fn newest(&self, buffer: &Array, keep: usize) -> Op<Option<Array>> {
        let keep = keep.min(self.held);
        let skipped = self.held - keep;
        // positions in ring order: oldest..held, then 0..oldest
        let tail = (self.oldest + skipped).min(self.held)..self.held;
        let head = (self.oldest + skipped).saturating_sub(self.held)..self.oldest;
        Ok(match (tail.is_empty(), head.is_empty()) {
            (true, true) => None,
            (false, true) => Some(slots(buffer, tail.start, tail.end)?),
            (true, false) => Some(slots(buffer, head.start, head.end)?),
            (false, false) => {
                let parts = [slots(buffer, tail.start, tail.end)?, slots(buffer, head.start, head.end)?];
                Some(concatenate(&parts, 2)?)
            }
        })
    }

    /// Several tokens: W-1 past keys at most, then the call's own, in order.
    fn append(&mut self, keys: &Array, values: &Array) -> Op<(Array, Array)> {
        let after_past = |buffer: Option<&Array>, new: &Array| {
            let past = buffer.map(|b| self.newest(b, self.window - 1)).transpose()?.flatten();
            past.map_or_else(|| Ok(new.clone()), |past| concatenate(&[past, new.clone()], 2))
        };
        let k = after_past(self.buffers.as_ref().map(|(k, _)| k), keys)?;
        let v = after_past(self.buffers.as_ref().map(|(_, v)| v), values)?;
        (self.held, self.oldest) = (length(&k, 2), 0);
        self.offset += length(keys, 2);
        self.buffers = Some((k.clone(), v.clone()));
        Ok((k, v))
    }

    /// One token: written in place, over the oldest key if the ring is full.
    fn replace_oldest(&mut self, key: &Array, value: &Array) -> Op<(Array, Array)> {
        let (mut k, mut v) = match self.buffers.take() {
            None => (self.ring(None, 1, key)?, self.ring(None, 1, value)?),
            Some((k, v)) if self.held > self.window => {
                // a prefill left more than a ring holds
                let cut = (self.newest(&k, self.window)?, self.newest(&v, self.window)?);
                (self.held, self.oldest) = (self.window, 0);
                (cut.0.expect("a window is not empty"), cut.1.expect("a window is not empty"))
            }
            Some((k, v)) if self.held < self.window && length(&k, 2) == self.held => {
                (self.ring(Some(&k), self.held + 1, key)?, self.ring(Some(&v), self.held + 1, value)?)
            }
            Some(buffers) => buffers,
        };
        let slot = if self.held < self.window { self.held } else { self.oldest };
        write(&mut k, slot, key)?;
        write(&mut v, slot, value)?;
        if self.held < self.window {
            self.held += 1;
        } else {
            self.oldest = (self.oldest + 1) % self.window;
        }
        self.offset += 1;
        let seen = (slots(&k, 0, self.held)?, slots(&v, 0, self.held)?);
        self.buffers = Some((k, v));
        Ok(seen)
    }

    /// A longer buffer with room for `stop` slots, never more than the ring holds.
    fn ring(&self, buffer: Option<&Array>, stop: usize, like: &Array) -> Op {
        let longer = grown(buffer, self.held, stop, like)?;
        slots(&longer, 0, length(&longer, 2).min(self.window))
    }
}

impl Cache for RotatingCache {
    fn offset(&self) -> usize {
        self.offset
    }

    fn update(&mut self, keys: &Array, values: &Array) -> Op<(Array, Array)> {
        match length(keys, 2) {
            1 => self.replace_oldest(keys, values),
            _ => self.append(keys, values),
        }
    }

    fn arrays(&self) -> Vec<&Array> {
        self.buffers.iter().flat_map(|(k, v)| [k, v]).collect()
    }
}

/// The first `held` slots of a buffer and zeros after them, up to the next multiple of [`STEP`] from `held`
/// on that makes room for `stop` slots.
pub(crate) fn grown(buffer: Option<&Array>, held: usize, stop: usize, like: &Array) -> Op {
    let room = (stop - held).next_multiple_of(STEP);
    let zeros = zeros_dtype(&[like.dim(0), like.dim(1), dim(room), like.dim(3)], like.dtype())?;
    match buffer {
        Some(buffer) if held > 0 => concatenate(&[slots(buffer, 0, held)?, zeros], 2),
        _ => Ok(zeros),
    }
}

/// `buffer[:, :, start..stop, :]`
pub(crate) fn slots(buffer: &Array, start: usize, stop: usize) -> Op {
    buffer.try_index((.., .., dim(start)..dim(stop), ..))
}

/// `buffer[:, :, start.., :] = rows`; in place, since nothing else holds the buffer when MLX evaluates it.
pub(crate) fn write(buffer: &mut Array, start: usize, rows: &Array) -> Op<()> {
    let stop = start + length(rows, 2);
    buffer.try_index_mut((.., .., dim(start)..dim(stop), ..), rows)
}
