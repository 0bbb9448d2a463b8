//! Planted bugs of attention (K13).

use crate::edit::Edit;
use crate::mutant::{Facts, Mutant, Stage};
use crate::need::Need;
use crate::port::Step;
use crate::port::attention;

pub const ROWS: &[Mutant] = &[
    Mutant::new("attention_scale_one", Stage::Attention, "scores are not scaled")
        .rows(&["A07"])
        .seen_in(&["mlc-llm#3426", "ferrox#40", "llama.cpp#13951", "TransformerLens#694"])
        .port(&[Step::Attend], || Box::new(attention::Unscaled)),
    Mutant::new(
        "attention_scale_hidden",
        Stage::Attention,
        "the scale goes by hidden size over heads, not by the heads' width",
    )
    .rows(&["A07"])
    .seen_in(&["mlc-llm#3426", "ferrox#40", "llama.cpp#13951", "TransformerLens#694"])
    .needs(&[Need::HeadsOtherThanHidden])
    .port(&[Step::RopePeriods, Step::Attend], || Box::<attention::ScaledByHidden>::default()),
    Mutant::new(
        "kv_heads_tiled",
        Stage::Attention,
        "neighbouring query heads read different key-value heads",
    )
    .rows(&["A08"])
    .seen_in(&["onnx#7274", "axlearn#842", "jax-js#180"])
    .needs(&[Need::GroupedHeads])
    .port(&[Step::Attend], || Box::new(attention::HeadsTiled)),
    Mutant::new(
        "kv_exchanged_in_decode",
        Stage::Attention,
        "calls of one token take keys for values and values for keys",
    )
    .rows(&["A09"])
    .seen_in(&["llmman#16", "tt-mlir#8958", "vllm#13686"])
    .port(&[Step::Attend], || Box::new(attention::ExchangedInDecode)),
    Mutant::new("decode_beyond_1024", Stage::Attention, "calls of one token see the first 1,024 keys only")
        .rows(&["K04"])
        .seen_in(&["mlx#4022"])
        .port(&[Step::Attend], || Box::new(attention::DecodeStops)),
    Mutant::new(
        "q_heads_interleaved",
        Stage::Attention,
        "the query projection is cut as if its heads took turns row by row",
    )
    .rows(&["A09"])
    .seen_in(&["mlxcel#928", "tt-mlir#8958"])
    .checkpoint(interleaved_queries),
];

fn interleaved_queries(facts: &Facts<'_>) -> Vec<Edit> {
    let name = |layer| format!("model.layers.{layer}.self_attn.q_proj.weight");
    let groups = facts.config.head_dim;
    facts.config.layer_ids().map(|layer| Edit::Interleave { name: name(layer), groups }).collect()
}
