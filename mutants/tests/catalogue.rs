//! What the catalogue says about each bug.

mod support;

use mutants::{Mutant, Need, Occasion, catalogue, find};
use rstest::rstest;
use spec::{LayerKind, ModelConfig};
use std::collections::BTreeSet;
use support::config;

#[test]
fn ids_are_unique_words_by_which_bugs_are_found() {
    let ids: BTreeSet<&str> = catalogue().map(|mutant| mutant.id).collect();
    assert_eq!(ids.len(), catalogue().count());
    for id in ids {
        assert!(id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{id}");
        assert_eq!(find(id).unwrap().id, id);
    }
    assert!(find("window_two_short").is_none());
}

#[test]
fn every_bug_says_what_it_is_and_who_met_it_and_can_be_planted() {
    for mutant @ Mutant { id, what, seen_in, port, .. } in catalogue() {
        assert!(what.split(' ').count() > 3 && !what.ends_with('.') && what.is_ascii(), "{id}: {what}");
        assert!(!seen_in.is_empty(), "{id}");
        for report in *seen_in {
            let number = report.split_once('#').map(|(_, number)| number.parse::<u32>().is_ok());
            let named = matches!(*report, "published Kolibri gate" | "this project");
            assert!(number.unwrap_or(named), "{id}: {report}");
        }
        assert!(port.is_some() || mutant.reference().is_some(), "{id}");
    }
}

#[test]
fn bugs_come_by_stage() {
    assert!(catalogue().is_sorted_by_key(|mutant| mutant.stage));
}

/// Rows that have variants count as often as they have them.
#[test]
fn fifty_bugs_and_more_can_be_in_the_port_and_thirty_five_of_them_in_the_reference() {
    let in_port = || catalogue().filter(|mutant| mutant.port.is_some());
    assert!(in_port().count() >= 50);
    assert!(in_port().filter(|mutant| mutant.reference().is_some()).count() >= 35);
}

/// Whether a model meets it; `config()` has ten layers, full where `i % 5 == 4`, 8 heads to 2 of keys and
/// values, 32 experts, window 33, hidden size 96, widths 32.
fn met(need: Need, config: &ModelConfig, tokens: usize, chunk: usize) -> bool {
    let (batch, nonzero_bias, wide_bias) = (false, false, false);
    need.is_met(&Occasion { config, tokens, chunk, batch, nonzero_bias, wide_bias })
}

#[rstest]
#[case(Need::PastWindow, 33, 64, false)]
#[case(Need::PastWindow, 34, 64, true)]
#[case(Need::SecondCall, 64, 64, false)]
#[case(Need::SecondCall, 65, 64, true)]
#[case::second_call_within_the_window(Need::CallPastWindow, 64, 32, false)]
#[case::second_call_at_the_window(Need::CallPastWindow, 64, 33, true)]
#[case::third_call_beyond(Need::CallPastWindow, 65, 32, true)]
#[case::one_call(Need::CallPastWindow, 64, 64, false)]
#[case(Need::Past256, 257, 512, false)]
#[case(Need::Past256, 258, 512, true)]
fn tokens_meet(#[case] need: Need, #[case] tokens: usize, #[case] chunk: usize, #[case] expected: bool) {
    assert_eq!(met(need, &config(), tokens, chunk), expected);
}

#[rstest]
#[case(Need::FullLayer, ModelConfig { layers: vec![LayerKind::Sliding; 10], ..config() })]
#[case(Need::HeadsOtherThanHidden, ModelConfig { hidden_size: 128, ..config() })]
#[case::as_many(Need::GroupedHeads, ModelConfig { num_kv_heads: 8, ..config() })]
#[case::one(Need::GroupedHeads, ModelConfig { num_kv_heads: 1, ..config() })]
#[case(Need::EqualWidths, ModelConfig { shared_width: 40, ..config() })]
#[case(Need::TwoDigitExperts, ModelConfig { num_experts: 10, ..config() })]
#[case(Need::RawWeights, ModelConfig { renormalise_topk: true, ..config() })]
fn a_model_may_lack(#[case] need: Need, #[case] other: ModelConfig) {
    assert!(met(need, &config(), 64, 36) && !met(need, &other, 64, 36));
}

#[rstest]
#[case(Need::SquareExpert, ModelConfig { expert_width: 96, ..config() })]
#[case(Need::OtherRopeBase, ModelConfig { rope_theta: 5000.0, ..config() })]
#[case(Need::RouteScale, ModelConfig { route_scale: 2.5, ..config() })]
fn another_model_may_have(#[case] need: Need, #[case] other: ModelConfig) {
    assert!(!met(need, &config(), 64, 36) && met(need, &other, 64, 36));
}

#[rstest]
#[case(Need::NonzeroBias, true, false)]
#[case(Need::WideBias, false, true)]
fn a_bias_meets(#[case] need: Need, #[case] nonzero_bias: bool, #[case] wide_bias: bool) {
    let config = config();
    let at = |nonzero_bias, wide_bias| Occasion {
        config: &config,
        tokens: 64,
        chunk: 36,
        batch: false,
        nonzero_bias,
        wide_bias,
    };
    assert!(need.is_met(&at(nonzero_bias, wide_bias)) && !need.is_met(&at(!nonzero_bias, !wide_bias)));
}

#[test]
fn a_batch_is_met_where_there_is_one() {
    let config = config();
    let at = |batch| Occasion {
        config: &config,
        tokens: 64,
        chunk: 36,
        batch,
        nonzero_bias: true,
        wide_bias: true,
    };
    assert!(Need::Batch.is_met(&at(true)) && !Need::Batch.is_met(&at(false)));
}
