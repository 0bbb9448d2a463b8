//! Planted bugs of reading a checkpoint (K3).

use super::{OURS, PUBLISHED};
use crate::edit::Edit;
use crate::mutant::{Facts, Mutant, Stage};
use spec::{LayerId, census};

pub const ROWS: &[Mutant] = &[
    Mutant::new("attn_output_gate", Stage::Load, "the checkpoint has an attention gate that nothing applies")
        .seen_in(&[PUBLISHED])
        .checkpoint(unexpected_gate),
    Mutant::new("missing_tensor", Stage::Load, "the checkpoint lacks one norm of its last layer")
        .seen_in(&[OURS])
        .checkpoint(missing_norm),
    Mutant::new("misshaped_tensor", Stage::Load, "a matrix says it is transposed and is not")
        .seen_in(&[OURS])
        .checkpoint(swapped_dims),
    Mutant::new("zeroed_idle_expert", Stage::Load, "an expert that no token goes to has no output")
        .rows(&["W04"])
        .seen_in(&["1Cat-vLLM#21", "HF#47407", "prime-rl#1145", "ROCmFPX#85"])
        .checkpoint(zeroed_expert),
    Mutant::new("layers_exchanged", Stage::Load, "two layers of one kind have each other's weights")
        .rows(&["W06"])
        .seen_in(&["NVIDIA-NeMo/RL#3259", "mlx-lm#1680", "exo#2287"])
        .checkpoint(exchanged_layers),
];

fn unexpected_gate(facts: &Facts<'_>) -> Vec<Edit> {
    let config = facts.config;
    let shape = vec![config.num_heads * config.head_dim, config.hidden_size];
    vec![Edit::Add { name: "model.layers.0.self_attn.gate_proj.weight".into(), shape }]
}

fn missing_norm(facts: &Facts<'_>) -> Vec<Edit> {
    let last = facts.config.num_layers() - 1;
    vec![Edit::Remove(format!("model.layers.{last}.self_attn.k_norm.weight"))]
}

/// The first matrix of the first layer that is not square.
fn swapped_dims(facts: &Facts<'_>) -> Vec<Edit> {
    let tensors = census::expected_of_layer(facts.config, LayerId(0));
    let oblong = tensors.into_iter().find(|tensor| matches!(tensor.shape[..], [a, b] if a != b));
    oblong.map(|tensor| Edit::SwapDims(tensor.name)).into_iter().collect()
}

fn zeroed_expert(facts: &Facts<'_>) -> Vec<Edit> {
    let (layer, expert) = facts.idle;
    vec![Edit::Zero(format!("model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"))]
}

/// The first two layers of one kind; no edit in a model of one layer of each kind.
fn exchanged_layers(facts: &Facts<'_>) -> Vec<Edit> {
    let config = facts.config;
    let twin = |a: LayerId| config.layer_ids().find(|&b| b > a && config.kind(b) == config.kind(a));
    let pair = config.layer_ids().find_map(|a| Some((a, twin(a)?)));
    pair.map(|(a, b)| Edit::ExchangeLayers(a, b)).into_iter().collect()
}
