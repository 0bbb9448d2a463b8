//! The same keys and values kept otherwise (K12).

use mlx_rs::ops::concatenate;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, ops};
use port::cache::{Cache, KvCache};
use port::engine::{Op, dim, length};
use port::mask::Mask;
use port::{Correct, Steps};

/// Slots that [`SpareSlots`] has beyond a window.
const SPARE: usize = 7;

/// Sliding layers keep every key too; the mask alone is the window.
pub struct FullWithWindowMask;

impl Steps for FullWithWindowMask {
    fn cache(&self, _window: Option<usize>) -> Box<dyn Cache> {
        Box::new(KvCache::default())
    }

    fn mask(&self, window: Option<usize>, queries: usize, keys: usize) -> Op<Mask> {
        match window {
            Some(window) if queries == 1 && keys > window => {
                let near =
                    ops::arange::<_, i32>(None, dim(keys), None)?.ge(Array::from_int(dim(keys - window)))?;
                Ok(Mask::Visible(near.reshape(&[1, -1])?))
            }
            _ => Correct.mask(window, queries, keys),
        }
    }
}

/// Keys in order of position, with [`SPARE`] slots more than a window has: when none is left, the keys that
/// no query can see any more go all at once.
pub struct SpareSlots;

impl Steps for SpareSlots {
    fn cache(&self, window: Option<usize>) -> Box<dyn Cache> {
        match window {
            Some(window) => Box::new(InOrder { window, held: None, offset: 0 }),
            None => Correct.cache(None),
        }
    }
}

/// The newest keys and values, oldest first.
#[derive(Debug)]
struct InOrder {
    window: usize,
    held: Option<(Array, Array)>,
    offset: usize,
}

impl Cache for InOrder {
    fn offset(&self) -> usize {
        self.offset
    }

    fn update(&mut self, keys: &Array, values: &Array) -> Op<(Array, Array)> {
        let tokens = length(keys, 2);
        self.offset += tokens;
        let (k, v) = match self.held.take() {
            None => (keys.clone(), values.clone()),
            Some((k, v)) => (concatenate(&[&k, keys], 2)?, concatenate(&[&v, values], 2)?),
        };
        let seen = (newest(&k, self.window - 1 + tokens)?, newest(&v, self.window - 1 + tokens)?);
        let keep = if length(&k, 2) > self.window + SPARE { self.window - 1 } else { length(&k, 2) };
        self.held = Some((newest(&k, keep)?, newest(&v, keep)?));
        Ok(seen)
    }

    fn arrays(&self) -> Vec<&Array> {
        self.held.iter().flat_map(|(k, v)| [k, v]).collect()
    }
}

/// The last `count` slots, or all if there are fewer.
fn newest(buffer: &Array, count: usize) -> Op {
    let held = length(buffer, 2);
    buffer.try_index((.., .., dim(held.saturating_sub(count)).., ..))
}
