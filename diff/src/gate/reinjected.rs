//! The port layer by layer, fed the reference's inputs and forced onto its choices: branches, router logits,
//! selection, weights, and in bf16 the elementwise sites against f64.

use super::finding::Measurement;
use super::logits::in_bf16;
use super::rows::{Rows, selection_scores};
use super::tally::{Errors, LayerTally, place};
use super::ulp::UlpTally;
use crate::compare::Progress;
use crate::compare::ledger::Ledger;
use crate::metrics::router;
use crate::stats::Rate;
use ndarray::{Array2, ArrayView2};
use spec::{At, LayerId, Precision, Recorder, Result, Side, Site};

/// What every layer is wanted to record.
const SITES: [Site; 6] = [
    Site::AttnBranch,
    Site::MoeBranch,
    Site::RouterLogits,
    Site::Choice,
    Site::ShadowChoice,
    Site::TopkWeights,
];

/// One layer of one arm of the port.
#[derive(Debug, Default)]
pub(crate) struct PortLayer {
    pub(crate) tally: LayerTally,
    /// Relative error of each top-k weight, by row its largest and its others alike.
    weights: Errors,
    /// Rows whose chosen set its own scores contradict: case, position.
    flips: Vec<(usize, usize)>,
    logits_in_bf16: Share,
    weights_in_bf16: Share,
    ulp: UlpTally,
}

/// A share that is being counted.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    count: usize,
    of: usize,
}

impl Share {
    fn add(&mut self, values: ArrayView2<'_, f32>) {
        self.count += values.iter().filter(|value| in_bf16(**value)).count();
        self.of += values.len();
    }

    fn plus(self, other: Share) -> Share {
        Share { count: self.count + other.count, of: self.of + other.of }
    }
}

/// Runs all layers of a port.
pub(crate) fn run(
    port: &dyn Side,
    arm: Precision,
    rows: &Rows<'_>,
    chunk: usize,
    progress: &mut dyn Progress,
) -> Result<Vec<PortLayer>> {
    let name = match arm {
        Precision::F32 => "port f32, layer by layer",
        Precision::Bf16 => "port bf16, layer by layer",
    };
    progress.phase(name, rows.config.num_layers());
    let runs = rows.forced(port, chunk);
    let mut layers = Vec::new();
    for layer in rows.config.layer_ids() {
        let mut ledger = Ledger::new("port", rows.cases, rows.config);
        SITES.into_iter().for_each(|site| ledger.expect(Some(layer), site));
        if arm == Precision::Bf16 {
            super::ulp::SITES.into_iter().for_each(|site| ledger.expect(Some(layer), site));
        }
        let inputs = rows.inputs(layer)?;
        let ulp = (arm == Precision::Bf16).then_some(inputs.as_slice());
        let mut recorder =
            LayerRecorder { ledger, rows, layer, inputs: ulp, logits: None, found: PortLayer::default() };
        port.layer(layer, &runs, &inputs, &mut recorder)?;
        recorder.ledger.finish()?;
        layers.push(recorder.found);
        progress.step(1);
    }
    Ok(layers)
}

struct LayerRecorder<'a> {
    ledger: Ledger<'a>,
    rows: &'a Rows<'a>,
    layer: LayerId,
    /// The layer's inputs, where elementwise sites are wanted.
    inputs: Option<&'a [Array2<f32>]>,
    /// The router logits of the call at hand, and where they belong; its choices come after them.
    logits: Option<(At, Array2<f32>)>,
    found: PortLayer,
}

impl Recorder for LayerRecorder<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, found: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, found)?;
        if let Some(inputs) = self.inputs {
            self.found.ulp.take(self.rows, &inputs[at.run], at, found);
        }
        match at.site {
            Site::AttnBranch | Site::MoeBranch => self.found.tally.take(self.rows, at.run, at, found),
            Site::RouterLogits => {
                self.found.logits_in_bf16.add(found);
                self.logits = Some((at.clone(), found.to_owned()));
                self.found.tally.take(self.rows, at.run, at, found)
            }
            Site::ShadowChoice => {
                self.flips(at, found);
                self.found.tally.take(self.rows, at.run, at, found)
            }
            Site::TopkWeights => {
                self.found.weights_in_bf16.add(found);
                self.weights(at, found)
            }
            Site::Choice => {
                self.executed(at, found);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl LayerRecorder<'_> {
    /// The exact flip test: with s = f32(logit + bias), every chosen expert's s is at least every other's.
    fn flips(&mut self, at: &At, found: ArrayView2<'_, f32>) {
        let (of, logits) = self.logits.take().expect("router logits come before what is chosen by them");
        assert_eq!((of.run, of.rows), (at.run, at.rows.clone()), "choices of the rows whose logits came");
        for ((logits, chosen), position) in logits.rows().into_iter().zip(found.rows()).zip(at.rows.clone()) {
            let scores = selection_scores(logits, self.rows.bias(self.layer));
            if !obeys(&scores, chosen.iter().copied()) {
                self.found.flips.push((at.run, position));
            }
        }
    }

    fn weights(&mut self, at: &At, found: ArrayView2<'_, f32>) -> Result<()> {
        let expected = self.rows.spool.read(&(at.run, at.layer, at.site), at.rows.clone())?;
        for ((expected, found), position) in
            expected.rows().into_iter().zip(found.rows()).zip(at.rows.clone())
        {
            for (&expected, &found) in expected.iter().zip(found) {
                let (expected, found) = (f64::from(expected), f64::from(found));
                self.found.weights.push((found - expected).abs() / expected.abs(), at.run, position);
            }
        }
        Ok(())
    }

    /// Weights can only be held against the reference's where the port executed what it was forced onto. A
    /// row where it did not counts as a weight that is NaN.
    fn executed(&mut self, at: &At, found: ArrayView2<'_, f32>) {
        for (found, position) in found.rows().into_iter().zip(at.rows.clone()) {
            let forced = self.rows.choices[at.run].at(position, self.layer);
            if !forced.iter().map(|id| f32::from(id.0)).eq(found.iter().copied()) {
                self.found.weights.push(f64::NAN, at.run, position);
            }
        }
    }
}

/// Whether `chosen` are different experts, none of which scores below one that was not chosen.
fn obeys(scores: &[f32], chosen: impl Iterator<Item = f32>) -> bool {
    let mut is_chosen = vec![false; scores.len()];
    let mut least = f32::INFINITY;
    for id in chosen {
        let Some(&score) = scores.get(id as usize) else { return false };
        if is_chosen[id as usize] || score.is_nan() {
            return false;
        }
        is_chosen[id as usize] = true;
        least = least.min(score);
    }
    scores.iter().zip(is_chosen).all(|(score, chosen)| chosen || *score <= least)
}

/// The legs of all checks that the f32 arm gives.
pub(crate) fn measure_f32(rows: &Rows<'_>, layers: &[PortLayer]) -> Vec<Measurement> {
    let mut legs = branch_legs(rows, layers);
    let sigma = worst(layers, |layer| {
        let router = &layer.tally.router;
        (Some(router.sigma() / router.logits_rms()), router.rows())
    });
    legs.push(sigma.leg("router.logits", "sigma", rows));
    legs.push(share_leg("logits_in_bf16.f32", layers, |layer| layer.logits_in_bf16));
    legs.push(share_leg("weights_in_bf16.f32", layers, |layer| layer.weights_in_bf16));
    legs.push(flips_leg("flips.f32", rows, layers));
    legs.push(sets_leg(rows, layers));
    for (leg, pick) in [("median", 50), ("max", 100)] {
        let worst = worst(layers, |layer| spread_of(&layer.weights, 0, pick));
        legs.push(worst.leg("router.weights", leg, rows));
    }
    legs
}

/// The legs of all checks that the bf16 arm gives, beside the emulation's on the same rows.
pub(crate) fn measure_bf16(
    rows: &Rows<'_>,
    layers: &[PortLayer],
    emulation: &[LayerTally],
) -> Vec<Measurement> {
    let mut legs = bf16_branch_legs(rows, layers, emulation);
    legs.extend(super::ulp::measure(rows, layers.iter().map(|layer| &layer.ulp)));
    legs.push(share_leg("logits_in_bf16.bf16", layers, |layer| layer.logits_in_bf16));
    legs.push(share_leg("weights_in_bf16.bf16", layers, |layer| layer.weights_in_bf16));
    legs.push(flips_leg("flips.bf16", rows, layers));
    let share = |tallies: &mut dyn Iterator<Item = &LayerTally>| {
        let (mut differing, mut of) = (0, 0);
        for tally in tallies {
            differing += tally.router.differing.len();
            of += tally.router.rows();
        }
        Rate::new(differing, of)
    };
    let found = share(&mut layers.iter().map(|layer| &layer.tally));
    let reached = share(&mut emulation.iter());
    let leg = Measurement::new("router.sigma", "share", found.of, found.rate);
    legs.push(leg.calibrated(reached.rate).at(format!("{} of {} rows", found.count, found.of)));
    let z = worst(layers, |layer| (Some(layer.tally.router.largest_z().0), layer.tally.router.rows()));
    let mut leg = z.leg("router.sigma", "largest_z", rows);
    let largest = z.layer.and_then(|layer| layers[layer.0].tally.router.largest_z().1);
    leg.place = place(rows, z.layer, largest.map(|row| (row.case, row.position)));
    legs.push(leg);
    legs
}

/// The largest of one number per layer.
struct Worst {
    value: f64,
    rows: usize,
    layer: Option<LayerId>,
    at: Option<(usize, usize)>,
}

impl Worst {
    fn leg(&self, check: &'static str, leg: &'static str, rows: &Rows<'_>) -> Measurement {
        Measurement::new(check, leg, self.rows, self.value).at(place(rows, self.layer, self.at))
    }
}

/// `number` gives a layer's number, `None` if it has no rows, and how many rows.
fn worst(layers: &[PortLayer], number: impl Fn(&PortLayer) -> (Option<f64>, usize)) -> Worst {
    let mut worst = Worst { value: f64::NAN, rows: 0, layer: None, at: None };
    for (index, layer) in layers.iter().enumerate() {
        let (Some(value), rows) = number(layer) else { continue };
        worst.rows += rows;
        if worst.layer.is_none() || crate::stats::is_worse(value, worst.value) {
            (worst.value, worst.layer) = (value, Some(LayerId(index)));
        }
    }
    worst
}

/// A percentile (100: the largest) of the rows from a position on.
fn spread_of(errors: &Errors, from: usize, percent: usize) -> (Option<f64>, usize) {
    let spread = errors.spread(from);
    let rows = spread.as_ref().map_or(0, |spread| spread.count);
    let value = spread.map(|spread| match percent {
        50 => spread.p50,
        99 => spread.p99,
        _ => spread.max,
    });
    (value, rows)
}

/// Leg, percentile (100: the largest), attention, past the window.
const BRANCH_LEGS: [(&str, usize, bool, bool); 12] = [
    ("attn.median", 50, true, false),
    ("attn.p99", 99, true, false),
    ("attn.max", 100, true, false),
    ("moe.median", 50, false, false),
    ("moe.p99", 99, false, false),
    ("moe.max", 100, false, false),
    ("attn.median.past_window", 50, true, true),
    ("attn.p99.past_window", 99, true, true),
    ("attn.max.past_window", 100, true, true),
    ("moe.median.past_window", 50, false, true),
    ("moe.p99.past_window", 99, false, true),
    ("moe.max.past_window", 100, false, true),
];

fn branch_legs(rows: &Rows<'_>, layers: &[PortLayer]) -> Vec<Measurement> {
    let leg = |&(leg, percent, attn, past): &(&'static str, usize, bool, bool)| {
        let from = if past { rows.past_window() } else { 0 };
        let mut worst = worst(layers, |layer| spread_of(layer.tally.branch(attn), from, percent));
        if percent == 100 {
            worst.at = worst.layer.and_then(|layer| layers[layer.0].tally.branch(attn).worst(from));
        }
        worst.leg("layer.branch", leg, rows)
    };
    BRANCH_LEGS.iter().map(leg).collect()
}

/// Held against the emulation layer by layer, one measurement each.
fn bf16_branch_legs(rows: &Rows<'_>, layers: &[PortLayer], emulation: &[LayerTally]) -> Vec<Measurement> {
    let mut legs = Vec::new();
    for &(leg, percent, attn, past) in BRANCH_LEGS.iter().filter(|(_, percent, ..)| *percent != 100) {
        let from = if past { rows.past_window() } else { 0 };
        let pick = |tally: &LayerTally| spread_of(tally.branch(attn), from, percent);
        for (index, (layer, reached)) in layers.iter().zip(emulation).enumerate() {
            let (value, count) = pick(&layer.tally);
            let measured = Measurement::new("layer.branch_bf16", leg, count, value.unwrap_or(f64::NAN));
            let measured = measured.at(place(rows, Some(LayerId(index)), None));
            legs.push(measured.calibrated(pick(reached).0.unwrap_or(f64::NAN)));
        }
    }
    legs
}

fn share_leg(leg: &'static str, layers: &[PortLayer], pick: impl Fn(&PortLayer) -> Share) -> Measurement {
    let share = layers.iter().map(pick).fold(Share::default(), Share::plus);
    Measurement::new("router.logits", leg, share.of, share.count as f64 / share.of as f64)
}

fn flips_leg(leg: &'static str, rows: &Rows<'_>, layers: &[PortLayer]) -> Measurement {
    let flips: usize = layers.iter().map(|layer| layer.flips.len()).sum();
    let of = layers.iter().map(|layer| layer.tally.router.rows()).sum();
    let first = layers.iter().enumerate().find_map(|(index, layer)| {
        layer.flips.first().map(|&at| place(rows, Some(LayerId(index)), Some(at)))
    });
    Measurement::new("router.selection", leg, of, flips as f64).at(first.unwrap_or_default())
}

fn sets_leg(rows: &Rows<'_>, layers: &[PortLayer]) -> Measurement {
    let (mut count, mut of, mut first) = (0_usize, 0, String::new());
    for (index, layer) in layers.iter().enumerate() {
        of += layer.tally.router.rows();
        let beyond = layer.tally.router.differing.iter().filter(|row| router::is_beyond_tie(row.gap));
        for row in beyond {
            if count == 0 {
                first = place(rows, Some(LayerId(index)), Some((row.case, row.position)));
            }
            count += 1;
        }
    }
    Measurement::new("router.selection", "sets", of, count as f64).at(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::the_largest(&[0.0, 3.0, 1.0, 2.0], &[1.0, 3.0], true)]
    #[case::in_any_order(&[0.0, 3.0, 1.0, 2.0], &[3.0, 1.0], true)]
    #[case::either_of_a_tie(&[2.0, 3.0, 1.0, 2.0], &[1.0, 0.0], true)]
    #[case::one_below_another(&[0.0, 3.0, 1.0, 2.0], &[1.0, 2.0], false)]
    #[case::one_twice(&[0.0, 3.0, 1.0, 2.0], &[1.0, 1.0], false)]
    #[case::no_such_expert(&[0.0, 3.0, 1.0, 2.0], &[1.0, 4.0], false)]
    #[case::a_nan_chosen(&[f32::NAN, 3.0, 1.0, 2.0], &[0.0, 1.0], false)]
    #[case::a_nan_left(&[f32::NAN, 3.0, 1.0, 2.0], &[1.0, 3.0], false)]
    fn a_choice_obeys_scores_that_put_no_other_expert_above(
        #[case] scores: &[f32],
        #[case] chosen: &[f32],
        #[case] obeyed: bool,
    ) {
        assert_eq!(obeys(scores, chosen.iter().copied()), obeyed);
    }
}
