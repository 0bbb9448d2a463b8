//! From every router logit and selection score to the few best: what a margin needs of a row.
//!
//! Architecture invariant: of `[T, L, E]` no more is held than the rows that one of the two sites has
//! recorded and the other has not yet.

use crate::stats;
use ndarray::{Array3, ArrayView2};
use spec::trace::{Candidates, EXTRA_CANDIDATES};
use spec::{At, Case, LayerId, ModelConfig, Site};
use std::collections::BTreeMap;

/// Takes the rows of `router_logits` and `selection_scores` of every run, in whatever order the two come.
#[derive(Debug)]
pub(super) struct CandidateReducer {
    experts: usize,
    kept: usize,
    best: Vec<Candidates>,
    waiting: BTreeMap<(usize, LayerId), Waiting>,
}

/// Rows of one layer of one run that wait for the other site, `[rows, E]` each, both from position `first`
/// on.
#[derive(Debug, Default)]
struct Waiting {
    first: usize,
    logits: Vec<f32>,
    scores: Vec<f32>,
}

impl CandidateReducer {
    pub(super) fn new(cases: &[Case], config: &ModelConfig) -> Self {
        let experts = config.num_experts;
        let kept = (config.experts_per_token + EXTRA_CANDIDATES).min(experts);
        let best = |case: &Case| {
            let shape = (case.len(), config.num_layers(), kept);
            Candidates { ids: Array3::zeros(shape), sel: Array3::zeros(shape), logit: Array3::zeros(shape) }
        };
        let best = cases.iter().map(best).collect();
        Self { experts, kept, best, waiting: BTreeMap::new() }
    }

    /// Takes the next rows of one of the two sites, `[rows, E]`. Panics on rows of no layer.
    pub(super) fn take(&mut self, at: &At, rows: ArrayView2<'_, f32>) {
        let layer = at.layer.expect("router sites are of a layer");
        let waiting = self.waiting.entry((at.run, layer)).or_default();
        let side = if at.site == Site::RouterLogits { &mut waiting.logits } else { &mut waiting.scores };
        side.extend(rows.iter());
        let ready = waiting.logits.len().min(waiting.scores.len()) / self.experts;
        let logits = waiting.logits.drain(..ready * self.experts).collect::<Vec<_>>();
        let scores = waiting.scores.drain(..ready * self.experts).collect::<Vec<_>>();
        let first = waiting.first;
        waiting.first += ready;
        let both = logits.chunks_exact(self.experts).zip(scores.chunks_exact(self.experts));
        let best = &mut self.best[at.run];
        for (row, (logits, scores)) in both.enumerate() {
            for (slot, id) in best_of(scores, self.kept).into_iter().enumerate() {
                let place = [first + row, layer.0, slot];
                best.ids[place] = i32::try_from(id).expect("fewer than 2^31 experts");
                best.sel[place] = scores[id];
                best.logit[place] = logits[id];
            }
        }
    }

    /// The candidates of every run. Panics if rows are still waiting: the ledger is asked before.
    pub(super) fn finish(self) -> Vec<Candidates> {
        let idle = |waiting: &Waiting| waiting.logits.is_empty() && waiting.scores.is_empty();
        assert!(self.waiting.values().all(idle), "rows of one router site without the other");
        self.best
    }
}

/// The `count` best by score, best first, equal scores by id; a NaN comes first, so that no gap hides it.
fn best_of(scores: &[f32], count: usize) -> Vec<usize> {
    let order =
        |&a: &usize, &b: &usize| stats::order(f64::from(scores[b]), f64::from(scores[a])).then(a.cmp(&b));
    let mut ids: Vec<usize> = (0..scores.len()).collect();
    ids.select_nth_unstable_by(count - 1, order);
    ids.truncate(count);
    ids.sort_by(order);
    ids
}

#[cfg(test)]
mod tests {
    use super::best_of;

    #[test]
    fn equal_scores_are_ordered_by_id_and_the_best_come_first() {
        assert_eq!(best_of(&[1.0, 3.0, 2.0, 3.0, 2.0, 2.0], 4), [1, 3, 2, 4]);
    }

    #[test]
    fn a_nan_score_is_the_first_candidate() {
        assert_eq!(best_of(&[1.0, f32::NAN, 2.0], 2), [1, 2]);
    }
}
