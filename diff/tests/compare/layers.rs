//! The per-layer table: what each number is, and what the port's layer is given.

use crate::fake::{Fake, cases, input};
use crate::{close, compare, options};
use diff::compare::{Disagreement, Place, sides};
use diff::stats::Spread;
use ndarray::{Array2, array};
use rstest::rstest;
use spec::{ExpertId, LayerId, LayerKind, Site};

fn at(position: usize) -> Place {
    Place { case: "case-0".into(), position }
}

#[test]
fn branch_errors_of_three_tokens() {
    let (reference, mut port) = (Fake::new("reference", &[3]), Fake::new("port", &[3]));
    // the reference's rows are (3, 4), of norm 5, and (1, 0)
    port.set(0, Site::AttnBranch, array![[3.0, 4.0], [3.0, 4.5], [3.0, 5.0]]);
    port.set(0, Site::MoeBranch, array![[1.0, 0.0], [1.0, 0.25], [1.0, 0.0]]);
    let table = compare(&reference, &port, &cases(&[3])).unwrap().layers;
    let row = &table[0];
    assert_eq!((row.layer, row.kind, row.rows), (LayerId(0), LayerKind::Sliding, 3));
    let Spread { count, mean, p50, p99, max } = row.attn_branch;
    assert_eq!(count, 3);
    assert!(
        close(mean, 0.1) && close(p50, 0.1) && close(p99, 0.2) && close(max, 0.2),
        "{:?}",
        row.attn_branch
    );
    assert_eq!((row.moe_branch.p50, row.moe_branch.max), (0.0, 0.25));
    assert_eq!((row.worst.branch, row.worst.error, &row.worst.place), (Site::MoeBranch, 0.25, &at(1)));
    assert_eq!(table[1].kind, LayerKind::Full);
    assert_eq!((table[1].attn_branch.max, table[1].moe_branch.max), (0.0, 0.0));
}

#[test]
fn sigma_gap_and_z_of_three_tokens_and_four_experts() {
    let (mut reference, mut port) = (Fake::new("reference", &[3]), Fake::new("port", &[3]));
    // gaps 2, 1/4 and 5e-5
    let scores = array![[4.0, 3.0, 1.0, 0.0], [1.0, 1.5, 1.25, 5.0], [2.00005, 3.0, 2.0, 0.0]];
    reference.set(0, Site::SelectionScores, scores);
    let choice = array![[0.0, 1.0], [3.0, 1.0], [1.0, 0.0]];
    reference.set(0, Site::Choice, choice.clone());
    reference.set(0, Site::ShadowChoice, choice);
    // the same set in another order, then two other sets
    port.set(0, Site::ShadowChoice, array![[1.0, 0.0], [3.0, 2.0], [1.0, 2.0]]);
    // one of twelve logits is off by 1/2
    let mut logits = reference.rows[&(0, Some(LayerId(0)), Site::RouterLogits)].clone();
    logits[[2, 1]] += 0.5;
    port.set(0, Site::RouterLogits, logits);

    let table = compare(&reference, &port, &cases(&[3])).unwrap().layers;
    let row = &table[0];
    assert_eq!(row.router_logits_rms, 3.0);
    assert!(close(row.router_sigma, (0.25_f64 / 12.0).sqrt()));
    assert_eq!((row.disagreements.count, row.disagreements.beyond_tie), (2, 1));
    let Disagreement { gap, z, place } = row.disagreements.largest.clone().unwrap();
    assert_eq!((gap, place), (0.25, at(1)));
    assert!(close(z, 3.0_f64.sqrt()), "1/4 over sqrt(1/48): {z}");
    assert_eq!(row.unforced_rows, 0);
    assert_eq!((table[1].router_sigma, table[1].disagreements.count), (0.0, 0));
    assert!(table[1].disagreements.largest.is_none());
}

#[test]
fn the_worst_row_of_several_cases_is_found_by_case_and_position() {
    let (reference, mut port) = (Fake::new("reference", &[1, 3, 2]), Fake::new("port", &[1, 3, 2]));
    let key = (1, Some(LayerId(1)), Site::AttnBranch);
    port.rows.insert(key, array![[3.0, 4.0], [3.0, 4.0], [3.0, 9.0]]);
    let table = compare(&reference, &port, &cases(&[1, 3, 2])).unwrap().layers;
    assert_eq!(table[1].worst.place, Place { case: "case-1".into(), position: 2 });
    assert_eq!((table[1].rows, table[1].attn_branch.count), (6, 6));
}

#[rstest]
#[case::attention(Site::AttnBranch)]
#[case::moe(Site::MoeBranch)]
fn a_nan_row_is_the_worst_row(#[case] site: Site) {
    let (reference, mut port) = (Fake::new("reference", &[3]), Fake::new("port", &[3]));
    port.set(1, site, array![[9.0, 9.0], [f32::NAN, 0.0], [9.0, 9.0]]);
    let row = compare(&reference, &port, &cases(&[3])).unwrap().layers.remove(1);
    let spread = if site == Site::AttnBranch { &row.attn_branch } else { &row.moe_branch };
    assert!(spread.max.is_nan() && spread.mean.is_nan());
    assert!(row.worst.error.is_nan());
    assert_eq!((row.worst.branch, row.worst.place), (site, at(1)));
}

#[test]
fn a_nan_router_logit_makes_sigma_and_z_nan() {
    let (reference, mut port) = (Fake::new("reference", &[1]), Fake::new("port", &[1]));
    port.set(0, Site::RouterLogits, array![[3.0, f32::NAN, 3.0, -3.0]]);
    port.set(0, Site::ShadowChoice, array![[0.0, f32::NAN]]);
    let row = compare(&reference, &port, &cases(&[1])).unwrap().layers.remove(0);
    assert!(row.router_sigma.is_nan());
    assert_eq!((row.disagreements.count, row.disagreements.beyond_tie), (1, 1));
    assert!(row.disagreements.largest.unwrap().z.is_nan());
}

#[test]
fn each_layer_is_fed_the_references_own_input_and_choices() {
    let (mut reference, mut port) = (Fake::new("reference", &[2, 1]), Fake::new("port", &[2, 1]));
    for site in [Site::Choice, Site::ShadowChoice] {
        reference.set(1, site, array![[3.0, 2.0], [1.0, 3.0]]);
    }
    // what the port makes of a layer never reaches its next one
    port.set(0, Site::LayerOut, array![[99.0, 99.0], [99.0, 99.0]]);
    compare(&reference, &port, &cases(&[2, 1])).unwrap();
    let calls = port.layer_calls.into_inner();
    assert_eq!(calls.iter().map(|call| call.layer).collect::<Vec<_>>(), [LayerId(0), LayerId(1)]);
    for (layer, call) in calls.iter().enumerate() {
        assert_eq!(call.h_in, [input(0, layer, 2), input(1, layer, 1)]);
        for (case, forced) in cases(&[2, 1]).iter().zip(&call.forced) {
            forced.check(&case.name, case.len(), &port.config).unwrap();
        }
    }
    assert_eq!(calls[1].forced[0].at(0, LayerId(1)), [ExpertId(3), ExpertId(2)]);
    assert_eq!(calls[1].forced[0].at(1, LayerId(1)), [ExpertId(1), ExpertId(3)]);
    assert_eq!(calls[1].forced[1].at(0, LayerId(1)), [ExpertId(0), ExpertId(1)]);
}

#[test]
fn a_port_that_ignores_forcing_is_counted() {
    let (reference, mut port) = (Fake::new("reference", &[2]), Fake::new("port", &[2]));
    port.set(0, Site::ShadowChoice, array![[0.0, 1.0], [0.0, 2.0]]);
    port.obeys_forcing = false;
    let found = compare(&reference, &port, &cases(&[2])).unwrap();
    assert_eq!((found.layers[0].unforced_rows, found.layers[1].unforced_rows), (1, 0));
    assert_eq!(found.forced.unwrap().routing.differing, 1);
}

#[test]
fn only_the_layers_asked_for_are_in_the_table() {
    let (reference, port) = (Fake::new("reference", &[2]), Fake::new("port", &[2]));
    let only = diff::compare::Options { layers: Some(1..2), ..options() };
    let found = sides(&reference, &port, &cases(&[2]), &only, &mut ()).unwrap();
    assert_eq!(found.layers.iter().map(|row| row.layer).collect::<Vec<_>>(), [LayerId(1)]);
    let calls = port.layer_calls.into_inner();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].h_in, [input(0, 1, 2)]);
}

#[rstest]
#[case::port_in_chunks(usize::MAX, 2)]
#[case::reference_in_chunks(2, usize::MAX)]
#[case::both_in_chunks_that_do_not_line_up(3, 2)]
fn chunks_do_not_change_what_is_found(#[case] reference_chunk: usize, #[case] port_chunk: usize) {
    let build = |reference_chunk, port_chunk| {
        let (mut reference, mut port) = (Fake::new("reference", &[5, 4]), Fake::new("port", &[5, 4]));
        (reference.chunk, port.chunk) = (reference_chunk, port_chunk);
        let ramp = |(token, column): (usize, usize)| (token * token + column) as f32;
        port.set(0, Site::AttnBranch, Array2::from_shape_fn((5, 2), ramp));
        port.set(1, Site::RouterLogits, Array2::from_shape_fn((5, 4), ramp));
        port.rows.insert((1, None, Site::Logits), Array2::from_shape_fn((4, 3), ramp));
        compare(&reference, &port, &cases(&[5, 4])).unwrap()
    };
    assert_eq!(build(reference_chunk, port_chunk), build(usize::MAX, usize::MAX));
}
