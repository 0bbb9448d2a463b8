//! One end-to-end run of the port: its logits meet the spooled ones as they come.

use super::comparison::{EndToEnd, RoutingDifference};
use super::ledger::Ledger;
use super::logits_tally::LogitsTally;
use super::options::Progress;
use crate::metrics::router;
use crate::spool::Spool;
use ndarray::{ArrayView1, ArrayView2};
use spec::{At, Case, Choices, Error, Executed, LayerId, ModelConfig, Recorder, Result, Site};

/// Receives the port's logits and keeps numbers only.
pub(crate) struct LogitsReducer<'a> {
    ledger: Ledger<'a>,
    cases: &'a [Case],
    reference: &'a Spool<usize>,
    progress: &'a mut dyn Progress,
    tally: LogitsTally,
}

impl<'a> LogitsReducer<'a> {
    /// For one run of every case; `config` is the port's.
    pub(crate) fn new(
        config: &'a ModelConfig,
        cases: &'a [Case],
        reference: &'a Spool<usize>,
        progress: &'a mut dyn Progress,
    ) -> Self {
        let mut ledger = Ledger::new("port", cases, config);
        ledger.expect(None, Site::Logits);
        Self { ledger, cases, reference, progress, tally: LogitsTally::default() }
    }

    /// What was found, with the experts that both sides executed. Errors: [`Error::Unpaired`] if the port
    /// still owes rows.
    pub(crate) fn finish(self, reference: &[Executed], port: &[Executed]) -> Result<EndToEnd> {
        self.ledger.finish()?;
        Ok(self.tally.finish(routing_difference(self.cases, reference, port)?))
    }
}

impl Recorder for LogitsReducer<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, rows)?;
        for (row, position) in at.rows.clone().enumerate() {
            let reference = self.reference.read(&at.run, position..position + 1)?;
            let case = &self.cases[at.run].name;
            self.tally.position(case, position, reference.row(0), rows.row(row));
        }
        self.progress.step(at.rows.len());
        Ok(())
    }
}

/// Compares the executed sets. Errors: [`Error::Unpaired`] on another number or shape of choices.
fn routing_difference(
    cases: &[Case],
    reference: &[Executed],
    port: &[Executed],
) -> Result<RoutingDifference> {
    let next = "a side must return what each run executed, for every token and layer";
    let unpaired = |expected, found| Err(Error::Unpaired { expected, found, next: next.into() });
    if port.len() != cases.len() {
        return unpaired(
            format!("what the port executed in {} runs", cases.len()),
            format!("{}", port.len()),
        );
    }
    let (mut rows, mut forced_rows, mut differing) = (0, 0, 0);
    for (run, case) in cases.iter().enumerate() {
        let (expected, found) = (&reference[run].choices, &port[run].choices);
        let shape = |choices: &Choices| [choices.tokens(), choices.layers(), choices.k()];
        if shape(expected) != shape(found) {
            let of = format!("the port's choices of `{}` in the shape {:?}", case.name, shape(expected));
            return unpaired(of, format!("{:?}", shape(found)));
        }
        for token in 0..expected.tokens() {
            let differs = |&layer: &LayerId| {
                let (expected, found) = (expected.at(token, layer), found.at(token, layer));
                !router::same_set(ArrayView1::from(expected), ArrayView1::from(found))
            };
            differing += (0..expected.layers()).map(LayerId).filter(differs).count();
            rows += expected.layers();
        }
        forced_rows += port[run].forced_rows;
    }
    Ok(RoutingDifference { rows, forced_rows, differing, share: differing as f64 / rows as f64 })
}
