//! The documents name what there is: checks, legs and planted bugs.

use diff::gate::checks;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)).unwrap()
}

/// The bugs that a gate file binds to some check.
fn bound(gate: &str) -> BTreeSet<String> {
    let gate: Value = serde_json::from_str(gate).unwrap();
    let checks = gate["checks"].as_object().unwrap().values();
    checks.flat_map(|check| check["controls"].as_object().unwrap().keys().cloned()).collect()
}

#[test]
fn every_planted_bug_and_rewrite_is_documented_in_the_words_of_the_catalogue() {
    let document = document("mutants.md");
    for mutant in mutants::catalogue().chain(mutants::variants()) {
        let row = document.lines().find(|line| line.starts_with(&format!("| `{}` |", mutant.id)));
        let row = row.unwrap_or_else(|| panic!("docs/mutants.md lacks `{}`", mutant.id));
        assert!(row.contains(mutant.what), "docs/mutants.md says something else of `{}`", mutant.id);
        assert!(mutant.seen_in.iter().all(|report| row.contains(report)), "{row}");
    }
}

#[test]
fn every_bug_that_a_gate_binds_is_in_the_catalogue() {
    let bound = bound(fixtures::gates::TRAINED);
    assert!(bound.len() > 30);
    let of_harness: BTreeSet<String> = diff::gate::of_harness().into_iter().map(|row| row.id).collect();
    for id in bound {
        assert!(mutants::find(&id).is_some() || of_harness.contains(&id), "{id}");
    }
}

/// Lines as they are without the layout that rustfmt decides.
fn dense(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn every_added_line_of_the_guide_to_extending_stands_in_the_file_it_names() {
    let guide = document("extending.md");
    let (mut file, mut lines, mut files) = (String::new(), 0, BTreeSet::new());
    for line in guide.lines() {
        if let Some(path) = line.strip_prefix("--- a/") {
            let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
            file = dense(&std::fs::read_to_string(whole).unwrap_or_else(|e| panic!("{path}: {e}")));
            files.insert(path);
        } else if let Some(added) = line.strip_prefix('+') {
            assert!(file.contains(&dense(added)), "{added}");
            lines += 1;
        }
    }
    assert!(files.len() > 12 && lines > 40, "{} files, {lines} lines", files.len());
}

#[test]
fn every_check_and_leg_is_documented() {
    let document = document("gate.md");
    for check in checks::all() {
        assert!(document.contains(&format!("`{}`", check.name)), "docs/gate.md lacks `{}`", check.name);
        for (leg, _) in check.legs {
            // the arms and the stretches of one leg share a row
            let ends = [".past_window", ".f32", ".bf16"];
            let stem = ends.iter().fold(*leg, |leg, end| leg.trim_end_matches(end));
            assert!(document.contains(&format!("`{stem}")), "docs/gate.md lacks `{leg}` of `{}`", check.name);
        }
    }
}
