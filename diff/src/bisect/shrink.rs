//! The shortest cut of a sequence that still shows what was found.
//!
//! What comes after the call of the first wrong row cannot have made it wrong, and nearly always nothing
//! after the row itself has: the cut ends there, or as soon after it as shows it. How many tokens can go from
//! its start is found by halving: some number of dropped tokens is known to keep it, some larger one is known
//! not to. Where keeping it is not monotone in that number, the result is still known to keep it, and may not
//! be the shortest.

use spec::Result;
use std::ops::Range;

/// At most so many probes where the first wrong row is `first`, in a call that ends at `call_end`, exclusive:
/// one, and the logarithms of what may be left off either end, rounded up.
pub fn probes_max(first: usize, call_end: usize) -> usize {
    1 + log2(call_end - first) + log2(call_end)
}

fn log2(count: usize) -> usize {
    count.max(1).next_power_of_two().trailing_zeros() as usize
}

/// The shortest cut that shows what row `first` does, in a call that ends at `call_end`, exclusive. `shows`
/// gives the first wrong row of a cut, counted from its start, if there is one. Errors: whatever it returns.
pub fn shortest(
    first: usize,
    call_end: usize,
    mut shows: impl FnMut(Range<usize>) -> Result<Option<usize>>,
) -> Result<Range<usize>> {
    let end = earliest_end(first, call_end, &mut shows)?;
    let mut best = 0..end;
    // dropping `keeps` tokens keeps it; dropping `loses` loses it: of no tokens nothing can be seen
    let (mut keeps, mut loses) = (0, end);
    while loses - keeps > 1 {
        let drop = keeps + (loses - keeps) / 2;
        match shows(drop..end)? {
            Some(_) => {
                keeps = drop;
                best = drop..end;
            }
            None => loses = drop,
        }
    }
    Ok(best)
}

/// Where a cut from the start must end at the earliest, exclusive.
fn earliest_end(
    first: usize,
    call_end: usize,
    shows: &mut impl FnMut(Range<usize>) -> Result<Option<usize>>,
) -> Result<usize> {
    let prefix = first + 1;
    if prefix == call_end || shows(0..prefix)?.is_some() {
        return Ok(prefix);
    }
    let (mut short, mut long) = (prefix, call_end);
    while long - short > 1 {
        let middle = short + (long - short) / 2;
        match shows(0..middle)? {
            Some(_) => long = middle,
            None => short = middle,
        }
    }
    Ok(long)
}
