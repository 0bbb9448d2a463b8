//! The one pass of the reference: at the end of each layer the port's layer is run on the same input, and the
//! layer's rows are dropped; logits go to the spool.
//!
//! Architecture invariant: between two layers nothing of a layer is held but its output, the next one's
//! input.

use super::comparison::{LayerRow, Nll};
use super::layer::{LayerReducer, ReferenceRows};
use super::ledger::{Key, Ledger};
use super::options::{Options, Progress};
use crate::metrics::logits;
use crate::spool::Spool;
use ndarray::{Array2, ArrayView2, s};
use spec::{
    At, Case, Choices, Error, ExpertId, LayerId, ModelConfig, Recorder, Result, Routing, Run, Side, Site,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// The reference's sites that a layer of the table needs, its input apart.
const LAYER_SITES: [Site; 5] =
    [Site::AttnBranch, Site::MoeBranch, Site::RouterLogits, Site::SelectionScores, Site::Choice];

/// Receives the reference's rows and runs the port's layers.
pub(crate) struct ReferencePass<'a> {
    port: &'a dyn Side,
    cases: &'a [Case],
    options: &'a Options,
    /// The layers of the table.
    layers: Range<usize>,
    progress: &'a mut dyn Progress,
    ledger: Ledger<'a>,
    /// What has come of the layer at hand, and the input of it and of the next.
    held: BTreeMap<Key, Array2<f32>>,
    /// By run; rows of layers whose choices have not come yet are experts `0..k`.
    choices: Vec<Choices>,
    table: Vec<LayerRow>,
    spool: Spool<usize>,
    nll_nats: f64,
    nll_tokens: usize,
}

/// What is left of the pass.
pub(crate) struct ReferenceResult {
    pub(crate) table: Vec<LayerRow>,
    pub(crate) logits: Spool<usize>,
    pub(crate) nll: Nll,
}

impl<'a> ReferencePass<'a> {
    /// Errors: [`Error::Io`] if there is no room for logits.
    pub(crate) fn new(
        reference: &'a dyn Side,
        port: &'a dyn Side,
        cases: &'a [Case],
        options: &'a Options,
        layers: Range<usize>,
        progress: &'a mut dyn Progress,
    ) -> Result<Self> {
        let config = reference.config();
        let mut ledger = Ledger::new("reference", cases, config);
        for layer in layers.clone().map(LayerId) {
            let (of, site) = input_of(layer);
            ledger.expect(of, site);
            LAYER_SITES.into_iter().for_each(|site| ledger.expect(Some(layer), site));
        }
        ledger.expect(None, Site::Logits);
        let lengths: Vec<usize> = cases.iter().map(Case::len).collect();
        progress.phase("reference and port, layer by layer", config.num_layers());
        Ok(Self {
            port,
            cases,
            options,
            layers,
            progress,
            ledger,
            held: BTreeMap::new(),
            choices: lengths.iter().map(|&tokens| lowest_experts(tokens, config)).collect(),
            table: Vec::new(),
            spool: Spool::create(
                lengths.iter().enumerate().map(|(run, &tokens)| (run, tokens, config.vocab_size)),
            )?,
            nll_nats: 0.0,
            nll_tokens: 0,
        })
    }

    /// Everything must have come. Errors: [`Error::Unpaired`].
    pub(crate) fn finish(self) -> Result<ReferenceResult> {
        self.ledger.finish()?;
        if self.table.len() != self.layers.len() {
            let expected = format!("each of layers {:?} to be said to be done", self.layers);
            return Err(layer_major(expected, format!("{} of them", self.table.len())));
        }
        let nats_per_token = self.nll_nats / self.nll_tokens as f64;
        let bits_per_token = nats_per_token / std::f64::consts::LN_2;
        let nll = Nll { tokens: self.nll_tokens, nats_per_token, bits_per_token };
        Ok(ReferenceResult { table: self.table, logits: self.spool, nll })
    }

    /// Runs the port's layer on what the reference's layer was given. Nothing of the layer but its output is
    /// held afterwards. Errors: [`Error::Unpaired`], and whatever the port's layer returns.
    fn compare_layer(&mut self, layer: LayerId) -> Result<()> {
        let next = LayerId(self.layers.start + self.table.len());
        if layer != next {
            return Err(layer_major(format!("layer {next} to be done next"), format!("layer {layer}")));
        }
        let (of, site) = input_of(layer);
        self.ledger.finish_where(|key| key.1 == Some(layer) || (key.1, key.2) == (of, site))?;
        let h_in: Vec<Array2<f32>> = self.runs().map(|run| self.take(run, of, site)).collect();
        let reference: Vec<ReferenceRows> = self.runs().map(|run| self.take_layer(run, layer)).collect();
        for run in self.runs() {
            let experts = self.port.config().num_experts;
            set_choices(
                &mut self.choices[run],
                layer,
                &self.cases[run],
                experts,
                reference[run].choice.view(),
            )?;
        }
        let run = |run: usize| Run {
            case: &self.cases[run],
            schedule: self.options.schedule,
            routing: Routing::Forced(&self.choices[run]),
            precision: self.options.port_precision,
        };
        let runs: Vec<Run<'_>> = self.runs().map(run).collect();
        let mut reducer = LayerReducer::new(layer, self.port.config(), self.cases, &reference);
        self.port.layer(layer, &runs, &h_in, &mut reducer)?;
        self.table.push(reducer.finish()?);
        Ok(())
    }

    fn runs(&self) -> Range<usize> {
        0..self.cases.len()
    }

    /// Panics if the rows have not come: the ledger is asked before.
    fn take(&mut self, run: usize, layer: Option<LayerId>, site: Site) -> Array2<f32> {
        self.held.remove(&(run, layer, site)).expect("the ledger has seen these rows")
    }

    fn take_layer(&mut self, run: usize, layer: LayerId) -> ReferenceRows {
        let mut take = |site| self.take(run, Some(layer), site);
        ReferenceRows {
            attn_branch: take(Site::AttnBranch),
            moe_branch: take(Site::MoeBranch),
            router_logits: take(Site::RouterLogits),
            selection_scores: take(Site::SelectionScores),
            choice: take(Site::Choice),
        }
    }

    fn logits(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        for nats in logits::next_token_nll(&self.cases[at.run].tokens, at.rows.start, rows) {
            self.nll_nats += nats;
            self.nll_tokens += 1;
        }
        self.spool.append(&at.run, rows)?;
        self.progress.step(at.rows.len());
        Ok(())
    }
}

impl Recorder for ReferencePass<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, rows)?;
        if at.site == Site::Logits {
            return self.logits(at, rows);
        }
        let shape = (self.cases[at.run].len(), rows.ncols());
        let held = self.held.entry((at.run, at.layer, at.site)).or_insert_with(|| Array2::zeros(shape));
        held.slice_mut(s![at.rows.clone(), ..]).assign(&rows);
        Ok(())
    }

    fn layer_done(&mut self, layer: LayerId) -> Result<()> {
        if self.layers.contains(&layer.0) {
            self.compare_layer(layer)?;
        }
        self.progress.step(1);
        if layer.0 + 1 == self.port.config().num_layers() {
            self.progress.phase("reference's logits", self.cases.iter().map(Case::len).sum());
        }
        Ok(())
    }
}

/// Where a layer's input is recorded: the output of the layer before, or the embedding (K5, K6).
pub(crate) fn input_of(layer: LayerId) -> (Option<LayerId>, Site) {
    match layer.0.checked_sub(1) {
        Some(before) => (Some(LayerId(before)), Site::LayerOut),
        None => (None, Site::Embedding),
    }
}

/// Choices for `tokens` tokens that are a route everywhere: experts `0..k` in every row.
pub(crate) fn lowest_experts(tokens: usize, config: &ModelConfig) -> Choices {
    let k = config.experts_per_token;
    let row: Vec<ExpertId> = (0..=u16::MAX).map(ExpertId).take(k).collect();
    let mut choices = Choices::unset(tokens, config.num_layers(), k);
    for token in 0..tokens {
        config.layer_ids().for_each(|layer| choices.set(token, layer, &row));
    }
    choices
}

/// Sets one layer's rows from the recorded `choice`, `[T, k]`. Errors: [`Error::Routing`] on what is no id.
pub(crate) fn set_choices(
    choices: &mut Choices,
    layer: LayerId,
    case: &Case,
    experts: usize,
    recorded: ArrayView2<'_, f32>,
) -> Result<()> {
    for (token, row) in recorded.rows().into_iter().enumerate() {
        let mut ids = Vec::with_capacity(row.len());
        for &value in row {
            let id = ExpertId(value as u16);
            // the cast saturates, so whatever it changed is no id
            if f32::from(id.0).total_cmp(&value).is_ne() || id.index() >= experts {
                return Err(Error::Routing {
                    case: case.name.clone(),
                    expected: format!("expert ids below {experts}"),
                    found: format!("{value} at token {token}, layer {layer} of the reference's `choice`"),
                    next: "mend the reference: it must record the ids it executed".into(),
                });
            }
            ids.push(id);
        }
        choices.set(token, layer, &ids);
    }
    Ok(())
}

fn layer_major(expected: String, found: String) -> Error {
    let next = "take a layer-major side as the reference".into();
    Error::Unpaired { expected: format!("from the reference, {expected}"), found, next }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, cases};
    use super::*;
    use spec::{Precision, Schedule};

    /// Passes rows on, and notes what is held after each layer.
    struct Watch<'a> {
        pass: ReferencePass<'a>,
        held: Vec<Vec<Key>>,
    }

    impl Recorder for Watch<'_> {
        fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
            self.pass.wants(run, layer, site)
        }

        fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
            self.pass.record(at, rows)
        }

        fn layer_done(&mut self, layer: LayerId) -> Result<()> {
            self.pass.layer_done(layer)?;
            self.held.push(self.pass.held.keys().copied().collect());
            Ok(())
        }
    }

    #[test]
    fn of_a_finished_layer_only_the_next_ones_input_is_held() {
        let (reference, port) = (Fake::new("reference", &[3, 2]), Fake::new("port", &[3, 2]));
        let (cases, schedule) = (cases(&[3, 2]), Schedule::chunks_of(128));
        let options = Options {
            layers: None,
            schedule,
            reference_precision: Precision::F32,
            port_precision: Precision::F32,
            routing: crate::compare::PortRuns::Free,
        };
        let progress = &mut ();
        let pass = ReferencePass::new(&reference, &port, &cases, &options, 0..2, progress).unwrap();
        let run = |case| Run { case, schedule, routing: Routing::Free, precision: Precision::F32 };
        let mut watch = Watch { pass, held: Vec::new() };
        reference.forward(&cases.iter().map(run).collect::<Vec<_>>(), &mut watch).unwrap();
        let output = |run| (run, Some(LayerId(0)), Site::LayerOut);
        assert_eq!(watch.held, [vec![output(0), output(1)], vec![]]);
        assert!(watch.pass.held.is_empty());
    }
}
