//! Kernels in plain f32, right unless told otherwise.

use ndarray::{Array2, Array3, s};
use spec::kernel::{Attend, Gather, Positions, Rotate, Stack};
use spec::{Kernels, Precision, Result, SideInfo};
use std::cell::Cell;

/// Changes what a gather gives.
pub type Fault = fn(&Gather<'_>, &mut Array2<f32>);

/// Kernels of heads that turn with a base of 10000.
pub struct Plain {
    pub gather: Fault,
    /// How many of a rotation's sequences turn.
    pub turning: usize,
    /// How many keys one query sees.
    pub seen: usize,
    /// What a query gets that sees nothing.
    pub masked: f32,
    /// Added to the first value of every second call of a kernel.
    pub drift: f32,
    pub calls: Cell<usize>,
}

impl Plain {
    /// Right in everything; a query that sees nothing gets 0.
    pub fn new() -> Self {
        Self {
            gather: |_, _| {},
            turning: usize::MAX,
            seen: usize::MAX,
            masked: 0.0,
            drift: 0.0,
            calls: Cell::new(0),
        }
    }

    fn drift(&self, value: &mut f32) {
        self.calls.set(self.calls.get() + 1);
        *value += if self.calls.get().is_multiple_of(2) { self.drift } else { 0.0 };
    }
}

impl Kernels for Plain {
    fn describe(&self) -> SideInfo {
        let [side, engine, device] = ["port", "loops", "paper"].map(String::from);
        SideInfo { side, engine, device, precision: Precision::F32, notes: Vec::new() }
    }

    fn gather(&self, call: &Gather<'_>) -> Result<Array2<f32>> {
        let mut products = Array2::zeros((call.ids.len(), call.stack.dim().1));
        let mut start = 0;
        for of_one in call.ids.chunk_by(|a, b| a == b) {
            let (expert, rows) = (of_one[0] as usize, s![start..start + of_one.len(), ..]);
            let matrix = match call.stack {
                Stack::Dense(values) => values.slice(s![expert, .., ..]).to_owned(),
                Stack::Packed { codes, scales, biases, packing } => {
                    let codes = codes.slice(s![expert, .., ..]);
                    Array2::from_shape_fn(codes.dim(), |(row, column)| {
                        let group = (expert, row, column / packing.group);
                        scales[group].mul_add(f32::from(codes[(row, column)]), biases[group])
                    })
                }
            };
            products.slice_mut(rows).assign(&call.rows.slice(rows).dot(&matrix.t()));
            start += of_one.len();
        }
        if call.precision == Precision::Bf16 {
            products.mapv_inplace(|sum| half::bf16::from_f32(sum).to_f32());
        }
        (self.gather)(call, &mut products);
        self.drift(&mut products[(0, 0)]);
        Ok(products)
    }

    fn rotate(&self, call: &Rotate<'_>) -> Result<Array3<f32>> {
        let mut turned = call.heads.to_owned();
        let half = turned.dim().2 / 2;
        for (sequence, mut heads) in turned.outer_iter_mut().enumerate().take(self.turning) {
            let position = match call.positions {
                Positions::Common(position) => position,
                Positions::Each(positions) => positions[sequence],
            };
            for mut head in heads.rows_mut() {
                for j in 0..half {
                    let exponent = (2 * j) as f32 / (2 * half) as f32;
                    let frequency = 1.0 / (10_000_f64.powf(f64::from(exponent)) as f32);
                    let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
                    let (a, b) = (f64::from(head[j]), f64::from(head[j + half]));
                    head[j] = (a * cos - b * sin) as f32;
                    head[j + half] = (b * cos + a * sin) as f32;
                }
            }
        }
        self.drift(&mut turned[(0, 0, 0)]);
        Ok(turned)
    }

    fn attend(&self, call: &Attend<'_>) -> Result<Array3<f32>> {
        let (heads, queries, width) = call.queries.dim();
        let keys = if queries == 1 { self.seen.min(call.keys.dim().1) } else { call.keys.dim().1 };
        let each = heads / call.keys.dim().0;
        let mut out = Array3::from_elem((heads, queries, width), self.masked);
        for (head, query) in (0..heads).flat_map(|head| (0..queries).map(move |query| (head, query))) {
            let sees = |key: &usize| call.visible.is_none_or(|visible| visible[(query, *key)]);
            let score = |key: usize| {
                let pair =
                    (call.queries.slice(s![head, query, ..]), call.keys.slice(s![head / each, key, ..]));
                pair.0.dot(&pair.1) / (width as f32).sqrt()
            };
            let weights: Vec<(usize, f32)> =
                (0..keys).filter(sees).map(|key| (key, score(key).exp())).collect();
            let sum: f32 = weights.iter().map(|(_, weight)| weight).sum();
            if !weights.is_empty() {
                let value = |column| {
                    weights.iter().map(|(key, w)| w * call.values[(head / each, *key, column)]).sum::<f32>()
                };
                (0..width).for_each(|column| out[(head, query, column)] = value(column) / sum);
            }
        }
        self.drift(&mut out[(0, 0, 0)]);
        Ok(out)
    }
}
