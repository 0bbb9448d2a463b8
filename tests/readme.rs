//! The README is true: its commands run, and its sample output is what they print.

mod support;

use std::path::Path;
use support::assay;

/// Stands in the README for lines that are left out.
const ELLIPSIS: &str = "…";

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
        _ if number && word.contains(['e', '.']) => "#".into(),
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
    let output = assay(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    // 1: it ran and found a planted bug
    assert!(matches!(output.status.code(), Some(0 | 1)) && said.is_empty(), "{command}: {said}");
    String::from_utf8(output.stdout).expect("UTF-8")
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
            assert_shows(&words(&printed.replace(dir, "DIR")), &words(&shown), &command);
        }
    }
}

/// The lines that are shown, in order, and nothing else but where an ellipsis stands for any lines.
fn assert_shows(printed: &str, shown: &str, command: &str) {
    if !shown.lines().any(|line| line == ELLIPSIS) {
        return assert_eq!(printed.trim(), shown.trim(), "{command}");
    }
    let mut rest: Vec<&str> = printed.trim().lines().collect();
    let mut may_skip = false;
    for line in shown.trim().lines() {
        if line == ELLIPSIS {
            may_skip = true;
            continue;
        }
        let at = rest.iter().position(|found| *found == line);
        let at = at.unwrap_or_else(|| panic!("`{line}` does not come next in {command}:\n{printed}"));
        assert!(at == 0 || may_skip, "{} comes before `{line}` in {command}", rest[0]);
        rest.drain(..=at);
        may_skip = false;
    }
    assert!(rest.is_empty() || may_skip, "{} follows in {command}", rest[0]);
}

#[test]
#[should_panic(expected = "comes before")]
fn a_line_that_is_not_shown_and_not_left_out_is_noticed() {
    assert_shows("one\ntwo\nthree", "one\nthree\n…", "a command");
}

#[test]
#[should_panic(expected = "does not come next")]
fn a_shown_line_that_is_not_printed_is_noticed() {
    assert_shows("one\ntwo", "one\n…\nthree", "a command");
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
    for verb in [
        "inspect", "run", "compare", "make", "gate", "freeze", "report", "mutants", "mutate", "bisect",
        "explain", "probe",
    ] {
        let help = assay(&[verb, "--help"]);
        assert!(help.status.success());
        assert!(readme.contains(&format!("`assay {verb}")), "the README says nothing of {verb}");
    }
}
