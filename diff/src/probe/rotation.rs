//! RoPE of one token of several sequences (K10), all at once beside one by one.

use super::finding::{About, Finding, Found, Kind, ROUNDING};
use super::shapes::RotationShape;
use super::{Draws, repeated};
use crate::gate::ulp::rotated;
use ndarray::{Array2, Array3, ArrayView3, Axis, s};
use spec::kernel::{Positions, Rotate};
use spec::{Kernels, ModelConfig, Result};

/// Calls it and judges it; a row is a head. Errors: whatever the kernels return.
pub(super) fn measure(kernels: &dyn Kernels, shape: &RotationShape, config: &ModelConfig) -> Result<Finding> {
    let mut draws = Draws::new();
    let sequences = shape.positions.len();
    let dim = (sequences, shape.heads, config.head_dim);
    let heads = Array3::from_shape_simple_fn(dim, || draws.number());
    let positions = match shape.common {
        true => Positions::Common(shape.positions[0]),
        false => Positions::Each(&shape.positions),
    };
    let turn = |heads: ArrayView3<'_, f32>, positions| {
        kernels.rotate(&Rotate { heads, positions }).map(|turned| by_head(&turned))
    };
    let (found, differing) = repeated(|| turn(heads.view(), positions))?;
    let mut beside = Array2::zeros(found.dim());
    let mut exact = Array2::zeros(found.dim());
    for (sequence, &position) in shape.positions.iter().enumerate() {
        for head in 0..shape.heads {
            let one = heads.slice(s![sequence..=sequence, head..=head, ..]);
            let row = sequence * shape.heads + head;
            beside.row_mut(row).assign(&turn(one, Positions::Common(position))?.row(0));
            let wide = one.index_axis(Axis(0), 0).mapv(f64::from);
            exact.row_mut(row).assign(&rotated(&wide, position, config).row(0));
        }
    }
    // an angle of f32 errs by half its last bit, which grows with the position
    let last = shape.positions.iter().copied().max().unwrap_or(0) as f64;
    let (floor, ceiling) = (4.0 * ROUNDING, (4.0 + last) * ROUNDING);
    let judged = Found { exact: &exact, found: &found, beside: &beside, floor, ceiling }.judge();
    Ok(judged.finding(About {
        kind: Kind::Rotation,
        kernel: "rope".into(),
        shape: format!("B {sequences}, heads {}, T 1, D {}", shape.heads, config.head_dim),
        what: shape.what.into(),
        path: "at once / one by one",
        differing,
        note: String::new(),
    }))
}

/// `[B, N, D]` to `[B * N, D]`
fn by_head(heads: &Array3<f32>) -> Array2<f32> {
    let (sequences, count, width) = heads.dim();
    Array2::from_shape_fn((sequences * count, width), |(row, column)| {
        heads[(row / count, row % count, column)]
    })
}
