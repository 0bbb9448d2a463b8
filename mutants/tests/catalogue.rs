//! What the catalogue says about each bug.

use mutants::{Mutant, catalogue, find};
use std::collections::BTreeSet;

#[test]
fn ids_are_unique_words_by_which_bugs_are_found() {
    let ids: BTreeSet<&str> = catalogue().map(|mutant| mutant.id).collect();
    assert_eq!(ids.len(), catalogue().count());
    for id in ids {
        assert!(id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{id}");
        assert_eq!(find(id).unwrap().id, id);
    }
    assert!(find("window_two_short").is_none());
}

#[test]
fn every_bug_says_what_it_is_and_who_met_it_and_can_be_planted() {
    for mutant @ Mutant { id, what, seen_in, port, .. } in catalogue() {
        assert!(what.split(' ').count() > 3 && !what.ends_with('.') && what.is_ascii(), "{id}: {what}");
        assert!(!seen_in.is_empty(), "{id}");
        for report in *seen_in {
            let number = report.split_once('#').map(|(_, number)| number.parse::<u32>().is_ok());
            let named = matches!(*report, "published Kolibri gate" | "this project");
            assert!(number.unwrap_or(named), "{id}: {report}");
        }
        assert!(port.is_some() || mutant.reference().is_some(), "{id}");
    }
}

#[test]
fn bugs_come_by_stage() {
    assert!(catalogue().is_sorted_by_key(|mutant| mutant.stage));
}

#[test]
fn seven_bugs_can_be_in_both_sides() {
    let both = catalogue().filter(|mutant| mutant.port.is_some() && mutant.reference().is_some());
    assert_eq!(both.count(), 7);
}
