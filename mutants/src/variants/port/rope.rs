//! The same rotation otherwise (K10).

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, Dtype, fast, ops};
use port::Steps;
use port::attention::Rope;
use port::cache::STEP;
use port::engine::{Op, dim, length, values};
use std::sync::Mutex;

/// Cosines and sines of all positions so far, `[P, D/2]` each, made on the host in f64 of angles of f32, and
/// rounded; made anew when a position is beyond.
#[derive(Default)]
pub struct FromTable {
    table: Mutex<Option<(Array, Array)>>,
}

impl Steps for FromTable {
    fn rotate(&self, x: &Array, rope: Rope<'_>) -> Op {
        let stop = rope.offset + length(x, 2);
        let mut held = self.table.lock().expect("no thread panics while it holds the lock");
        let (cos, sin) = match held.take() {
            Some(table) if length(&table.0, 0) >= stop => table,
            _ => table(stop.next_multiple_of(STEP), rope.periods)?,
        };
        let rows = |table: &Array| table.try_index((dim(rope.offset)..dim(stop), ..));
        let turned = turn(x, &rows(&cos)?, &rows(&sin)?);
        *held = Some((cos, sin));
        turned
    }
}

fn table(positions: usize, periods: &Array) -> Op<(Array, Array)> {
    let frequencies: Vec<f32> = values::<f32>(periods)?.into_iter().map(f32::recip).collect();
    let angles = (0..positions).flat_map(|position| frequencies.iter().map(move |f| position as f32 * f));
    let (sin, cos): (Vec<f32>, Vec<f32>) =
        angles.map(|angle| f64::from(angle).sin_cos()).map(|(sin, cos)| (sin as f32, cos as f32)).unzip();
    let shape = [dim(positions), dim(frequencies.len())];
    Ok((Array::from_slice(&cos, &shape), Array::from_slice(&sin, &shape)))
}

/// Each half by the formula.
pub struct OnHalves;

impl Steps for OnHalves {
    fn rotate(&self, x: &Array, rope: Rope<'_>) -> Op {
        let angles = angles(rope.offset, rope.offset + length(x, 2), rope.periods)?;
        turn(x, &angles.cos()?, &angles.sin()?)
    }
}

/// As [`OnHalves`], by angles that are positions divided by periods.
pub struct AnglesDivided;

impl Steps for AnglesDivided {
    fn rotate(&self, x: &Array, rope: Rope<'_>) -> Op {
        let angles = positions(rope.offset, rope.offset + length(x, 2))?.divide(rope.periods)?;
        turn(x, &angles.cos()?, &angles.sin()?)
    }
}

/// Columns reordered so that pairs lie side by side, turned as such pairs, and brought back into order.
pub struct PairsSideBySide;

impl Steps for PairsSideBySide {
    fn rotate(&self, x: &Array, rope: Rope<'_>) -> Op {
        let width = x.dim(-1);
        let beside = (0..width).map(|column| column / 2 + column % 2 * (width / 2));
        let apart = (0..width).map(|column| column % (width / 2) * 2 + column / (width / 2));
        let order = |columns: Vec<i32>| Array::from_slice(&columns, &[width]);
        let pairs = x.as_dtype(Dtype::Float32)?.take_axis(order(beside.collect()), -1)?;
        let turned = fast::rope(pairs, width, true, None, 1.0, dim(rope.offset), rope.periods)?;
        turned.take_axis(order(apart.collect()), -1)?.as_dtype(x.dtype())
    }
}

/// `[P, 1]` f32
fn positions(start: usize, stop: usize) -> Op {
    ops::arange::<_, f32>(dim(start), dim(stop), None)?.reshape(&[-1, 1])
}

/// `[P, D/2]` f32, each a position times a frequency.
fn angles(start: usize, stop: usize, periods: &Array) -> Op {
    positions(start, stop)?.multiply(periods.reciprocal()?)
}

/// Turns `x`, `[1, N, T, D]`, in f32, rounded once. `cos`, `sin`: `[T, D/2]`.
fn turn(x: &Array, cos: &Array, sin: &Array) -> Op {
    let halves = x.as_dtype(Dtype::Float32)?.split_equal(2, -1)?;
    let [low, high] = <[Array; 2]>::try_from(halves).expect("two halves");
    let turned =
        [low.multiply(cos)?.subtract(high.multiply(sin)?)?, low.multiply(sin)?.add(high.multiply(cos)?)?];
    ops::concatenate(&turned, -1)?.as_dtype(x.dtype())
}
