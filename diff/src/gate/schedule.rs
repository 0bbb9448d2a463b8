//! The port against itself when the same tokens are fed otherwise; and its head, fed the reference's rows.

use super::end_to_end::{PortRunOf, logits_spool};
use super::finding::Measurement;
use super::logits::LogitsRows;
use super::rows::{RowKey, Rows};
use super::tally::{Errors, place};
use crate::compare::Progress;
use crate::compare::ledger::Ledger;
use crate::metrics::branch;
use crate::spool::Spool;
use ndarray::{Array2, ArrayView2};
use spec::{At, LayerId, Recorder, Result, Routing, Schedule, Side, Site};

/// One call for the whole sequence, whose logits are kept; forced onto the reference's choices.
fn one_chunk(port: &dyn Side, rows: &Rows<'_>, progress: &mut dyn Progress) -> Result<Spool<RowKey>> {
    let mut logits = logits_spool(rows.config, rows.cases)?;
    let mut run = PortRunOf::new("port, one chunk", port, rows);
    run.keep = Some(&mut logits);
    let longest = rows.cases.iter().map(spec::Case::len).max().unwrap_or(1);
    run.run(&rows.forced(port, longest), progress)?;
    Ok(logits)
}

fn other_schedule(
    port: &dyn Side,
    rows: &Rows<'_>,
    stored: &Spool<RowKey>,
    schedule: Schedule,
    progress: &mut dyn Progress,
) -> Result<LogitsRows> {
    let name = if schedule.decode_from.is_some() { "port, token by token" } else { "port, other chunks" };
    let mut run = PortRunOf::new(name, port, rows);
    run.stored = Some(stored);
    let runs = rows.runs(port, schedule, |case| Routing::Forced(&rows.choices[case]));
    Ok(run.run(&runs, progress)?.logits)
}

/// Several chunk sizes against one chunk: the usual one, the window and its neighbours, and an odd one; one
/// measurement each.
pub(crate) fn chunks(
    port: &dyn Side,
    rows: &Rows<'_>,
    chunk: usize,
    floor: &LogitsRows,
    progress: &mut dyn Progress,
) -> Result<Vec<Measurement>> {
    let stored = one_chunk(port, rows, progress)?;
    let window = rows.config.sliding_window.unwrap_or(chunk);
    let mut sizes = vec![chunk, window, window + 1, window / 2 + 1];
    sizes.sort_unstable();
    sizes.dedup();
    let mut legs = Vec::new();
    for size in sizes {
        let found = other_schedule(port, rows, &stored, Schedule::chunks_of(size), progress)?;
        let leg = Measurement::new("schedule.chunk", "mean", rows.positions(), found.mean());
        legs.push(leg.calibrated(floor.mean()).at(format!("chunks of {size} tokens")));
    }
    Ok(legs)
}

/// The last `decoded` tokens token by token against one chunk: the mean over the tokens so fed.
pub(crate) fn decode(
    port: &dyn Side,
    rows: &Rows<'_>,
    chunk: usize,
    decoded: usize,
    floor: &LogitsRows,
    progress: &mut dyn Progress,
) -> Result<Measurement> {
    let stored = one_chunk(port, rows, progress)?;
    let from = rows.cases[0].len() - decoded;
    let schedule = Schedule { decode_from: Some(from), ..Schedule::chunks_of(chunk) };
    let found = other_schedule(port, rows, &stored, schedule, progress)?;
    let decoded: Vec<f64> = found.kl.iter().flat_map(|kl| kl.iter().skip(from)).copied().collect();
    let mean = decoded.iter().sum::<f64>() / decoded.len() as f64;
    let leg = Measurement::new("schedule.decode", "mean", decoded.len(), mean);
    Ok(leg.calibrated(floor.mean()).at(format!("from position {from} on")))
}

/// The port's final norm and head on the reference's last rows: relative L2 error of the logits per row.
pub(crate) fn head(port: &dyn Side, rows: &Rows<'_>, chunk: usize) -> Result<Measurement> {
    let last = LayerId(rows.config.num_layers() - 1);
    let of = |case| rows.spool.all(&(case, Some(last), Site::LayerOut));
    let inputs: Vec<Array2<f32>> = (0..rows.cases.len()).map(of).collect::<Result<_>>()?;
    let mut ledger = Ledger::new("port", rows.cases, rows.config);
    ledger.expect(None, Site::Logits);
    let mut recorder = HeadRecorder { ledger, rows, errors: Errors::default() };
    port.head(&rows.forced(port, chunk), &inputs, &mut recorder)?;
    recorder.ledger.finish()?;
    let spread = recorder.errors.spread(0).expect("the ledger has seen rows");
    let leg = Measurement::new("layer.head", "error", spread.count, spread.max);
    Ok(leg.at(place(rows, None, recorder.errors.worst(0))))
}

struct HeadRecorder<'a> {
    ledger: Ledger<'a>,
    rows: &'a Rows<'a>,
    errors: Errors,
}

impl Recorder for HeadRecorder<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, found: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, found)?;
        let expected = self.rows.spool.read(&(at.run, None, Site::Logits), at.rows.clone())?;
        for ((expected, found), position) in
            expected.rows().into_iter().zip(found.rows()).zip(at.rows.clone())
        {
            self.errors.push(branch::relative_error(expected, found), at.run, position);
        }
        Ok(())
    }
}
