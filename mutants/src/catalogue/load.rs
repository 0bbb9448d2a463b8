//! Planted bugs of reading a checkpoint (K3).

use super::{OURS, PUBLISHED};
use crate::edit::{Edit, Narrow};
use crate::mutant::{Facts, Mutant, Stage};
use crate::need::Need;
use crate::port::{Step, experts};
use spec::census::{self, Role};
use spec::{ExpertId, LayerId};

/// Reports of gate and up projections in one matrix.
const FUSED: &[&str] = &["vllm#42821", "tinker-cookbook#459", "ATOM#1410", "ik#1408"];

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
    Mutant::new(
        "experts_in_string_order",
        Stage::Load,
        "experts are stacked in the order of their ids as words",
    )
    .rows(&["W01"])
    .seen_in(&["torchtitan#1918"])
    .needs(&[Need::TwoDigitExperts])
    .checkpoint(experts_as_words),
    Mutant::new("gate_up_exchanged", Stage::Load, "routed experts have gate and up projections exchanged")
        .rows(&["W02"])
        .seen_in(FUSED)
        .checkpoint(gate_for_up),
    Mutant::new(
        "gate_up_interleaved",
        Stage::Load,
        "routed experts' fused gate and up projections are read as if their rows took turns",
    )
    .rows(&["W02"])
    .seen_in(FUSED)
    .port(&[Step::Routed], || Box::new(experts::InterleavedHalves)),
    Mutant::new("square_expert_transposed", Stage::Load, "one square matrix of one expert is transposed")
        .rows(&["W03"])
        .seen_in(&["HF#47031", "torchtitan#4373"])
        .needs(&[Need::SquareExpert, Need::Plain])
        .checkpoint(transposed_expert),
    Mutant::new("f16_weights", Stage::Load, "every matrix that is multiplied passes through f16")
        .rows(&["W08"])
        .seen_in(&["llama.cpp#25442", "llama.cpp#23839", "HF#37226", "mlx-examples#10"])
        .needs(&[Need::Plain])
        .checkpoint(weights_through_f16),
    Mutant::new("embedding_as_head", Stage::Load, "the embedding is the head of a model that has its own")
        .rows(&["G01"])
        .seen_in(&["pegainfer#544", "candle#2930", "parallax#444", "HF#43429"])
        .checkpoint(tied_head),
    Mutant::new(
        "stale_duplicate_shard",
        Stage::Load,
        "one projection has the values of an older duplicate in a file that the index does not name",
    )
    .rows(&["W05"])
    .seen_in(&["vllm#54230", "1Cat-vLLM#407", "mlx-vlm#1464"])
    .needs(&[Need::Plain])
    .checkpoint(stale_duplicate),
    Mutant::new("shard_tail_zero", Stage::Load, "the last hundredth of the last file reads as zeros")
        .rows(&["W05"])
        .seen_in(&["vmlx-swift#217", "sglang#32279"])
        .checkpoint(|_| vec![Edit::ZeroTail]),
    Mutant::new(
        "scale_grid_transposed",
        Stage::Load,
        "the scales of FP8 blocks are read as their transpose, through a reshape of the same size",
    )
    .rows(&["W09"])
    .seen_in(&["vllm#47116", "vllm#50349"])
    .needs(&[Need::Fp8])
    .checkpoint(|_| vec![Edit::TransposeGrid(format!("{O_PROJ}.weight_scale_inv"))]),
    Mutant::new(
        "codes_reversed",
        Stage::Load,
        "the codes in each word of a packed matrix are read in the opposite order",
    )
    .rows(&["W10"])
    .seen_in(PACKED)
    .needs(&[Need::Packed])
    .checkpoint(reversed_codes),
    Mutant::new("zero_point_negated", Stage::Load, "the biases of a packed matrix have the opposite sign")
        .rows(&["W10"])
        .seen_in(PACKED)
        .needs(&[Need::Packed])
        .checkpoint(|_| vec![Edit::Negate(format!("{O_PROJ}.biases"))]),
    Mutant::new(
        "group_size_doubled",
        Stage::Load,
        "the scales and biases of a packed matrix are read as those of groups twice as wide",
    )
    .rows(&["W10"])
    .seen_in(PACKED)
    .needs(&[Need::Packed])
    .checkpoint(doubled_groups),
];

/// Reports of packed weights read otherwise than they were written.
const PACKED: &[&str] = &["imp#567", "imp#722", "1bit-MONSTER#572", "MTPLX#182", "mlx-lm#449"];

/// Of the matrices whose rows are longest in small checkpoints, so that a row has several groups or blocks.
const O_PROJ: &str = "model.layers.0.self_attn.o_proj";

fn stale_duplicate(_facts: &Facts<'_>) -> Vec<Edit> {
    vec![Edit::Round { name: format!("{O_PROJ}.weight"), to: Narrow::Coarse }]
}

fn reversed_codes(facts: &Facts<'_>) -> Vec<Edit> {
    let packing = facts.config.quantization.affine(O_PROJ);
    // codes of other widths lie across words
    let bits = packing.map(|packing| packing.bits).filter(|bits| 32 % bits == 0);
    bits.map(|bits| Edit::ReverseCodes { name: format!("{O_PROJ}.weight"), bits }).into_iter().collect()
}

fn doubled_groups(_facts: &Facts<'_>) -> Vec<Edit> {
    ["scales", "biases"].map(|part| Edit::HalvePlaces(format!("{O_PROJ}.{part}"))).into()
}

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

/// The `p`-th place has the expert whose id is the `p`-th as words go: 0, 1, 10, 11, 12.
fn experts_as_words(facts: &Facts<'_>) -> Vec<Edit> {
    let config = facts.config;
    let mut words: Vec<String> = (0..config.num_experts).map(|id| id.to_string()).collect();
    words.sort();
    let mut held: Vec<String> = (0..config.num_experts).map(|id| id.to_string()).collect();
    let mut exchanges = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let at = held.iter().position(|id| id == word).expect("the same ids in another order");
        if at != place {
            held.swap(at, place);
            exchanges.push((at, place));
        }
    }
    let matrices = config.layer_ids().flat_map(|layer| PARTS.map(|part| (layer, part)));
    let of = |(layer, part)| {
        let exchange =
            move |&(a, b): &(usize, usize)| Edit::Exchange(matrix(layer, a, part), matrix(layer, b, part));
        exchanges.iter().map(exchange)
    };
    matrices.flat_map(of).collect()
}

fn gate_for_up(facts: &Facts<'_>) -> Vec<Edit> {
    let experts =
        facts.config.layer_ids().flat_map(|layer| (0..facts.config.num_experts).map(move |e| (layer, e)));
    let exchange = |(layer, e)| Edit::Exchange(matrix(layer, e, "gate_proj"), matrix(layer, e, "up_proj"));
    experts.map(exchange).collect()
}

/// Of the first layer, an expert that tokens go to.
fn transposed_expert(facts: &Facts<'_>) -> Vec<Edit> {
    let expert = usize::from(facts.idle == (LayerId(0), ExpertId(0)));
    vec![Edit::Transpose(matrix(LayerId(0), expert, "down_proj"))]
}

fn weights_through_f16(facts: &Facts<'_>) -> Vec<Edit> {
    let all = census::expected(facts.config);
    let multiplied =
        all.into_iter().filter(|tensor| tensor.shape.len() == 2 && tensor.role != Role::Embedding);
    multiplied.map(|tensor| Edit::Round { name: tensor.name, to: Narrow::F16 }).collect()
}

fn tied_head(_facts: &Facts<'_>) -> Vec<Edit> {
    vec![Edit::Copy { from: "model.embed_tokens.weight".into(), to: "lm_head.weight".into() }]
}

const PARTS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// The name of a matrix of a routed expert.
fn matrix(layer: LayerId, expert: usize, part: &str) -> String {
    format!("model.layers.{layer}.mlp.experts.{expert}.{part}.weight")
}
