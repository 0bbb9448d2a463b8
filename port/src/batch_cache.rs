//! Keys and values of a batch: rows of different lengths that come and go.
//!
//! Inputs: a call's keys and values, `[B, Nkv, T, D]`, and the position of each column in its row. Outputs:
//! all that its queries may need, `[B, Nkv, S, D]`, and the position that each slot holds. Every slot is
//! tagged with the position of its key, so that windows, padding, rows that join and rows that leave are one
//! rule: who sees a key is told by its tag alone ([`crate::mask::batch_mask`]). Absent on purpose: that
//! rule, and positions in RoPE (keys are stored rotated).

use crate::cache::{grown, slots, write};
use crate::engine::{Op, dim, length};
use mlx_rs::Array;
use mlx_rs::ops::{concatenate, zeros_dtype};

/// Tag of a slot that holds no token's key.
const NONE: i32 = -1;

/// What a layer's attention remembers of the rows of a batch.
#[derive(Debug)]
pub struct BatchCache {
    window: Option<usize>,
    /// `[B, Nkv, C, D]` with room for C slots; `None` until there is a key.
    buffers: Option<(Array, Array)>,
    /// By row, as many for each: the position of the token whose key a slot holds, or [`NONE`].
    tags: Vec<Vec<i32>>,
}

impl BatchCache {
    /// An empty cache of so many rows; `window`: keys that a query sees, its own included, or all.
    pub fn new(window: Option<usize>, rows: usize) -> Self {
        Self { window, buffers: None, tags: vec![Vec::new(); rows] }
    }

    /// Takes a call's keys and values, `[B, Nkv, T, D]`, and the position of each column, by row, below 0 in
    /// padding. Output: keys and values of all slots, `[B, Nkv, S, D]`, the call's own last.
    ///
    /// With a window, a call that would need more than two windows of slots first lets go of all but the last
    /// W-1 keys of each row.
    pub fn update(&mut self, keys: &Array, values: &Array, positions: &[Vec<i32>]) -> Op<(Array, Array)> {
        assert_eq!(positions.len(), self.tags.len(), "rows of a call and of a cache");
        if let Some(window) = self.window
            && self.slots() + length(keys, 2) > 2 * window
        {
            self.pack(window - 1)?;
        }
        let (start, stop) = (self.slots(), self.slots() + length(keys, 2));
        let (mut k, mut v) = match self.buffers.take() {
            Some((k, v)) if length(&k, 2) < stop => {
                (grown(Some(&k), start, stop, keys)?, grown(Some(&v), start, stop, values)?)
            }
            Some(buffers) => buffers,
            None => (grown(None, 0, stop, keys)?, grown(None, 0, stop, values)?),
        };
        write(&mut k, start, keys)?;
        write(&mut v, start, values)?;
        let seen = (slots(&k, 0, stop)?, slots(&v, 0, stop)?);
        self.buffers = Some((k, v));
        for (tags, new) in self.tags.iter_mut().zip(positions) {
            tags.extend(new.iter().map(|&position| position.max(NONE)));
        }
        Ok(seen)
    }

    /// The position that each slot holds, `[B, S]` i32, or -1.
    pub fn positions(&self) -> Array {
        Array::from_slice(&self.tags.concat(), &[dim(self.tags.len()), dim(self.slots())])
    }

    /// Lets all rows go but these, in this order, and with them the slots that none of these needs.
    pub fn keep(&mut self, stay: &[usize]) -> Op<()> {
        self.tags = stay.iter().map(|&row| self.tags[row].clone()).collect();
        let rows: Vec<i32> = stay.iter().map(|&row| dim(row)).collect();
        let rows = Array::from_slice(&rows, &[dim(rows.len())]);
        self.each_buffer(|buffer| buffer.take_axis(&rows, 0))?;
        self.pack(self.window.map_or(usize::MAX, |window| window - 1))
    }

    /// Takes the rows of another cache behind its own.
    pub fn append(&mut self, mut other: BatchCache) -> Op<()> {
        let slots = self.slots().max(other.slots());
        let like = self.buffers.as_ref().or(other.buffers.as_ref()).map(|(k, v)| (k.clone(), v.clone()));
        if let Some((k, v)) = like {
            let (own, new) = (self.padded(slots, (&k, &v))?, other.padded(slots, (&k, &v))?);
            self.buffers = Some((concatenate(&[own.0, new.0], 0)?, concatenate(&[own.1, new.1], 0)?));
        }
        for tags in self.tags.iter_mut().chain(&mut other.tags) {
            tags.splice(0..0, vec![NONE; slots - tags.len()]);
        }
        self.tags.append(&mut other.tags);
        Ok(())
    }

    /// What must be evaluated before the next call, so that graphs do not grow from call to call.
    pub fn arrays(&self) -> Vec<&Array> {
        self.buffers.iter().flat_map(|(k, v)| [k, v]).collect()
    }

    /// Slots in use.
    fn slots(&self) -> usize {
        self.tags.first().map_or(0, Vec::len)
    }

    /// Keeps each row's `newest` keys at most, in order of position, behind the padding that shorter rows
    /// need.
    fn pack(&mut self, newest: usize) -> Op<()> {
        let held = |tags: &Vec<i32>| -> Vec<usize> {
            let held: Vec<usize> = (0..tags.len()).filter(|&slot| tags[slot] != NONE).collect();
            held[held.len().saturating_sub(newest)..].to_vec()
        };
        let kept: Vec<Vec<usize>> = self.tags.iter().map(held).collect();
        let width = kept.iter().map(Vec::len).max().unwrap_or(0);
        if width == 0 {
            self.buffers = None;
        }
        // padding repeats some slot; its tag hides it
        let padded = |slots: &Vec<usize>| [vec![0; width - slots.len()], slots.clone()].concat();
        let from: Vec<i32> = kept.iter().flat_map(padded).map(dim).collect();
        let from = Array::from_slice(&from, &[dim(kept.len()), 1, dim(width), 1]);
        self.each_buffer(|buffer| buffer.take_along_axis(&from, 2))?;
        for (tags, kept) in self.tags.iter_mut().zip(&kept) {
            let packed = kept.iter().map(|&slot| tags[slot]);
            *tags = std::iter::repeat_n(NONE, width - kept.len()).chain(packed).collect();
        }
        Ok(())
    }

    /// Keys and values in so many slots, zeros before its own; `like` tells the shape where there are none.
    fn padded(&self, count: usize, like: (&Array, &Array)) -> Op<(Array, Array)> {
        let own = self.slots();
        let padded = |buffer: Option<&Array>, like: &Array| {
            let shape = [dim(self.tags.len()), like.dim(1), dim(count - own), like.dim(3)];
            let zeros = zeros_dtype(&shape, like.dtype())?;
            match buffer {
                Some(buffer) => concatenate(&[zeros, slots(buffer, 0, own)?], 2),
                None => Ok(zeros),
            }
        };
        let (k, v) = self.buffers.as_ref().map(|(k, v)| (k, v)).unzip();
        Ok((padded(k, like.0)?, padded(v, like.1)?))
    }

    fn each_buffer(&mut self, change: impl Fn(&Array) -> Op) -> Op<()> {
        if let Some((k, v)) = &self.buffers {
            self.buffers = Some((change(k)?, change(v)?));
        }
        Ok(())
    }
}
