//! Bugs of the sorted gather over experts (K17), each at the shapes at which kernels have had it.

use mlx_rs::Array;
use port::engine::{Op, dim, length, values};
use port::{Correct, Steps, Weight};

/// Rows from which on a sorted gather was stale, and the tile that rows then did not fill.
const ROWS: usize = 32_768;
const TILE: usize = 64;
/// As many rows of one expert as a tile is too large for.
const FEW: [usize; 2] = [2, 3];

/// Rows from 32,768 on are those of before, where rows do not fill tiles.
pub struct StaleRows;

impl Steps for StaleRows {
    fn expert_product(&self, rows: &Array, stack: &Weight, ids: &Array, sorted: bool) -> Op {
        let product = Correct.expert_product(rows, stack, ids, sorted)?;
        let count = length(&product, 0);
        match sorted && count > ROWS && !count.is_multiple_of(TILE) {
            true => reread(&product, (0..count).map(|row| row % ROWS)),
            false => Ok(product),
        }
    }
}

/// Terms that do not fill a tile are left out of longer sums.
pub struct LastTerms;

impl Steps for LastTerms {
    fn expert_product(&self, rows: &Array, stack: &Weight, ids: &Array, sorted: bool) -> Op {
        let terms = length(rows, -1);
        if !sorted || terms < TILE || terms.is_multiple_of(TILE) {
            return Correct.expert_product(rows, stack, ids, sorted);
        }
        let kept = terms / TILE * TILE;
        let counts: Vec<f32> = (0..terms).map(|term| if term < kept { 1.0 } else { 0.0 }).collect();
        let kept = rows.multiply(Array::from_slice(&counts, &[dim(terms)]).as_dtype(rows.dtype())?)?;
        Correct.expert_product(&kept, stack, ids, sorted)
    }
}

/// What does not lie one after the other is read as if it did.
pub struct StridesIgnored;

impl Steps for StridesIgnored {
    fn expert_product(&self, rows: &Array, stack: &Weight, ids: &Array, sorted: bool) -> Op {
        match sorted {
            true => Correct.expert_product(&misread(rows)?, &stack.map(misread)?, ids, sorted),
            false => Correct.expert_product(rows, stack, ids, sorted),
        }
    }
}

/// Where an expert has no row, the next row in memory is left as it was: here that of the row before.
pub struct IdleJunk;

impl Steps for IdleJunk {
    fn expert_product(&self, rows: &Array, stack: &Weight, ids: &Array, sorted: bool) -> Op {
        let product = Correct.expert_product(rows, stack, ids, sorted)?;
        if !sorted {
            return Ok(product);
        }
        let ids = values::<u32>(ids)?;
        let before = |row: usize| (row + ids.len() - 1) % ids.len();
        let next = |row: usize| if row == 0 { 0 } else { ids[row - 1] + 1 };
        reread(&product, (0..ids.len()).map(|row| if ids[row] > next(row) { before(row) } else { row }))
    }
}

/// Of an expert with two or three rows all are the first.
pub struct FewRows;

impl Steps for FewRows {
    fn expert_product(&self, rows: &Array, stack: &Weight, ids: &Array, sorted: bool) -> Op {
        let product = Correct.expert_product(rows, stack, ids, sorted)?;
        if !sorted {
            return Ok(product);
        }
        let mut from = Vec::new();
        for of_one in values::<u32>(ids)?.chunk_by(|a, b| a == b) {
            let first = from.len();
            let few = FEW.contains(&of_one.len());
            from.extend((0..of_one.len()).map(|row| if few { first } else { first + row }));
        }
        reread(&product, from.into_iter())
    }
}

/// `product` with each row taken from another.
fn reread(product: &Array, from: impl Iterator<Item = usize>) -> Op {
    let from: Vec<i32> = from.map(dim).collect();
    product.take_axis(Array::from_slice(&from, &[dim(from.len())]), 0)
}

/// The values that are found where those of `array`, `[.., .., ..]`, would be if it lay row by row.
fn misread(array: &Array) -> Op {
    array.eval()?;
    let [count, rows, columns] = [0, 1, 2].map(|axis| length(array, axis));
    let strides = array.strides();
    if columns > 1 && strides[2] != 1 {
        // by columns
        return array.swap_axes(-1, -2)?.reshape(array.shape());
    }
    if count == 1 || strides[0] == rows * columns {
        return Ok(array.clone());
    }
    // MLX checks no index
    let at = |entry: usize| (entry * rows * columns).checked_div(strides[0]).unwrap_or(0).min(count - 1);
    reread(array, (0..count).map(at))
}
