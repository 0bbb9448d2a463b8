//! A made-up matrix of planted bugs and checks.

use super::HOSTILE;
use diff::gate::record::Checkpoint;
use diff::matrix::{Cell, Matrix, Outcome, Row, SCHEMA, Sheet};

fn cell(check: &str, margin: f64, fired: bool) -> Cell {
    Cell { check: check.into(), leg: "mean".into(), value: margin * 2.0, limit: 2.0, margin, fired }
}

fn row(id: &str, outcome: Outcome, why: &str, cells: Vec<Cell>) -> Row {
    let rewrite = matches!(outcome, Outcome::Quiet | Outcome::FalseAlarm);
    let (side, stage) = ("port".into(), "norm".into());
    Row { id: id.into(), side, rewrite, stage, outcome, why: why.into(), cells }
}

/// Every outcome once, a margin that is not a number, a name that is hostile.
pub fn made_up() -> Matrix {
    let rows = vec![
        row("seen", Outcome::Caught, "", vec![cell("forced.kl", 1234.5, true), cell("free.kl", 0.4, false)]),
        row("barely", Outcome::Caught, "", vec![cell("free.kl", 2.5, true)]),
        row("not_a_number", Outcome::Caught, "", vec![cell("forced.kl", f64::NAN, true)]),
        row("unseen", Outcome::Missed, "", vec![cell("forced.kl", 0.5, false), cell("free.kl", 0.1, false)]),
        row("idle", Outcome::NotExercised, "needs a full layer", Vec::new()),
        row("broken", Outcome::Crashed, HOSTILE, Vec::new()),
        row("other_sum", Outcome::Quiet, "", vec![cell("forced.kl", 0.2, false)]),
        row("noisy", Outcome::FalseAlarm, "", vec![cell("free.kl", 3.0, true)]),
    ];
    let checkpoint =
        Checkpoint { name: HOSTILE.into(), config_sha256: "c".into(), weights_sha256: "w".into(), bytes: 1 };
    let sheet = Sheet {
        checkpoint,
        gate: "trained".into(),
        tokens: 256,
        chunk: 128,
        decoded: 64,
        checks: vec!["forced.kl".into(), "free.kl".into(), "layer.head".into()],
        failing: vec!["free.top1 shortfall".into()],
        rows,
        seconds: 12.0,
    };
    Matrix { schema: SCHEMA.into(), version: "0".into(), whole: true, sheets: vec![sheet] }
}
