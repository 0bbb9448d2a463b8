//! The port's kernels by themselves, as [`spec::Kernels`]: the steps that call them, on host arrays.
//!
//! Every call goes through [`Steps`], so that a bug planted in a step is a bug of its kernel. Before each,
//! memory of the result's size is filled with NaN and given back: rows that a kernel does not write show.
//! Absent on purpose: what is right, which `diff::probe` works out in f64.

use crate::attention::Rope;
use crate::engine::{Doing, Op, describe, dim, on_gpu, values, working_dtype};
use crate::mask::Mask;
use crate::steps::Steps;
use crate::weight::{Packed, Weight};
use mlx_rs::ops::indexing::{IntoStrideBy, TryIndexOp};
use mlx_rs::{Array, Dtype, ops};
use ndarray::{Array2, Array3, ArrayView1, ArrayView3};
use spec::kernel::{Attend, Gather, Positions, Rotate, RowLayout, Stack, StackLayout};
use spec::{Kernels, ModelConfig, Precision, Result, SideInfo};

/// Buffers that are filled with NaN before a call: as many as a result and its temporaries may take.
const POISONED: usize = 4;

/// The kernels of a port of these steps.
pub struct PortKernels {
    steps: Box<dyn Steps>,
    periods: Array,
}

impl PortKernels {
    /// `config` is what steps are told of the model: its heads and their rotation.
    pub fn new(steps: Box<dyn Steps>, config: &ModelConfig) -> Self {
        let periods = steps.rope_periods(config);
        Self { steps, periods }
    }

    fn gathered(&self, call: &Gather<'_>) -> Op<Vec<f32>> {
        let working = working_dtype(call.precision);
        // as a checkpoint's are held, see `source`
        let held = if on_gpu()? { working } else { Dtype::Float32 };
        let rows =
            rows(&host(call.rows.iter().copied(), call.rows.shape()).as_dtype(working)?, call.row_layout)?;
        let stack = stack(call.stack, call.stack_layout, held)?;
        let ids = Array::from_slice(call.ids, &[dim(call.ids.len())]);
        poison(rows.size().max(call.ids.len() * call.stack.dim().1))?;
        let product = self.steps.expert_product(&rows, &stack, &ids, call.sorted)?;
        values(&product.as_dtype(Dtype::Float32)?)
    }

    fn rotated(&self, call: &Rotate<'_>) -> Op<Vec<f32>> {
        let (sequences, heads, width) = call.heads.dim();
        let shape = [sequences, heads, 1, width];
        let x = host(call.heads.iter().copied(), &shape);
        poison(x.size())?;
        let turned = match call.positions {
            Positions::Common(offset) => self.steps.rotate(&x, Rope { periods: &self.periods, offset })?,
            Positions::Each(offsets) => {
                let offsets: Vec<i32> = offsets.iter().map(|&offset| dim(offset)).collect();
                let offsets = Array::from_slice(&offsets, &[dim(sequences)]);
                self.steps.rotate_rows(&x, &self.periods, &offsets)?
            }
        };
        values(&turned)
    }

    fn attended(&self, call: &Attend<'_>) -> Op<Vec<f32>> {
        let of = |heads: &ArrayView3<'_, f32>| {
            let (count, tokens, width) = heads.dim();
            host(heads.iter().copied(), &[1, count, tokens, width])
        };
        let mask = match &call.visible {
            None => Mask::All,
            Some(visible) => {
                let all: Vec<bool> = visible.iter().copied().collect();
                Mask::Visible(Array::from_slice(&all, &dims(visible.shape())))
            }
        };
        let [queries, keys, held] = [&call.queries, &call.keys, &call.values].map(of);
        poison(queries.size())?;
        values(&self.steps.attend(&queries, &keys, &held, &mask)?)
    }
}

impl Kernels for PortKernels {
    fn describe(&self) -> SideInfo {
        describe(Precision::F32)
    }

    fn gather(&self, call: &Gather<'_>) -> Result<Array2<f32>> {
        let shape = (call.ids.len(), call.stack.dim().1);
        let found = self.gathered(call).doing("gather over experts")?;
        Ok(Array2::from_shape_vec(shape, found).expect("a product of the rows' shape"))
    }

    fn rotate(&self, call: &Rotate<'_>) -> Result<Array3<f32>> {
        let found = self.rotated(call).doing("rotate")?;
        Ok(Array3::from_shape_vec(call.heads.dim(), found).expect("heads of the shape they had"))
    }

    fn attend(&self, call: &Attend<'_>) -> Result<Array3<f32>> {
        let found = self.attended(call).doing("attend")?;
        Ok(Array3::from_shape_vec(call.queries.dim(), found).expect("heads of the queries' shape"))
    }
}

/// Fills buffers of `length` f32 with NaN and gives them back.
fn poison(length: usize) -> Op<()> {
    let buffers = (0..POISONED).map(|_| ops::full::<f32>(&[dim(length)], Array::from_f32(f32::NAN)));
    let buffers: Vec<Array> = buffers.collect::<Op<_>>()?;
    mlx_rs::transforms::eval(&buffers)
}

/// An array of MLX from values in row-major order.
fn host(values: impl Iterator<Item = f32>, shape: &[usize]) -> Array {
    Array::from_slice(&values.collect::<Vec<f32>>(), &dims(shape))
}

fn dims(shape: &[usize]) -> Vec<i32> {
    shape.iter().map(|&length| dim(length)).collect()
}

/// `[R, in]` as a gather takes it, `[R, 1, in]`.
fn rows(rows: &Array, layout: RowLayout) -> Op {
    let shape = [rows.dim(0), 1, rows.dim(1)];
    match layout {
        RowLayout::Contiguous => rows.reshape(&shape),
        RowLayout::UnitAxis => rows.expand_dims(1),
        RowLayout::EverySecond => every_second(&rows.reshape(&shape)?),
        RowLayout::OneForAll => ops::broadcast_to(rows.try_index((..1, ..))?.expand_dims(1)?, &shape),
    }
}

fn stack(stack: &Stack, layout: StackLayout, held: Dtype) -> Op<Weight> {
    let weight = match stack {
        Stack::Dense(values) => Weight::Dense(host(values.iter().copied(), values.shape()).as_dtype(held)?),
        Stack::Packed { codes, scales, biases, packing } => {
            let (experts, out, width) = codes.dim();
            let words = width * packing.bits as usize / 32;
            let of_row = |row: ArrayView1<'_, u8>| words_of(row.iter().copied(), packing.bits);
            let packed: Vec<u32> = codes.rows().into_iter().flat_map(of_row).collect();
            let part = |part: &Array3<f32>| host(part.iter().copied(), part.shape()).as_dtype(held);
            Weight::Packed(Packed {
                words: Array::from_slice(&packed, &dims(&[experts, out, words])),
                scales: part(scales)?,
                biases: part(biases)?,
                packing: *packing,
            })
        }
    };
    match layout {
        StackLayout::Contiguous => Ok(weight),
        StackLayout::EverySecond => weight.map(every_second),
        StackLayout::Transposed => {
            weight.map(|array| array.swap_axes(-1, -2)?.contiguous()?.swap_axes(-1, -2))
        }
    }
}

/// Codes end to end, lowest bits first, in words of 32 bits ([`spec::Affine`]).
fn words_of(codes: impl Iterator<Item = u8>, bits: u32) -> Vec<u32> {
    let (mut words, mut held, mut filled) = (Vec::new(), 0_u64, 0);
    for code in codes {
        held |= u64::from(code) << filled;
        filled += bits;
        if filled >= 32 {
            words.push((held & u64::from(u32::MAX)) as u32);
            held >>= 32;
            filled -= 32;
        }
    }
    words
}

/// The same values as every second entry of an array of twice as many; what lies between is the negative of
/// the entry before.
fn every_second(array: &Array) -> Op {
    let between = if array.dtype() == Dtype::Uint32 { array.clone() } else { array.negative()? };
    let mut shape = array.shape().to_vec();
    shape[0] *= 2;
    let twice = ops::stack(&[array, &between], 1)?.reshape(&shape)?;
    twice.eval()?;
    twice.try_index((..).stride_by(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_keep_values_and_are_what_they_say() {
        let array = host((0..24).map(|x| x as f32), &[4, 6]);
        for (layout, strides) in [
            (RowLayout::Contiguous, [6, 6, 1]),
            (RowLayout::EverySecond, [12, 6, 1]),
            (RowLayout::OneForAll, [0, 6, 1]),
        ] {
            let laid = rows(&array, layout).unwrap();
            laid.eval().unwrap();
            let found = laid.strides();
            assert_eq!([found[0], found[2]], [strides[0], strides[2]], "{layout:?}");
            let first = if layout == RowLayout::OneForAll { 0 } else { 18 };
            assert_eq!(values::<f32>(&laid).unwrap()[18], first as f32);
        }
    }

    #[test]
    fn a_transposed_stack_lies_by_columns() {
        let dense = Stack::Dense(Array3::from_shape_fn((2, 3, 4), |(e, n, k)| (100 * e + 10 * n + k) as f32));
        let weight = stack(&dense, StackLayout::Transposed, Dtype::Float32).unwrap();
        let array = weight.arrays()[0];
        array.eval().unwrap();
        assert_eq!((array.shape(), array.strides()), (&[2, 3, 4][..], &[12, 1, 3][..]));
        assert_eq!(values::<f32>(array).unwrap()[12 + 4 + 2], 112.0);
    }

    #[test]
    fn codes_lie_end_to_end_from_the_lowest_bit_on() {
        assert_eq!(words_of([1, 2, 3, 4, 5, 6, 7, 8].into_iter(), 4), [0x8765_4321]);
        assert_eq!(words_of([0x78, 0x56, 0x34, 0x12].into_iter(), 8), [0x1234_5678]);
        // 32 codes of three bits fill three words; the eleventh lies across two
        let words = words_of((0..32).map(|code| code % 8), 3);
        assert_eq!((words.len(), words[0] & 0o7777_7777, words[0] >> 30), (3, 0o7654_3210, 0b10));
    }
}
