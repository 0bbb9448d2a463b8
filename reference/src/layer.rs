//! One layer of every lane (K6): weights are read, each lane passes, weights are dropped.

use crate::attention::Attention;
use crate::experts::{Dispatch, Expert};
use crate::lane::{LaneState, Tap};
use crate::model::Model;
use crate::precision;
use crate::steps::{Heads, Matrix, Norm};
use ndarray::{Array2, s};
use rayon::prelude::*;
use spec::{ExpertId, LayerId, Recorder, Result, Routing, Site};

/// Tokens whose expert outputs are recorded at a time.
const OUTPUT_ROWS: usize = 64;

/// Takes every lane's residual through one layer.
pub(crate) fn pass(
    model: &Model,
    layer: LayerId,
    lanes: &mut [LaneState<'_>],
    recorder: &mut dyn Recorder,
) -> Result<()> {
    let norms = Norms::read(model, layer)?;
    attention_branches(model, layer, &norms, lanes, recorder)?;
    moe_branches(model, layer, &norms, lanes, recorder)
}

/// The weights of a layer's four norms (K6), `[H]` each.
struct Norms {
    attn_input: Vec<f32>,
    attn_output: Vec<f32>,
    moe_input: Vec<f32>,
    moe_output: Vec<f32>,
}

impl Norms {
    fn read(model: &Model, layer: LayerId) -> Result<Self> {
        let vector = |tail: &str| model.weights.vector(&format!("model.layers.{layer}.{tail}.weight"));
        Ok(Self {
            attn_input: vector("input_layernorm")?,
            attn_output: vector("post_attn_norm")?,
            moe_input: vector("post_attention_layernorm")?,
            moe_output: vector("post_ffn_norm")?,
        })
    }

    /// The norm at one place of a lane.
    fn apply(&self, model: &Model, lane: &LaneState<'_>, which: Norm, rows: Array2<f32>) -> Array2<f32> {
        let weight = match lane.steps.norm_weight(which) {
            Norm::AttnInput => &self.attn_input,
            Norm::AttnOutput => &self.attn_output,
            Norm::MoeInput => &self.moe_input,
            Norm::MoeOutput => &self.moe_output,
            Norm::Final => panic!("the final norm is of no layer"),
        };
        model.norm(lane, which, rows, weight)
    }
}

struct AttentionWeights {
    q: Array2<f32>,
    k: Array2<f32>,
    v: Array2<f32>,
    o: Array2<f32>,
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
}

impl AttentionWeights {
    fn read(model: &Model, layer: LayerId) -> Result<Self> {
        let name = |tail: &str| format!("model.layers.{layer}.{tail}.weight");
        let vector = |tail: &str| model.weights.vector(&name(tail));
        let matrix = |tail: &str| model.weights.matrix_in_parallel(&name(tail), &model.workers);
        Ok(Self {
            q: matrix("self_attn.q_proj")?,
            k: matrix("self_attn.k_proj")?,
            v: matrix("self_attn.v_proj")?,
            o: matrix("self_attn.o_proj")?,
            q_norm: vector("self_attn.q_norm")?,
            k_norm: vector("self_attn.k_norm")?,
        })
    }
}

/// `h += post_attn_norm(Attn(input_layernorm(h)))` of every lane.
fn attention_branches(
    model: &Model,
    layer: LayerId,
    norms: &Norms,
    lanes: &mut [LaneState<'_>],
    recorder: &mut dyn Recorder,
) -> Result<()> {
    let weights = AttentionWeights::read(model, layer)?;
    for lane in lanes {
        let mut tap = Tap { recorder, run: lane.index, layer: Some(layer) };
        let x = norms.apply(model, lane, Norm::AttnInput, lane.h.clone());
        tap.all(Site::AttnNorm, &x)?;
        let q = model.product(lane, Matrix::Q, &x, &weights.q);
        tap.all(Site::Q, &q)?;
        let k = model.product(lane, Matrix::K, &x, &weights.k);
        tap.all(Site::K, &k)?;
        let v = model.product(lane, Matrix::V, &x, &weights.v);
        tap.all(Site::V, &v)?;
        let q = heads(model, lane, &mut tap, [Site::QNorm, Site::QRope], q, &weights.q_norm)?;
        let k = heads(model, lane, &mut tap, [Site::KNorm, Site::KRope], k, &weights.k_norm)?;
        let attention = Attention { config: &model.config, layer, steps: lane.steps, q: &q, k: &k, v: &v };
        let mut out = attention.run(&model.workers);
        precision::store_all(lane.precision(), &mut out, &model.workers);
        tap.all(Site::AttnOut, &out)?;
        let out = model.product(lane, Matrix::O, &out, &weights.o);
        tap.all(Site::OProj, &out)?;
        let branch = norms.apply(model, lane, Norm::AttnOutput, out);
        tap.all(Site::AttnBranch, &branch)?;
        add_branch(model, lane, &branch);
        tap.all(Site::AttnResidual, &lane.h)?;
    }
    Ok(())
}

/// Queries or keys through norm and rotation (K9 to K11), `[T, heads * D]`.
fn heads(
    model: &Model,
    lane: &LaneState<'_>,
    tap: &mut Tap<'_>,
    [after_norm, after_rope]: [Site; 2],
    mut rows: Array2<f32>,
    weight: &[f32],
) -> Result<Array2<f32>> {
    let layer = tap.layer.expect("queries and keys belong to a layer");
    let heads = |first| Heads { config: &model.config, layer, first, weight, table: &lane.table };
    lane.by_rows(&mut rows, &model.workers, |first, rows| lane.steps.qk_norm(&heads(first), rows));
    tap.all(after_norm, &rows)?;
    lane.by_rows(&mut rows, &model.workers, |first, rows| lane.steps.qk_rope(&heads(first), rows));
    tap.all(after_rope, &rows)?;
    Ok(rows)
}

fn add_branch(model: &Model, lane: &mut LaneState<'_>, branch: &Array2<f32>) {
    let mut h = std::mem::take(&mut lane.h);
    lane.by_rows(&mut h, &model.workers, |first, rows| {
        let branch = branch.slice(s![first..first + rows.nrows(), ..]);
        lane.steps.add_branch(rows, branch);
    });
    lane.h = h;
}

/// `h += post_ffn_norm(MoE(post_attention_layernorm(h)))` of every lane.
fn moe_branches(
    model: &Model,
    layer: LayerId,
    norms: &Norms,
    lanes: &mut [LaneState<'_>],
    recorder: &mut dyn Recorder,
) -> Result<()> {
    let name = |tail: &str| format!("model.layers.{layer}.{tail}");
    let router = Router {
        gate: model.weights.matrix_in_parallel(&name("mlp.gate.weight"), &model.workers)?,
        bias: model.weights.vector(&name("moe.router.expert_bias"))?,
    };
    let mut inputs = Vec::new();
    let mut ids: Vec<Vec<ExpertId>> = Vec::new();
    let mut weights = Vec::new();
    for lane in &mut *lanes {
        let mut tap = Tap { recorder, run: lane.index, layer: Some(layer) };
        let x = norms.apply(model, lane, Norm::MoeInput, lane.h.clone());
        tap.all(Site::MoeNorm, &x)?;
        let theirs = lane.ids_of.map(|source| &*ids[source]);
        let routed = router.route(model, lane, &x, theirs, &mut tap)?;
        inputs.push(x);
        ids.push(routed.ids);
        weights.push(routed.weights);
    }
    let dispatch = Dispatch::new(&ids, model.config.experts_per_token);
    let outputs = dispatch.run(&model.weights, layer, lanes, &inputs, &model.workers)?;
    let shared_expert = Expert::shared(&model.weights, layer)?;
    for lane in lanes {
        let mut tap = Tap { recorder, run: lane.index, layer: Some(layer) };
        for token in 0..lane.run.case.len() {
            lane.choices.set(token, layer, &dispatch.executed(lane.index, token));
        }
        if tap.wants(Site::Choice) {
            tap.all(Site::Choice, &as_rows(lane.run.case.len(), |token| lane.choices.at(token, layer)))?;
        }
        if tap.wants(Site::ExpertOut) {
            for first in (0..lane.run.case.len()).step_by(OUTPUT_ROWS) {
                let tokens = first..(first + OUTPUT_ROWS).min(lane.run.case.len());
                tap.block(Site::ExpertOut, first, dispatch.outputs_of(&outputs, lane.index, tokens).view())?;
            }
        }
        let mut sum = dispatch.combine(&outputs, lane, &weights[lane.index], &model.workers);
        tap.all(Site::Routed, &sum)?;
        let shared = run_shared(model, lane, &mut tap, &shared_expert, &inputs[lane.index])?;
        tap.all(Site::Shared, &shared)?;
        lane.by_rows(&mut sum, &model.workers, |first, rows| {
            let shared = shared.slice(s![first..first + rows.nrows(), ..]);
            lane.steps.add_shared(rows, shared);
        });
        let branch = norms.apply(model, lane, Norm::MoeOutput, sum);
        tap.all(Site::MoeBranch, &branch)?;
        add_branch(model, lane, &branch);
        tap.all(Site::LayerOut, &lane.h)?;
    }
    Ok(())
}

/// The shared expert's output, `[T, H]`, stored in the lane's precision (K17).
fn run_shared(
    model: &Model,
    lane: &LaneState<'_>,
    tap: &mut Tap<'_>,
    expert: &Expert,
    x: &Array2<f32>,
) -> Result<Array2<f32>> {
    let project = |which, w: &Array2<f32>| model.workers.product(lane.steps, which, x.view(), w.view());
    let gate = project(Matrix::SharedGate, &expert.gate);
    tap.all(Site::SharedGate, &gate)?;
    let up = project(Matrix::SharedUp, &expert.up);
    tap.all(Site::SharedUp, &up)?;
    let mut active = gate;
    model.workers.by_rows(&mut active, |first, rows| {
        let up = up.slice(s![first..first + rows.nrows(), ..]);
        lane.steps.activate(rows, up);
    });
    tap.all(Site::SharedAct, &active)?;
    Ok(model.product(lane, Matrix::SharedDown, &active, &expert.down))
}

struct Router {
    gate: Array2<f32>,
    bias: Vec<f32>,
}

/// What a lane takes to the experts.
struct Routed {
    /// `[T * k]`, each token's experts in the order of execution.
    ids: Vec<ExpertId>,
    /// `[T, k]`, aligned with `ids`.
    weights: Array2<f32>,
}

impl Router {
    /// K14 to K16 for all tokens of a lane: `x` is the MoE's input, `[T, H]`, `theirs` the executed ids of
    /// the lane that this one follows, `[T * k]`.
    fn route(
        &self,
        model: &Model,
        lane: &mut LaneState<'_>,
        x: &Array2<f32>,
        theirs: Option<&[ExpertId]>,
        tap: &mut Tap<'_>,
    ) -> Result<Routed> {
        let (config, steps, workers) = (&model.config, lane.steps, &model.workers);
        let (layer, k) = (tap.layer.expect("a router belongs to a layer"), config.experts_per_token);
        let logits = workers.product(steps, Matrix::Router, x.view(), self.gate.view());
        tap.all(Site::RouterLogits, &logits)?;
        let mut scores = Array2::zeros(logits.dim());
        workers.by_rows(&mut scores, |first, mut rows| {
            for (token, mut scores) in (first..).zip(rows.rows_mut()) {
                let scores = scores.as_slice_mut().expect("rows are contiguous");
                steps.selection_scores(config, row(&logits, token), &self.bias, scores);
            }
        });
        tap.all(Site::SelectionScores, &scores)?;
        let tokens = 0..lane.run.case.len();
        let select = |token| steps.select(row(&scores, token), k);
        let own: Vec<Vec<ExpertId>> = workers.run(|| tokens.clone().into_par_iter().map(select).collect());
        for (token, own) in own.iter().enumerate() {
            lane.shadow.set(token, layer, own);
        }
        if tap.wants(Site::ShadowChoice) {
            tap.all(Site::ShadowChoice, &as_rows(tokens.len(), |token| lane.shadow.at(token, layer)))?;
        }
        let ids: Vec<ExpertId> = match lane.run.routing {
            Routing::Free => theirs.map_or_else(|| own.concat(), <[ExpertId]>::to_vec),
            Routing::Forced(choices) => tokens.clone().flat_map(|t| choices.at(t, layer).to_vec()).collect(),
        };
        let mut weights = Array2::zeros((tokens.len(), k));
        workers.by_rows(&mut weights, |first, mut rows| {
            for (token, mut weights) in (first..).zip(rows.rows_mut()) {
                let ids = &ids[token * k..(token + 1) * k];
                let row = steps.topk_weights(config, row(&logits, token), row(&scores, token), ids);
                weights.as_slice_mut().expect("rows are contiguous").copy_from_slice(&row);
            }
        });
        tap.all(Site::TopkWeights, &weights)?;
        Ok(Routed { ids, weights })
    }
}

fn row(rows: &Array2<f32>, index: usize) -> &[f32] {
    rows.row(index).to_slice().expect("rows are contiguous")
}

/// Expert ids as rows of f32, `[T, k]`.
fn as_rows<'a>(tokens: usize, ids: impl Fn(usize) -> &'a [ExpertId]) -> Array2<f32> {
    let values: Vec<f32> =
        (0..tokens).flat_map(|token| ids(token).iter().map(|id| f32::from(id.0))).collect();
    Array2::from_shape_vec((tokens, values.len() / tokens), values).expect("k ids per token")
}
