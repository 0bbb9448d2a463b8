//! How far the port is from a lane at one place.

use crate::beside::SiteRows;
use crate::metrics::branch::relative_error;
use crate::metrics::router::{gap, is_beyond_tie, same_set};
use crate::stats::RootMeanSquare;
use ndarray::{ArrayView1, Zip};
use spec::Site;

/// An infinite error, of a row that is zero in the lane, counts as so many orders beyond the honest level.
const ORDERS_MAX: f64 = 12.0;

/// Rows of one site of the port against those of a lane.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Distance {
    /// RMS over rows of the relative L2 error.
    pub(crate) rms: f64,
    /// The mean over rows of the decimal orders of magnitude that the error is beyond the bound.
    pub(crate) orders: f64,
    /// RMS over the rows that are within the bound; 0 of none.
    pub(crate) rms_within: f64,
    /// How many rows are beyond the bound.
    pub(crate) beyond: usize,
    /// How many rows there are.
    pub(crate) rows: usize,
    /// What is honest for an RMS and for a row.
    pub(crate) bound: f64,
}

impl Distance {
    /// Of these errors.
    pub(crate) fn of(errors: &[f64], bound: f64) -> Self {
        let (mut all, mut within) = (RootMeanSquare::default(), RootMeanSquare::default());
        let (mut orders, mut beyond) = (0.0, 0);
        for &error in errors {
            all.add(error);
            if error <= bound {
                within.add(error);
            } else {
                beyond += 1;
                // a NaN makes it infinite, which is never best
                orders +=
                    if error.is_nan() { f64::INFINITY } else { (error / bound).log10().min(ORDERS_MAX) };
            }
        }
        Self {
            rms: all.value(),
            orders: orders / errors.len() as f64,
            rms_within: if beyond == errors.len() { 0.0 } else { within.value() },
            beyond,
            rows: errors.len(),
            bound,
        }
    }

    /// Whether it is what rounding may do.
    pub(crate) fn is_honest(&self) -> bool {
        self.rms <= self.bound
    }
}

/// The error of each row of a site. Of the router's choice it is 1 where another set was chosen than the
/// lane's, and neither a tie nor the difference of the two sides' router logits can be why; else 0.
pub(crate) fn errors(site: Site, lane: &SiteRows, port: &SiteRows) -> Vec<f64> {
    let (ours, theirs) = (&lane[&site], &port[&site]);
    assert_eq!(ours.dim(), theirs.dim(), "the ledgers checked shapes");
    let row = |row| match site {
        Site::ShadowChoice => {
            let of = |rows: &SiteRows, site| rows[&site].row(row).to_owned();
            if same_set(ours.row(row), theirs.row(row)) {
                return 0.0;
            }
            let gap = gap(lane[&Site::SelectionScores].row(row), ours.ncols());
            let logits = [of(lane, Site::RouterLogits), of(port, Site::RouterLogits)];
            // two scores that are this far apart cannot have changed places
            let moved = 2.0 * largest_difference(logits[0].view(), logits[1].view());
            f64::from(u8::from(
                is_beyond_tie(gap) && !matches!(gap.partial_cmp(&moved), Some(std::cmp::Ordering::Less)),
            ))
        }
        _ => relative_error(ours.row(row), theirs.row(row)),
    };
    (0..ours.nrows()).map(row).collect()
}

fn largest_difference(a: ArrayView1<'_, f32>, b: ArrayView1<'_, f32>) -> f64 {
    let mut largest = 0.0;
    Zip::from(a).and(b).for_each(|&a, &b| largest = f64::max(largest, (f64::from(a) - f64::from(b)).abs()));
    largest
}
