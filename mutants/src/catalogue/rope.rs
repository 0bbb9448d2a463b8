//! Planted bugs of the rotation (K10, K11).

use super::PUBLISHED;
use crate::mutant::{Mutant, Stage};
use crate::need::Need;
use crate::port::Step;
use crate::port::rope;

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
];
