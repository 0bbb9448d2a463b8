//! From findings and controls to a verdict (docs/gate.md, Verdict).

use super::checks;
use super::limits::Gate;
use super::record::{Finding, Outcome, Record, Verdict};
use super::{Plan, record::Control};

/// FAIL before VOID before INCOMPLETE before PASS, with a sentence for everything that keeps it from PASS.
pub(super) fn of(record: &Record, gate: &Gate) -> (Option<Verdict>, Vec<String>) {
    let mut reasons = Vec::new();
    let failed: Vec<&Finding> = record.findings.iter().filter(|f| f.outcome == Outcome::Fail).collect();
    reasons.extend(failed.iter().map(|finding| failure(finding)));
    let void = void(record, gate);
    let missed: Vec<String> = record.controls.iter().filter(|control| !control.caught).map(missed).collect();
    let verdict = match (failed.is_empty(), void.is_empty(), missed.is_empty()) {
        (false, _, _) => Verdict::Fail,
        (true, false, _) => Verdict::Void,
        (true, true, false) => Verdict::Incomplete,
        (true, true, true) => Verdict::Pass,
    };
    // a port that refuses its checkpoint leaves the rest unmeasured, which then says nothing new
    if verdict == Verdict::Void {
        reasons.extend(void);
    }
    // power is only asked of a port that passed
    if verdict == Verdict::Incomplete {
        reasons.extend(missed);
    }
    (Some(verdict), reasons)
}

/// Legs that compared nothing. A leg may have no rows on one set (texts shorter than the window), but not on
/// all.
fn void(record: &Record, gate: &Gate) -> Vec<String> {
    let mut void = Vec::new();
    for check in checks::all().filter(|check| gate.checks.contains_key(check.name)) {
        for (leg, _) in check.legs {
            let mut found = record.findings.iter().filter(|f| f.check == check.name && f.leg == *leg);
            if found.clone().next().is_none() {
                void.push(format!("{} {leg} was not measured", check.name));
            } else if found.all(|finding| finding.outcome == Outcome::Void) {
                void.push(format!("{} {leg} compared nothing", check.name));
            }
        }
    }
    void
}

fn failure(finding: &Finding) -> String {
    let Finding { check, leg, value, limit, .. } = finding;
    let set = finding.set.as_ref().map(|set| format!(" on {set}")).unwrap_or_default();
    let place = if finding.place.is_empty() { String::new() } else { format!(" ({})", finding.place) };
    format!("{check} {leg}{set}: {value:.2e} against a limit of {limit:.2e}{place}")
}

fn missed(control: &Control) -> String {
    let legs: Vec<String> = control
        .legs
        .iter()
        .filter(|leg| !leg.caught)
        .map(|leg| format!("{} {}", leg.check, leg.leg))
        .collect();
    format!(
        "planted bug {} ({}) was not caught by {}: power not shown",
        control.mutant,
        control.side,
        legs.join(", ")
    )
}

/// Findings in the order of checks, legs and sets, whatever the order of steps.
pub(super) fn sort(record: &mut Record, plan: &Plan<'_>) {
    let order = |finding: &Finding| {
        let check = checks::all().position(|check| check.name == finding.check);
        let legs = checks::find(&finding.check).map_or(&[][..], |check| check.legs);
        let leg = legs.iter().position(|(leg, _)| *leg == finding.leg);
        let set = plan.sets.iter().position(|set| Some(&set.name) == finding.set.as_ref());
        (check, leg, set)
    };
    record.findings.sort_by_key(order);
}
