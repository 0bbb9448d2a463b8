//! How two distributions over the vocabulary differ (K18): KL divergence, top token, negative log-likelihood.

use ndarray::{ArrayView1, ArrayView2};
use spec::TokenId;

/// A position is confident if the reference's top token leads the second by at least this much in
/// log-probability: a factor of 7.4 between the two likeliest tokens, which rounding cannot turn round.
pub const CONFIDENT_LEAD_NATS: f64 = 2.0;

/// `ln(sum(exp(logits)))`, `[V]` f32 in, f64 out. NaN if a logit is NaN or +infinity, or all are -infinity.
pub fn log_sum_exp(logits: ArrayView1<'_, f32>) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    // `f32::max` passes over a NaN, the sum does not
    max + logits.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln()
}

/// Negative log-likelihood of one token, nats.
pub fn nll_nats(logits: ArrayView1<'_, f32>, token: usize) -> f64 {
    log_sum_exp(logits) - f64::from(logits[token])
}

/// Negative log-likelihood, nats, of the token after each row's: `rows` `[n, V]` are those of positions
/// `first` on. The last position of a sequence has no next token and gives none.
pub fn next_token_nll<'a>(
    tokens: &'a [TokenId],
    first: usize,
    rows: ArrayView2<'a, f32>,
) -> impl Iterator<Item = f64> + use<'a> {
    let next = tokens.get(first + 1..).unwrap_or_default();
    next.iter().enumerate().take(rows.nrows()).map(move |(row, next)| nll_nats(rows.row(row), next.index()))
}

/// `KL(reference || port)` at one position, nats: exact over the whole vocabulary, from `[V]` f32 logits by
/// f64 log-softmax. NaN if a side's logits have no log-softmax. Panics on different lengths.
///
/// With `d = ln q - ln p` the sum of `-p d` is taken as the sum of `p (exp(d) - 1 - d)`: the same number,
/// because both distributions sum to one, but no term is negative, so that a KL of 1e-13 is not the
/// remainder of first-order terms a million times larger.
pub fn kl_nats(reference: ArrayView1<'_, f32>, port: ArrayView1<'_, f32>) -> f64 {
    assert_eq!(reference.len(), port.len(), "both sides have one vocabulary");
    let (total_p, total_q) = (log_sum_exp(reference), log_sum_exp(port));
    let term = |i: usize| {
        let (r, t) = (f64::from(reference[i]), f64::from(port[i]));
        let p = (r - total_p).exp();
        let d = (t - r) - (total_q - total_p);
        if p != 0.0 && d.abs() < 1.0 {
            return p * (d.exp_m1() - d);
        }
        let q = (t - total_q).exp();
        if p == 0.0 { q } else { q - p - p * d }
    };
    (0..reference.len()).map(term).sum()
}

/// The likeliest token of one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Top {
    /// Its index; the lower of two equal ones.
    pub token: usize,
    /// How far it leads the second in log-probability, nats; infinite in a vocabulary of one.
    pub lead_nats: f64,
}

impl Top {
    /// Whether the position is confident by [`CONFIDENT_LEAD_NATS`].
    pub fn is_confident(self) -> bool {
        self.lead_nats >= CONFIDENT_LEAD_NATS
    }
}

/// The likeliest token, `[V]` f32; `None` if a logit is NaN. Panics on an empty vocabulary.
pub fn top(logits: ArrayView1<'_, f32>) -> Option<Top> {
    if logits.iter().any(|x| x.is_nan()) {
        return None;
    }
    let (mut token, mut second) = (0, f32::NEG_INFINITY);
    for (i, &x) in logits.iter().enumerate().skip(1) {
        if x > logits[token] {
            second = logits[token];
            token = i;
        } else if x > second {
            second = x;
        }
    }
    Some(Top { token, lead_nats: f64::from(logits[token]) - f64::from(second) })
}
