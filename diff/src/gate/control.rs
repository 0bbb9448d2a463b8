//! The planted bugs, each on the legs it is bound to, judged by the unmutated run's limits and calibrators.
//!
//! A leg that could not be measured did not fire: a bug that crashes is not caught.

use super::Context;
use super::checks::{Check, Group};
use super::finding::{Measurement, fired, judge_all};
use super::harness::Broken;
use super::record::{Control, ControlLeg, Outcome, WEAK};
use super::sequence::{Sequence, Subject, measure};
use crate::bench::{Planted, PlantedIn};
use crate::compare::Progress;
use spec::Result;
use std::collections::BTreeMap;

/// A bug, where it is planted, and the legs that must fire.
pub(crate) struct Bound<'a> {
    pub(crate) planted: &'a Planted,
    pub(crate) side: PlantedIn,
    pub(crate) legs: Vec<(&'static Check, &'a str)>,
}

impl Bound<'_> {
    /// The name of the step that runs it.
    pub(crate) fn step(&self) -> String {
        format!("control {} ({})", self.planted.id, self.side.name())
    }
}

/// Every bug that the gate binds, by the side each leg needs it on, in the order of the catalogue.
pub(crate) fn bound<'a>(context: &Context<'a>, planted: &'a [Planted]) -> Vec<Bound<'a>> {
    let by_id = context.plan.gate.controls();
    let mut all: Vec<Bound<'a>> = Vec::new();
    for planted in planted {
        let Some(legs) = by_id.get(planted.id.as_str()) else { continue };
        let mut sides: BTreeMap<&str, Bound<'a>> = BTreeMap::new();
        for &(check, leg) in legs {
            let side = side_for(planted, check.group(leg).expect("the gate file was checked"));
            let bound = sides.entry(side.name()).or_insert(Bound { planted, side, legs: Vec::new() });
            bound.legs.push((check, leg));
        }
        all.extend(sides.into_values());
    }
    all
}

/// Where a bug has to be planted for a group to be able to see it.
fn side_for(planted: &Planted, group: Group) -> PlantedIn {
    let of_reference = matches!(group, Group::Product | Group::Nll | Group::Golden);
    let fits = |side: &&PlantedIn| (**side == PlantedIn::Reference) == of_reference;
    *planted.sides.iter().find(fits).unwrap_or(&planted.sides[0])
}

/// The bugs of forcing itself, which need no side's code.
pub fn of_harness() -> Vec<Planted> {
    let planted = |(_, id, what): (Broken, &str, &str)| Planted {
        id: id.into(),
        what: what.into(),
        rewrite: false,
        stage: "checker".into(),
        rows: Vec::new(),
        seen_in: Vec::new(),
        needs: Vec::new(),
        sides: vec![PlantedIn::Harness],
    };
    Broken::ALL.into_iter().map(planted).collect()
}

/// Plants a bug and runs the legs it is bound to. Errors: none of a leg; those say so in its place.
pub(crate) fn run(
    context: &Context<'_>,
    sequence: &Sequence<'_>,
    bound: &Bound<'_>,
    progress: &mut dyn Progress,
) -> Control {
    let off = context.plan.disabled_control == Some(bound.planted.id.as_str());
    let subject = if off { Subject::Judged } else { Subject::Planted(bound.planted.id.as_str(), bound.side) };
    let mut groups: BTreeMap<Group, Result<[Vec<Measurement>; 2]>> = BTreeMap::new();
    for (check, leg) in &bound.legs {
        let group = check.group(leg).expect("the gate file was checked");
        groups.entry(group).or_insert_with(|| {
            let without = sequence.unmutated(context, group, progress)?;
            Ok([measure(context, sequence, subject, group, progress)?, without])
        });
    }
    let legs: Vec<ControlLeg> = bound
        .legs
        .iter()
        .map(|(check, leg)| match &groups[&check.group(leg).expect("the gate file was checked")] {
            Ok([with, without]) => judged(context, with, without, check, leg),
            Err(error) => not_measured(check, leg, format!("not measured: {error}")),
        })
        .collect();
    Control {
        mutant: bound.planted.id.clone(),
        side: bound.side.name().into(),
        what: bound.planted.what.clone(),
        seen_in: bound.planted.seen_in.clone(),
        caught: legs.iter().all(|leg| leg.caught),
        legs,
    }
}

fn judged(
    context: &Context<'_>,
    with: &[Measurement],
    without: &[Measurement],
    check: &Check,
    leg: &str,
) -> ControlLeg {
    let finding = |measured: &[Measurement]| {
        let of_leg = measured.iter().filter(|m| m.check == check.name && m.leg == leg).cloned();
        judge_all(&of_leg.collect::<Vec<_>>(), context.plan.gate, None).pop()
    };
    let (Some(with), Some(without)) = (finding(with), finding(without)) else {
        return not_measured(check, leg, "nothing was measured".into());
    };
    let caught = fired(&with, &without);
    let place = match without.outcome {
        Outcome::Pass => with.place,
        _ => "does not pass without the bug either".into(),
    };
    ControlLeg {
        check: check.name.into(),
        leg: leg.into(),
        value: with.value,
        unmutated: without.value,
        limit: with.limit,
        margin: with.excess,
        caught,
        weak: caught && with.excess < WEAK,
        place,
    }
}

fn not_measured(check: &Check, leg: &str, place: String) -> ControlLeg {
    ControlLeg {
        check: check.name.into(),
        leg: leg.into(),
        value: f64::NAN,
        unmutated: f64::NAN,
        limit: f64::NAN,
        margin: f64::NAN,
        caught: false,
        weak: false,
        place,
    }
}
