//! How well the reference predicts real text, and what its planted bugs cost. A reference that misreads the
//! model predicts its text worse than the reading it missed.

use super::bootstrap::{Block, blocks, mean, percentiles};
use super::finding::Measurement;
use super::record::{Damage, NllRecord};

/// Negative log-likelihoods by case and position, nats.
type Lane = Vec<Vec<f64>>;

/// The set's record; `lanes` holds the reference's, then each of `mutants`'.
pub(crate) fn record(lanes: &[Lane], mutants: &[&str]) -> NllRecord {
    let (reference, others) = lanes.split_first().expect("the reference's own lane");
    let all = reference.concat();
    let nats_per_token = all.iter().sum::<f64>() / all.len() as f64;
    let damage = |(lane, mutant): (&Lane, &&str)| {
        let blocks = damage_blocks(lane, reference);
        let [p1, p99] = percentiles(&blocks, [0.01, 0.99]);
        Damage { mutant: (*mutant).into(), nats_per_token: mean(&blocks), p1, p99 }
    };
    NllRecord {
        tokens: all.len(),
        nats_per_token,
        bits_per_token: nats_per_token / std::f64::consts::LN_2,
        blocks: damage_blocks(reference, reference).len(),
        damage: others.iter().zip(mutants).map(damage).collect(),
    }
}

/// One leg: what the bug costs, at the 1st percentile.
pub(crate) fn leg(name: &'static str, tokens: usize, damage: &Damage) -> Measurement {
    let half_width = (damage.nats_per_token - damage.p1).max(f64::MIN_POSITIVE);
    // how many of its half-widths the damage is above zero, upside down; below zero, beyond 1
    let excess = if damage.nats_per_token > 0.0 {
        half_width / damage.nats_per_token
    } else {
        1.0 - damage.nats_per_token / half_width
    };
    let words = format!("mean {:.3} nats per token", damage.nats_per_token);
    Measurement {
        excess: Some(excess),
        ..Measurement::new("nll.bits_per_byte", name, tokens, damage.p1).at(words)
    }
}

/// The leg of one sequence: what `lane` costs beside `from`.
pub(crate) fn leg_of(name: &'static str, lane: &[f64], from: &[f64]) -> Measurement {
    let blocks = damage_blocks(&vec![lane.to_vec()], &vec![from.to_vec()]);
    let [p1, p99] = percentiles(&blocks, [0.01, 0.99]);
    let damage = Damage { mutant: name.into(), nats_per_token: mean(&blocks), p1, p99 };
    leg(name, from.len(), &damage)
}

fn damage_blocks(lane: &Lane, from: &Lane) -> Vec<Block> {
    let difference = |(lane, from): (&Vec<f64>, &Vec<f64>)| -> Vec<f64> {
        lane.iter().zip(from).map(|(lane, from)| lane - from).collect()
    };
    let differences: Vec<Vec<f64>> = lane.iter().zip(from).map(difference).collect();
    blocks(&differences, |&sum| Block { sum, weight: 1.0 })
}
