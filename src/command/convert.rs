//! `assay convert`: a build that MLX's affine quantiser packed.

use super::{checkpoint, to_json};
use crate::cli::{self, BitsOrKeep};
use crate::console::{self, Bar};
use port::convert::{Policy, convert};
use spec::Result;

/// Writes the build and says what became of each kind of module.
pub fn run(arguments: &cli::Convert, out: &mut String) -> Result<()> {
    let policy = Policy {
        bits: arguments.bits,
        group: arguments.group,
        embedding: bits(arguments.embedding, arguments.bits),
        head: bits(arguments.head, arguments.bits),
    };
    let scan = checkpoint::examine(&arguments.checkpoint)?;
    let bar = Bar::bytes("packing", scan.bytes);
    let kinds = convert(&arguments.checkpoint, policy, &arguments.output, &|bytes| bar.add(bytes))?;
    drop(bar);
    if arguments.json {
        out.push_str(&to_json(&kinds)?);
    } else {
        console::print_kinds(&arguments.output, &kinds, out);
    }
    Ok(())
}

fn bits(asked: Option<BitsOrKeep>, usual: u32) -> Option<u32> {
    match asked {
        None => Some(usual),
        Some(BitsOrKeep::Bits(bits)) => Some(bits),
        Some(BitsOrKeep::Keep) => None,
    }
}
