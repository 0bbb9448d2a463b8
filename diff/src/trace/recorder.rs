//! Receives everything a trace needs of one [`spec::Side::forward`], and puts wanted sites into their files.
//!
//! Architecture invariant: held are routing weights and candidates, `[T, L, k]`; every other value goes to
//! disk in the call that brings it.

use super::candidates::CandidateReducer;
use super::sites::{self, SitesWriter};
use crate::compare::Progress;
use crate::compare::ledger::Ledger;
use ndarray::{Array3, ArrayView2, s};
use spec::trace::Candidates;
use spec::{At, Case, LayerId, ModelConfig, Recorder, Result, Site};

/// What a trace is made of, whatever sites are kept.
const TRACE_SITES: [Site; 3] = [Site::RouterLogits, Site::SelectionScores, Site::TopkWeights];

/// The recorder of all runs of one recording.
pub(super) struct TraceRecorder<'a> {
    ledger: Ledger<'a>,
    sites: &'a [Site],
    files: &'a [SitesWriter],
    candidates: CandidateReducer,
    weights: Vec<Array3<f32>>,
    progress: &'a mut dyn Progress,
}

impl<'a> TraceRecorder<'a> {
    /// `files[run]` takes `sites`; no files where there are no sites.
    pub(super) fn new(
        cases: &'a [Case],
        config: &'a ModelConfig,
        sites: &'a [Site],
        files: &'a [SitesWriter],
        progress: &'a mut dyn Progress,
    ) -> Self {
        let mut ledger = Ledger::new("side", cases, config);
        let all = [sites, &TRACE_SITES].concat();
        sites::places(&all, config).for_each(|(layer, site)| ledger.expect(layer, site));
        let tokens: usize = cases.iter().map(Case::len).sum();
        progress.phase("recording", tokens * config.num_layers());
        let weights =
            |case: &Case| Array3::zeros((case.len(), config.num_layers(), config.experts_per_token));
        let weights = cases.iter().map(weights).collect();
        let candidates = CandidateReducer::new(cases, config);
        Self { ledger, sites, files, candidates, weights, progress }
    }

    /// Weights and candidates of every run. Errors: [`spec::Error::Unpaired`] if rows are still owed.
    pub(super) fn finish(self) -> Result<Vec<(Array3<f32>, Candidates)>> {
        self.ledger.finish()?;
        Ok(self.weights.into_iter().zip(self.candidates.finish()).collect())
    }
}

impl Recorder for TraceRecorder<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, rows)?;
        if self.sites.contains(&at.site) {
            self.files[at.run].write(at, rows)?;
        }
        match (at.site, at.layer) {
            (Site::RouterLogits | Site::SelectionScores, _) => self.candidates.take(at, rows),
            (Site::TopkWeights, Some(layer)) => {
                self.weights[at.run].slice_mut(s![at.rows.clone(), layer.0, ..]).assign(&rows);
                self.progress.step(at.rows.len());
            }
            _ => {}
        }
        Ok(())
    }
}
