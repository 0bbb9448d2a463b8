//! From what was measured to findings: a value held against its limit.
//!
//! A NaN passes nothing: conditions are written `value <= limit`. Absent on purpose: measuring.

use super::limits::{Gate, Limit};
use super::record::{Bound, Finding, Outcome};
use crate::stats::is_worse;

/// What one leg measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The check.
    pub check: &'static str,
    /// The leg.
    pub leg: &'static str,
    /// Rows, values or tensors it was measured on; 0: nothing was compared.
    pub rows: usize,
    /// The worst.
    pub value: f64,
    /// What the calibrator reached.
    pub calibrator: Option<f64>,
    /// Where the worst is.
    pub place: String,
    /// The leg's own definition of its excess.
    pub excess: Option<f64>,
}

impl Measurement {
    /// A value with no calibrator and no place.
    pub fn new(check: &'static str, leg: &'static str, rows: usize, value: f64) -> Self {
        Self { check, leg, rows, value, calibrator: None, place: String::new(), excess: None }
    }

    /// With a place.
    pub fn at(self, place: impl Into<String>) -> Self {
        Self { place: place.into(), ..self }
    }

    /// With what the calibrator reached.
    pub fn calibrated(self, calibrator: f64) -> Self {
        Self { calibrator: Some(calibrator), ..self }
    }
}

/// Holds a measurement against its limit. Of several layers, cases or positions the worst was measured.
pub fn judge(measured: &Measurement, limit: &Limit, set: Option<&str>) -> Finding {
    let bound = limit.bound;
    let held = match (limit.times_calibrator, measured.calibrator) {
        // `f64::max` would drop a NaN
        (Some(_), Some(calibrator)) if calibrator.is_nan() => f64::NAN,
        (Some(times), Some(calibrator)) => limit.value.max(times * calibrator),
        (Some(_), None) => f64::NAN,
        (None, _) => limit.value,
    };
    let value = measured.value;
    let within = match bound {
        Bound::AtMost => value <= held,
        Bound::AtLeast => value >= held,
        Bound::Above => value > held,
    };
    let outcome = match (measured.rows, within) {
        (0, _) => Outcome::Void,
        (_, true) => Outcome::Pass,
        (_, false) => Outcome::Fail,
    };
    Finding {
        check: measured.check.into(),
        leg: measured.leg.into(),
        set: set.map(str::to_owned),
        rows: measured.rows,
        value,
        limit: held,
        bound,
        calibrator: limit.times_calibrator.and(measured.calibrator),
        excess: measured.excess.unwrap_or_else(|| excess(value, held, bound)),
        outcome,
        place: measured.place.clone(),
    }
}

/// Judges measurements of one set. Of several measurements of one leg (one per layer) the worst is the leg's;
/// its rows are those of all. Legs of checks that do not apply are left out.
pub fn judge_all(measured: &[Measurement], gate: &Gate, set: Option<&str>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for measured in measured {
        let Some(limit) = gate.limit(measured.check, measured.leg) else { continue };
        let new = judge(measured, limit, set);
        match findings.iter_mut().find(|old| old.check == new.check && old.leg == new.leg) {
            None => findings.push(new),
            Some(old) => {
                let rows = old.rows + new.rows;
                if new.rows > 0 && (old.rows == 0 || is_worse(new.excess, old.excess)) {
                    *old = new;
                }
                old.rows = rows;
            }
        }
    }
    findings
}

/// Whether a planted bug made a leg fire: a leg that fails without it too shows nothing.
pub(crate) fn fired(with: &Finding, without: &Finding) -> bool {
    with.outcome == Outcome::Fail && without.outcome == Outcome::Pass
}

/// How far (docs/gate.md, Excess): value / limit; limit / value for lower bounds; the count itself where the
/// limit is 0.
pub fn excess(value: f64, limit: f64, bound: Bound) -> f64 {
    match bound {
        Bound::AtMost if limit == 0.0 => value,
        Bound::AtMost => value / limit,
        Bound::AtLeast | Bound::Above => limit / value,
    }
}
