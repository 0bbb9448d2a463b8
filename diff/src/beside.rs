//! One sequence through the reference in lanes, the port's layer beside each: every layer of every lane and
//! of the port takes the same input and executes the same experts, so that no difference comes from an
//! earlier layer.
//!
//! Inputs: a bench, a sequence, the bugs of each lane. Outputs: the rows of each part of the model, of all
//! lanes and of the port, handed to a witness and then dropped. Used by bisection and by explanation. Absent
//! on purpose: what any difference means.

use crate::bench::{Bench, Lane};
use crate::compare::Progress;
use crate::compare::ledger::Ledger;
use crate::compare::reference_pass::{lowest_experts, set_choices};
use ndarray::{Array2, ArrayView2, Axis};
use spec::{
    At, Case, Choices, LayerId, ModelConfig, Precision, Recorder, Result, Routing, Run, Schedule, Side, Site,
};
use std::collections::BTreeMap;

/// The rows of some sites, each `[T, site.width()]`.
pub(crate) type SiteRows = BTreeMap<Site, Array2<f32>>;

/// What is compared at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// [`Site::Embedding`], of an end-to-end run.
    Embedding,
    /// One layer, fed the input of lane 0, forced onto its choices.
    Layer(LayerId),
    /// Final norm and logits, fed the last layer's output of lane 0.
    Head,
    /// The logits of the port end to end, forced onto the choices of lane 0; of the lanes, those of the head.
    EndToEnd,
}

/// Is shown the rows of one part: of each lane, and of the port.
pub(crate) type Witness<'a> = dyn FnMut(Part, &[SiteRows], &SiteRows) -> Result<()> + 'a;

/// What is run.
pub(crate) struct Beside<'a> {
    pub(crate) bench: &'a dyn Bench,
    pub(crate) port: &'a dyn Side,
    pub(crate) case: &'a Case,
    /// How the port is fed.
    pub(crate) schedule: Schedule,
    /// Of both sides; on the reference bf16 is the emulation.
    pub(crate) precision: Precision,
    /// The bugs of each lane; lane 0 is the correct reference, and all others take its input and its ids.
    pub(crate) lanes: &'a [Option<&'a str>],
    /// The sites of a layer that are compared.
    pub(crate) sites: &'a [Site],
}

impl Beside<'_> {
    /// Runs it; parts come as layers, head, embedding, end to end. Gives what lane 0 executed. Errors:
    /// whatever a side or the witness returns.
    pub(crate) fn run(&self, witness: &mut Witness<'_>, progress: &mut dyn Progress) -> Result<Choices> {
        assert_eq!(self.lanes.first(), Some(&None), "lane 0 is the correct reference");
        let config = self.bench.reference().config();
        let schedule = Schedule::chunks_of(self.case.len());
        let run = Run { case: self.case, schedule, routing: Routing::Free, precision: self.precision };
        let follows = |index: usize| (index > 0).then_some(0);
        let lane = |(index, &mutant): (usize, &Option<_>)| Lane {
            run,
            mutant,
            ids_of: follows(index),
            input_of: follows(index),
        };
        let lanes: Vec<Lane<'_>> = self.lanes.iter().enumerate().map(lane).collect();
        let cases = vec![self.case.clone(); lanes.len()];
        progress.phase("reference and port, layer by layer", config.num_layers());
        let mut pass = Pass::new(self, config, &cases, witness, progress);
        let executed = self.bench.reference_lanes(&lanes, &mut pass)?;
        pass.ledger.finish()?;
        let mut last = pass.held;
        let input = pass.input;
        let choices = executed.into_iter().next().expect("lane 0").choices;
        self.ends(&mut last, input, &choices, witness, progress)?;
        Ok(choices)
    }

    /// Head, embedding, end to end. `lanes`: what the pass left, by lane: embedding, final norm, logits.
    fn ends(
        &self,
        lanes: &mut [SiteRows],
        input: Array2<f32>,
        choices: &Choices,
        witness: &mut Witness<'_>,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let run = self.port_run(choices);
        let mut head = Rows::new(self.port.config(), self.case);
        head.expect(None, &[Site::FinalNorm, Site::Logits]);
        self.port.head(&[run], &[input], &mut head)?;
        let port = head.finish()?;
        let embedding: Vec<SiteRows> =
            lanes.iter_mut().map(|rows| rows.remove_entry(&Site::Embedding).into_iter().collect()).collect();
        witness(Part::Head, lanes, &port)?;

        progress.phase("port, end to end", self.case.len());
        let mut ends = Rows::new(self.port.config(), self.case);
        ends.expect(None, &[Site::Embedding, Site::Logits]);
        self.port.forward(&[run], &mut ends)?;
        progress.step(self.case.len());
        let mut port = ends.finish()?;
        let of_embedding = port.remove_entry(&Site::Embedding).into_iter().collect();
        witness(Part::Embedding, &embedding, &of_embedding)?;
        witness(Part::EndToEnd, lanes, &port)
    }

    fn port_run<'a>(&'a self, choices: &'a Choices) -> Run<'a> {
        let routing = Routing::Forced(choices);
        Run { case: self.case, schedule: self.schedule, routing, precision: self.precision }
    }
}

/// Receives the lanes' rows; at the end of each layer the port's layer is run.
struct Pass<'a, 'w> {
    of: &'a Beside<'a>,
    ledger: Ledger<'a>,
    /// What has come and was not dropped yet, by lane.
    held: Vec<SiteRows>,
    /// What lane 0 gave to the layer at hand.
    input: Array2<f32>,
    choices: Choices,
    witness: &'a mut Witness<'w>,
    progress: &'a mut dyn Progress,
}

impl<'a, 'w> Pass<'a, 'w> {
    fn new(
        of: &'a Beside<'a>,
        config: &'a ModelConfig,
        cases: &'a [Case],
        witness: &'a mut Witness<'w>,
        progress: &'a mut dyn Progress,
    ) -> Self {
        let mut ledger = Ledger::new("reference", cases, config);
        for site in [Site::Embedding, Site::FinalNorm, Site::Logits] {
            ledger.expect(None, site);
        }
        for layer in config.layer_ids() {
            of.sites.iter().for_each(|&site| ledger.expect(Some(layer), site));
            [Site::Choice, Site::LayerOut]
                .into_iter()
                .for_each(|site| ledger.expect_of(0, Some(layer), site));
        }
        Self {
            of,
            ledger,
            held: vec![SiteRows::new(); cases.len()],
            input: Array2::zeros((0, 0)),
            choices: lowest_experts(of.case.len(), config),
            witness,
            progress,
        }
    }
}

impl Recorder for Pass<'_, '_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, rows)?;
        append(&mut self.held[at.run], at.site, rows);
        Ok(())
    }

    fn layer_done(&mut self, layer: LayerId) -> Result<()> {
        self.ledger.finish_where(|(_, of, _)| of == Some(layer))?;
        let ends = |rows: &mut SiteRows| rows.split_off(&Site::AttnNorm);
        // the embedding stays until the end; everything else is of this layer
        let lanes: Vec<SiteRows> = self.held.iter_mut().map(ends).collect();
        if layer == LayerId(0) {
            self.input = self.held[0][&Site::Embedding].clone();
        }
        let experts = self.of.port.config().num_experts;
        set_choices(&mut self.choices, layer, self.of.case, experts, lanes[0][&Site::Choice].view())?;
        let mut rows = Rows::new(self.of.port.config(), self.of.case);
        rows.expect(Some(layer), self.of.sites);
        let run = self.of.port_run(&self.choices);
        self.of.port.layer(layer, &[run], std::slice::from_ref(&self.input), &mut rows)?;
        (self.witness)(Part::Layer(layer), &lanes, &rows.finish()?)?;
        self.input = lanes[0][&Site::LayerOut].clone();
        self.progress.step(1);
        Ok(())
    }
}

/// Keeps the rows of one run of the port.
pub(crate) struct Rows<'a> {
    ledger: Ledger<'a>,
    rows: SiteRows,
}

impl<'a> Rows<'a> {
    /// Of one case; `config` is the port's.
    pub(crate) fn new(config: &'a ModelConfig, case: &'a Case) -> Self {
        Self::of("port", config, case)
    }

    /// The same of any side, which messages call by this name.
    pub(crate) fn of(side: &'static str, config: &'a ModelConfig, case: &'a Case) -> Self {
        Self { ledger: Ledger::new(side, std::slice::from_ref(case), config), rows: SiteRows::new() }
    }

    /// From now on these are owed.
    pub(crate) fn expect(&mut self, layer: Option<LayerId>, sites: &[Site]) {
        sites.iter().for_each(|&site| self.ledger.expect(layer, site));
    }

    /// All of them. Errors: [`spec::Error::Unpaired`] if some are owed.
    pub(crate) fn finish(self) -> Result<SiteRows> {
        self.ledger.finish()?;
        Ok(self.rows)
    }
}

impl Recorder for Rows<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, rows)?;
        append(&mut self.rows, at.site, rows);
        Ok(())
    }
}

/// Adds rows to those of their site; the ledger has checked their width.
pub(crate) fn append(held: &mut SiteRows, site: Site, rows: ArrayView2<'_, f32>) {
    let so_far = held.entry(site).or_insert_with(|| Array2::zeros((0, rows.ncols())));
    so_far.append(Axis(0), rows).expect("the ledger checked widths");
}
