//! Gathers: rows times their experts' matrices (K17), sorted beside unsorted.

use super::finding::{About, Finding, Found, Kind, ROUNDING, ROUNDING_BF16};
use super::shapes::GatherShape;
use super::{Draws, repeated};
use ndarray::{Array2, Array3, ArrayView2, s};
use spec::kernel::{Gather, RowLayout, Stack};
use spec::{Affine, Kernels, Precision, Result};

/// Calls it and judges it. Errors: whatever the kernels return.
pub(super) fn measure(kernels: &dyn Kernels, shape: &GatherShape) -> Result<Finding> {
    let mut draws = Draws::new();
    let stack = stack(shape, &mut draws);
    let rows = rows(shape, &mut draws);
    let call = |sorted| {
        let (rows, ids) = (rows.view(), &shape.ids[..]);
        let (row_layout, stack_layout) = (shape.row_layout, shape.stack_layout);
        let precision = shape.precision;
        kernels.gather(&Gather { rows, stack: &stack, ids, sorted, precision, row_layout, stack_layout })
    };
    let exact = exact(rows.view(), &stack, &shape.ids);
    let (found, differing) = repeated(|| call(true))?;
    let beside = call(false)?;
    // f32 sums of n terms err by about the root of n last bits, and by n of them in the worst order
    let of_result = if shape.precision == Precision::Bf16 { ROUNDING_BF16 } else { 0.0 };
    let floor = ROUNDING * (shape.inner as f64).sqrt() + of_result;
    let ceiling = ROUNDING * shape.inner as f64 + of_result;
    let judged = Found { exact: &exact, found: &found, beside: &beside, floor, ceiling }.judge();
    Ok(judged.finding(About {
        kind: Kind::Gather,
        kernel: shape.kernel(),
        shape: shape.words(),
        what: shape.what.clone(),
        path: "sorted / unsorted",
        differing,
        note: String::new(),
    }))
}

fn rows(shape: &GatherShape, draws: &mut Draws) -> Array2<f32> {
    let mut draw = || if shape.precision == Precision::Bf16 { draws.bf16() } else { draws.number() };
    let count = if shape.row_layout == RowLayout::OneForAll { 1 } else { shape.ids.len() };
    let rows = Array2::from_shape_simple_fn((count, shape.inner), &mut draw);
    match shape.row_layout {
        RowLayout::OneForAll => {
            rows.broadcast((shape.ids.len(), shape.inner)).expect("one row for all").to_owned()
        }
        _ => rows,
    }
}

/// Values, scales and biases as a BF16 checkpoint has them.
fn stack(shape: &GatherShape, draws: &mut Draws) -> Stack {
    let GatherShape { experts, out, inner, .. } = *shape;
    let Some(packing @ Affine { bits, group }) = shape.packing else {
        return Stack::Dense(Array3::from_shape_simple_fn((experts, out, inner), || draws.bf16()));
    };
    let codes = Array3::from_shape_simple_fn((experts, out, inner), || {
        u8::try_from(draws.index(1 << bits)).expect("codes of at most 8 bits")
    });
    let groups = (experts, out, inner / group);
    let last = (1_u32 << bits) as f32 - 1.0;
    // values within 1 of 0, as a quantiser would find them
    let scales = Array3::from_shape_simple_fn(groups, || rounded((1.5 + 0.5 * draws.number()) / last));
    let biases = scales.mapv(|scale| rounded(-0.5 * scale * last));
    Stack::Packed { codes, scales, biases, packing }
}

fn rounded(value: f32) -> f32 {
    half::bf16::from_f32(value).to_f32()
}

/// The products in f64. `ids` ascend, so that the rows of an expert lie together.
fn exact(rows: ArrayView2<'_, f32>, stack: &Stack, ids: &[u32]) -> Array2<f64> {
    let mut products = Array2::zeros((ids.len(), stack.dim().1));
    let mut start = 0;
    for of_one in ids.chunk_by(|a, b| a == b) {
        let range = start..start + of_one.len();
        let matrix = matrix(stack, of_one[0] as usize);
        let product = rows.slice(s![range.clone(), ..]).mapv(f64::from).dot(&matrix.t());
        products.slice_mut(s![range.clone(), ..]).assign(&product);
        start = range.end;
    }
    products
}

/// One expert's values, `[out, in]`.
fn matrix(stack: &Stack, expert: usize) -> Array2<f64> {
    match stack {
        Stack::Dense(values) => values.slice(s![expert, .., ..]).mapv(f64::from),
        Stack::Packed { codes, scales, biases, packing } => {
            let codes = codes.slice(s![expert, .., ..]);
            Array2::from_shape_fn(codes.dim(), |(row, column)| {
                let group = (expert, row, column / packing.group);
                f64::from(scales[group]) * f64::from(codes[(row, column)]) + f64::from(biases[group])
            })
        }
    }
}
