//! The port in f32 against recorded outputs of transformers, a third implementation, end to end and free.
mod support;

use rstest::{fixture, rstest};
use spec::{Precision, Routing, Schedule, Side, Site};
use std::sync::OnceLock;
use support::{Rows, forward, golden, kjv, kjv_text, layers, relative_l2, run};

const TOKENS: usize = 256;
/// Ten layers of f32 products, each summed in another order; a wrong step is off by 1e-3 or more.
const RELATIVE_L2_MAX: f64 = 5e-6;

#[fixture]
fn rows() -> &'static Rows {
    static ROWS: OnceLock<Rows> = OnceLock::new();
    ROWS.get_or_init(|| {
        let text = kjv_text(TOKENS);
        forward(&kjv(Precision::F32), run(&text, Schedule::chunks_of(TOKENS), Routing::Free, Precision::F32))
            .1
    })
}

#[test]
fn golden_outputs_are_of_the_text_that_is_run() {
    let tokens: Vec<f64> = kjv_text(TOKENS).tokens.iter().map(|id| id.0.into()).collect();
    assert_eq!(golden("tokens"), tokens);
}

#[rstest]
fn embedding_rows_are_exact(rows: &Rows) {
    assert_eq!(support::wide(rows.outer(Site::Embedding)), golden("embedding"));
}

#[rstest]
#[case::attention(Site::AttnBranch)]
#[case::moe(Site::MoeBranch)]
#[case::residual(Site::LayerOut)]
#[case::router(Site::RouterLogits)]
fn every_layer_agrees_with_transformers(rows: &Rows, #[case] site: Site) {
    let port = kjv(Precision::F32);
    for layer in layers(port.config()) {
        let error = relative_l2(rows.at(layer, site), &golden(&format!("{site}.{layer}")));
        assert!(error <= RELATIVE_L2_MAX, "{site} of layer {layer}: {error:e}");
    }
}

#[rstest]
fn logits_agree_with_transformers(rows: &Rows) {
    let error = relative_l2(rows.outer(Site::Logits), &golden("logits"));
    assert!(error <= RELATIVE_L2_MAX, "{error:e}");
}

#[rstest]
fn every_expert_set_and_its_weights_are_those_of_transformers(rows: &Rows) {
    let by_id = |ids: &[f64], weights: &[f64]| {
        let mut row: Vec<(u32, f64)> = ids.iter().map(|&id| id as u32).zip(weights.iter().copied()).collect();
        row.sort_by_key(|(id, _)| *id);
        row
    };
    for layer in 0..10 {
        let (ids, weights) = (golden(&format!("choice.{layer}")), golden(&format!("topk_weights.{layer}")));
        let own_ids = support::wide(rows.at(layer, Site::Choice));
        let own_weights = support::wide(rows.at(layer, Site::TopkWeights));
        assert_eq!((ids.len(), own_ids.len()), (TOKENS * 4, TOKENS * 4));
        for (token, start) in (0..ids.len()).step_by(4).enumerate() {
            let row = start..start + 4;
            let theirs = by_id(&ids[row.clone()], &weights[row.clone()]);
            for (own, theirs) in by_id(&own_ids[row.clone()], &own_weights[row]).iter().zip(&theirs) {
                assert_eq!(own.0, theirs.0, "token {token}, layer {layer}");
                // router logits of RMS near 1, off by 1e-6 or so, and a sigmoid of slope 1/4 at most
                assert!((own.1 - theirs.1).abs() <= 1e-5, "token {token}, layer {layer}: {own:?} {theirs:?}");
            }
        }
    }
}
