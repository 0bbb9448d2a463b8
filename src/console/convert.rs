//! What became of a checkpoint's modules when it was packed, as text.

use super::{count, say, table};
use port::convert::Kind;
use std::path::Path;

/// Prints what became of each kind of module, and the sizes.
pub fn print_kinds(folder: &Path, kinds: &[Kind], out: &mut String) {
    let mut rows = table(&["module", "tensors", "packed", "bytes before", "bytes after"], 3);
    for kind in kinds {
        let packed = match kind.packed {
            Some((bits, group)) => format!("{bits} bits, groups of {group}"),
            None => format!("kept: {}", kind.kept),
        };
        let [before, after] = [kind.bytes_before, kind.bytes_after].map(count);
        rows.add_row([kind.module.clone(), count(kind.tensors as u64), packed, before, after]);
    }
    say!(out, "{rows}\n");
    let total = |of: fn(&Kind) -> u64| kinds.iter().map(of).sum::<u64>();
    let [before, after] = [total(|kind| kind.bytes_before), total(|kind| kind.bytes_after)];
    let packed = |kind: &Kind| if kind.packed.is_some() { kind.tensors as u64 } else { 0 };
    let [packed, all] = [total(packed), total(|kind| kind.tensors as u64)].map(count);
    say!(
        out,
        "{}: {packed} of {all} tensors packed; {} bytes, {:.3} of the checkpoint's {}",
        folder.display(),
        count(after),
        after as f64 / before as f64,
        count(before)
    );
}
