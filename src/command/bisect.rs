//! `assay bisect`: where the port leaves the reference.

use super::{checkpoint, to_json};
use crate::bench::Workbench;
use crate::cli::{self, PrecisionName, Tokens};
use crate::console::{self, Phases};
use crate::{exit, text};
use diff::bench::Bench;
use diff::bisect::{Key, Plan};
use spec::{Error, Precision, Result, Schedule, TokenId, config_file, hash};
use std::num::NonZeroUsize;

/// Searches and prints; gives the exit code.
pub fn run(arguments: &cli::Bisect, out: &mut String) -> Result<u8> {
    let searched = &arguments.searched;
    refuse_bf16(searched.precision)?;
    let dir = &searched.checkpoint;
    let config = config_file::read(dir)?;
    let texts = text::read(dir, &config, &one_sequence(&searched.tokens)?)?;
    let case = texts.cases.first().expect("a text has a sequence");
    let threads = searched.threads.map(NonZeroUsize::get);
    let bench = Workbench::open(dir, threads, searched.port_mutant.as_deref())?;
    let scan = checkpoint::examine(dir)?;
    let schedule =
        Schedule { decode_from: searched.decode_from, ..Schedule::chunks_of(searched.chunk.get()) };
    let key = Key {
        assay_version: env!("CARGO_PKG_VERSION").into(),
        weights_sha256: scan.weights_sha256,
        config_sha256: scan.config_sha256,
        tokens_sha256: tokens_sha256(&case.tokens),
        schedule,
        precision: Precision::F32,
        port_mutant: searched.port_mutant.clone(),
    };
    let plan = Plan { case, key: &key, folder: &arguments.output };
    let found = diff::bisect::run(&bench, &plan, &mut Phases::new())?;
    if searched.json {
        out.push_str(&to_json(&found)?);
    } else {
        let sides = [bench.reference().describe(), bench.port(Precision::F32)?.describe()];
        console::print_bisection(&found, dir, &sides, &texts, &arguments.output, out);
    }
    Ok(if found.is_wrong() { exit::FAIL } else { 0 })
}

/// Bounds are measured as the distance of f32 steps from f64 steps. Errors: [`Error::Argument`].
fn refuse_bf16(precision: PrecisionName) -> Result<()> {
    match precision {
        PrecisionName::F32 => Ok(()),
        PrecisionName::Bf16 => Err(Error::Argument {
            what: "--precision bf16".into(),
            expected: "f32, whose rounding errors give the bounds of sites".into(),
            found: "bf16, whose rounding is larger than what most defects do to a site".into(),
            next: "bisect in f32; bf16 is compared by `assay compare` and judged by `assay gate`".into(),
        }),
    }
}

/// The first sequence is searched. Errors: [`Error::Argument`] if more were asked for.
fn one_sequence(wanted: &Tokens) -> Result<Tokens> {
    let one = NonZeroUsize::MIN;
    if let Some(sequences) = wanted.sequences.filter(|&sequences| sequences > one) {
        return Err(Error::Argument {
            what: "--sequences".into(),
            expected: "one sequence to search".into(),
            found: sequences.to_string(),
            next: "search each on its own, with --tokens".into(),
        });
    }
    Ok(Tokens {
        text: wanted.text.clone(),
        tokens: wanted.tokens.clone(),
        random_tokens: wanted.random_tokens,
        sequences: Some(one),
        length: wanted.length,
    })
}

fn tokens_sha256(tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|id| id.0.to_le_bytes()).collect();
    hash::of_bytes(&bytes)
}
