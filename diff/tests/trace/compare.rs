//! The numbers of a comparison, worked by hand from the tables of the fake sides.

use super::fake::{Fake, cases};
use diff::compare::Place;
use diff::trace::{TraceComparison, compare};
use ndarray::array;
use rstest::rstest;
use spec::{LayerId, LayerKind, Routing, Site};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-7 * b.abs()
}

fn at(case: &str, position: usize) -> Place {
    Place { case: case.into(), position }
}

/// Records both sides on `names` and compares them; the port forced onto the reference's choices if asked.
fn compared(reference: &Fake, port: &Fake, names: &[&str], forced: bool, sites: &[Site]) -> TraceComparison {
    let folder = tempfile::tempdir().unwrap();
    let (left, right) = (folder.path().join("reference"), folder.path().join("port"));
    let choices = reference.choices();
    let routing = if forced { Routing::Forced(&choices) } else { Routing::Free };
    reference.record_sites(&cases(names), Routing::Free, sites, &left).unwrap();
    port.record_sites(&cases(names), routing, sites, &right).unwrap();
    compare(&left, &right, None, &mut ()).unwrap()
}

const SITES: [Site; 5] = diff::trace::DEFAULT_SITES;

#[rstest]
#[case::both_free(false)]
#[case::the_port_forced(true)]
fn a_layer_of_three_tokens(#[case] forced: bool) {
    let found = compared(&Fake::reference(), &Fake::port(), &["a"], forced, &SITES);
    let layer = &found.layers[0];
    assert_eq!((layer.layer, layer.kind, layer.rows), (LayerId(0), Some(LayerKind::Sliding), 3));
    let attn = layer.attn_branch.as_ref().unwrap();
    assert_eq!((attn.count, attn.p50), (3, 0.0));
    assert!(close(attn.max, 0.1) && close(attn.p99, 0.1) && close(attn.mean, 0.1 / 3.0), "{attn:?}");
    assert!(close(layer.moe_branch.as_ref().unwrap().max, 0.5));
    let worst = layer.worst.as_ref().unwrap();
    assert_eq!((worst.branch, &worst.place), (Site::MoeBranch, &at("a", 2)));
    assert!(close(layer.router_sigma.unwrap(), 0.25), "every logit is off by 0.25");
    // logits 4 3 2 1 0, 4 3 3 1 0, 4 2.5 2 1 0: squares 30, 35, 27.25
    assert!(close(layer.router_logits_rms.unwrap(), (92.25_f64 / 15.0).sqrt()));
    assert_eq!((layer.disagreements, layer.ties, layer.flips), (2, 1, 1), "token 1 ties, token 2 flips");
    assert_eq!((layer.beyond_tie, layer.unjudged, layer.missing), (1, 0, 0));
    let largest = layer.largest.as_ref().unwrap();
    assert_eq!((largest.gap, largest.z, &largest.place), (0.5, Some(2.0), &at("a", 2)));
    assert_eq!(layer.unforced_rows, 0);
    assert_eq!(layer.executed_differing, if forced { 0 } else { 2 });
    assert_eq!(found.routing.rows, 6);
    assert_eq!(found.routing.differing, if forced { 0 } else { 2 });
    assert_eq!(found.routing.forced_rows, if forced { 6 } else { 0 });
    assert!(close(found.routing.share, if forced { 0.0 } else { 1.0 / 3.0 }));
}

#[test]
fn slots_in_another_order_are_the_same_set() {
    let found = compared(&Fake::reference(), &Fake::port(), &["a"], false, &SITES);
    let layer = &found.layers[1];
    assert_eq!((layer.disagreements, layer.executed_differing, layer.largest.is_none()), (0, 0, true));
    assert_eq!((layer.router_sigma, layer.attn_branch.as_ref().unwrap().max), (Some(0.0), 0.0));
}

/// The reference's p = (1/2, 1/4, 1/4), the port's at position 1 uniform. Tokens 2, 0, 1: the next tokens are
/// 0 and 1, of probability 1/2 and 1/4.
#[test]
fn logits_end_to_end() {
    let found = compared(&Fake::reference(), &Fake::port(), &["a"], false, &SITES);
    let end = found.end_to_end.as_ref().unwrap();
    let kl = 0.5 * 1.5_f64.ln() + 0.5 * 0.75_f64.ln();
    assert!(close(end.kl_nats.max, kl) && close(end.kl_nats.mean, kl / 3.0), "{:?}", end.kl_nats);
    assert_eq!((&end.kl_worst, end.kl_nats.count), (&at("a", 1), 3));
    assert_eq!((end.top1.count, end.top1.of, end.confident_top1.of), (3, 3, 0));
    assert_eq!(end.routing, found.routing);
    let nll = found.reference_nll.as_ref().unwrap();
    assert_eq!(nll.tokens, 2);
    assert!(close(nll.bits_per_token, 1.5), "one bit and two bits: {nll:?}");
}

#[test]
fn several_cases_are_counted_together() {
    let found = compared(&Fake::reference(), &Fake::port(), &["b", "a"], false, &SITES);
    assert_eq!(found.cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let layer = &found.layers[0];
    assert_eq!((layer.rows, layer.ties, layer.flips), (6, 2, 2));
    assert_eq!(layer.attn_branch.as_ref().unwrap().count, 6);
    assert_eq!(layer.worst.as_ref().unwrap().place, at("a", 2), "the first of equal ones");
    assert_eq!(found.end_to_end.unwrap().kl_nats.count, 6);
}

#[test]
fn a_recording_agrees_with_itself() {
    let found = compared(&Fake::port(), &Fake::port(), &["a"], false, &SITES);
    for layer in &found.layers {
        assert_eq!((layer.disagreements, layer.router_sigma), (0, Some(0.0)));
        assert_eq!(layer.worst.as_ref().unwrap().error, 0.0);
    }
    assert_eq!(found.end_to_end.unwrap().kl_nats.max, 0.0);
}

#[rstest]
#[case::a_branch(Site::AttnBranch)]
#[case::router_logits(Site::RouterLogits)]
fn a_nan_is_never_a_small_number(#[case] site: Site) {
    let mut port = Fake::port();
    port.at(1, site)[[0, 0]] = f32::NAN;
    let found = compared(&Fake::reference(), &port, &["a"], false, &SITES);
    let layer = &found.layers[1];
    match site {
        Site::AttnBranch => {
            assert!(layer.attn_branch.as_ref().unwrap().max.is_nan());
            assert_eq!(layer.worst.as_ref().unwrap().place, at("a", 0));
        }
        _ => assert!(layer.router_sigma.unwrap().is_nan()),
    }
}

#[test]
fn a_nan_gap_is_a_flip_and_the_largest() {
    let mut reference = Fake::reference();
    reference.at(0, Site::SelectionScores)[[1, 0]] = f32::NAN;
    let found = compared(&reference, &Fake::port(), &["a"], false, &SITES);
    let layer = &found.layers[0];
    assert_eq!((layer.ties, layer.flips, layer.beyond_tie), (0, 2, 2));
    let largest = layer.largest.as_ref().unwrap();
    assert!(largest.gap.is_nan() && largest.z.unwrap().is_nan());
    assert_eq!(largest.place, at("a", 1));
    assert!(serde_json::to_string(&found).unwrap().contains(r#""gap":"NaN""#));
}

#[test]
fn what_was_not_kept_is_null_and_the_rest_is_compared() {
    let found = compared(&Fake::reference(), &Fake::port(), &["a"], false, &[Site::AttnBranch]);
    let layer = &found.layers[0];
    assert!(layer.attn_branch.is_some() && layer.moe_branch.is_none());
    assert_eq!((layer.router_sigma, layer.flips), (None, 1));
    let largest = layer.largest.as_ref().unwrap();
    assert_eq!((largest.gap, largest.z), (0.5, None));
    assert!(found.end_to_end.is_none() && found.reference_nll.is_none());
    let json = serde_json::to_value(&found).unwrap();
    assert!(json["layers"][0]["router_sigma"].is_null() && json["end_to_end"].is_null());
}

#[test]
fn weights_of_equal_sets_are_compared_by_expert() {
    let mut port = Fake::port();
    // token 0: (1/2, 1/4) against (1/2, 1/2): 1/4 over sqrt(5)/4; tokens 1 and 2 run other sets
    port.at(0, Site::TopkWeights).assign(&array![[0.5, 0.5], [9.0, 9.0], [9.0, 9.0]]);
    // the port's slots are the other way round: equal weights, expert by expert
    port.at(1, Site::TopkWeights).assign(&array![[1.25, 1.5], [1.125, 1.75], [1.5, 2.0]]);
    let found = compared(&Fake::reference(), &port, &["a"], false, &SITES);
    let weights = |layer: usize| found.layers[layer].topk_weights.as_ref().unwrap();
    assert_eq!((weights(0).count, weights(1).count, weights(1).max), (1, 3, 0.0));
    assert!(close(weights(0).max, 0.2_f64.sqrt()), "{:?}", weights(0));
}

#[test]
fn a_nan_weight_is_seen_in_the_numbers_and_in_the_json() {
    let mut port = Fake::port();
    port.at(1, Site::TopkWeights)[[2, 0]] = f32::NAN;
    let found = compared(&Fake::reference(), &port, &["a"], false, &SITES);
    assert!(found.layers[1].topk_weights.as_ref().unwrap().max.is_nan());
    let json = serde_json::to_value(&found).unwrap();
    let weights = &json["layers"][1]["topk_weights"];
    assert_eq!((&weights["max"], &weights["mean"]), (&"NaN".into(), &"NaN".into()));
}

#[test]
fn weights_that_one_side_did_not_record_are_null() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let full = Fake::reference().record(&cases(&["a"]), Routing::Free, &out).unwrap().cases.remove(0).trace;
    let mut trace = spec::trace::Trace::read(&full).unwrap();
    trace.weights = None;
    let bare = folder.path().join("bare.trace.safetensors");
    trace.write(&bare).unwrap();
    for (left, right) in [(&full, &bare), (&bare, &full)] {
        let found = compare(left, right, None, &mut ()).unwrap();
        assert_eq!(found.layers[0].topk_weights, None);
    }
}

#[test]
fn a_port_forced_onto_something_else_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (left, right) = (folder.path().join("reference"), folder.path().join("port"));
    let other = Fake::port().choices();
    Fake::reference().record(&cases(&["a"]), Routing::Free, &left).unwrap();
    Fake::reference().record(&cases(&["a"]), Routing::Forced(&other), &right).unwrap();
    let found = compare(&left, &right, None, &mut ()).unwrap();
    let layer = &found.layers[0];
    assert_eq!((layer.unforced_rows, layer.executed_differing, layer.disagreements), (2, 2, 0));
}

#[test]
fn only_the_layers_asked_for_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    Fake::reference().record(&cases(&["a"]), Routing::Free, &out).unwrap();
    let layers = |range| compare(&out, &out, Some(range), &mut ());
    let found = layers(1..2).unwrap();
    assert_eq!(found.layers.iter().map(|layer| layer.layer).collect::<Vec<_>>(), [LayerId(1)]);
    assert_eq!(found.layers[0].kind, Some(LayerKind::Full));
    for range in [0..3, 2..2, 2..3] {
        assert!(layers(range).unwrap_err().to_string().contains("at least one of 0..2"));
    }
}

#[test]
fn a_trace_without_margins_is_compared_but_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let record = |side: Fake, name: &str| {
        let out = folder.path().join(name);
        side.record_sites(&cases(&["a"]), Routing::Free, &[], &out).unwrap().cases.remove(0).trace
    };
    let (left, right) = (record(Fake::reference(), "left"), record(Fake::port(), "right"));
    let mut trace = spec::trace::Trace::read(&left).unwrap();
    trace.candidates = None;
    trace.write(&left).unwrap();
    let layer = &compare(&left, &right, None, &mut ()).unwrap().layers[0];
    assert_eq!((layer.disagreements, layer.unjudged, layer.ties, layer.flips), (2, 2, 0, 0));
    assert!(layer.largest.is_none());
}
