//! Logits of two sides at one position after the other, kept as numbers: what every end-to-end comparison
//! counts, live or of recordings.

use super::comparison::{EndToEnd, Place, RoutingDifference, TopChange};
use crate::metrics::logits;
use crate::stats::{Rate, Spread, is_worse};
use ndarray::ArrayView1;
use spec::TokenId;

/// How many confident changes are listed; all are counted.
pub const CHANGES_LISTED: usize = 100;

/// What has been seen of the positions so far.
#[derive(Debug, Default)]
pub(crate) struct LogitsTally {
    kl_nats: Vec<f64>,
    /// The largest KL and where.
    worst: Option<(f64, Place)>,
    nan_positions: usize,
    agreed: usize,
    confident: usize,
    confident_agreed: usize,
    changes: Vec<TopChange>,
}

impl LogitsTally {
    /// Takes one position's logits, `[V]` f32 each.
    pub(crate) fn position(
        &mut self,
        case: &str,
        position: usize,
        reference: ArrayView1<'_, f32>,
        port: ArrayView1<'_, f32>,
    ) {
        let place = || Place { case: case.into(), position };
        let kl = logits::kl_nats(reference, port);
        self.kl_nats.push(kl);
        if self.worst.as_ref().is_none_or(|(worst, _)| is_worse(kl, *worst)) {
            self.worst = Some((kl, place()));
        }
        let (expected, found) = (logits::top(reference), logits::top(port));
        self.nan_positions += usize::from(expected.is_none() || found.is_none());
        let Some(expected) = expected else { return };
        let agrees = found.is_some_and(|found| found.token == expected.token);
        self.agreed += usize::from(agrees);
        if !expected.is_confident() {
            return;
        }
        self.confident += 1;
        self.confident_agreed += usize::from(agrees);
        if !agrees && self.changes.len() < CHANGES_LISTED {
            let change = TopChange { place: place(), reference: id(expected), port: found.map(id) };
            self.changes.push(change);
        }
    }

    /// What was found, with how the executed experts differ. Panics if there was no position.
    pub(crate) fn finish(self, routing: RoutingDifference) -> EndToEnd {
        let (_, kl_worst) = self.worst.expect("at least one position");
        EndToEnd {
            top1: Rate::new(self.agreed, self.kl_nats.len()),
            kl_nats: Spread::of(self.kl_nats),
            kl_worst,
            nan_positions: self.nan_positions,
            confident_top1: Rate::new(self.confident_agreed, self.confident),
            confident_changes: self.changes,
            routing,
        }
    }
}

fn id(top: logits::Top) -> TokenId {
    TokenId(u32::try_from(top.token).expect("a vocabulary of fewer than 2^32 tokens"))
}
