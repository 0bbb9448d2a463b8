//! The port with several sequences in one call: each must be as near the reference as it is alone.
//!
//! Inputs: rows cut from the control sequence ([`rows_of`]), passed by the reference. Outputs: a measurement
//! for each row and side of padding. The rows differ in their tokens, in length and in where their prompts
//! end, and there are more of them than go through together, so that rows leave and join while others
//! decode. Absent on purpose: how a port makes a batch; it is asked for one by [`spec::Schedule`].

use super::end_to_end::{PortRun, PortRunOf, obeyed};
use super::finding::Measurement;
use super::logits::mean;
use super::rows::Rows;
use crate::compare::Progress;
use spec::{Case, Error, ModelConfig, Padding, Result, Routing, Run, Schedule, Side};

const CHECK: &str = "schedule.batch";
/// Legs and where shorter rows are padded.
const LEGS: [(&str, Padding); 2] = [("left", Padding::Left), ("right", Padding::Right)];
/// Rows that go through together, of those of [`rows_of`].
const TOGETHER: usize = 3;
/// Tokens one by one grow with the window up to here.
const DECODED_UNIT_MAX: usize = 16;

/// The rows: five stretches of a sequence, by a unit of a window, or of a quarter of the sequence if that is
/// less; none of a sequence that is too short. The longest is of four units and a token.
///
/// With units of 33 tokens they have 133, 26, 90, 69 and 30 tokens, of which 40, 9, 13, 17 and 24 are
/// decoded: the second leaves first, from between two others, the fourth joins, then the fifth for the third.
pub(crate) fn rows_of(sequence: &Case, config: &ModelConfig) -> Result<Vec<Case>> {
    let quarter = (sequence.len() - 1) / 4;
    let unit = config.sliding_window.unwrap_or(quarter).min(quarter);
    if unit == 0 {
        return Ok(Vec::new());
    }
    let short = decoded(unit)[4] + 1 + unit.min(5);
    let lengths = [4 * unit + 1, 3 * unit / 4 + 2, 2 * unit + 3 * unit / 4, 2 * unit + 3, short];
    let cut = |(index, length): (usize, usize)| {
        let start = (sequence.len() - length) * index / 4;
        Case::new(format!("batch-{index}"), sequence.tokens[start..start + length].to_vec())
    };
    lengths.into_iter().enumerate().map(cut).collect()
}

/// Tokens that each row decodes.
fn decoded(unit: usize) -> [usize; 5] {
    let unit = unit.min(DECODED_UNIT_MAX);
    [5 * unit / 2, unit / 2 + 1, 3 * unit / 4 + 1, unit + 1, 3 * unit / 2]
}

/// Forced onto the reference's choices, in f32: mean KL of each row in the batch, beside the same row alone.
/// A port that refuses batches has NaN. Errors: whatever else it returns.
pub(crate) fn measure(
    port: &dyn Side,
    rows: &Rows<'_>,
    progress: &mut dyn Progress,
) -> Result<Vec<Measurement>> {
    let alone = forced(port, rows, ("port, row by row", 1, Padding::Left), progress)?;
    let mut legs = Vec::new();
    for (leg, padding) in LEGS {
        match forced(port, rows, ("port, rows together", TOGETHER, padding), progress) {
            Ok(together) => legs.extend(measured(leg, rows, &together, &alone)),
            Err(error @ Error::Argument { .. }) => {
                let none = Measurement::new(CHECK, leg, rows.positions(), f64::NAN).calibrated(f64::NAN);
                legs.push(none.at(format!("the port takes no batch: {error}")));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(legs)
}

/// What there is to say where no row could be cut.
pub(crate) fn nothing() -> Vec<Measurement> {
    LEGS.map(|(leg, _)| Measurement::new(CHECK, leg, 0, f64::NAN).at("the control sequence is too short"))
        .into()
}

fn forced(
    port: &dyn Side,
    rows: &Rows<'_>,
    (name, batch, padding): (&'static str, usize, Padding),
    progress: &mut dyn Progress,
) -> Result<PortRun> {
    let unit = (rows.cases[0].len() - 1) / 4;
    let precision = port.describe().precision;
    let run = |((case, decoded), choices)| {
        let prompt = Case::len(case) - decoded;
        let schedule = Schedule::chunks_of(unit / 2 + 1).decoding_from(prompt).batched(batch, padding);
        Run { case, schedule, routing: Routing::Forced(choices), precision }
    };
    let runs: Vec<Run<'_>> = rows.cases.iter().zip(decoded(unit)).zip(&rows.choices).map(run).collect();
    PortRunOf::new(name, port, rows).run(&runs, progress)
}

fn measured(leg: &'static str, rows: &Rows<'_>, together: &PortRun, alone: &PortRun) -> Vec<Measurement> {
    let obeyed = obeyed(rows, together);
    let row = |(index, case): (usize, &Case)| {
        let (value, place) = match obeyed {
            true => (mean(&together.logits.kl[index]), format!("row {index}, {} tokens", case.len())),
            false => (f64::NAN, "other experts ran than were forced".into()),
        };
        let measured = Measurement::new(CHECK, leg, case.len(), value);
        measured.calibrated(mean(&alone.logits.kl[index])).at(place)
    };
    rows.cases.iter().enumerate().map(row).collect()
}
