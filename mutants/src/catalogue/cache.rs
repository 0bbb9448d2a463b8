//! Planted bugs of caches (K12).

use super::PUBLISHED;
use crate::mutant::{Mutant, Stage};
use crate::need::Need;
use crate::port::Step;
use crate::port::cache;

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
];
