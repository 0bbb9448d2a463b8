//! `assay bisect`: where the port leaves the reference.

use super::searched::{self, Opened};
use super::{checkpoint, to_json};
use crate::cli::{self, PrecisionName};
use crate::console::{self, Phases};
use crate::exit;
use diff::bench::Bench;
use diff::bisect::{Key, Plan};
use spec::{Error, Precision, Result, TokenId, hash};

/// Searches and prints; gives the exit code.
pub fn run(arguments: &cli::Bisect, out: &mut String) -> Result<u8> {
    let searched = &arguments.searched;
    refuse_bf16(searched.precision)?;
    let dir = &searched.checkpoint;
    let Opened { bench, texts, schedule } = searched::open(searched)?;
    let case = texts.cases.first().expect("a text has a sequence");
    let scan = checkpoint::examine(dir)?;
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

fn tokens_sha256(tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|id| id.0.to_le_bytes()).collect();
    hash::of_bytes(&bytes)
}
