//! The threads, and the two ways in which work is cut for them.
//!
//! How work is cut never changes a bit: each output element is made by one call, whole, from operands that
//! do not depend on the cut.

use crate::product;
use crate::steps::{Matrix, Steps};
use ndarray::parallel::prelude::*;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis};
use spec::{Error, Result};

/// A pool of threads of one reference.
pub(crate) struct Workers {
    pool: rayon::ThreadPool,
}

/// Rows that one thread takes at a time in [`Workers::by_rows`].
const ROWS: usize = 32;
/// Rows and columns of an output tile of a product.
const TILE: (usize, usize) = (256, 512);

impl Workers {
    /// A pool of `threads` threads, or one per core. Errors: [`Error::Argument`] on 0, [`Error::Engine`] if
    /// the system grants no threads.
    pub fn new(threads: Option<usize>) -> Result<Self> {
        if threads == Some(0) {
            return Err(Error::Argument {
                what: "the number of threads".into(),
                expected: "at least 1".into(),
                found: "0".into(),
                next: "leave it out to use every core".into(),
            });
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
        let pool = pool.map_err(|error| Error::Engine {
            engine: "rayon",
            doing: "start threads".into(),
            message: error.to_string(),
        })?;
        Ok(Self { pool })
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs `work` on the pool; rayon's iterators within use its threads.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }

    /// Calls `work(first_row, rows)` on blocks of rows of a matrix in C order.
    pub fn by_rows(&self, all: &mut Array2<f32>, work: impl Fn(usize, ArrayViewMut2<'_, f32>) + Sync) {
        self.run(|| {
            let blocks = all.axis_chunks_iter_mut(Axis(0), ROWS).into_par_iter().enumerate();
            blocks.for_each(|(block, rows)| work(block * ROWS, rows));
        });
    }

    /// `x · wᵀ`: `x [m, in]`, `w [out, in]`, to `[m, out]`, in tiles.
    pub fn product(
        &self,
        steps: &dyn Steps,
        matrix: Matrix,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
    ) -> Array2<f32> {
        let mut out = Array2::zeros((x.nrows(), w.nrows()));
        let mut tiles = Vec::new();
        for (i, rows) in product::split(out.view_mut(), Axis(0), TILE.0).into_iter().enumerate() {
            for (j, tile) in product::split(rows, Axis(1), TILE.1).into_iter().enumerate() {
                tiles.push((i * TILE.0, j * TILE.1, tile));
            }
        }
        self.run(|| {
            tiles.into_par_iter().for_each(|(row, column, tile)| {
                let x = x.slice(ndarray::s![row..row + tile.nrows(), ..]);
                let w = w.slice(ndarray::s![column..column + tile.ncols(), ..]);
                steps.product(matrix, x, w, tile);
            });
        });
        out
    }
}
