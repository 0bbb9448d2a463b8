//! The end-to-end runs: KL, top tokens, routing, and the reference's own likelihood.

use crate::fake::{Fake, cases, uniform};
use crate::{close, compare, options};
use diff::compare::{CHANGES_LISTED, Options, Place, PortRuns, Progress, sides};
use ndarray::{Array2, array};
use rstest::rstest;
use spec::{Case, Site, TokenId};

const LOGITS: (usize, Option<spec::LayerId>, Site) = (0, None, Site::Logits);

/// Leads of 5 (confident), 1 and exactly 2 nats (confident).
fn reference() -> Fake {
    let mut reference = Fake::new("reference", &[3]);
    reference.rows.insert(LOGITS, array![[5.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]);
    reference
}

#[test]
fn top_tokens_and_confident_changes() {
    let (reference, mut port) = (reference(), Fake::new("port", &[3]));
    port.rows.insert(LOGITS, array![[0.0, 5.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]);
    let forced = compare(&reference, &port, &cases(&[3])).unwrap().forced.unwrap();
    assert_eq!((forced.top1.count, forced.top1.of), (1, 3));
    let rate = &forced.confident_top1;
    assert_eq!((rate.count, rate.of, rate.rate), (1, 2, 0.5));
    assert!((rate.low - 0.0126).abs() <= 5e-5 && (rate.high - 0.9874).abs() <= 5e-5);
    let [change] = &forced.confident_changes[..] else { panic!("{:?}", forced.confident_changes) };
    assert_eq!(change.place, Place { case: "case-0".into(), position: 0 });
    assert_eq!((change.reference, change.port), (TokenId(0), Some(TokenId(1))));
}

#[test]
fn kl_of_three_positions() {
    let (reference, mut port) = (reference(), Fake::new("port", &[3]));
    // two logits exchanged: KL = (p0 - p1) times their difference, p = softmax(a, 0, 0)
    port.rows.insert(LOGITS, array![[0.0, 5.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]);
    let forced = compare(&reference, &port, &cases(&[3])).unwrap().forced.unwrap();
    let exchanged = |a: f64| a * (a.exp() - 1.0) / (a.exp() + 2.0);
    assert!(close(forced.kl_nats.max, exchanged(5.0)));
    assert!(close(forced.kl_nats.p50, exchanged(1.0)));
    assert!(close(forced.kl_nats.mean, (exchanged(5.0) + exchanged(1.0)) / 3.0));
    assert_eq!(forced.kl_nats.count, 3);
    assert_eq!(forced.kl_worst.position, 0);
}

#[test]
fn the_free_run_is_compared_with_the_same_reference() {
    let (reference, mut port) = (reference(), Fake::new("port", &[3]));
    port.rows.insert(LOGITS, reference.rows[&LOGITS].clone());
    port.free_logits.insert(0, array![[5.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]);
    // in one of six (token, layer) rows another set, in one another order
    port.set(1, Site::ShadowChoice, array![[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]);
    let found = compare(&reference, &port, &cases(&[3])).unwrap();
    let (forced, free) = (found.forced.unwrap(), found.free.unwrap());
    assert_eq!((forced.kl_nats.max, forced.top1.count), (0.0, 3));
    assert_eq!((forced.routing.rows, forced.routing.forced_rows, forced.routing.differing), (6, 6, 0));
    assert_eq!((free.top1.count, free.kl_worst.position), (2, 1));
    assert!(close(free.kl_nats.max, (1_f64.exp() - 1.0) / (1_f64.exp() + 2.0)));
    assert_eq!((free.routing.rows, free.routing.forced_rows, free.routing.differing), (6, 0, 1));
    assert!(close(free.routing.share, 1.0 / 6.0));
}

#[test]
fn a_nan_logit_is_the_worst_position_and_agrees_with_nothing() {
    let (reference, mut port) = (reference(), Fake::new("port", &[3]));
    port.rows.insert(LOGITS, array![[0.0, 5.0, 0.0], [1.0, 0.0, 0.0], [0.0, f32::NAN, 2.0]]);
    let forced = compare(&reference, &port, &cases(&[3])).unwrap().forced.unwrap();
    assert!(forced.kl_nats.max.is_nan() && forced.kl_nats.mean.is_nan());
    assert_eq!((forced.kl_worst.position, forced.nan_positions), (2, 1));
    assert_eq!((forced.top1.count, forced.confident_top1.count), (1, 0));
    assert_eq!((forced.confident_changes[1].reference, forced.confident_changes[1].port), (TokenId(2), None));
}

#[test]
fn a_nan_in_the_reference_agrees_with_nothing_either() {
    let (mut reference, port) = (reference(), Fake::new("port", &[3]));
    reference.rows.get_mut(&LOGITS).unwrap()[[0, 0]] = f32::NAN;
    let found = compare(&reference, &port, &cases(&[3])).unwrap();
    let forced = found.forced.unwrap();
    assert!(forced.kl_nats.max.is_nan() && found.reference_nll.nats_per_token.is_nan());
    assert_eq!((forced.nan_positions, forced.top1.count, forced.top1.of), (1, 1, 3));
    assert_eq!(forced.confident_top1.of, 1);
}

#[test]
fn the_list_of_changes_ends_but_their_count_does_not() {
    let tokens = CHANGES_LISTED + 1;
    let (reference, mut port) = (Fake::new("reference", &[tokens]), Fake::new("port", &[tokens]));
    let last_is_top = |(_, column)| if column == 2 { 5.0 } else { 0.0 };
    port.rows.insert(LOGITS, Array2::from_shape_fn((tokens, 3), last_is_top));
    let forced = compare(&reference, &port, &cases(&[tokens])).unwrap().forced.unwrap();
    assert_eq!(forced.confident_changes.len(), CHANGES_LISTED);
    assert_eq!((forced.confident_top1.count, forced.confident_top1.of), (0, tokens));
}

#[test]
fn the_references_likelihood_is_of_the_next_tokens() {
    let (reference, port) = (reference(), Fake::new("port", &[3]));
    let case = Case::new("case-0", [0, 2, 0].map(TokenId).to_vec()).unwrap();
    let nll = compare(&reference, &port, &[case]).unwrap().reference_nll;
    // position 0 says token 2 at logits (5, 0, 0), position 1 says token 0 at (1, 0, 0), position 2 is the
    // last
    let nats = ((5_f64.exp() + 2.0).ln() + (1_f64.exp() + 2.0).ln() - 1.0) / 2.0;
    assert_eq!(nll.tokens, 2);
    assert!(close(nll.nats_per_token, nats) && close(nll.bits_per_token, nats / 2_f64.ln()), "{nll:?}");
}

#[test]
fn one_token_has_no_next_and_no_likelihood() {
    let (mut reference, port) = (Fake::new("reference", &[1]), Fake::new("port", &[1]));
    reference.rows.insert(LOGITS, uniform());
    let found = compare(&reference, &port, &cases(&[1])).unwrap();
    assert_eq!(found.reference_nll.tokens, 0);
    assert!(found.reference_nll.nats_per_token.is_nan());
    let confident = found.forced.unwrap().confident_top1;
    assert_eq!((confident.of, confident.low, confident.high), (0, 0.0, 1.0));
}

#[rstest]
#[case::both(PortRuns::ForcedAndFree, true, true)]
#[case::forced(PortRuns::Forced, true, false)]
#[case::free(PortRuns::Free, false, true)]
fn only_the_runs_asked_for_are_made(#[case] routing: PortRuns, #[case] forced: bool, #[case] free: bool) {
    let (reference, port) = (reference(), Fake::new("port", &[3]));
    let options = Options { routing, ..options() };
    let found = sides(&reference, &port, &cases(&[3]), &options, &mut ()).unwrap();
    assert_eq!((found.forced.is_some(), found.free.is_some()), (forced, free));
    assert_eq!(found.layers.len(), 2, "the table is made in any case");
}

#[derive(Default)]
struct Heard(Vec<(&'static str, usize, usize)>);

impl Progress for Heard {
    fn phase(&mut self, name: &'static str, total: usize) {
        self.0.push((name, total, 0));
    }

    fn step(&mut self, steps: usize) {
        self.0.last_mut().expect("a phase has begun").2 += steps;
    }
}

#[test]
fn every_phase_is_stepped_to_its_end() {
    let (reference, port) = (Fake::new("reference", &[3, 2]), Fake::new("port", &[3, 2]));
    let mut heard = Heard::default();
    sides(&reference, &port, &cases(&[3, 2]), &options(), &mut heard).unwrap();
    let expect = [
        ("reference and port, layer by layer", 2, 2),
        ("reference's logits", 5, 5),
        ("port, forced", 5, 5),
        ("port, free", 5, 5),
    ];
    assert_eq!(heard.0, expect);
}
