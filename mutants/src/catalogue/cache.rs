//! Planted bugs of caches (K12).

use super::PUBLISHED;
use crate::mutant::{Mutant, Stage};
use crate::need::Need;
use crate::port::Step;
use crate::port::{batch, cache};

pub const ROWS: &[Mutant] = &[
    Mutant::new(
        "cache_one_slot_short",
        Stage::Cache,
        "the rotating cache has a slot fewer than the window has keys",
    )
    .rows(&["A05"])
    .seen_in(&[PUBLISHED])
    .needs(&[Need::PastWindow])
    .port(&[Step::Cache], || Box::new(cache::OneSlotShort)),
    Mutant::new("decode_window_short", Stage::Cache, "calls of one token see one key fewer than the window")
        .rows(&["A02"])
        .seen_in(&[PUBLISHED, "mlx-lm#390", "LightLLM#1311"])
        .needs(&[Need::PastWindow])
        .port(&[Step::Cache], || Box::new(cache::DecodeWindowShort)),
    Mutant::new(
        "unread_offset",
        Stage::Cache,
        "every cache counts its tokens in a lazy array that nothing reads: a buffer a layer and call is kept",
    )
    .rows(&["L01"])
    .seen_in(&[PUBLISHED, "mlx-lm#1911", "mlx-lm#1731", "mlx-lm#1641", "mlx-lm#960"])
    .port(&[Step::Cache], || Box::new(cache::UnreadOffset)),
    Mutant::new("decode_window_long", Stage::Cache, "calls of one token see one key more than the window")
        .rows(&["A02"])
        .seen_in(&["mlx-lm#390", "LightLLM#1311"])
        .needs(&[Need::PastWindow])
        .port(&[Step::Cache], || Box::new(cache::DecodeWindowLong)),
    Mutant::new(
        "cache_trimmed_for_one_token",
        Stage::Cache,
        "a call of several tokens is left with W keys in all, its own included",
    )
    .rows(&["A05"])
    .seen_in(&["mlx-lm#1914", "HF#37574", "mlxcel#413"])
    .needs(&[Need::PastWindow, Need::SecondCall])
    .port(&[Step::Cache], || Box::new(cache::TrimmedForOneToken)),
    Mutant::new(
        "ring_slots_as_positions",
        Stage::Cache,
        "once the ring has wrapped, a query sees the slots up to its own, as if slots were positions",
    )
    .rows(&["A06"])
    .seen_in(&["mlx-vlm#1138", "mlx-vlm#1715", "d-inference#482"])
    .needs(&[Need::PastWindow])
    .port(&[Step::Cache], || Box::new(cache::SlotsAsPositions)),
    Mutant::new(
        "rows_misaligned_after_leave",
        Stage::Cache,
        "when a row leaves a batch, caches let go of their last row instead",
    )
    .rows(&["B02"])
    .seen_in(&["mlx-lm#1225", "omlx#1824", "tt-metal#44746"])
    .needs(&[Need::Batch])
    .port(&[Step::Leave], || Box::new(batch::LastRowLeaves)),
    Mutant::new(
        "rows_misaligned_after_join",
        Stage::Cache,
        "a row that joins a batch comes first in the caches and last everywhere else",
    )
    .rows(&["B02"])
    .seen_in(&["mlx-lm#1225", "omlx#1824", "tt-metal#44746"])
    .needs(&[Need::Batch])
    .port(&[Step::Join], || Box::new(batch::JoinsInFront)),
];
