//! Findings of whole runs, worked out by hand. The set `short` has 9 positions, 18 rows in both layers.

use crate::assert_close;
use crate::fake::{Edit, Fake, LOGITS, LOGITS_OF_OTHERS, LOGITS_REORDERED};
use crate::gates::{finding, judged};
use diff::gate::record::{Outcome, Record};
use rstest::rstest;
use spec::Site;

fn with(f32: &[Edit], bf16: &[Edit]) -> Record {
    let mut fake = Fake::new();
    fake.f32.edits.extend(f32);
    fake.bf16.edits.extend(bf16);
    judged(&fake)
}

fn kl(p: [f32; 3], q: [f32; 3]) -> f64 {
    let log_softmax = |logits: [f32; 3]| {
        let total = logits.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        logits.map(|x| f64::from(x) - total)
    };
    log_softmax(p).iter().zip(log_softmax(q)).map(|(p, q)| p.exp() * (p - q)).sum()
}

const BRANCH: Edit = |row, values| {
    if row.is("short-0", Some(1), Site::AttnBranch, 2) {
        values[1] = -4.5;
    }
};
const ROUTER_LOGITS: Edit = |row, values| {
    if row.is("short-0", Some(0), Site::RouterLogits, 0) {
        values[0] += 0.5;
    }
};
const ROUTER_LOGITS_NUDGED: Edit = |row, values| {
    if row.is("short-0", Some(0), Site::RouterLogits, 0) {
        values[0] += 0.0625;
    }
};
const OTHER_SET: Edit = |row, values| {
    if row.is("short-1", Some(0), Site::ShadowChoice, 3) {
        values[1] = 1.0;
    }
};
const OWN_SCORES: Edit = |row, values| {
    if row.is("short-0", Some(1), Site::RouterLogits, 2) {
        values.reverse();
    }
};
const WEIGHT: Edit = |row, values| {
    if row.is("short-0", Some(0), Site::TopkWeights, 1) {
        values[1] = 0.22;
    }
};
const LOGITS_ROW: Edit = |row, values| {
    if row.is("short-1", None, Site::Logits, 4) {
        *values = LOGITS_OF_OTHERS.to_vec();
    }
};
const LOGITS_IN_BF16: Edit = |row, values| {
    if row.is("short-1", None, Site::Logits, 4) {
        *values = vec![5.0, 0.0, 0.5];
    }
};
const EMBEDDING: Edit = |row, values| {
    if row.is("short-0", None, Site::Embedding, 3) {
        values[0] = 4.5;
    }
};
const ROUTED: Edit = |row, values| {
    if row.is("short-0", Some(0), Site::Routed, 0) {
        values[0] = 1.02;
    }
};

#[rstest]
// 0.5 of a norm of 5
#[case::branch("layer.branch", "attn.max", &[BRANCH], &[], 0.1, 18, "layer 1, short-0, position 2")]
#[case::past_window("layer.branch", "attn.max.past_window", &[BRANCH], &[], 0.1, 14,
    "layer 1, short-0, position 2")]
#[case::of_few_the_median_is_blind("layer.branch", "attn.median", &[BRANCH], &[], 0.0, 18, "layer 0")]
// sqrt(0.25 / 36) of sqrt((2.1^2 + 1.1^2) / 2)
#[case::sigma("router.logits", "sigma", &[ROUTER_LOGITS], &[], 0.083_333_333 / 1.676_305_5, 18, "layer 0")]
#[case::flip("router.selection", "flips.f32", &[OTHER_SET], &[], 1.0, 18, "layer 0, short-1, position 3")]
#[case::set("router.selection", "sets", &[OTHER_SET], &[], 1.0, 18, "layer 0, short-1, position 3")]
#[case::flip_bf16("router.selection", "flips.bf16", &[], &[OTHER_SET], 1.0, 18,
    "layer 0, short-1, position 3")]
#[case::own_scores("router.selection", "flips.f32", &[OWN_SCORES], &[], 1.0, 18,
    "layer 1, short-0, position 2")]
#[case::share("router.sigma", "share", &[], &[OTHER_SET], 1.0 / 18.0, 18, "1 of 18 rows")]
// gap 1.1 - -0.6 over sigma 0.0625 / 6
#[case::largest_z("router.sigma", "largest_z", &[], &[OTHER_SET, ROUTER_LOGITS_NUDGED],
    1.7 / (0.0625 / 6.0), 18,
    "layer 0, short-1, position 3")]
#[case::weights("router.weights", "max", &[WEIGHT], &[], 0.1, 36, "layer 0")]
#[case::embedding("layer.embedding", "f32", &[EMBEDDING], &[], 1.0, 18, "")]
#[case::embedding_bf16("layer.embedding", "bf16", &[], &[EMBEDDING], 1.0, 18, "")]
#[case::head_dtype("dtype.head", "f32", &[LOGITS_IN_BF16], &[], 3.0 / 27.0, 27, "")]
#[case::head_dtype_bf16("dtype.head", "bf16", &[], &[LOGITS_IN_BF16], 3.0 / 27.0, 27, "")]
#[case::top1("forced.top1", "changes", &[LOGITS_ROW], &[], 1.0, 9, "")]
#[case::ulp("site.bf16_ulp", "weighted_sum", &[], &[ROUTED], 1.0 / 18.0, 36, "layer 0")]
fn one_row_gives_one_finding(
    #[case] check: &str,
    #[case] leg: &str,
    #[case] f32: &[Edit],
    #[case] bf16: &[Edit],
    #[case] value: f64,
    #[case] rows: usize,
    #[case] place: &str,
) {
    let record = with(f32, bf16);
    let found = finding(&record, Some("short"), check, leg);
    assert_close(found.value, value);
    assert_eq!((found.rows, found.place.as_str()), (rows, place));
    assert_eq!(found.outcome == Outcome::Fail, value > 0.0);
    // the other set and the honest run have nothing of it
    assert_eq!(finding(&record, Some("long"), check, leg).outcome, Outcome::Pass);
    assert_eq!(finding(&judged(&Fake::new()), Some("short"), check, leg).outcome, Outcome::Pass);
}

#[test]
fn a_choice_that_only_its_own_scores_contradict_is_no_other_set() {
    let record = with(&[OWN_SCORES], &[]);
    assert_eq!(finding(&record, Some("short"), "router.selection", "sets").value, 0.0);
}

#[test]
fn kl_is_taken_by_mean_bucket_position_and_growth() {
    let record = with(&[LOGITS_ROW], &[]);
    let one = kl(LOGITS, LOGITS_OF_OTHERS);
    let found = |leg| finding(&record, Some("short"), "forced.kl", leg);
    assert_close(found("mean").value, one / 9.0);
    // positions 2..4 of the shorter and 2..5 of the longer sequence
    assert_close(found("bucket").value, one / 5.0);
    assert_eq!(found("bucket").place, "positions 2..5");
    assert_close(found("position").value, one);
    assert_eq!(found("position").place, "short-1, position 4");
    assert_close(found("growth").value, one / 5.0 / 1e-15);
    // in order of id every odd position sums otherwise: two of each sequence
    let floor = found("mean").calibrator.unwrap();
    let expected = 4.0 * kl(LOGITS, LOGITS_REORDERED) / 9.0;
    assert!((floor / expected - 1.0).abs() <= 1e-4, "{floor:e} and {expected:e}");
}

#[test]
fn a_port_that_ignores_forcing_is_noticed() {
    let mut fake = Fake::new();
    fake.f32.obeys_forcing = false;
    let record = judged(&fake);
    let kl = finding(&record, None, "harness.forcing_active", "kl");
    assert_eq!((kl.value, kl.outcome), (0.0, Outcome::Fail));
    // no KL of as little
    let of_random = finding(&record, None, "harness.forcing_active", "of_random");
    assert!(of_random.value.is_nan() && of_random.outcome == Outcome::Fail);
}

#[test]
fn likelihood_and_damage_of_a_table_follow_from_its_logits() {
    let record = judged(&Fake::new());
    let nll = record.sets[0].nll.as_ref().unwrap();
    // every next token is token 0; a planted bug says [0, 8, tokens of the call]
    let total = |logits: [f64; 3]| logits.iter().map(|x| x.exp()).sum::<f64>().ln();
    let reference = total(LOGITS.map(f64::from)) - f64::from(LOGITS[0]);
    assert_eq!(nll.tokens, 3 + 4);
    assert_close(nll.nats_per_token, reference);
    assert_close(nll.bits_per_token, reference / 2_f64.ln());
    let mutant = (3.0 * total([0.0, 8.0, 4.0]) + 4.0 * total([0.0, 8.0, 5.0])) / 7.0;
    assert_close(nll.damage[0].nats_per_token, mutant - reference);
}

#[test]
fn one_token_of_nine_is_a_shortfall_that_other_text_need_not_show() {
    let record = with(&[], &[LOGITS_ROW]);
    let found = finding(&record, Some("short"), "free.top1", "shortfall");
    // a third of all draws leave out the one block that holds it
    assert_eq!((found.value, found.rows, found.outcome), (0.0, 9, Outcome::Pass));
    assert_eq!(found.place, "port 8 and emulation 9 of 9; 11.11 points short");
    let paired = record.sets[0].top1.as_ref().unwrap();
    assert_close(paired.shortfall, 1.0 / 9.0);
    assert_eq!(paired.blocks, 48);
}

#[test]
fn a_port_that_loses_every_confident_token_falls_short_whatever_the_text() {
    let all: Edit = |row, values| {
        if row.site == Site::Logits {
            *values = LOGITS_OF_OTHERS.to_vec();
        }
    };
    let found = finding(&with(&[], &[all]), Some("short"), "free.top1", "shortfall").clone();
    assert_eq!((found.value, found.limit, found.outcome), (1.0, 0.01, Outcome::Fail));
}
