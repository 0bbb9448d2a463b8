//! `assay mutate`: a checkpoint with a planted bug in it, for a port of any kind.

use crate::cli::Mutate;
use crate::console::say;
use mutants::{Facts, Mutant, Occasion, PortPlant, edit};
use spec::output::NewFolder;
use spec::{Error, ExpertId, LayerId, Result, config_file};

/// Writes the folder and says what it holds.
pub fn run(arguments: &Mutate, out: &mut String) -> Result<()> {
    let bugs = mutants::find_all(&arguments.mutant)?;
    if let Some(bug) = bugs.iter().find(|bug| !is_in_checkpoint(bug)) {
        return Err(not_of_a_checkpoint(bug));
    }
    let config = config_file::read(&arguments.checkpoint)?;
    // texts and schedules come later; a bias's values are not looked at
    let occasion = Occasion {
        config: &config,
        tokens: usize::MAX,
        chunk: 1,
        batch: true,
        nonzero_bias: true,
        wide_bias: true,
    };
    let unmet = bugs.iter().flat_map(|bug| bug.needs).find(|need| !need.is_met(&occasion));
    if let Some(need) = unmet {
        let found = "a checkpoint in which the bug changes nothing".into();
        return Err(refuse(&arguments.mutant, need.words(), found));
    }
    // no text says which expert is idle: the last one of the last layer
    let experts = u16::try_from(config.num_experts).expect("config bounds the expert count");
    let idle = (LayerId(config.num_layers() - 1), ExpertId(experts - 1));
    let edits = mutants::edits(&bugs, &Facts { config: &config, idle });
    if edits.is_empty() {
        let found = "none that changes this checkpoint".into();
        return Err(refuse(&arguments.mutant, "an edit of a tensor or of the configuration", found));
    }
    let folder = NewFolder::create(&arguments.output)?;
    edit::apply(&arguments.checkpoint, &edits, folder.path())?;
    folder.finish()?;
    say!(out, "{}", arguments.output.display());
    for bug in bugs {
        say!(out, "{}: {}", bug.id, bug.what);
    }
    say!(
        out,
        "{} edits; files that none touches are links to {}",
        edits.len(),
        arguments.checkpoint.display()
    );
    Ok(())
}

fn is_in_checkpoint(bug: &Mutant) -> bool {
    matches!(bug.port, Some(PortPlant::Checkpoint(_)))
}

fn not_of_a_checkpoint(bug: &Mutant) -> Error {
    let ids: Vec<&str> = mutants::catalogue().filter(|bug| is_in_checkpoint(bug)).map(|bug| bug.id).collect();
    refuse(bug.id, &format!("a bug that a checkpoint can carry: {}", ids.join(", ")), "one of a step".into())
}

fn refuse(id: &str, expected: &str, found: String) -> Error {
    Error::Argument {
        what: format!("--mutant {id}"),
        expected: expected.into(),
        found,
        next: "choose another; a bug of a step needs --port-mutant".into(),
    }
}
