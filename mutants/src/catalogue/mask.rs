//! Planted bugs of the mask (K11, K12).

use super::PUBLISHED;
use crate::mutant::{Mutant, Stage};
use crate::need::Need;
use crate::port::Step;
use crate::port::{batch, mask};

pub const ROWS: &[Mutant] = &[
    Mutant::new("window_one_short", Stage::Mask, "sliding layers see one key fewer than the window")
        .rows(&["A01"])
        .seen_in(&[PUBLISHED, "mlx-lm#390", "MBridge#2656", "sglang#26147"])
        .needs(&[Need::PastWindow])
        .port(&[Step::Window], || Box::new(mask::WindowOneShort)),
    Mutant::new("full_layers_windowed", Stage::Mask, "full layers have the sliding layers' window")
        .rows(&["P02"])
        .seen_in(&[PUBLISHED])
        .needs(&[Need::PastWindow, Need::FullLayer])
        .port(&[Step::Window], || Box::new(mask::WindowEverywhere)),
    Mutant::new(
        "two_sink_tokens",
        Stage::Mask,
        "sliding layers always see the first two keys of their cache",
    )
    .seen_in(&[PUBLISHED])
    .needs(&[Need::PastWindow])
    .port(&[Step::Mask], || Box::new(mask::TwoSinks)),
    Mutant::new(
        "mask_top_left",
        Stage::Mask,
        "the mask takes a call's first query to stand at the cache's first key",
    )
    .rows(&["A04"])
    .seen_in(&["mlx#2835", "executorch#22426", "candle#3743"])
    .needs(&[Need::SecondCall])
    .port(&[Step::Mask], || Box::new(mask::AnchoredTopLeft)),
    Mutant::new("window_one_long", Stage::Mask, "sliding layers see one key more than the window")
        .rows(&["A01"])
        .seen_in(&["mlx-lm#390", "MBridge#2656", "sglang#26147"])
        .needs(&[Need::PastWindow])
        .port(&[Step::Window], || Box::new(mask::WindowOneLong)),
    Mutant::new("sliding_sees_everything", Stage::Mask, "sliding layers have no window")
        .rows(&["A03"])
        .seen_in(&["TRTMC#400", "sglang#30050", "vllm#5908", "HF#35691"])
        .needs(&[Need::PastWindow])
        .port(&[Step::Window], || Box::new(mask::NoWindow)),
    Mutant::new(
        "batch_decode_pad_keys_visible",
        Stage::Mask,
        "in a batch, calls of one token see the keys of padding",
    )
    .rows(&["B01"])
    .seen_in(&[PUBLISHED])
    .needs(&[Need::Batch])
    .port(&[Step::BatchMask], || Box::new(batch::PaddingInDecode)),
    Mutant::new(
        "left_padding_visible",
        Stage::Mask,
        "in a batch, calls of several tokens see the padding before a query",
    )
    .rows(&["B01"])
    .seen_in(&["mlx-vlm#1946", "mlx-lm#1906", "unsloth#4100"])
    .needs(&[Need::Batch])
    .port(&[Step::BatchMask], || Box::new(batch::PaddingInPrefill)),
    Mutant::new("masked_row_nan", Stage::Mask, "padding that sees no key is NaN after its softmax")
        .rows(&["A11"])
        .seen_in(&["burn#4697", "mlx#2608", "candle#3625", "HF#45511"])
        .needs(&[Need::Batch])
        .port(&[Step::BatchMask, Step::Attend], || Box::new(batch::NanOfNothing)),
];
