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
fn every_planted_bug_is_a_control_of_the_trained_gate_and_is_documented() {
    let (bound, document) = (bound(fixtures::gates::TRAINED), document("mutants.md"));
    assert!(mutants::catalogue().count() > 30);
    for mutant in mutants::catalogue() {
        assert!(bound.contains(mutant.id), "no check of trained.json names `{}`", mutant.id);
        assert!(document.contains(&format!("`{}`", mutant.id)), "docs/mutants.md lacks `{}`", mutant.id);
    }
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
