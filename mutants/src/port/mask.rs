//! Bugs of the mask: windows and where a mask is anchored (K11, K12).

use mlx_rs::{Array, ops};
use port::engine::{Op, dim};
use port::mask::Mask;
use port::{Correct, Steps};
use spec::{LayerId, ModelConfig};

/// Keys that [`TwoSinks`] never lets go.
const SINKS: i32 = 2;

/// A window of W - 1.
pub struct WindowOneShort;

impl Steps for WindowOneShort {
    fn window(&self, config: &ModelConfig, layer: LayerId) -> Option<usize> {
        config.window(layer).map(|window| (window - 1).max(1))
    }
}

/// A window of W + 1, in mask and cache.
pub struct WindowOneLong;

impl Steps for WindowOneLong {
    fn window(&self, config: &ModelConfig, layer: LayerId) -> Option<usize> {
        config.window(layer).map(|window| window + 1)
    }
}

/// No window, in mask and cache.
pub struct NoWindow;

impl Steps for NoWindow {
    fn window(&self, _config: &ModelConfig, _layer: LayerId) -> Option<usize> {
        None
    }
}

/// Full layers have the sliding layers' window.
pub struct WindowEverywhere;

impl Steps for WindowEverywhere {
    fn window(&self, config: &ModelConfig, _layer: LayerId) -> Option<usize> {
        config.sliding_window
    }
}

/// The first two of the keys that the cache returns stay visible in sliding layers.
pub struct TwoSinks;

impl Steps for TwoSinks {
    fn mask(&self, window: Option<usize>, queries: usize, keys: usize) -> Op<Mask> {
        match Correct.mask(window, queries, keys)? {
            Mask::Visible(near) => {
                let (distance, key) = distances(keys - queries, queries, keys)?;
                let sink = key.lt(Array::from_int(SINKS))?;
                let past = distance.ge(Array::from_int(0))?;
                Ok(Mask::Visible(near.logical_or(sink.logical_and(past)?)?))
            }
            mask => Ok(mask),
        }
    }
}

/// The call's first query is taken to be aligned with the cache's first key.
pub struct AnchoredTopLeft;

impl Steps for AnchoredTopLeft {
    fn mask(&self, window: Option<usize>, queries: usize, keys: usize) -> Op<Mask> {
        if queries == 1 || queries == keys {
            return Correct.mask(window, queries, keys);
        }
        let (distance, _) = distances(0, queries, keys)?;
        let past = distance.ge(Array::from_int(0))?;
        match window {
            None => Ok(Mask::Visible(past)),
            Some(window) => {
                let near = distance.lt(Array::from_int(dim(window)))?;
                Ok(Mask::Visible(past.logical_and(near)?))
            }
        }
    }
}

/// How far before each query each key lies, `[T, S]`, if the first query is at key `first`; and the keys,
/// `[1, S]`.
fn distances(first: usize, queries: usize, keys: usize) -> Op<(Array, Array)> {
    let query = ops::arange::<_, i32>(dim(first), dim(first + queries), None)?.reshape(&[-1, 1])?;
    let key = ops::arange::<_, i32>(None, dim(keys), None)?.reshape(&[1, -1])?;
    Ok((query.subtract(&key)?, key))
}
