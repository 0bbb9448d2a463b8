//! The elementwise sites of a bf16 layer against f64, from the port's own recorded inputs: what is left of a
//! difference once the inputs are the same is how the step itself rounds.
//!
//! Norms (K6, K7, K9), RoPE (K10), activation and weighted sum (K17). A correctly rounded output is at most
//! half a bf16 ulp off; the share of outputs more than one ulp off is what a leg holds. Absent on purpose:
//! products, whose sums have an order.

use super::finding::Measurement;
use super::rows::Rows;
use super::tally::place;
use half::bf16;
use ndarray::{Array2, ArrayView2, Axis, s};
use spec::{At, LayerId, ModelConfig, Site};
use std::collections::BTreeMap;
use std::ops::Range;

/// The sites of a layer that are needed beside those of [`super::reinjected`].
pub(crate) const SITES: [Site; 16] = [
    Site::AttnNorm,
    Site::Q,
    Site::K,
    Site::QNorm,
    Site::KNorm,
    Site::QRope,
    Site::KRope,
    Site::OProj,
    Site::AttnResidual,
    Site::MoeNorm,
    Site::ExpertOut,
    Site::Routed,
    Site::SharedGate,
    Site::SharedUp,
    Site::SharedAct,
    Site::Shared,
];

/// The kinds of steps, as the legs of `site.bf16_ulp` are named.
const KINDS: [&str; 4] = ["norm", "rope", "activation", "weighted_sum"];

/// Outputs by kind of step.
#[derive(Debug, Default)]
pub(crate) struct UlpTally {
    /// The run and rows of the call at hand.
    call: (usize, Range<usize>),
    /// Its rows that a later site is made from.
    held: BTreeMap<Site, Array2<f32>>,
    counts: [Counts; KINDS.len()],
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    off: usize,
    of: usize,
}

impl UlpTally {
    /// Takes rows of one site of one call; a site is held against the inputs of the same call, which came
    /// before it. `input`: the layer's, `[T, H]`.
    pub(crate) fn take(&mut self, rows: &Rows<'_>, input: &Array2<f32>, at: &At, found: ArrayView2<'_, f32>) {
        let layer = at.layer.expect("elementwise sites are of a layer");
        if self.call != (at.run, at.rows.clone()) {
            self.call = (at.run, at.rows.clone());
            self.held.clear();
        }
        let norm = |x: &Array2<f64>, name: &str| {
            let weight = &rows.vectors[&format!("model.layers.{layer}.{name}.weight")];
            rms_norm(x, weight, rows.config.rms_norm_eps)
        };
        let kind_and_exact = match at.site {
            Site::AttnNorm => {
                let input = input.slice(s![at.rows.clone(), ..]).mapv(rounded);
                Some((0, norm(&wide(input.view()), "input_layernorm")))
            }
            Site::QNorm => Some((0, norm(&self.wide(Site::Q), "self_attn.q_norm"))),
            Site::KNorm => Some((0, norm(&self.wide(Site::K), "self_attn.k_norm"))),
            Site::AttnBranch => Some((0, norm(&self.wide(Site::OProj), "post_attn_norm"))),
            Site::MoeNorm => Some((0, norm(&self.wide(Site::AttnResidual), "post_attention_layernorm"))),
            Site::MoeBranch => {
                let sum = &self.held[&Site::Routed] + &self.held[&Site::Shared];
                Some((0, norm(&wide(sum.mapv(rounded).view()), "post_ffn_norm")))
            }
            Site::QRope if rows.config.rotates(layer) => {
                Some((1, rotated(&self.wide(Site::QNorm), at.rows.start, rows.config)))
            }
            Site::KRope if rows.config.rotates(layer) => {
                Some((1, rotated(&self.wide(Site::KNorm), at.rows.start, rows.config)))
            }
            Site::SharedAct => {
                let silu = self.wide(Site::SharedGate).mapv(|x| x / (1.0 + (-x).exp()));
                Some((2, silu * self.wide(Site::SharedUp)))
            }
            Site::Routed => Some((3, self.weighted_sum(rows.config))),
            _ => None,
        };
        if let Some((kind, exact)) = kind_and_exact {
            assert_eq!(exact.dim(), found.dim(), "rows of {} and of what it is made from", at.site);
            let off = exact.iter().zip(found).filter(|(exact, found)| is_off(**exact, **found)).count();
            self.counts[kind].off += off;
            self.counts[kind].of += found.len();
        }
        self.held.insert(at.site, found.to_owned());
    }

    fn wide(&self, site: Site) -> Array2<f64> {
        wide(self.held[&site].view())
    }

    /// `sum_j weight_j * expert_out_j`, `[n, H]` (K17).
    fn weighted_sum(&self, config: &ModelConfig) -> Array2<f64> {
        let (outputs, weights) = (self.wide(Site::ExpertOut), self.wide(Site::TopkWeights));
        let mut sum = Array2::zeros((outputs.nrows(), config.hidden_size));
        for ((mut sum, outputs), weights) in
            sum.rows_mut().into_iter().zip(outputs.rows()).zip(weights.rows())
        {
            for (output, &weight) in outputs.exact_chunks(config.hidden_size).into_iter().zip(weights) {
                sum.scaled_add(weight, &output);
            }
        }
        sum
    }
}

/// One leg per kind of step: the share of all layers' outputs that are off, and the layer with the most.
pub(crate) fn measure<'t>(rows: &Rows<'_>, layers: impl Iterator<Item = &'t UlpTally>) -> Vec<Measurement> {
    let layers: Vec<&UlpTally> = layers.collect();
    let leg = |(kind, &name): (usize, &&'static str)| {
        let by_layer = layers.iter().enumerate().filter(|(_, tally)| tally.counts[kind].of > 0);
        let share = |tally: &UlpTally| tally.counts[kind].off as f64 / tally.counts[kind].of as f64;
        let worst = by_layer.clone().max_by(|a, b| share(a.1).total_cmp(&share(b.1)));
        let of = by_layer.map(|(_, tally)| tally.counts[kind].of).sum();
        let value = worst.map_or(f64::NAN, |(_, tally)| share(tally));
        let layer = worst.map(|(layer, _)| LayerId(layer));
        Measurement::new("site.bf16_ulp", name, of, value).at(place(rows, layer, None))
    };
    KINDS.iter().enumerate().map(leg).collect()
}

/// More than one bf16 ulp from the exact value, a bf16 having eight bits of significand; a NaN is.
fn is_off(exact: f64, found: f32) -> bool {
    let ulp = if exact == 0.0 { 0.0 } else { 2_f64.powi(exact.abs().log2().floor() as i32 - 7) };
    !matches!((f64::from(found) - exact).abs().partial_cmp(&ulp), Some(order) if order.is_le())
}

fn rounded(value: f32) -> f32 {
    bf16::from_f32(value).to_f32()
}

fn wide(rows: ArrayView2<'_, f32>) -> Array2<f64> {
    rows.mapv(f64::from)
}

/// RMSNorm over each stretch of a row as long as the weight: the row, or each head of it (K7, K9).
fn rms_norm(x: &Array2<f64>, weight: &[f32], eps: f64) -> Array2<f64> {
    let mut out = x.clone();
    for mut row in out.rows_mut() {
        for mut part in row.exact_chunks_mut(weight.len()) {
            let mean = part.iter().map(|x| x * x).sum::<f64>() / weight.len() as f64;
            let scale = (mean + eps).sqrt().recip();
            part.iter_mut().zip(weight).for_each(|(x, &w)| *x *= scale * f64::from(w));
        }
    }
    out
}

/// RoPE of whole heads, half-split pairs, from position `first` on (K10). Frequencies and angles are the f32
/// ones that the specification fixes; cosine, sine and products are f64.
pub(crate) fn rotated(x: &Array2<f64>, first: usize, config: &ModelConfig) -> Array2<f64> {
    let half = config.head_dim / 2;
    let frequency = |pair: usize| -> f32 {
        let exponent = (2 * pair) as f32 / config.head_dim as f32;
        1.0 / (config.rope_theta.powf(f64::from(exponent)) as f32)
    };
    let frequencies: Vec<f32> = (0..half).map(frequency).collect();
    let mut out = x.clone();
    for (position, mut row) in (first..).zip(out.axis_iter_mut(Axis(0))) {
        for mut head in row.exact_chunks_mut(config.head_dim) {
            for (pair, &frequency) in frequencies.iter().enumerate() {
                let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
                let (a, b) = (head[pair], head[pair + half]);
                head[pair] = a * cos - b * sin;
                head[pair + half] = b * cos + a * sin;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::exact(1.0, 1.0, false)]
    #[case::half_an_ulp(1.0, 1.0 + 0.003_906_25, false)]
    #[case::one_ulp(1.0, 1.007_812_5, false)]
    #[case::two_ulps(1.0, 1.015_625, true)]
    #[case::of_the_binade_below(0.75, 0.757_812_5, true)]
    #[case::of_zero(0.0, 1e-30, true)]
    #[case::both_zero(0.0, 0.0, false)]
    #[case::nan(1.0, f32::NAN, true)]
    fn an_output_is_off_beyond_one_ulp(#[case] exact: f64, #[case] found: f32, #[case] off: bool) {
        assert_eq!(is_off(exact, found), off);
    }

    #[test]
    fn a_norm_of_heads_is_taken_head_by_head() {
        // mean squares 12.5 and 2: 3/sqrt(12.5), 2*4/sqrt(12.5), sqrt(2)/sqrt(2), 2*sqrt(2)/sqrt(2)
        let root = 2_f64.sqrt();
        let x = Array2::from_shape_vec((1, 4), vec![3.0, 4.0, root, root]).unwrap();
        let found = rms_norm(&x, &[1.0, 2.0], 0.0);
        let expected = [3.0 / 12.5_f64.sqrt(), 8.0 / 12.5_f64.sqrt(), 1.0, 2.0];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-15), "{found}");
    }
}
