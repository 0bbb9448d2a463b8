//! From MLX arrays to a recorder's rows.
//!
//! Inputs: arrays of one call, tapped where they are made, and which of their columns hold whose tokens.
//! Outputs: f32 rows, evaluated together with the layer they belong to. Absent on purpose: anything for a
//! site that nobody wants: it is neither widened nor evaluated; and padding, which no span holds.

use crate::engine::{Doing, Op, dim, length};
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, Dtype};
use ndarray::ArrayView2;
use spec::{At, LayerId, Recorder, Result, Site};
use std::ops::Range;

/// The tokens of one run in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The run.
    pub run: usize,
    /// Which row of the call's arrays, `[B, T, ..]`.
    pub row: usize,
    /// The first column of that row that holds a token; all of them follow.
    pub column: usize,
    /// The tokens' positions.
    pub positions: Range<usize>,
}

impl Span {
    /// A run that has the call to itself.
    pub fn alone(run: usize, positions: Range<usize>) -> Self {
        Self { run, row: 0, column: 0, positions }
    }

    /// The columns of the tokens.
    pub fn columns(&self) -> Range<usize> {
        self.column..self.column + self.positions.len()
    }

    /// Its own part of `[B, T, ..]`: `[positions.len(), width]`, f32, contiguous.
    pub fn rows(&self, array: &Array) -> Op {
        let (row, columns) = (dim(self.row), self.columns());
        let own = array.try_index((row..row + 1, dim(columns.start)..dim(columns.end)))?;
        own.as_dtype(Dtype::Float32)?.reshape(&[dim(columns.len()), -1])?.contiguous()
    }
}

/// The wanted sites of one call and layer.
#[derive(Debug)]
pub struct Taps<'a> {
    spans: &'a [Span],
    layer: Option<LayerId>,
    /// By span.
    wanted: Vec<Vec<Site>>,
    rows: Vec<(&'a Span, Site, Array)>,
}

impl<'a> Taps<'a> {
    /// Asks the recorder which sites of this layer (or of none) it wants of each span.
    pub fn new(spans: &'a [Span], layer: Option<LayerId>, recorder: &dyn Recorder) -> Self {
        let here = |site: &Site| site.is_per_layer() == layer.is_some();
        let wanted = |span: &Span| {
            let of_span = |site: &Site| recorder.wants(span.run, layer, *site);
            Site::ALL.into_iter().filter(here).filter(of_span).collect()
        };
        Self { spans, layer, wanted: spans.iter().map(wanted).collect(), rows: Vec::new() }
    }

    /// The spans of which somebody wants this site.
    pub fn wanting(&self, site: Site) -> impl Iterator<Item = &'a Span> {
        let spans = self.spans.iter().zip(&self.wanted);
        spans.filter(move |(_, wanted)| wanted.contains(&site)).map(|(span, _)| span)
    }

    /// Whether anybody wants this site.
    pub fn wants(&self, site: Site) -> bool {
        self.wanting(site).next().is_some()
    }

    /// Keeps of `[B, T, ..]` each span's rows as f32, where the site is wanted.
    pub fn put(&mut self, site: Site, array: &Array) -> Op<()> {
        let rows: Vec<_> =
            self.wanting(site).map(|span| Ok((span, site, span.rows(array)?))).collect::<Op<_>>()?;
        self.rows.extend(rows);
        Ok(())
    }

    /// Keeps of `[B, N, T, D]` each span's rows of N*D, where the site is wanted.
    pub fn put_heads(&mut self, site: Site, array: &Array) -> Op<()> {
        if self.wants(site) { self.put(site, &array.swap_axes(1, 2)?) } else { Ok(()) }
    }

    /// What has to be evaluated before [`Taps::deliver`].
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.rows.iter().map(|(_, _, rows)| rows)
    }

    /// Hands all rows to the recorder, in the order in which they were made. Errors: the recorder's.
    pub fn deliver(self, recorder: &mut dyn Recorder) -> Result<()> {
        for (span, site, rows) in &self.rows {
            let rows_of = span.positions.clone();
            deliver(&At { run: span.run, layer: self.layer, site: *site, rows: rows_of }, rows, recorder)?;
        }
        Ok(())
    }
}

/// Hands `rows`, `[T, width]` f32 contiguous, to the recorder. Errors: MLX's, the recorder's.
pub fn deliver(at: &At, rows: &Array, recorder: &mut dyn Recorder) -> Result<()> {
    rows.eval().doing(format!("compute {}", at.site))?;
    let shape = (length(rows, 0), length(rows, 1));
    assert_eq!(shape.0, at.rows.len(), "rows of {}", at.site);
    let values = rows.as_slice::<f32>();
    recorder.record(at, ArrayView2::from_shape(shape, values).expect("contiguous rows"))
}
