//! Elementwise steps in bf16: each computes in f32 and rounds once, so that its output is next to the exact
//! value of the bf16 inputs it had. Exact values are worked out here in f64 from the recorded inputs.
mod support;

use half::bf16;
use mlx_rs::{Array, fast, ops};
use ndarray::Array2;
use port::engine::Op;
use port::{Port, Steps};
use spec::{LayerId, Precision, Routing, Schedule, Side, Site};
use std::collections::HashMap;
use support::{Rows, forward, kjv, kjv_text, layers, run};

const TOKENS: usize = 96;
/// Of one step's outputs in all layers, the share that may be more than an ulp off. One rounding is off by
/// half an ulp, and only an f32 sum that nearly cancels by more; two roundings put 0.6 % of a norm beyond.
const OFF_SHARE_MAX: f64 = 5e-4;
/// The steps that are recomputed.
const STEPS: [Site; 13] = [
    Site::AttnNorm,
    Site::QNorm,
    Site::KNorm,
    Site::QRope,
    Site::KRope,
    Site::AttnBranch,
    Site::AttnResidual,
    Site::MoeNorm,
    Site::Routed,
    Site::SharedAct,
    Site::MoeBranch,
    Site::LayerOut,
    Site::FinalNorm,
];

/// One bf16 run of the trained checkpoint with every site and every weight.
struct Recorded {
    port: Port,
    rows: Rows,
    weights: HashMap<String, Vec<f32>>,
}

impl Recorded {
    fn new(port: Port) -> Self {
        let text = kjv_text(TOKENS);
        let (_, rows) = forward(&port, run(&text, Schedule::chunks_of(64), Routing::Free, Precision::Bf16));
        let mut weights = HashMap::new();
        let mut keep = |name: &str, values: &[f32]| {
            weights.insert(name.to_string(), values.to_vec());
            Ok(())
        };
        port.tensors(&mut keep).unwrap();
        Self { port, rows, weights }
    }

    /// A site, of this layer or of none, `[T, width]`, in f64.
    fn at(&self, layer: usize, site: Site) -> Array2<f64> {
        let layer = site.is_per_layer().then_some(layer);
        self.rows.matrix(layer, site, site.width(self.port.config())).mapv(f64::from)
    }

    /// What a layer is fed, `[T, H]`.
    fn h_in(&self, layer: usize) -> Array2<f64> {
        match layer {
            0 => self.at(0, Site::Embedding),
            _ => self.at(layer - 1, Site::LayerOut),
        }
    }

    /// K7, K9: each `weight.len()` values of a row on their own.
    fn normed(&self, name: &str, x: &Array2<f64>) -> Array2<f64> {
        let weight = &self.weights[&format!("model.{name}.weight")];
        let eps = self.port.config().rms_norm_eps;
        let norm = |values: &[f64]| -> Vec<f64> {
            let mean = values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64;
            values.iter().zip(weight).map(|(x, w)| f64::from(*w) * x / (mean + eps).sqrt()).collect()
        };
        let values = x.as_slice().unwrap().chunks_exact(weight.len()).flat_map(norm).collect();
        Array2::from_shape_vec(x.dim(), values).unwrap()
    }

    /// K10, K11: pairs half a head apart.
    fn rotated(&self, layer: usize, x: &Array2<f64>) -> Array2<f64> {
        let config = self.port.config();
        if !config.rotates(LayerId(layer)) {
            return x.clone();
        }
        let (d, half) = (config.head_dim, config.head_dim / 2);
        Array2::from_shape_fn(x.dim(), |(position, column)| {
            let (head, i) = (column / d * d, column % d);
            let angle = position as f64 * config.rope_theta.powf(-2.0 * (i % half) as f64 / d as f64);
            let (low, high) = (x[[position, head + i % half]], x[[position, head + i % half + half]]);
            match i < half {
                true => low * angle.cos() - high * angle.sin(),
                false => high * angle.cos() + low * angle.sin(),
            }
        })
    }

    /// K17: the sum that `moe_branch` norms, as bf16 holds it.
    fn moe_sum(&self, layer: usize) -> Array2<f64> {
        let sum = self.at(layer, Site::Routed) + self.at(layer, Site::Shared);
        sum.mapv(|x| f64::from(bf16::from_f64(x)))
    }

    /// K17: the weighted sum over a token's experts.
    fn combined(&self, layer: usize) -> Array2<f64> {
        let (outputs, weights) = (self.at(layer, Site::ExpertOut), self.at(layer, Site::TopkWeights));
        let hidden = self.port.config().hidden_size;
        Array2::from_shape_fn((TOKENS, hidden), |(token, column)| {
            let term = |slot: usize| weights[[token, slot]] * outputs[[token, slot * hidden + column]];
            (0..weights.ncols()).map(term).sum()
        })
    }

    /// What a step would give without any rounding.
    fn exact(&self, layer: usize, site: Site) -> Array2<f64> {
        let at = |site| self.at(layer, site);
        let normed = |name: &str, x: &Array2<f64>| self.normed(&format!("layers.{layer}.{name}"), x);
        match site {
            Site::AttnNorm => normed("input_layernorm", &self.h_in(layer)),
            Site::QNorm => normed("self_attn.q_norm", &at(Site::Q)),
            Site::KNorm => normed("self_attn.k_norm", &at(Site::K)),
            Site::QRope => self.rotated(layer, &at(Site::QNorm)),
            Site::KRope => self.rotated(layer, &at(Site::KNorm)),
            Site::AttnBranch => normed("post_attn_norm", &at(Site::OProj)),
            Site::AttnResidual => self.h_in(layer) + at(Site::AttnBranch),
            Site::MoeNorm => normed("post_attention_layernorm", &at(Site::AttnResidual)),
            Site::Routed => self.combined(layer),
            Site::SharedAct => at(Site::SharedGate).mapv(|g| g / (1.0 + (-g).exp())) * at(Site::SharedUp),
            Site::MoeBranch => normed("post_ffn_norm", &self.moe_sum(layer)),
            Site::LayerOut => at(Site::AttnResidual) + at(Site::MoeBranch),
            Site::FinalNorm => self.normed("norm", &self.h_in(self.port.config().num_layers())),
            _ => panic!("{site} is no elementwise step"),
        }
    }
}

/// The distance in bf16 ulps of the exact value: `2^(e-7)` in `[2^e, 2^(e+1))`.
fn ulps(ours: f64, exact: f64) -> f64 {
    if ours == exact {
        return 0.0; // also of an exact 0, which has no ulp
    }
    (ours - exact).abs() / (exact.abs().log2().floor() - 7.0).exp2()
}

/// The share of a step's outputs that are more than an ulp off.
fn off_share(recorded: &Recorded, site: Site) -> f64 {
    let (mut near, mut all) = (0, 0);
    let layers = if site.is_per_layer() { layers(recorded.port.config()) } else { 0..1 };
    for layer in layers {
        let (ours, exact) = (recorded.at(layer, site), recorded.exact(layer, site));
        assert_eq!(ours.dim(), exact.dim());
        near += ours.iter().zip(&exact).filter(|(ours, exact)| ulps(**ours, **exact) <= 1.0).count();
        all += ours.len();
    }
    assert!(all > 0);
    (all - near) as f64 / all as f64
}

#[test]
fn an_elementwise_step_in_bf16_rounds_once() {
    let recorded = Recorded::new(kjv(Precision::Bf16));
    for site in STEPS {
        let share = off_share(&recorded, site);
        assert!(share <= OFF_SHARE_MAX, "{site}: {share:.1e}");
    }
}

/// MLX's norm, product and sigmoid given bf16: they round in between.
struct RoundsInBetween;

impl Steps for RoundsInBetween {
    fn norm(&self, x: &Array, weight: &Array, eps: f32) -> Op {
        fast::rms_norm(x, Some(weight), eps)
    }

    fn activate(&self, gate: &Array, up: &Array) -> Op {
        gate.multiply(ops::sigmoid(gate)?)?.multiply(up)
    }
}

#[test]
fn steps_that_round_in_between_are_seen() {
    let recorded = Recorded::new(kjv(Precision::Bf16).with_steps(Box::new(RoundsInBetween)));
    let wrong = [
        Site::AttnNorm,
        Site::QNorm,
        Site::KNorm,
        Site::AttnBranch,
        Site::MoeNorm,
        Site::SharedAct,
        Site::MoeBranch,
        Site::FinalNorm,
    ];
    for site in STEPS {
        let share = off_share(&recorded, site);
        assert_eq!(share > OFF_SHARE_MAX, wrong.contains(&site), "{site}: {share:.1e}");
    }
}
