//! Selection of experts and their weights (K15, K16). Router logits are a product like any other (K14).

use spec::ExpertId;
use spec::config::{RouterScore, SelectionBias};
use std::cmp::Ordering;

/// `f32(logit + bias)` per expert (K15).
pub(crate) fn selection_scores(form: SelectionBias, logits: &[f32], bias: &[f32], scores: &mut [f32]) {
    match form {
        SelectionBias::OnLogit => {
            for ((score, logit), bias) in scores.iter_mut().zip(logits).zip(bias) {
                *score = logit + bias;
            }
        }
    }
}

/// The k experts of the largest scores, largest first; of equal scores the lower id (K15). A NaN counts as
/// larger than any number, whatever its sign, so that it is seen in the choice instead of hidden.
pub(crate) fn select(scores: &[f32], k: usize) -> Vec<ExpertId> {
    let larger = |a: f32, b: f32| -> Ordering {
        a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(&b).unwrap_or(Ordering::Equal))
    };
    let by_rank = |&a: &usize, &b: &usize| larger(scores[b], scores[a]).then(a.cmp(&b));
    let mut ids: Vec<usize> = (0..scores.len()).collect();
    if k < ids.len() {
        ids.select_nth_unstable_by(k, by_rank);
        ids.truncate(k);
    }
    ids.sort_unstable_by(by_rank);
    ids.into_iter().map(|id| ExpertId(u16::try_from(id).expect("config bounds the expert count"))).collect()
}

/// The weights of the given experts, in their order: the score of each raw logit, divided by their sum if
/// `renormalise`, times `scale` (K16).
pub(crate) fn topk_weights(
    score: RouterScore,
    renormalise: bool,
    scale: f32,
    logits: &[f32],
    ids: &[ExpertId],
) -> Vec<f32> {
    let mut weights: Vec<f32> = match score {
        RouterScore::Sigmoid => ids.iter().map(|id| sigmoid(logits[id.index()])).collect(),
    };
    if renormalise {
        let sum: f32 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
    weights.iter_mut().for_each(|weight| *weight *= scale);
    weights
}

/// `1 / (1 + e^-x)`.
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn ids(ids: &[u16]) -> Vec<ExpertId> {
        ids.iter().map(|&id| ExpertId(id)).collect()
    }

    #[rstest]
    #[case::largest_first(&[0.1, 3.0, -1.0, 2.0], 2, &[1, 3])]
    #[case::all_of_them(&[0.1, 3.0, -1.0], 3, &[1, 0, 2])]
    #[case::a_tie_at_the_edge_goes_to_the_lower_id(&[1.0, 2.0, 1.0, 1.0], 2, &[1, 0])]
    #[case::ties_are_in_order_of_id(&[5.0, 5.0, 5.0, 5.0, 5.0], 3, &[0, 1, 2])]
    #[case::zeros_of_both_signs_tie(&[-1.0, -0.0, 0.0], 1, &[1])]
    #[case::infinity_is_a_score(&[f32::NEG_INFINITY, 0.0, f32::INFINITY], 2, &[2, 1])]
    #[case::nan_is_seen(&[1.0, f32::NAN, 2.0], 1, &[1])]
    #[case::nan_with_its_sign_bit_set_is_seen(&[1.0, f32::INFINITY, -f32::NAN, 2.0], 2, &[2, 1])]
    #[case::nans_of_both_signs_tie(&[1.0, -f32::NAN, f32::NAN], 3, &[1, 2, 0])]
    fn selection_takes_the_largest(#[case] scores: &[f32], #[case] k: usize, #[case] expected: &[u16]) {
        assert_eq!(select(scores, k), ids(expected));
    }

    #[test]
    fn selection_agrees_with_sorting_on_many_ties() {
        // 384 scores with 16 values; a stable sort keeps the lower id first
        let scores: Vec<f32> = (0..384_u16).map(|i| f32::from(i * 31 % 101 % 16)).collect();
        let mut sorted: Vec<u16> = (0..384).collect();
        sorted.sort_by(|&a, &b| scores[usize::from(b)].total_cmp(&scores[usize::from(a)]));
        for k in [1, 6, 30, 383, 384] {
            assert_eq!(select(&scores, k), ids(&sorted[..k]));
        }
    }

    #[test]
    fn the_bias_moves_the_choice_but_not_the_weights() {
        let (logits, bias) = ([2.0, 1.0, 0.0], [-5.0, 0.0, 0.5]);
        let mut scores = [0.0; 3];
        selection_scores(SelectionBias::OnLogit, &logits, &bias, &mut scores);
        assert_eq!(scores, [-3.0, 1.0, 0.5]);
        let chosen = select(&scores, 2);
        assert_eq!(chosen, ids(&[1, 2]));
        let weights = topk_weights(RouterScore::Sigmoid, false, 1.0, &logits, &chosen);
        // sigmoid(1) = 0.7310585786300049, sigmoid(0) = 1/2
        assert!((f64::from(weights[0]) - 0.731_058_578_630_004_9).abs() <= 1e-7);
        assert_eq!(weights[1], 0.5);
    }

    #[test]
    fn renormalised_weights_are_divided_by_their_sum_and_scaled() {
        // logits 0 and ln 3: sigmoids 1/2 and 3/4, so 2/5 and 3/5
        let logits = [0.0, 9.0, 3_f32.ln()];
        let weights = topk_weights(RouterScore::Sigmoid, true, 2.0, &logits, &ids(&[2, 0]));
        assert!((weights[0] - 1.2).abs() <= 1e-6 && (weights[1] - 0.8).abs() <= 1e-6, "{weights:?}");
    }

    #[rstest]
    #[case(-200.0)]
    #[case(-9.0)]
    #[case(0.3)]
    #[case(200.0)]
    fn sigmoid_is_close_to_f64(#[case] x: f32) {
        let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
        assert!((f64::from(sigmoid(x)) - exact).abs() <= 2e-7 * exact.max(1e-30), "{x}");
    }
}
