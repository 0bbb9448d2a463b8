//! From MLX arrays to a recorder's rows.
//!
//! Inputs: arrays of one call, tapped where they are made. Outputs: f32 rows, evaluated together with the
//! layer they belong to. Absent on purpose: anything for a site that nobody wants: it is neither widened
//! nor evaluated.

use crate::engine::{Doing, Op, length};
use mlx_rs::{Array, Dtype};
use ndarray::ArrayView2;
use spec::{At, LayerId, Recorder, Result, Site};
use std::ops::Range;

/// The wanted sites of one call and layer.
#[derive(Debug)]
pub struct Taps {
    run: usize,
    layer: Option<LayerId>,
    positions: Range<usize>,
    wanted: Vec<Site>,
    rows: Vec<(Site, Array)>,
}

impl Taps {
    /// Asks the recorder which sites of this layer (or of none) it wants for these positions.
    pub fn new(run: usize, layer: Option<LayerId>, positions: Range<usize>, recorder: &dyn Recorder) -> Self {
        let here = |site: &Site| site.is_per_layer() == layer.is_some();
        let wanted = Site::ALL.into_iter().filter(here).filter(|&site| recorder.wants(run, layer, site));
        Self { run, layer, positions, wanted: wanted.collect(), rows: Vec::new() }
    }

    /// Whether anybody wants this site.
    pub fn wants(&self, site: Site) -> bool {
        self.wanted.contains(&site)
    }

    /// Keeps `[1, T, ..]` as T rows of f32, if the site is wanted.
    pub fn put(&mut self, site: Site, array: &Array) -> Op<()> {
        if self.wants(site) {
            let rows = array.as_dtype(Dtype::Float32)?.reshape(&[array.dim(1), -1])?.contiguous()?;
            self.rows.push((site, rows));
        }
        Ok(())
    }

    /// Keeps `[1, N, T, D]` as T rows of N*D, if the site is wanted.
    pub fn put_heads(&mut self, site: Site, array: &Array) -> Op<()> {
        if self.wants(site) { self.put(site, &array.swap_axes(1, 2)?) } else { Ok(()) }
    }

    /// What has to be evaluated before [`Taps::deliver`].
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.rows.iter().map(|(_, rows)| rows)
    }

    /// Hands all rows to the recorder, in the order in which they were made. Errors: the recorder's.
    pub fn deliver(self, recorder: &mut dyn Recorder) -> Result<()> {
        for (site, rows) in &self.rows {
            let at = At { run: self.run, layer: self.layer, site: *site, rows: self.positions.clone() };
            deliver(&at, rows, recorder)?;
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
