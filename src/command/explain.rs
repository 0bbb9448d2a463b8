//! `assay explain`: which known bug, or which simple map, makes the port's divergence vanish.

use super::searched::{self, Opened};
use super::to_json;
use crate::cli;
use crate::console::{self, Phases, say};
use diff::bench::{Bench, Planted, PlantedIn};
use diff::explain::{Finding, Outcome, Question};
use spec::Result;

/// The JSON form: the finding, and of what.
#[derive(serde::Serialize)]
struct Report<'a> {
    assay_version: &'static str,
    checkpoint: String,
    text: &'a str,
    port_mutant: Option<&'a str>,
    #[serde(flatten)]
    finding: &'a Finding,
}

/// Tries all and prints.
pub fn run(arguments: &cli::Explain, out: &mut String) -> Result<()> {
    let searched = &arguments.searched;
    let dir = &searched.checkpoint;
    let Opened { bench, texts, schedule } = searched::open(searched)?;
    let precision = searched.precision.into();
    let port = bench.port(precision)?;
    console::warn_of_tf32(&port.describe());
    let question = Question {
        bench: &bench,
        port: &*port,
        case: &texts.cases[0],
        schedule,
        precision,
        together: arguments.together.into(),
    };
    let finding = diff::explain::explain(&question, &mut Phases::new())?;
    if searched.json {
        let report = Report {
            assay_version: env!("CARGO_PKG_VERSION"),
            checkpoint: dir.display().to_string(),
            text: &texts.about,
            port_mutant: searched.port_mutant.as_deref(),
            finding: &finding,
        };
        out.push_str(&to_json(&report)?);
    } else {
        say!(out, "{}\n", finding.sentence);
        say!(out, "checkpoint {}", dir.display());
        say!(out, "reference  {}", console::side(&bench.reference().describe()));
        say!(out, "port       {}", console::side(&port.describe()));
        say!(out, "text       {}", texts.about);
        console::print_planted(searched.port_mutant.as_deref(), out);
        console::print_explanation(&finding, out);
        if finding.outcome == Outcome::Unexplained {
            print_untried(&bench.planted(), out);
        }
        if searched.decode_from.is_none() && finding.outcome == Outcome::NothingToExplain {
            say!(out, "\n{}", console::PREFILL_ONLY);
        }
    }
    Ok(())
}

/// Bugs that no lane of the reference can have.
fn print_untried(planted: &[Planted], out: &mut String) {
    let of_port = |row: &&Planted| !row.rewrite && !row.sides.contains(&PlantedIn::Reference);
    let ids: Vec<&str> = planted.iter().filter(of_port).map(|row| row.id.as_str()).collect();
    say!(out, "\nNot tried, since the reference cannot have them (caches, schedules, loading):");
    say!(out, "{}.", ids.join(", "));
    say!(out, "`assay bisect` says where it goes wrong, and in which calls.");
}
