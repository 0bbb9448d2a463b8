//! Rows that are missing, doubled, left over or misplaced stop a comparison; so does nothing to compare.

use crate::fake::{Fake, Fault, cases};
use crate::{compare, options};
use diff::compare::{Options, sides};
use ndarray::{Array2, array, concatenate, s};
use rstest::rstest;
use spec::{At, Error, LayerId, ModelConfig, Site};

/// How rows of one site go wrong.
#[derive(Debug, Clone, Copy)]
enum Wrong {
    Missing,
    LastMissing,
    FirstMissing,
    Doubled,
    Extra,
    Empty,
    Narrow,
    OtherLayer,
    OtherRun,
    Unasked,
}

impl Wrong {
    fn apply(self, at: &At, rows: &Array2<f32>) -> Vec<(At, Array2<f32>)> {
        let (good, len) = (at.clone(), rows.nrows());
        let moved = |change: &dyn Fn(&mut At)| {
            let mut at = at.clone();
            change(&mut at);
            at
        };
        match self {
            Wrong::Missing => vec![],
            Wrong::LastMissing => {
                vec![(moved(&|at| at.rows.end -= 1), rows.slice(s![..len - 1, ..]).to_owned())]
            }
            Wrong::FirstMissing => {
                vec![(moved(&|at| at.rows.start += 1), rows.slice(s![1.., ..]).to_owned())]
            }
            Wrong::Doubled => vec![(good.clone(), rows.clone()), (good, rows.clone())],
            Wrong::Extra => {
                let longer = concatenate![ndarray::Axis(0), *rows, rows.slice(s![..1, ..])];
                vec![(moved(&|at| at.rows.end += 1), longer)]
            }
            Wrong::Empty => {
                vec![(moved(&|at| at.rows.end = at.rows.start), rows.slice(s![..0, ..]).to_owned())]
            }
            Wrong::Narrow => vec![(good, rows.slice(s![.., 1..]).to_owned())],
            Wrong::OtherLayer => vec![(moved(&|at| at.layer = Some(LayerId(7))), rows.clone())],
            Wrong::OtherRun => vec![(moved(&|at| at.run = 5), rows.clone())],
            Wrong::Unasked => {
                vec![(good, rows.clone()), (moved(&|at| at.site = Site::TopkWeights), rows.clone())]
            }
        }
    }

    fn fault(self, site: Site) -> Fault {
        let good = |at: &At, rows: &Array2<f32>| vec![(at.clone(), rows.clone())];
        Box::new(move |at, rows| if at.site == site { self.apply(at, rows) } else { good(at, rows) })
    }
}

#[rstest]
fn rows_of_the_reference_must_pair(
    #[values(
        Wrong::Missing,
        Wrong::LastMissing,
        Wrong::FirstMissing,
        Wrong::Doubled,
        Wrong::Extra,
        Wrong::Empty,
        Wrong::Narrow,
        Wrong::OtherLayer,
        Wrong::OtherRun,
        Wrong::Unasked
    )]
    wrong: Wrong,
    #[values(
        Site::Embedding,
        Site::LayerOut,
        Site::AttnBranch,
        Site::MoeBranch,
        Site::RouterLogits,
        Site::SelectionScores,
        Site::Choice,
        Site::Logits
    )]
    site: Site,
) {
    let (mut reference, port) = (Fake::new("reference", &[3, 2]), Fake::new("port", &[3, 2]));
    reference.fault = wrong.fault(site);
    let error = compare(&reference, &port, &cases(&[3, 2])).unwrap_err();
    assert!(matches!(error, Error::Unpaired { .. }), "{error}");
    assert!(error.to_string().contains("from the reference, "), "{error}");
}

#[rstest]
fn rows_of_the_port_must_pair(
    #[values(
        Wrong::Missing,
        Wrong::LastMissing,
        Wrong::FirstMissing,
        Wrong::Doubled,
        Wrong::Extra,
        Wrong::Empty,
        Wrong::Narrow,
        Wrong::OtherLayer,
        Wrong::OtherRun,
        Wrong::Unasked
    )]
    wrong: Wrong,
    #[values(
        Site::AttnBranch,
        Site::MoeBranch,
        Site::RouterLogits,
        Site::Choice,
        Site::ShadowChoice,
        Site::Logits
    )]
    site: Site,
) {
    let (reference, mut port) = (Fake::new("reference", &[3, 2]), Fake::new("port", &[3, 2]));
    port.fault = wrong.fault(site);
    let error = compare(&reference, &port, &cases(&[3, 2])).unwrap_err();
    assert!(matches!(error, Error::Unpaired { .. }), "{error}");
    assert!(error.to_string().contains("from the port, "), "{error}");
}

#[test]
fn a_missing_row_is_named() {
    let (reference, mut port) = (Fake::new("reference", &[3, 2]), Fake::new("port", &[3, 2]));
    port.fault = Wrong::LastMissing.fault(Site::MoeBranch);
    let message = compare(&reference, &port, &cases(&[3, 2])).unwrap_err().to_string();
    let expect = "expected from the port, 3 rows of `moe_branch` in layer 0 of case `case-0`, found 2";
    assert!(message.contains(expect), "{message}");
}

#[rstest]
#[case::never(|_| vec![])]
#[case::twice(|layer: LayerId| vec![layer, layer])]
#[case::the_next_one(|layer: LayerId| vec![LayerId(layer.0 + 1)])]
fn the_reference_must_say_once_that_each_layer_is_done(#[case] says_done: fn(LayerId) -> Vec<LayerId>) {
    let (mut reference, port) = (Fake::new("reference", &[3]), Fake::new("port", &[3]));
    reference.says_done = says_done;
    let error = compare(&reference, &port, &cases(&[3])).unwrap_err();
    assert!(matches!(error, Error::Unpaired { .. }), "{error}");
    assert!(error.to_string().contains("layer-major"), "{error}");
}

#[test]
fn no_cases_are_an_error() {
    let error = compare(&Fake::new("reference", &[]), &Fake::new("port", &[]), &[]).unwrap_err();
    assert!(matches!(error, Error::Unpaired { .. }), "{error}");
}

#[test]
fn two_cases_of_one_name_are_an_error() {
    let mut cases = cases(&[2, 2]);
    cases[1].name = cases[0].name.clone();
    let error = compare(&Fake::new("reference", &[2, 2]), &Fake::new("port", &[2, 2]), &cases).unwrap_err();
    assert!(matches!(error, Error::Case { .. }), "{error}");
}

#[test]
#[expect(clippy::reversed_empty_ranges, reason = "a person may type it")]
fn layers_the_model_does_not_have_are_an_error() {
    let (reference, port) = (Fake::new("reference", &[2]), Fake::new("port", &[2]));
    for layers in [0..3, 2..2, 1..0, 2..3] {
        let options = Options { layers: Some(layers), ..options() };
        let error = sides(&reference, &port, &cases(&[2]), &options, &mut ()).unwrap_err();
        assert!(matches!(error, Error::Argument { .. }), "{error}");
    }
}

#[rstest]
#[case::layers(|config: &mut ModelConfig| config.layers.push(spec::LayerKind::Full))]
#[case::hidden_size(|config: &mut ModelConfig| config.hidden_size = 3)]
#[case::experts(|config: &mut ModelConfig| config.num_experts = 5)]
#[case::experts_per_token(|config: &mut ModelConfig| config.experts_per_token = 1)]
#[case::vocabulary(|config: &mut ModelConfig| config.vocab_size = 4)]
fn sides_of_different_shapes_are_an_error(#[case] change: fn(&mut ModelConfig)) {
    let (reference, mut port) = (Fake::new("reference", &[2]), Fake::new("port", &[2]));
    change(&mut port.config);
    let error = compare(&reference, &port, &cases(&[2])).unwrap_err();
    assert!(matches!(error, Error::Unpaired { .. }), "{error}");
}

#[test]
fn a_port_with_another_epsilon_is_compared() {
    let (reference, mut port) = (Fake::new("reference", &[2]), Fake::new("port", &[2]));
    port.config.rms_norm_eps = 1e-5;
    compare(&reference, &port, &cases(&[2])).unwrap();
}

#[rstest]
#[case::too_large(4.0)]
#[case::negative(-1.0)]
#[case::fraction(0.5)]
#[case::nan(f32::NAN)]
fn a_choice_that_is_no_expert_is_not_forced(#[case] id: f32) {
    let (mut reference, port) = (Fake::new("reference", &[2]), Fake::new("port", &[2]));
    let choice = array![[0.0, 1.0], [id, 1.0]];
    reference.set(1, Site::ShadowChoice, choice);
    let error = compare(&reference, &port, &cases(&[2])).unwrap_err();
    assert!(matches!(error, Error::Routing { .. }), "{error}");
    assert!(error.to_string().contains("at token 1, layer 1"), "{error}");
}
