//! The README is true: its commands run, and its sample output is what they print.

mod support;

use std::path::Path;
use support::{assay, stdout};

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// The `assay …` commands of the README's console blocks, each with the output shown below it.
fn commands(readme: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
            continue;
        }
        let command = line.strip_prefix("$ ");
        match (inside, command, found.last_mut()) {
            (true, Some(command), _) => found.push((command.into(), String::new())),
            (true, None, Some((_, shown))) => {
                shown.push_str(line);
                shown.push('\n');
            }
            _ => {}
        }
    }
    found
}

/// What does not depend on the machine: measured errors become `#`, rules and paddings go, and so do the
/// places and texts that follow from which error is the largest. Counts, hashes and "none" stay.
fn words(text: &str) -> String {
    let kept = text.lines().filter(|line| !line.starts_with("| text up to there"));
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    kept.map(line).collect::<Vec<_>>().join("\n")
}

fn word(word: &str) -> String {
    let number = word.chars().all(|c| "0123456789.e-".contains(c));
    match word.split_once(':') {
        _ if number && word.contains("e-") => "#".into(),
        _ if word.starts_with("|-") => "|".into(),
        _ if word.ends_with("_branch") => "branch".into(),
        Some((case, position)) if position.parse::<usize>().is_ok() => {
            case.trim_end_matches(|c: char| c.is_ascii_digit()).into()
        }
        _ => word.into(),
    }
}

/// What `assay` prints for a README command, with `DIR` a folder of its own.
fn printed(command: &str, dir: &Path) -> String {
    let command = command.replace("DIR", dir.to_str().unwrap());
    let arguments: Vec<&str> = command.split_whitespace().collect();
    let assay_at = arguments.iter().position(|word| ["assay", "--"].contains(word));
    let arguments = &arguments[assay_at.expect("an assay command") + 1..];
    stdout(arguments)
}

#[test]
fn every_command_of_the_readme_runs_and_prints_what_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let commands: Vec<_> =
        commands(&readme()).into_iter().filter(|(c, _)| !c.contains("cargo test")).collect();
    assert!(commands.len() >= 6, "{commands:?}");
    for (command, shown) in commands {
        let printed = printed(&command, folder.path());
        if !shown.trim().is_empty() {
            let dir = folder.path().to_str().unwrap();
            assert_eq!(words(&printed.replace(dir, "DIR")).trim(), words(&shown).trim(), "{command}");
        }
    }
}

#[test]
fn the_two_commands_of_a_newcomer_stand_in_the_readme() {
    let readme = readme();
    assert!(readme.lines().any(|line| line == "./setup && cargo test --workspace"));
    let compare = "./setup && cargo run --release -- compare fixtures/kolibri-tiny-kjv --text \
                   fixtures/texts/kjv-heldout.txt";
    assert!(readme.lines().any(|line| line == compare));
}

#[test]
fn every_verb_has_help_and_is_in_the_readme() {
    let readme = readme();
    for verb in ["inspect", "run", "compare", "make", "gate", "freeze", "report"] {
        let help = assay(&[verb, "--help"]);
        assert!(help.status.success());
        assert!(readme.contains(&format!("`assay {verb}")), "the README says nothing of {verb}");
    }
}
