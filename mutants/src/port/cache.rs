//! Bugs of the caches of sliding layers (K12).

use mlx_rs::Array;
use port::cache::{Cache, RotatingCache};
use port::engine::{Op, length};
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
                Box::new(ShortInDecode { right: RotatingCache::new(window), short: one_short(window) })
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
struct ShortInDecode {
    right: RotatingCache,
    short: RotatingCache,
}

impl Cache for ShortInDecode {
    fn offset(&self) -> usize {
        self.right.offset()
    }

    fn update(&mut self, keys: &Array, values: &Array) -> Op<(Array, Array)> {
        let right = self.right.update(keys, values)?;
        let short = self.short.update(keys, values)?;
        Ok(if length(keys, 2) == 1 { short } else { right })
    }

    fn arrays(&self) -> Vec<&Array> {
        [self.right.arrays(), self.short.arrays()].concat()
    }
}
