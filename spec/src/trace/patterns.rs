//! Two ways in which a malformed trace looks well-formed row by row: wrapped ids and stale rows.

use super::{MISSING, Trace};
use crate::Result;
use ndarray::Array3;
use std::collections::BTreeSet;

/// Ids that fit one byte.
const BYTE_IDS: usize = 256;
/// How many ids beyond one byte a trace must be expected to hold before their absence means something.
const HIGH_IDS_EXPECTED_MIN: usize = 1_000;
/// Fewest rows of a stale run.
const STALE_ROWS_MIN: usize = 16;
/// Fewest different tokens under a stale run.
const STALE_TOKENS_MIN: usize = 8;
/// Fewest neighbours of different tokens elsewhere in the trace.
const OTHER_PAIRS_MIN: usize = 64;
/// Of those, at most one in this many may have equal rows.
const OTHER_PAIRS_PER_EQUAL: usize = 20;

/// Refuses a long trace of more than 256 experts in which no id needs more than a byte: ids were stored in
/// one byte and wrapped (P4). Long: spread evenly, at least 1,000 ids would be 256 or more.
pub(super) fn refuse_wrapped_ids(trace: &Trace) -> Result<()> {
    let experts = trace.meta.num_experts;
    let high = experts.saturating_sub(BYTE_IDS);
    let recorded = trace.ids.iter().filter(|&&id| id != MISSING).count();
    let beyond = |&id: &i32| usize::try_from(id).is_ok_and(|id| id >= BYTE_IDS);
    let expected_high = recorded * high / experts;
    if expected_high < HIGH_IDS_EXPECTED_MIN || trace.ids.iter().any(beyond) {
        return Ok(());
    }
    let found = format!("no id of {BYTE_IDS} or more among {recorded}; ids stored in one byte wrap");
    let next = "have the recorder store ids in 16 bits or more";
    Err(trace.refuse(
        format!("about {expected_high} ids of {BYTE_IDS} or more out of {experts}"),
        found,
        next,
    ))
}

/// Refuses stale rows (P7): a run of at least 16 neighbours that agree bit for bit in everything recorded
/// (ids of every layer in slot order, weights, candidates, shadow) although at least 8 different tokens are
/// under them, in a trace whose other neighbours of different tokens (at least 64) agree no oftener than one
/// in 20.
///
/// An honest trace does not have one: the same token over and over may well route alike, a collapsed router
/// routes everything alike, but then the tokens are the same or the other rows are as uniform.
pub(super) fn refuse_stale_rows(trace: &Trace) -> Result<()> {
    let equal: Vec<bool> = (1..trace.rows()).map(|row| equals_previous(trace, row)).collect();
    let token = |row: usize| trace.tokens.get(trace.meta.pos0 + row);
    let pairs = |from: usize, to: usize| (from..to).filter(|&pair| token(pair) != token(pair + 1));
    let all_pairs = pairs(0, equal.len()).count();
    let all_equal = pairs(0, equal.len()).filter(|&pair| equal[pair]).count();
    let mut start = 0;
    for run in equal.chunk_by(|a, b| a == b) {
        let end = start + run.len();
        let tokens: BTreeSet<_> = (start..=end).map(token).collect();
        let inside = pairs(start, end).count();
        let (others, others_equal) = (all_pairs - inside, all_equal.saturating_sub(inside));
        let varied = others >= OTHER_PAIRS_MIN && others_equal * OTHER_PAIRS_PER_EQUAL <= others;
        if run[0] && run.len() >= STALE_ROWS_MIN - 1 && tokens.len() >= STALE_TOKENS_MIN && varied {
            let first = trace.meta.pos0 + start;
            let expected = "rows that differ where the tokens differ";
            let found = format!(
                "{} rows equal in every layer from token {first} on, over {} different tokens",
                run.len() + 1,
                tokens.len()
            );
            return Err(trace.refuse(
                expected,
                found,
                "leave out rows that were not computed for their token",
            ));
        }
        start = end;
    }
    Ok(())
}

/// Whether a row has routes and agrees with the one before in everything recorded.
fn equals_previous(trace: &Trace, row: usize) -> bool {
    let same_f32 = |values: &Array3<f32>| {
        let (now, before) = (part(values, row), part(values, row - 1));
        now.iter().map(|value| value.to_bits()).eq(before.iter().map(|value| value.to_bits()))
    };
    let same_ids = |ids: &Array3<i32>| part(ids, row) == part(ids, row - 1);
    let ids = part(&trace.ids, row);
    ids.iter().any(|&id| id != MISSING)
        && same_ids(&trace.ids)
        && trace.shadow.as_ref().is_none_or(same_ids)
        && trace.weights.as_ref().is_none_or(same_f32)
        && trace
            .candidates
            .as_ref()
            .is_none_or(|c| same_ids(&c.ids) && same_f32(&c.sel) && same_f32(&c.logit))
}

/// Everything of one row, all layers.
fn part<T>(values: &Array3<T>, row: usize) -> &[T] {
    let (_, layers, width) = values.dim();
    &values.as_slice().expect("values in C order")[row * layers * width..(row + 1) * layers * width]
}
