//! Attention of one sequence (K13), all heads at once beside head by head.

use super::finding::{About, Finding, Found, Kind, ROUNDING};
use super::shapes::AttentionShape;
use super::{Draws, repeated};
use ndarray::{Array2, Array3, ArrayView1, ArrayView2, Axis, s};
use spec::kernel::Attend;
use spec::{Kernels, Result};

/// Queries are this long, so that scores differ enough for some keys to weigh more than others.
const SHARPNESS: f32 = 3.0;

/// Calls it and judges it; a row is one query of one head. Errors: whatever the kernels return.
pub(super) fn measure(kernels: &dyn Kernels, shape: &AttentionShape) -> Result<Finding> {
    let AttentionShape { heads, kv_heads, head_dim, queries, keys, .. } = *shape;
    let operands = Operands::draw(shape);
    let (found, differing) = repeated(|| operands.attend(kernels))?;
    let mut beside = Array2::zeros(found.dim());
    let mut exact = Array2::zeros(found.dim());
    for head in 0..heads {
        let one = operands.head(head, heads / kv_heads);
        let rows = s![head * queries..(head + 1) * queries, ..];
        beside.slice_mut(rows).assign(&one.attend(kernels)?);
        exact.slice_mut(rows).assign(&one.exact());
    }
    let mut note = String::new();
    if let Some(hidden) = shape.hidden {
        // no weights are right where no key is seen: such a row may be anything that is finite
        for row in (0..heads).map(|head| head * queries + hidden) {
            exact.row_mut(row).assign(&found.row(row).mapv(f64::from));
            beside.row_mut(row).assign(&found.row(row));
        }
        let got = masked(found.row(hidden), operands.values.index_axis(Axis(0), 0));
        note = format!("the query that sees nothing gets {got}");
    }
    // sums of as many terms as heads are wide, then of as many as there are keys
    let terms = (head_dim + keys) as f64;
    let (floor, ceiling) = (ROUNDING * terms.sqrt(), ROUNDING * terms);
    let judged = Found { exact: &exact, found: &found, beside: &beside, floor, ceiling }.judge();
    Ok(judged.finding(About {
        kind: Kind::Attention,
        kernel: "attention".into(),
        shape: format!("heads {heads}:{kv_heads}, D {head_dim}, T {queries}, S {keys}"),
        what: shape.what.into(),
        path: "at once / head by head",
        differing,
        note,
    }))
}

/// What attention is of; as [`Attend`] has it.
struct Operands {
    queries: Array3<f32>,
    keys: Array3<f32>,
    values: Array3<f32>,
    visible: Option<Array2<bool>>,
}

impl Operands {
    fn draw(shape: &AttentionShape) -> Self {
        let AttentionShape { heads, kv_heads, head_dim, queries, keys, hidden, .. } = *shape;
        let mut draws = Draws::new();
        let mut draw =
            |heads, tokens| Array3::from_shape_simple_fn((heads, tokens, head_dim), || draws.number());
        let visible = hidden.map(|hidden| {
            let sees = |(query, key): (usize, usize)| query != hidden && key + queries <= keys + query;
            Array2::from_shape_fn((queries, keys), sees)
        });
        Self {
            queries: draw(heads, queries) * SHARPNESS,
            keys: draw(kv_heads, keys),
            values: draw(kv_heads, keys),
            visible,
        }
    }

    /// One query head, of `each` that share keys and values.
    fn head(&self, head: usize, each: usize) -> Self {
        let one = |x: &Array3<f32>, head: usize| x.slice(s![head..=head, .., ..]).to_owned();
        Self {
            queries: one(&self.queries, head),
            keys: one(&self.keys, head / each),
            values: one(&self.values, head / each),
            visible: self.visible.clone(),
        }
    }

    /// `[Nq * T, D]`, as the kernel has it.
    fn attend(&self, kernels: &dyn Kernels) -> Result<Array2<f32>> {
        let (queries, keys, values) = (self.queries.view(), self.keys.view(), self.values.view());
        let visible = self.visible.as_ref().map(|visible| visible.view());
        kernels.attend(&Attend { queries, keys, values, visible }).map(|out| by_query(&out))
    }

    /// The same in f64, of the first head. Rows that see nothing are 0.
    fn exact(&self) -> Array2<f64> {
        let flat = |x: &Array3<f32>| x.index_axis(Axis(0), 0).mapv(f64::from);
        let (q, k, v) = (flat(&self.queries), flat(&self.keys), flat(&self.values));
        let mut weights = q.dot(&k.t()) / (q.ncols() as f64).sqrt();
        for (at, score) in weights.indexed_iter_mut() {
            if self.visible.as_ref().is_some_and(|visible| !visible[at]) {
                *score = f64::NEG_INFINITY;
            }
        }
        for mut row in weights.rows_mut() {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.mapv_inplace(|score| if score == f64::NEG_INFINITY { 0.0 } else { (score - largest).exp() });
            let sum = row.sum();
            row.mapv_inplace(|weight| if sum == 0.0 { 0.0 } else { weight / sum });
        }
        weights.dot(&v)
    }
}

/// `[Nq, T, D]` to `[Nq * T, D]`
fn by_query(out: &Array3<f32>) -> Array2<f32> {
    let (heads, queries, width) = out.dim();
    Array2::from_shape_fn((heads * queries, width), |(row, column)| {
        out[(row / queries, row % queries, column)]
    })
}

/// What a query that sees nothing got, in words.
fn masked(row: ArrayView1<'_, f32>, values: ArrayView2<'_, f32>) -> &'static str {
    let mean = values.mapv(f64::from).mean_axis(Axis(0)).expect("there are keys");
    let is_mean = |(&found, &mean): (&f32, &f64)| (f64::from(found) - mean).abs() <= 1e-5;
    match () {
        () if row.iter().any(|value| !value.is_finite()) => "NaN or infinity",
        () if row.iter().all(|&value| value == 0.0) => "zeros",
        () if row.iter().zip(&mean).all(is_mean) => "the average of all values",
        () => "something else",
    }
}
