//! Bugs of the rotation: pairs, frequencies, positions, layers (K10, K11).

use super::through;
use mlx_rs::{Array, Dtype, fast, ops};
use port::attention::Rope;
use port::engine::{Op, dim, length};
use port::{Correct, Steps};
use spec::{LayerId, ModelConfig};
use std::sync::{Mutex, OnceLock};

/// Every layer rotates.
pub struct OnEveryLayer;

impl Steps for OnEveryLayer {
    fn rotates(&self, _config: &ModelConfig, _layer: LayerId) -> bool {
        true
    }
}

/// Pairs `(2j, 2j + 1)` for `(j, j + D/2)`.
pub struct AdjacentPairs;

impl Steps for AdjacentPairs {
    fn rotate(&self, x: &Array, rope: Rope<'_>) -> Op {
        let wide = x.as_dtype(Dtype::Float32)?;
        let turned = fast::rope(wide, x.dim(-1), true, None, 1.0, dim(rope.offset), rope.periods)?;
        turned.as_dtype(x.dtype())
    }
}

/// Every call counts its positions from 0.
pub struct RestartsEachCall;

impl Steps for RestartsEachCall {
    fn rope_offset(&self, _cached: usize) -> usize {
        0
    }
}

/// Calls of one token all rotate at the position of the first of them. A call at position 0 starts anew.
#[derive(Default)]
pub struct FrozenInDecode {
    position: Mutex<Option<usize>>,
}

impl Steps for FrozenInDecode {
    fn rotate(&self, x: &Array, rope: Rope<'_>) -> Op {
        let mut position = self.position.lock().expect("no thread panics while it holds the lock");
        if rope.offset == 0 {
            *position = None;
        }
        let offset = match length(x, 2) {
            1 => *position.get_or_insert(rope.offset),
            _ => rope.offset,
        };
        Correct.rotate(x, Rope { offset, ..rope })
    }
}

/// Frequencies rounded to bf16 before angles are made of them.
pub struct Bf16Frequencies;

impl Steps for Bf16Frequencies {
    fn rope_periods(&self, config: &ModelConfig) -> Array {
        let rounded = || {
            let frequencies = Correct.rope_periods(config).reciprocal()?;
            through(Dtype::Bfloat16, &frequencies)?.reciprocal()
        };
        rounded().expect("a vector of D/2 numbers is divided and rounded")
    }
}

/// Positions rounded to bf16 before angles are made of them: exact up to 256.
pub struct Bf16Positions;

impl Steps for Bf16Positions {
    fn rotate(&self, x: &Array, rope: Rope<'_>) -> Op {
        let positions = rope.offset..rope.offset + length(x, 2);
        let positions = ops::arange::<_, f32>(dim(positions.start), dim(positions.end), None)?;
        let positions = through(Dtype::Bfloat16, &positions)?.reshape(&[-1, 1])?;
        let angles = positions.multiply(rope.periods.reciprocal()?)?;
        let (cos, sin) = (angles.cos()?, angles.sin()?);
        let halves = x.as_dtype(Dtype::Float32)?.split_equal(2, -1)?;
        let [low, high] = <[Array; 2]>::try_from(halves).expect("two halves");
        let turned = [
            low.multiply(&cos)?.subtract(high.multiply(&sin)?)?,
            low.multiply(&sin)?.add(high.multiply(&cos)?)?,
        ];
        ops::concatenate(&turned, -1)?.as_dtype(x.dtype())
    }
}

/// Tokens before the call count twice.
pub struct OffsetDoubled;

impl Steps for OffsetDoubled {
    fn rope_offset(&self, cached: usize) -> usize {
        2 * cached
    }
}

/// Queries rotate from the position after the call's last token on, keys from the first token's.
///
/// Rotation is not told whose heads it has; how many queries have is noted where the port makes its periods,
/// once, before any call. With as many keys as queries there would be no telling.
#[derive(Default)]
pub struct QueryAdvanced {
    heads: OnceLock<usize>,
}

impl Steps for QueryAdvanced {
    fn rope_periods(&self, config: &ModelConfig) -> Array {
        self.heads.get_or_init(|| config.num_heads);
        Correct.rope_periods(config)
    }

    fn rotate(&self, x: &Array, rope: Rope<'_>) -> Op {
        let is_query = self.heads.get() == Some(&length(x, 1));
        let advance = if is_query { length(x, 2) } else { 0 };
        Correct.rotate(x, Rope { offset: rope.offset + advance, ..rope })
    }
}
