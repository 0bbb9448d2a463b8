//! One layer of two recordings, reduced to numbers.

use super::comparison::{LargestGap, TraceLayer};
use crate::compare::{Place, WorstRow};
use crate::metrics::router::LogitsError;
use crate::metrics::{branch, router};
use crate::stats::{Spread, is_worse};
use ndarray::{Array1, ArrayView1, ArrayView2, s};
use spec::trace::{Origin, Trace};
use spec::{LayerId, LayerKind, Site};

/// The sites of a layer that are compared, where both sides have them.
pub(super) const SITES: [Site; 3] = [Site::AttnBranch, Site::RouterLogits, Site::MoeBranch];

/// What has been seen of one layer so far.
#[derive(Debug, Default)]
pub(super) struct LayerTally {
    rows: usize,
    missing: usize,
    attn_errors: Vec<f64>,
    moe_errors: Vec<f64>,
    weight_errors: Vec<f64>,
    worst: Option<WorstRow>,
    router_logits: LogitsError,
    router_rows: usize,
    ties: usize,
    flips: usize,
    unjudged: usize,
    beyond_tie: usize,
    largest: Option<(f64, Place)>,
    executed_differing: usize,
    unforced_rows: usize,
}

impl LayerTally {
    /// Takes the sets, and the weights of equal ones, of every row of one case at one index along L.
    pub(super) fn sets(&mut self, reference: &Trace, port: &Trace, index: usize) {
        for token in 0..reference.rows() {
            let (expected, found) = (reference.row(token, index), port.row(token, index));
            let (Some(expected), Some(found)) = (expected, found) else {
                self.missing += 1;
                continue;
            };
            self.rows += 1;
            if same_set(expected, found) {
                self.weight_errors.extend(weights_error(reference, port, [token, index]));
            } else {
                self.executed_differing += 1;
                let origin = port.origin.as_ref().map(|origin| origin[[token, index]]);
                self.unforced_rows += usize::from(origin == Some(Origin::Forced));
            }
            let own = (reference.own_row(token, index), port.own_row(token, index));
            let (Some(expected), Some(found)) = own else { continue };
            if !same_set(expected, found) {
                let place =
                    Place { case: reference.meta.case.clone(), position: reference.meta.pos0 + token };
                self.disagreement(reference.gap(token, index), place);
            }
        }
    }

    fn disagreement(&mut self, gap: Option<f64>, place: Place) {
        let Some(gap) = gap else {
            self.unjudged += 1;
            return;
        };
        if gap == 0.0 {
            self.ties += 1;
        } else {
            self.flips += 1;
        }
        self.beyond_tie += usize::from(router::is_beyond_tie(gap));
        if self.largest.as_ref().is_none_or(|(largest, _)| is_worse(gap, *largest)) {
            self.largest = Some((gap, place));
        }
    }

    /// Takes rows of one of [`SITES`], `[rows, width]` of either side, the first at position `first` of
    /// `case`.
    pub(super) fn site(
        &mut self,
        site: Site,
        case: &str,
        first: usize,
        reference: ArrayView2<'_, f32>,
        port: ArrayView2<'_, f32>,
    ) {
        assert_eq!(reference.dim(), port.dim(), "rows of `{site}`");
        if site == Site::RouterLogits {
            self.router_rows += reference.nrows();
            return self.router_logits.add(reference, port);
        }
        for row in 0..reference.nrows() {
            let error = branch::relative_error(reference.row(row), port.row(row));
            let errors = if site == Site::AttnBranch { &mut self.attn_errors } else { &mut self.moe_errors };
            errors.push(error);
            if self.worst.as_ref().is_none_or(|worst| is_worse(error, worst.error)) {
                let place = Place { case: case.into(), position: first + row };
                self.worst = Some(WorstRow { branch: site, error, place });
            }
        }
    }

    /// Rows whose executed sets differ, and rows compared.
    pub(super) fn executed(&self) -> (usize, usize) {
        (self.executed_differing, self.rows)
    }

    /// The layer's numbers.
    pub(super) fn finish(self, layer: LayerId, kind: Option<LayerKind>) -> TraceLayer {
        let spread = |errors: Vec<f64>| (!errors.is_empty()).then(|| Spread::of(errors));
        let router =
            |number: fn(LogitsError) -> f64| (self.router_rows > 0).then(|| number(self.router_logits));
        let router_sigma = router(LogitsError::sigma);
        let largest = self.largest.map(|(gap, place)| LargestGap {
            gap,
            z: router_sigma.map(|sigma| router::z(gap, sigma)),
            place,
        });
        TraceLayer {
            layer,
            kind,
            rows: self.rows,
            missing: self.missing,
            attn_branch: spread(self.attn_errors),
            moe_branch: spread(self.moe_errors),
            topk_weights: spread(self.weight_errors),
            worst: self.worst,
            router_sigma,
            router_logits_rms: router(LogitsError::rms),
            disagreements: self.ties + self.flips + self.unjudged,
            ties: self.ties,
            flips: self.flips,
            unjudged: self.unjudged,
            beyond_tie: self.beyond_tie,
            largest,
            executed_differing: self.executed_differing,
            unforced_rows: self.unforced_rows,
        }
    }
}

fn same_set(a: &[i32], b: &[i32]) -> bool {
    router::same_set(ArrayView1::from(a), ArrayView1::from(b))
}

/// Relative error of one row's weights, taken in the order of the reference's slots; `None` if a side has
/// none. Panics if the two sets differ.
fn weights_error(reference: &Trace, port: &Trace, [token, index]: [usize; 2]) -> Option<f64> {
    let (expected, found) = (reference.weights.as_ref()?, port.weights.as_ref()?);
    let (expected, found) = (expected.slice(s![token, index, ..]), found.slice(s![token, index, ..]));
    let (ids, port_ids) = (reference.row(token, index)?, port.row(token, index)?);
    let slot = |id: &i32| port_ids.iter().position(|other| other == id).expect("the same set");
    let found: Array1<f32> = ids.iter().map(|id| found[slot(id)]).collect();
    Some(branch::relative_error(expected, found.view()))
}
