//! A packed build and the checkpoint that it was made of: whose choices everybody is forced onto (R1 and I of
//! docs/gate.md), and what the packing costs.
//!
//! Inputs: a bench over that checkpoint, texts; later the reference's rows on the build. Outputs: choices, a
//! [`BuildRecord`]. Absent on purpose: any limit: what a build costs is its maker's choice, and no fault of
//! a port.

use super::end_to_end::logits_spool;
use super::logits::LogitsRows;
use super::record::BuildRecord;
use super::rows::{RowKey, Rows};
use crate::bench::Bench;
use crate::compare::{Place, Progress};
use crate::metrics::{logits, router};
use crate::spool::Spool;
use crate::stats::{Rate, Spread};
use ndarray::{Array1, ArrayView2};
use spec::{At, Case, Choices, LayerId, Precision, Recorder, Result, Routing, Run, Schedule, Site};

/// R1: the reference on the checkpoint that a build was made of, free.
pub(crate) struct Source {
    /// By case: what everybody is forced onto.
    pub(crate) choices: Vec<Choices>,
    logits: Spool<RowKey>,
}

impl Source {
    /// One free pass. Errors: whatever the reference returns, [`spec::Error::Io`].
    pub(crate) fn run(bench: &dyn Bench, cases: &[Case], progress: &mut dyn Progress) -> Result<Self> {
        let reference = bench.reference();
        progress.phase("reference, unpacked", reference.config().num_layers());
        let mut kept = Kept { logits: logits_spool(reference.config(), cases)?, progress };
        let run = |case| Run {
            case,
            schedule: Schedule::chunks_of(case.len()),
            routing: Routing::Free,
            precision: Precision::F32,
        };
        let executed = reference.forward(&cases.iter().map(run).collect::<Vec<_>>(), &mut kept)?;
        let choices = executed.into_iter().map(|executed| executed.choices).collect();
        Ok(Self { choices, logits: kept.logits })
    }

    /// What the packing costs, from the reference's rows on the build. Errors: [`spec::Error::Io`].
    pub(crate) fn cost(&self, rows: &Rows<'_>) -> Result<BuildRecord> {
        let mut found = LogitsRows::new(rows.cases.len());
        let (mut checkpoint, mut build) = (Vec::new(), Vec::new());
        for (case, tokens) in rows.cases.iter().enumerate() {
            let key = (case, None, Site::Logits);
            let (before, after) = (self.logits.all(&key)?, rows.spool.all(&key)?);
            for (before, after) in before.rows().into_iter().zip(after.rows()) {
                found.position(case, before, after);
            }
            checkpoint.extend(logits::next_token_nll(&tokens.tokens, 0, before.view()));
            build.extend(logits::next_token_nll(&tokens.tokens, 0, after.view()));
        }
        let (case, position) = found.worst();
        Ok(BuildRecord {
            kl_nats: Spread::of(found.all()),
            kl_worst: Place { case: rows.cases[case].name.clone(), position },
            confident_top1: found.confident(),
            differing_sets: self.differing_sets(rows)?,
            checkpoint_nats: mean(&checkpoint),
            build_nats: mean(&build),
        })
    }

    /// Rows of a token and layer where the build's router would choose another set.
    fn differing_sets(&self, rows: &Rows<'_>) -> Result<Rate> {
        let (mut differing, mut of) = (0, 0);
        for (case, choices) in self.choices.iter().enumerate() {
            for layer in rows.config.layer_ids() {
                let own = rows.spool.all(&(case, Some(layer), Site::ShadowChoice))?;
                for (token, own) in own.rows().into_iter().enumerate() {
                    let ids = choices.at(token, layer).iter().map(|id| f32::from(id.0));
                    differing += usize::from(!router::same_set(ids.collect::<Array1<f32>>().view(), own));
                    of += 1;
                }
            }
        }
        Ok(Rate::new(differing, of))
    }
}

fn mean(nats: &[f64]) -> f64 {
    nats.iter().sum::<f64>() / nats.len() as f64
}

struct Kept<'p> {
    logits: Spool<RowKey>,
    progress: &'p mut dyn Progress,
}

impl Recorder for Kept<'_> {
    fn wants(&self, _run: usize, _layer: Option<LayerId>, site: Site) -> bool {
        site == Site::Logits
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        self.logits.append(&(at.run, None, Site::Logits), rows)
    }

    fn layer_done(&mut self, _layer: LayerId) -> Result<()> {
        self.progress.step(1);
        Ok(())
    }
}
