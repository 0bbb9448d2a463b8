//! Planted bugs of the rotation (K10, K11).

use super::PUBLISHED;
use crate::edit::Edit;
use crate::mutant::{Facts, Mutant, Stage};
use crate::need::Need;
use crate::port::Step;
use crate::port::{batch, cache, rope};
use serde_json::{Value, json};
use spec::LayerKind;

/// Reports of positions that do not go on where the call before ended.
const OFFSET: &[&str] =
    &["mlx-node#33", "mlx-swift-lm#234", "mlx-swift-lm#406", "mlx-lm#1848", "HF#43082", "VeloxQuant-MLX#389"];

pub const ROWS: &[Mutant] = &[
    Mutant::new("rope_on_full", Stage::Rope, "full layers rotate queries and keys too")
        .rows(&["P01"])
        .seen_in(&[PUBLISHED, "Camelid#535", "rknn-llm#501", "TRT#3382"])
        .needs(&[Need::FullLayer])
        .port(&[Step::Rotates], || Box::new(rope::OnEveryLayer)),
    Mutant::new("rope_traditional", Stage::Rope, "neighbouring values are rotated as pairs")
        .rows(&["P03"])
        .seen_in(&[PUBLISHED, "mlx-lm#512", "llama.cpp#7481", "mlx-lm#1698"])
        .port(&[Step::Rotate], || Box::new(rope::AdjacentPairs)),
    Mutant::new("rope_restart_per_chunk", Stage::Rope, "each call counts its positions from 0")
        .rows(&["P08"])
        .seen_in(&[PUBLISHED, "mlx-node#33", "mlx-swift-lm#234", "mlx-swift-lm#406", "mlx-lm#1848"])
        .needs(&[Need::SecondCall])
        .port(&[Step::RopeOffset], || Box::new(rope::RestartsEachCall)),
    Mutant::new(
        "decode_offset_frozen",
        Stage::Rope,
        "all calls of one token rotate at the first such call's position",
    )
    .rows(&["P08"])
    .seen_in(&["mlx-lm#1848", "HF#43082", "VeloxQuant-MLX#389"])
    .port(&[Step::Rotate], || Box::<rope::FrozenInDecode>::default()),
    Mutant::new("rope_bf16_frequencies", Stage::Rope, "frequencies are rounded to bf16")
        .rows(&["P07"])
        .seen_in(&["candle#3520", "sglang-jax#1473", "HF#29285"])
        .port(&[Step::RopePeriods], || Box::new(rope::Bf16Frequencies)),
    Mutant::new(
        "rope_bf16_positions",
        Stage::Rope,
        "positions are rounded to bf16, which is exact up to 256",
    )
    .rows(&["P07"])
    .seen_in(&["candle#3520", "sglang-jax#1473", "HF#29285"])
    .needs(&[Need::Past256])
    .port(&[Step::Rotate], || Box::new(rope::Bf16Positions)),
    Mutant::new("rope_offset_doubled", Stage::Rope, "the tokens before a call count twice in its positions")
        .rows(&["P08"])
        .seen_in(OFFSET)
        .needs(&[Need::SecondCall])
        .port(&[Step::RopeOffset], || Box::new(rope::OffsetDoubled)),
    Mutant::new(
        "rope_query_advanced",
        Stage::Rope,
        "queries rotate at the offset that the cache has after the call",
    )
    .rows(&["P08"])
    .seen_in(OFFSET)
    .needs(&[Need::GroupedHeads])
    .port(&[Step::RopePeriods, Step::Rotate], || Box::<rope::QueryAdvanced>::default()),
    Mutant::new(
        "rope_offset_retained",
        Stage::Rope,
        "a call's positions go on from the number of keys that a rotating cache keeps",
    )
    .rows(&["P08"])
    .seen_in(OFFSET)
    .needs(&[Need::CallPastWindow])
    .port(&[Step::Cache], || Box::new(cache::OffsetRetained)),
    Mutant::new("layer_types_shifted", Stage::Rope, "each layer has the kind of the one after it")
        .rows(&["P02"])
        .seen_in(&["MBridge#4875", "HF#35896", "exo#2287", "TRT#17466"])
        .needs(&[Need::FullLayer])
        .checkpoint(shifted_layers),
    Mutant::new("rope_base_10000", Stage::Rope, "the base of the rotation falls back to 10000")
        .rows(&["P04"])
        .seen_in(&["airllm#369", "DeepSpeed#8341", "llama2.c#356"])
        .needs(&[Need::OtherRopeBase])
        .checkpoint(fallen_back_base),
    Mutant::new(
        "batched_rope_positions_in_padded_frame",
        Stage::Rope,
        "in a batch, positions count the columns of padding",
    )
    .rows(&["P08"])
    .seen_in(&[PUBLISHED])
    .needs(&[Need::Batch])
    .port(&[Step::BatchOffsets], || Box::new(batch::PaddedFrame)),
    Mutant::new(
        "batch_decode_pos_frozen",
        Stage::Rope,
        "in a batch, calls of one token all rotate at the position after the row's prompt",
    )
    .rows(&["P08"])
    .seen_in(&[PUBLISHED])
    .needs(&[Need::Batch])
    .port(&[Step::BatchOffsets], || Box::new(batch::FrozenRows)),
    Mutant::new(
        "rope_one_token_first_row",
        Stage::Rope,
        "in a batch, calls of one token rotate the first row only",
    )
    .rows(&["K03"])
    .seen_in(&["mlx#3494", "mlx#3949", "mlx-rs#359"])
    .needs(&[Need::Batch])
    .port(&[Step::RotateRows], || Box::new(batch::FirstRowTurns)),
];

/// The last layer has the kind of the first.
fn shifted_layers(facts: &Facts<'_>) -> Vec<Edit> {
    let word = |kind: &LayerKind| match kind {
        LayerKind::Sliding => "sliding_attention",
        LayerKind::Full => "full_attention",
    };
    let mut words: Vec<&str> = facts.config.layers.iter().map(word).collect();
    words.rotate_left(1);
    vec![set("layer_types", json!(words))]
}

/// Under both names, since either may be the one that is read.
fn fallen_back_base(_facts: &Facts<'_>) -> Vec<Edit> {
    let nested = json!({"rope_theta": 10_000.0, "rope_type": "default"});
    vec![set("rope_theta", json!(10_000.0)), set("rope_parameters", nested)]
}

fn set(key: &str, value: Value) -> Edit {
    Edit::SetConfig { key: key.into(), value }
}
