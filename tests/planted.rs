//! The comparison can fail: bugs planted in the port show where they are, and only there.

use diff::compare::{Comparison, LayerRow, Options, PortRuns};
use mlx_rs::Array;
use mlx_rs::error::Exception;
use port::{Correct, Port, Steps, router};
use reference::Reference;
use spec::{Case, LayerId, LayerKind, ModelConfig, Precision, Schedule, TokenId};

/// Above what an honest f32 port reaches anywhere on this checkpoint, and far below what these bugs do.
const HONEST_ERROR_MAX: f64 = 1e-4;
/// The trained checkpoint's window.
const WINDOW: usize = 33;

/// Compares a port with `steps` on the first `tokens` bytes of the held-out text.
fn compare(steps: impl Steps + 'static, tokens: usize) -> Comparison {
    let dir = fixtures::data("kolibri-tiny-kjv");
    let text = std::fs::read(fixtures::data("texts/kjv-heldout.txt")).unwrap();
    let tokens = text[..tokens].iter().map(|&byte| TokenId(byte.into())).collect();
    let case = Case::new("text", tokens).unwrap();
    let options = Options {
        layers: None,
        schedule: Schedule::chunks_of(50),
        reference_precision: Precision::F32,
        port_precision: Precision::F32,
        routing: PortRuns::ForcedAndFree,
    };
    let reference = Reference::open(&dir, reference::Options::default()).unwrap();
    let port = Port::load(&dir, Precision::F32).unwrap().with_steps(Box::new(steps));
    diff::compare::sides(&reference, &port, &[case], &options, &mut ()).unwrap()
}

/// The layers of which `wrong` says that they must be off are, and no other layer is.
fn check(found: &Comparison, error: impl Fn(&LayerRow) -> f64, wrong: impl Fn(&LayerRow) -> bool) {
    for row in &found.layers {
        let honest = error(row) <= HONEST_ERROR_MAX;
        assert_eq!(honest, !wrong(row), "layer {} ({}): {:e}", row.layer, row.kind, error(row));
    }
}

/// 32 keys where 33 are due.
struct WindowOneShort;

impl Steps for WindowOneShort {
    fn window(&self, config: &ModelConfig, layer: LayerId) -> Option<usize> {
        config.window(layer).map(|window| window - 1)
    }
}

#[test]
fn a_window_one_short_is_seen_from_the_position_at_which_the_window_is_full() {
    let past = compare(WindowOneShort, 120);
    check(&past, |row| row.attn_branch.max, |row| row.kind == LayerKind::Sliding);
    // with one query at a full window, a layer shows it only if that query looks at the key that is lost
    let full = compare(WindowOneShort, WINDOW);
    let off: Vec<_> = full.layers.iter().filter(|row| row.attn_branch.max > HONEST_ERROR_MAX).collect();
    assert!(off.len() >= 4, "{} layers", off.len());
    for row in off {
        assert_eq!(row.kind, LayerKind::Sliding);
        assert_eq!(row.worst.place.position, WINDOW - 1, "layer {}", row.layer);
    }
    let before = compare(WindowOneShort, WINDOW - 1);
    check(&before, |row| row.attn_branch.max, |_| false);
}

/// Routing weights divided by their sum.
struct Renormalised;

impl Steps for Renormalised {
    fn topk_weights(
        &self,
        logits: &Array,
        bias: &Array,
        ids: &Array,
        config: &ModelConfig,
    ) -> Result<Array, Exception> {
        let config = ModelConfig { renormalise_topk: true, ..config.clone() };
        Correct.topk_weights(logits, bias, ids, &config)
    }
}

#[test]
fn renormalised_weights_are_seen_in_every_moe_branch_and_in_no_attention_branch() {
    let found = compare(Renormalised, 120);
    check(&found, |row| row.moe_branch.p50, |_| true);
    check(&found, |row| row.attn_branch.max, |_| false);
    assert!(found.forced.unwrap().kl_nats.mean > 1e-3);
}

/// Experts chosen by the logits alone.
struct IgnoresBias;

impl Steps for IgnoresBias {
    fn select(&self, logits: &Array, _bias: &Array, k: usize) -> Result<Array, Exception> {
        router::top_k(logits, k)
    }
}

#[test]
fn a_router_that_ignores_the_bias_is_seen_in_its_shadow_and_in_the_free_run_only() {
    let found = compare(IgnoresBias, 120);
    check(&found, |row| row.attn_branch.max.max(row.moe_branch.max), |_| false);
    for row in &found.layers {
        assert!(row.disagreements.beyond_tie > 12, "layer {}: {}", row.layer, row.disagreements.beyond_tie);
        let z = row.disagreements.largest.as_ref().unwrap().z;
        assert!(z > 100.0, "layer {}: {z}", row.layer);
        assert_eq!(row.unforced_rows, 0);
    }
    assert!(found.forced.unwrap().kl_nats.mean <= 1e-8);
    let free = found.free.unwrap();
    assert!(free.kl_nats.mean > 1e-3, "{}", free.kl_nats.mean);
    assert!(free.routing.share > 0.5, "{}", free.routing.share);
}

/// Full layers rotated too.
struct RotatesEverywhere;

impl Steps for RotatesEverywhere {
    fn rotates(&self, _config: &ModelConfig, _layer: LayerId) -> bool {
        true
    }
}

#[test]
fn rope_on_full_layers_is_seen_in_the_full_layers_only() {
    let found = compare(RotatesEverywhere, 120);
    check(&found, |row| row.attn_branch.p50, |row| row.kind == LayerKind::Full);
}

#[test]
fn an_honest_port_is_seen_nowhere() {
    let found = compare(Correct, 120);
    check(&found, |row| row.attn_branch.max.max(row.moe_branch.max), |_| false);
    assert_eq!(found.layers.len(), 10);
    assert_eq!(found.layers[0].rows, 120);
}
