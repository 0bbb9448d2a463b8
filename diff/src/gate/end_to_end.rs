//! The port from end to end: logits against stored ones, and on the way what else a run shows.

use super::finding::Measurement;
use super::logits::{LogitsRows, growth};
use super::pass::Emulation;
use super::record::Bucket;
use super::rows::{RowKey, Rows};
use super::tally::{RouterTally, place};
use super::top1;
use crate::compare::Progress;
use crate::compare::ledger::Ledger;
use crate::spool::Spool;
use half::bf16;
use ndarray::ArrayView2;
use spec::{
    At, Case, Choices, Executed, LayerId, ModelConfig, Precision, Recorder, Result, Routing, Run, Schedule,
    Side, Site,
};

/// What one run of every case gave.
pub(crate) struct PortRun {
    pub(crate) logits: LogitsRows,
    pub(crate) executed: Vec<Executed>,
    /// By layer, where they were wanted.
    pub(crate) routers: Vec<RouterTally>,
    /// Values of the embedding's rows that are not the checkpoint's.
    embedding_differing: usize,
    embedding_values: usize,
}

/// How a run is made and what it is held against.
pub(crate) struct PortRunOf<'a> {
    pub(crate) port: &'a dyn Side,
    pub(crate) name: &'static str,
    pub(crate) rows: &'a Rows<'a>,
    /// Stored logits; the reference's if none are given.
    pub(crate) stored: Option<&'a Spool<RowKey>>,
    /// Where the run's own logits are kept.
    pub(crate) keep: Option<&'a mut Spool<RowKey>>,
    /// Whether embedding rows are held against the checkpoint's.
    pub(crate) embedding: bool,
    /// Whether router logits and sets of every layer are held against the reference's.
    pub(crate) routers: bool,
}

impl<'a> PortRunOf<'a> {
    /// A run held against the reference's logits.
    pub(crate) fn new(name: &'static str, port: &'a dyn Side, rows: &'a Rows<'a>) -> Self {
        Self { port, name, rows, stored: None, keep: None, embedding: false, routers: false }
    }

    /// Makes it. Errors: [`spec::Error::Unpaired`], and whatever the port returns.
    pub(crate) fn run(self, runs: &[Run<'_>], progress: &mut dyn Progress) -> Result<PortRun> {
        let rows = self.rows;
        progress.phase(self.name, rows.positions());
        let mut ledger = Ledger::new("port", rows.cases, rows.config);
        ledger.expect(None, Site::Logits);
        if self.embedding {
            ledger.expect(None, Site::Embedding);
        }
        if self.routers {
            for layer in rows.config.layer_ids() {
                ledger.expect(Some(layer), Site::RouterLogits);
                ledger.expect(Some(layer), Site::ShadowChoice);
            }
        }
        let mut recorder = RunRecorder {
            ledger,
            rows,
            stored: self.stored.unwrap_or(&rows.spool),
            keep: self.keep,
            rounds: self.port.describe().precision == Precision::Bf16,
            found: PortRun {
                logits: LogitsRows::new(rows.cases.len()),
                executed: Vec::new(),
                routers: vec![RouterTally::default(); rows.config.num_layers()],
                embedding_differing: 0,
                embedding_values: 0,
            },
            progress,
        };
        let executed = self.port.forward(runs, &mut recorder)?;
        recorder.ledger.finish()?;
        Ok(PortRun { executed, ..recorder.found })
    }
}

struct RunRecorder<'a, 'p> {
    ledger: Ledger<'a>,
    rows: &'a Rows<'a>,
    stored: &'a Spool<RowKey>,
    keep: Option<&'a mut Spool<RowKey>>,
    /// Whether the port holds its weights in bf16.
    rounds: bool,
    found: PortRun,
    progress: &'p mut dyn Progress,
}

impl Recorder for RunRecorder<'_, '_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, found: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, found)?;
        if let Some(layer) = at.layer {
            return self.found.routers[layer.0].take(self.rows, at.run, at, found);
        }
        let key = (at.run, None, at.site);
        if at.site == Site::Embedding {
            let expected = self.rows.spool.read(&key, at.rows.clone())?;
            self.embedding(expected.view(), found);
            return Ok(());
        }
        let stored = self.stored.read(&key, at.rows.clone())?;
        for (stored, found) in stored.rows().into_iter().zip(found.rows()) {
            self.found.logits.position(at.run, stored, found);
        }
        if let Some(keep) = &mut self.keep {
            keep.append(&key, found)?;
        }
        self.progress.step(at.rows.len());
        Ok(())
    }
}

impl RunRecorder<'_, '_> {
    fn embedding(&mut self, expected: ArrayView2<'_, f32>, found: ArrayView2<'_, f32>) {
        let held = |value: f32| if self.rounds { bf16::from_f32(value).to_f32() } else { value };
        let differs = |(expected, found): &(&f32, &f32)| held(**expected).to_bits() != found.to_bits();
        self.found.embedding_differing += expected.iter().zip(found).filter(differs).count();
        self.found.embedding_values += found.len();
    }
}

/// Room for the logits of every case.
pub(crate) fn logits_spool(config: &ModelConfig, cases: &[Case]) -> Result<Spool<RowKey>> {
    let of = |(case, tokens): (usize, &Case)| ((case, None, Site::Logits), tokens.len(), config.vocab_size);
    Spool::create(cases.iter().enumerate().map(of))
}

/// A floor: the port forced onto its own free choices, in an order of the caller's, against its own free run.
/// In executed order it repeats its bits; in another it measures what another order of summation does, and
/// nothing else.
pub(crate) fn floor(
    port: &dyn Side,
    rows: &Rows<'_>,
    chunk: usize,
    order: impl Fn(&Choices) -> Choices,
    progress: &mut dyn Progress,
) -> Result<LogitsRows> {
    let mut free_logits = logits_spool(rows.config, rows.cases)?;
    let schedule = Schedule::chunks_of(chunk);
    let runs = rows.runs(port, schedule, |_| Routing::Free);
    let mut free = PortRunOf::new("floor, free", port, rows);
    free.keep = Some(&mut free_logits);
    let free = free.run(&runs, progress)?;
    let ordered: Vec<Choices> = free.executed.iter().map(|executed| order(&executed.choices)).collect();
    let runs = rows.runs(port, schedule, |case| Routing::Forced(&ordered[case]));
    let mut forced = PortRunOf::new("floor, forced", port, rows);
    forced.stored = Some(&free_logits);
    Ok(forced.run(&runs, progress)?.logits)
}

/// The same sets, each row in order of id.
pub(crate) fn in_order_of_id(choices: &Choices) -> Choices {
    let mut sorted = choices.clone();
    for token in 0..choices.tokens() {
        for layer in (0..choices.layers()).map(LayerId) {
            let mut row = choices.at(token, layer).to_vec();
            row.sort_unstable();
            sorted.set(token, layer, &row);
        }
    }
    sorted
}

/// Whether a forced run executed the reference's choices, in order. Where it did not, nothing forced was
/// measured.
pub(crate) fn obeyed(rows: &Rows<'_>, run: &PortRun) -> bool {
    run.executed.len() == rows.choices.len()
        && run.executed.iter().zip(&rows.choices).all(|(executed, forced)| executed.choices == *forced)
}

/// The legs that a forced run gives.
pub(crate) fn measure_forced(
    arm: Precision,
    rows: &Rows<'_>,
    run: &PortRun,
    floor: &LogitsRows,
    emulation: &Emulation,
    chunk: usize,
) -> Vec<Measurement> {
    let name = arm.name();
    let (embedding, logits) = (run.embedding_differing as f64, &run.logits);
    let share = logits.share_in_bf16();
    let mut legs = vec![
        Measurement::new("layer.embedding", name, run.embedding_values, embedding),
        Measurement::new("dtype.head", name, logits.values, share),
    ];
    match arm {
        Precision::F32 => legs.extend(forced_kl(rows, logits, floor, chunk)),
        Precision::Bf16 => {
            let leg = Measurement::new("forced.bf16", "mean", rows.positions(), logits.mean());
            legs.push(leg.calibrated(emulation.forced.mean()));
        }
    }
    if !obeyed(rows, run) {
        for leg in legs.iter_mut().filter(|leg| ["forced.kl", "forced.bf16"].contains(&leg.check)) {
            leg.value = f64::NAN;
            leg.place = "other experts ran than were forced".into();
        }
    }
    legs
}

fn forced_kl(rows: &Rows<'_>, run: &LogitsRows, floor: &LogitsRows, chunk: usize) -> Vec<Measurement> {
    let positions = rows.positions();
    let leg = |name, rows, value| Measurement::new("forced.kl", name, rows, value);
    let (case, position) = run.worst();
    let mut legs = vec![
        leg("mean", positions, run.mean()).calibrated(floor.mean()),
        leg("position", positions, run.kl[case][position]).at(place(rows, None, Some((case, position)))),
    ];
    let (buckets, floors) = (run.buckets(chunk), floor.buckets(chunk));
    for (bucket, floor) in buckets.iter().zip(&floors) {
        let bucket_leg = leg("bucket", bucket.positions, bucket.mean).calibrated(floor.mean);
        legs.push(bucket_leg.at(words(bucket)));
    }
    let grown = growth(&buckets);
    let rows = if grown.is_some() { positions } else { 0 };
    let grown = leg("growth", rows, grown.unwrap_or(f64::NAN));
    legs.push(grown.calibrated(growth(&floors).unwrap_or(f64::NAN)).at("last bucket over first"));
    let confident = run.confident();
    let changes = (confident.of - confident.count) as f64;
    legs.push(Measurement::new("forced.top1", "changes", confident.of, changes));
    legs
}

fn words(bucket: &Bucket) -> String {
    format!("positions {}..{}", bucket.from, bucket.to)
}

/// The legs that the free bf16 run gives, beside the emulation's.
pub(crate) fn measure_free(rows: &Rows<'_>, run: &PortRun, emulation: &Emulation) -> Vec<Measurement> {
    let kl = Measurement::new("free.kl", "mean", rows.positions(), run.logits.mean());
    vec![kl.calibrated(emulation.free.mean()), top1::leg(&run.logits, &emulation.free)]
}
