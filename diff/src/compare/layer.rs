//! One layer of the table: the port's layer, fed the reference's input and forced onto its choices, reduced
//! row by row against the reference's rows.

use super::comparison::{Disagreement, Disagreements, LayerRow, Place, WorstRow};
use super::ledger::Ledger;
use crate::metrics::router::LogitsError;
use crate::metrics::{branch, router};
use crate::stats::{Spread, is_worse};
use ndarray::{Array2, ArrayView2, s};
use spec::{At, Case, LayerId, ModelConfig, Recorder, Result, Site};

/// The sites of the port's layer that are compared.
const SITES: [Site; 5] =
    [Site::AttnBranch, Site::MoeBranch, Site::RouterLogits, Site::Choice, Site::ShadowChoice];

/// The reference's rows of one layer of one run.
#[derive(Debug)]
pub(crate) struct ReferenceRows {
    /// `[T, H]`.
    pub(crate) attn_branch: Array2<f32>,
    /// `[T, H]`.
    pub(crate) moe_branch: Array2<f32>,
    /// `[T, E]`.
    pub(crate) router_logits: Array2<f32>,
    /// `[T, E]`.
    pub(crate) selection_scores: Array2<f32>,
    /// `[T, k]`.
    pub(crate) choice: Array2<f32>,
}

/// Receives the port's rows of one layer and keeps numbers only.
pub(crate) struct LayerReducer<'a> {
    layer: LayerId,
    ledger: Ledger<'a>,
    config: &'a ModelConfig,
    cases: &'a [Case],
    /// By run.
    reference: &'a [ReferenceRows],
    attn_errors: Vec<f64>,
    moe_errors: Vec<f64>,
    /// The largest branch error and where: branch, run, position.
    worst: Option<(f64, Site, usize, usize)>,
    router_logits: LogitsError,
    disagreements: usize,
    beyond_tie: usize,
    /// The largest gap and where: run, position.
    largest_gap: Option<(f64, usize, usize)>,
    unforced_rows: usize,
}

impl<'a> LayerReducer<'a> {
    /// For one layer; `reference[run]` holds the reference's rows. `config` is the port's.
    pub(crate) fn new(
        layer: LayerId,
        config: &'a ModelConfig,
        cases: &'a [Case],
        reference: &'a [ReferenceRows],
    ) -> Self {
        let mut ledger = Ledger::new("port", cases, config);
        SITES.into_iter().for_each(|site| ledger.expect(Some(layer), site));
        Self {
            layer,
            ledger,
            config,
            cases,
            reference,
            attn_errors: Vec::new(),
            moe_errors: Vec::new(),
            worst: None,
            router_logits: LogitsError::default(),
            disagreements: 0,
            beyond_tie: 0,
            largest_gap: None,
            unforced_rows: 0,
        }
    }

    /// The layer's row of the table. Errors: [`spec::Error::Unpaired`] if the port still owes rows.
    pub(crate) fn finish(self) -> Result<LayerRow> {
        self.ledger.finish()?;
        let place = |run: usize, position| Place { case: self.cases[run].name.clone(), position };
        let sigma = self.router_logits.sigma();
        let largest = self.largest_gap.map(|(gap, run, position)| Disagreement {
            gap,
            z: router::z(gap, sigma),
            place: place(run, position),
        });
        let (error, branch, run, position) = self.worst.expect("every case has a row of each branch");
        Ok(LayerRow {
            layer: self.layer,
            kind: self.config.kind(self.layer),
            rows: self.attn_errors.len(),
            attn_branch: Spread::of(self.attn_errors),
            moe_branch: Spread::of(self.moe_errors),
            worst: WorstRow { branch, error, place: place(run, position) },
            router_sigma: sigma,
            router_logits_rms: self.router_logits.rms(),
            disagreements: Disagreements { count: self.disagreements, beyond_tie: self.beyond_tie, largest },
            unforced_rows: self.unforced_rows,
        })
    }

    fn branch(&mut self, at: &At, expected: ArrayView2<'_, f32>, found: ArrayView2<'_, f32>) {
        for (row, position) in at.rows.clone().enumerate() {
            let error = branch::relative_error(expected.row(row), found.row(row));
            let errors =
                if at.site == Site::AttnBranch { &mut self.attn_errors } else { &mut self.moe_errors };
            errors.push(error);
            if self.worst.is_none_or(|(worst, ..)| is_worse(error, worst)) {
                self.worst = Some((error, at.site, at.run, position));
            }
        }
    }

    fn shadow(&mut self, at: &At, expected: ArrayView2<'_, f32>, found: ArrayView2<'_, f32>) {
        let scores = &self.reference[at.run].selection_scores;
        for (row, position) in at.rows.clone().enumerate() {
            if router::same_set(expected.row(row), found.row(row)) {
                continue;
            }
            let gap = router::gap(scores.row(position), self.config.experts_per_token);
            self.disagreements += 1;
            self.beyond_tie += usize::from(router::is_beyond_tie(gap));
            if self.largest_gap.is_none_or(|(largest, ..)| is_worse(gap, largest)) {
                self.largest_gap = Some((gap, at.run, position));
            }
        }
    }

    fn executed(&mut self, expected: ArrayView2<'_, f32>, found: ArrayView2<'_, f32>) {
        let differs = |row: &usize| !router::same_set(expected.row(*row), found.row(*row));
        self.unforced_rows += (0..found.nrows()).filter(differs).count();
    }
}

impl<'a> Recorder for LayerReducer<'a> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, found: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, found)?;
        let reference: &'a ReferenceRows = &self.reference[at.run];
        let of = |rows: &'a Array2<f32>| rows.slice(s![at.rows.clone(), ..]);
        match at.site {
            Site::AttnBranch => self.branch(at, of(&reference.attn_branch), found),
            Site::MoeBranch => self.branch(at, of(&reference.moe_branch), found),
            Site::RouterLogits => self.router_logits.add(of(&reference.router_logits), found),
            Site::Choice => self.executed(of(&reference.choice), found),
            Site::ShadowChoice => self.shadow(at, of(&reference.choice), found),
            site => unreachable!("the ledger refuses {site}"),
        }
        Ok(())
    }
}
