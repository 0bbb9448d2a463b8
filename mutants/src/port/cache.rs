//! Bugs of the caches of sliding layers (K12).

use mlx_rs::Array;
use mlx_rs::ops::indexing::TryIndexOp;
use port::cache::{Cache, RotatingCache};
use port::engine::{Op, dim, length};
use port::{Correct, Steps};

/// A slot fewer than the window has keys; the mask is that of the window.
pub struct OneSlotShort;

impl Steps for OneSlotShort {
    fn cache(&self, window: Option<usize>) -> Box<dyn Cache> {
        match window {
            Some(window) => Box::new(one_short(window)),
            None => Correct.cache(None),
        }
    }
}

/// A window of W - 1 in calls of one token, of W in all others.
pub struct DecodeWindowShort;

impl Steps for DecodeWindowShort {
    fn cache(&self, window: Option<usize>) -> Box<dyn Cache> {
        match window {
            Some(window) => {
                Box::new(OtherInDecode { right: RotatingCache::new(window), other: one_short(window) })
            }
            None => Correct.cache(None),
        }
    }
}

/// A window of W + 1 in calls of one token, of W in all others.
pub struct DecodeWindowLong;

impl Steps for DecodeWindowLong {
    fn cache(&self, window: Option<usize>) -> Box<dyn Cache> {
        match window {
            Some(window) => {
                let (right, other) = (RotatingCache::new(window), RotatingCache::new(window + 1));
                Box::new(OtherInDecode { right, other })
            }
            None => Correct.cache(None),
        }
    }
}

/// A call of several tokens is left with W keys in all, its own included, as one token would be.
pub struct TrimmedForOneToken;

impl Steps for TrimmedForOneToken {
    fn cache(&self, window: Option<usize>) -> Box<dyn Cache> {
        match window {
            Some(window) => Box::new(Trimmed { right: RotatingCache::new(window), window }),
            None => Correct.cache(None),
        }
    }
}

/// Once the ring has wrapped, a query sees the slots up to its own, as if slots were positions.
pub struct SlotsAsPositions;

impl Steps for SlotsAsPositions {
    fn cache(&self, window: Option<usize>) -> Box<dyn Cache> {
        match window {
            Some(window) => {
                Box::new(BySlot { right: RotatingCache::new(window), window, held: 0, oldest: 0 })
            }
            None => Correct.cache(None),
        }
    }
}

/// A sliding layer's position is the number of keys that it keeps for the next call, W - 1 at most.
pub struct OffsetRetained;

impl Steps for OffsetRetained {
    fn cache(&self, window: Option<usize>) -> Box<dyn Cache> {
        match window {
            Some(window) => Box::new(Retained { right: RotatingCache::new(window), kept_max: window - 1 }),
            None => Correct.cache(None),
        }
    }
}

/// The right keys and values, and a count that stops.
#[derive(Debug)]
struct Retained {
    right: RotatingCache,
    kept_max: usize,
}

impl Cache for Retained {
    fn offset(&self) -> usize {
        self.right.offset().min(self.kept_max)
    }

    fn update(&mut self, keys: &Array, values: &Array) -> Op<(Array, Array)> {
        self.right.update(keys, values)
    }

    fn arrays(&self) -> Vec<&Array> {
        self.right.arrays()
    }
}

/// Every cache counts its tokens a second time, in an array that nothing reads and nothing evaluates: each
/// step adds a number to a sum that is never made.
pub struct UnreadOffset;

impl Steps for UnreadOffset {
    fn cache(&self, window: Option<usize>) -> Box<dyn Cache> {
        Box::new(Counting { right: Correct.cache(window), unread: Array::from_int(0) })
    }
}

/// The right cache and an array that grows a graph.
#[derive(Debug)]
struct Counting {
    right: Box<dyn Cache>,
    unread: Array,
}

impl Cache for Counting {
    fn offset(&self) -> usize {
        self.right.offset()
    }

    fn update(&mut self, keys: &Array, values: &Array) -> Op<(Array, Array)> {
        self.unread = self.unread.add(Array::from_int(keys.dim(2)))?;
        self.right.update(keys, values)
    }

    fn arrays(&self) -> Vec<&Array> {
        self.right.arrays()
    }
}

fn one_short(window: usize) -> RotatingCache {
    RotatingCache::new((window - 1).max(1))
}

/// Two caches, fed alike.
#[derive(Debug)]
struct OtherInDecode {
    right: RotatingCache,
    other: RotatingCache,
}

impl Cache for OtherInDecode {
    fn offset(&self) -> usize {
        self.right.offset()
    }

    fn update(&mut self, keys: &Array, values: &Array) -> Op<(Array, Array)> {
        let right = self.right.update(keys, values)?;
        let other = self.other.update(keys, values)?;
        Ok(if length(keys, 2) == 1 { other } else { right })
    }

    fn arrays(&self) -> Vec<&Array> {
        [self.right.arrays(), self.other.arrays()].concat()
    }
}

/// The right cache, of whose keys a call of several tokens is shown the last ones.
#[derive(Debug)]
struct Trimmed {
    right: RotatingCache,
    window: usize,
}

impl Cache for Trimmed {
    fn offset(&self) -> usize {
        self.right.offset()
    }

    fn update(&mut self, keys: &Array, values: &Array) -> Op<(Array, Array)> {
        let (k, v) = self.right.update(keys, values)?;
        let skipped = length(&k, 2).saturating_sub(self.window.max(length(keys, 2)));
        let last = |all: Array| all.try_index((.., .., dim(skipped).., ..));
        Ok((last(k)?, last(v)?))
    }

    fn arrays(&self) -> Vec<&Array> {
        self.right.arrays()
    }
}

/// The right cache, and where in its ring the next token goes.
#[derive(Debug)]
struct BySlot {
    right: RotatingCache,
    window: usize,
    /// Slots in use.
    held: usize,
    oldest: usize,
}

impl Cache for BySlot {
    fn offset(&self) -> usize {
        self.right.offset()
    }

    fn update(&mut self, keys: &Array, values: &Array) -> Op<(Array, Array)> {
        let (k, v) = self.right.update(keys, values)?;
        if length(keys, 2) > 1 {
            (self.held, self.oldest) = (length(&k, 2), 0);
            return Ok((k, v));
        }
        if self.held < self.window {
            self.held += 1;
            return Ok((k, v));
        }
        let own = self.oldest;
        (self.held, self.oldest) = (self.window, (own + 1) % self.window);
        let up_to_own = |all: Array| all.try_index((.., .., ..dim(own + 1), ..));
        Ok((up_to_own(k)?, up_to_own(v)?))
    }

    fn arrays(&self) -> Vec<&Array> {
        self.right.arrays()
    }
}
