//! Where each bug of a step of the reference is, and that the port with the same bug computes the same.
mod support;

use mutants::edit::apply;
use mutants::{Facts, PortPlant, catalogue, find};
use port::Port;
use rstest::rstest;
use spec::{LayerId, Precision, Site};
use std::collections::BTreeSet;
use support::Layers::{Every, Full, Sliding};
use support::{Feed, Place, checkpoint, config, place, port, reference, relative_l2};

/// Honest sides differ by less, layer by layer, and these bugs by more.
const SAME_MAX: f64 = 1e-4;

const PLACES: [Place; 8] = [
    place("one_plus_w_norm", Every, &[Site::AttnNorm, Site::FinalNorm], 0),
    // the norm before the MoE moves too, but so does what it takes
    place("swap_sandwich_norms", Every, &[Site::AttnBranch], 0),
    // what the site shows is the projection, not normed yet
    place("qknorm_after_rope", Sliding, &[Site::QNorm, Site::KNorm], 0),
    place("rope_on_full", Full, &[Site::QRope, Site::KRope], 1),
    place("rope_traditional", Sliding, &[Site::QRope, Site::KRope], 1),
    place("sigmoid_bias_select", Every, &[Site::SelectionScores], 0),
    place("renorm_topk", Every, &[Site::TopkWeights], 0),
    place("reference_tf32", Every, &[Site::Q, Site::K, Site::V, Site::Logits], 0),
];

#[test]
fn each_bug_is_where_it_says() {
    let right = reference();
    let feed = Feed::of(&right, Precision::F32, &[0, 3, 4, 9]);
    let rows = feed.rows(&right);
    for place in PLACES {
        let steps = find(place.id).unwrap().reference().unwrap().make;
        place.check(&rows, &feed.rows(&reference().with_steps(steps())));
    }
}

#[test]
fn a_product_of_tf32_is_off_by_about_the_rounding_of_its_operands() {
    let right = reference();
    let feed = Feed::of(&right, Precision::F32, &[3]);
    let steps = find("reference_tf32").unwrap().reference().unwrap().make;
    let wrong = feed.rows(&reference().with_steps(steps()));
    let right = feed.rows(&right);
    for key in [(Some(LayerId(3)), Site::Q), (None, Site::Logits)] {
        let distance = relative_l2(&wrong[&key], &right[&key]);
        // BF16 weights are TF32 already; the other operand is off by 2^-11 at most
        assert!((1e-5..2_f64.powi(-11)).contains(&distance), "{key:?}: {distance:e}");
    }
}

#[test]
fn every_bug_of_the_reference_has_its_place() {
    let planted = catalogue().filter(|mutant| mutant.reference().is_some());
    let planted: BTreeSet<_> = planted.map(|mutant| mutant.id).collect();
    assert_eq!(planted, PLACES.iter().map(|place| place.id).collect());
}

#[rstest]
#[case::one_plus_w("one_plus_w_norm", Site::AttnBranch)]
#[case::swapped_norms("swap_sandwich_norms", Site::MoeNorm)]
#[case::qknorm_after_rope("qknorm_after_rope", Site::AttnOut)]
#[case::rope_on_full("rope_on_full", Site::AttnOut)]
#[case::rope_traditional("rope_traditional", Site::AttnOut)]
#[case::sigmoid_bias("sigmoid_bias_select", Site::ShadowChoice)]
#[case::renormalised("renorm_topk", Site::Routed)]
fn the_same_bug_in_both_sides_computes_the_same(#[case] id: &str, #[case] site: Site) {
    let mutant = find(id).unwrap();
    let right = reference();
    let feed = Feed::of(&right, Precision::F32, &[3, 4]);
    let wrong = feed.rows(&reference().with_steps((mutant.reference().unwrap().make)()));
    let planted = match mutant.port.unwrap() {
        PortPlant::Steps { make, .. } => feed.rows(&port(Precision::F32).with_steps(make())),
        PortPlant::Checkpoint(edits) => {
            let (target, config) = (tempfile::tempdir().unwrap(), config());
            let facts = Facts { config: &config, idle: feed.idle() };
            apply(&checkpoint(), &edits(&facts), target.path()).unwrap();
            feed.rows(&Port::load(target.path(), Precision::F32).unwrap())
        }
    };
    let right = feed.rows(&right);
    let mut seen = 0;
    for ((layer, at), wrong) in wrong.iter().filter(|((_, at), _)| *at == site) {
        let distance = relative_l2(&planted[&(*layer, *at)], wrong);
        assert!(distance <= SAME_MAX, "{site} of layer {layer:?}: {distance:e}");
        seen += usize::from(relative_l2(&right[&(*layer, *at)], wrong) > 10.0 * SAME_MAX);
    }
    assert!(seen > 0, "{id} is seen in no layer's {site}");
}
