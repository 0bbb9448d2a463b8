//! The log: a search that was stopped goes on, and no other search goes on with it.

use crate::fake::{Edit, Fake};
use crate::search::{case, key, search};
use diff::bisect::{Finding, Key, LOG, Plan, run};
use rstest::rstest;
use spec::{Schedule, Site};
use std::path::Path;

const DEFECT: Edit = |row, values| {
    let made_of_it = row.site >= Site::AttnOut && row.site != Site::Choice && row.site != Site::ShadowChoice;
    if row.layer == Some(0) && row.position >= 6 && made_of_it {
        values[0] += 1.0;
    }
};

fn four() -> Schedule {
    Schedule::chunks_of(4)
}

fn lines(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(LOG)).unwrap();
    text.lines().map(String::from).collect()
}

fn whole() -> (Finding, Vec<String>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let finding = search(&Fake::new(DEFECT), four(), folder.path()).unwrap();
    let lines = lines(folder.path());
    (finding, lines, folder)
}

#[test]
fn every_step_is_a_line_after_the_key() {
    let (finding, lines, _folder) = whole();
    assert_eq!(serde_json::from_str::<Key>(&lines[0]).unwrap(), key(four()));
    let step = |line: &String| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["step"].as_str().unwrap().split(':').next().unwrap().to_owned()
    };
    let steps: Vec<String> = lines[1..].iter().map(step).collect();
    let count = |name: &str| steps.iter().filter(|step| *step == name).count();
    assert_eq!(count("sweep"), finding.runs.sweeps);
    assert_eq!(count("probe"), finding.runs.probes);
    assert_eq!(count("confirm"), finding.runs.confirmations);
    assert_eq!(steps.len(), 1 + finding.runs.probes + finding.runs.confirmations);
}

/// A search stopped after any step ends where the uninterrupted one does, and runs nothing twice.
#[test]
fn a_stopped_search_goes_on_with_what_is_left() {
    let (finding, lines, folder) = whole();
    for done in 1..=lines.len() {
        // as if it had been stopped in the middle of the next line
        let half = lines.get(done).map_or("", |line| &line[..line.len() / 2]);
        std::fs::write(folder.path().join(LOG), lines[..done].join("\n") + "\n" + half).unwrap();
        let fake = Fake::new(DEFECT);
        assert_eq!(search(&fake, four(), folder.path()).unwrap(), finding, "from line {done}");
        // the sweep and the confirmation are passes
        let left = lines[done..].iter().filter(|line| !line.contains("\"probe")).count();
        assert_eq!(fake.made().0, left, "from line {done}");
    }
}

#[test]
fn a_side_that_fails_leaves_what_was_done() {
    let (finding, _, _folder) = whole();
    let folder = tempfile::tempdir().unwrap();
    // two layers of the sweep, one probe
    let stopped = Fake::new(DEFECT).stopping_after(3);
    search(&stopped, four(), folder.path()).unwrap_err();
    assert_eq!(lines(folder.path()).len(), 3, "key, sweep, one probe");
    assert_eq!(search(&Fake::new(DEFECT), four(), folder.path()).unwrap(), finding);
}

#[rstest]
#[case::weights(|key: &mut Key| key.weights_sha256 = "other".into(), "weights")]
#[case::config(|key: &mut Key| key.config_sha256 = "other".into(), "config.json")]
#[case::tokens(|key: &mut Key| key.tokens_sha256 = "other".into(), "tokens")]
#[case::schedule(|key: &mut Key| key.schedule = Schedule::chunks_of(5), "schedule")]
#[case::bugs(|key: &mut Key| key.port_mutant = Some("rope".into()), "planted bugs")]
#[case::version(|key: &mut Key| key.assay_version = "2".into(), "version of assay")]
fn the_log_of_another_search_is_refused(#[case] change: fn(&mut Key), #[case] named: &str) {
    let (_, before, folder) = whole();
    let (mut other, case) = (key(four()), case(12));
    change(&mut other);
    let fake = Fake::new(DEFECT);
    let refused = run(&fake, &Plan { case: &case, key: &other, folder: folder.path() }, &mut ()).unwrap_err();
    let message = refused.to_string();
    assert!(message.contains(&format!("one of another {named};")), "{message}");
    assert_eq!(refused.blame(), spec::error::Blame::Input);
    assert_eq!(lines(folder.path()), before);
    assert_eq!(fake.made(), (0, 0, 0));
}

#[test]
fn a_file_that_is_no_log_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(LOG), "hello\n").unwrap();
    let message = search(&Fake::new(DEFECT), four(), folder.path()).unwrap_err().to_string();
    assert!(message.contains("line 1:"), "{message}");
}
