//! How an explanation ends: nothing to explain, bugs, a map, nothing; on sides that are tables.

mod fake;

use diff::explain::{Finding, Outcome, Question, explain};
use fake::{Edit, Fake, Table};
use ndarray::Array2;
use spec::{Case, Precision, Schedule, Site, TokenId};

const TOKENS: usize = 40;

fn edit(site: Site, change: fn(&mut Array2<f32>)) -> Edit {
    Edit { site, change }
}

fn doubled(rows: &mut Array2<f32>) {
    *rows *= 2.0;
}

/// All values of a row are its first.
fn flattened(rows: &mut Array2<f32>) {
    for mut row in rows.rows_mut() {
        let first = row[0];
        row.fill(first);
    }
}

fn others(rows: &mut Array2<f32>) {
    rows.mapv_inplace(|id| (id + 2.0) % 4.0);
}

fn bench() -> Fake {
    Fake::new(vec![
        ("attention_doubled", edit(Site::AttnBranch, doubled)),
        ("weights_doubled", edit(Site::TopkWeights, doubled)),
        ("weights_flat", edit(Site::TopkWeights, flattened)),
        ("others_chosen", edit(Site::ShadowChoice, others)),
        ("nothing_done", edit(Site::Logits, |_| ())),
    ])
}

fn explained(bench: &Fake, port: Vec<Edit>, together: usize) -> Finding {
    explained_port(bench, Table::new(port), together)
}

fn explained_port(bench: &Fake, port: Table, together: usize) -> Finding {
    let case = Case::new("text", vec![TokenId(1); TOKENS]).unwrap();
    let (schedule, precision) = (Schedule::chunks_of(TOKENS), Precision::F32);
    explain(&Question { bench, port: &port, case: &case, schedule, precision, together }, &mut ()).unwrap()
}

#[test]
fn equal_sides_leave_nothing_to_explain() {
    let found = explained(&bench(), Vec::new(), 3);
    assert_eq!(found.outcome, Outcome::NothingToExplain);
    assert_eq!(found.sentence, "nothing to explain: agrees with the reference to 0");
    assert_eq!((found.base.residual, found.passes, found.lanes), (0.0, 1, 6));
    assert_eq!(found.without_effect, ["nothing_done"]);
}

#[test]
fn sound_layers_with_wrong_logits_at_the_end_are_not_nothing() {
    let port = Table { at_the_end: doubled, ..Table::new(Vec::new()) };
    let found = explained_port(&bench(), port, 1);
    assert_eq!((found.outcome, found.end_to_end), (Outcome::BetweenLayers, 1.0));
    assert!(found.sentence.contains("the logits end to end are 1.0e0 away"), "{}", found.sentence);
}

#[test]
fn one_bug_is_named_with_the_next_best() {
    let bench = bench();
    let found = explained(&bench, bench.edits("weights_doubled"), 3);
    assert_eq!(found.outcome, Outcome::Bugs);
    assert_eq!(found.hypotheses[0].bugs, ["weights_doubled"]);
    // all rows of two layers of the five judged sites, of the embedding and of the logits
    assert_eq!((found.base.residual, found.base.rows_beyond, found.base.rows), (1.0, 80, 480));
    let start = "agrees with the reference to 0 if there is weights_doubled (`weights_doubled`); next best ";
    assert!(found.sentence.starts_with(start), "{}", found.sentence);
}

#[test]
fn a_router_that_chooses_others_is_named() {
    let bench = bench();
    let found = explained(&bench, bench.edits("others_chosen"), 1);
    assert_eq!((found.outcome, found.base.residual), (Outcome::Bugs, 1.0));
    assert_eq!(found.base.at, "layer 0, shadow_choice");
    assert_eq!(found.hypotheses[0].bugs, ["others_chosen"]);
}

#[test]
fn three_bugs_together_are_named_where_three_are_tried() {
    let bench = bench();
    let ids = "attention_doubled,others_chosen,weights_flat";
    let found = explained(&bench, bench.edits(ids), 3);
    assert_eq!(found.outcome, Outcome::Bugs);
    assert_eq!(found.hypotheses[0].bugs.join(","), ids);
    assert_eq!(found.passes, 3);
    let two = explained(&bench, bench.edits(ids), 2);
    // two leave one place wrong; where all three act, the first is a map of rows
    assert_eq!(two.outcome, Outcome::Map);
    assert!(two.hypotheses.iter().all(|other| other.bugs.len() <= 2 && !other.explains));
}

#[test]
fn two_bugs_that_are_the_same_here_are_named_together() {
    let mut bench = bench();
    bench.bugs.push(("weights_twice", edit(Site::TopkWeights, doubled)));
    let found = explained(&bench, bench.edits("weights_doubled"), 1);
    assert_eq!(
        (&*found.hypotheses[0].bugs[0], &*found.hypotheses[0].same_as[0]),
        ("weights_doubled", "weights_twice")
    );
    assert!(found.sentence.contains("; so it does if `weights_twice`"), "{}", found.sentence);
}

#[test]
fn a_few_rows_on_the_other_side_of_a_rounding_do_not_hide_the_bug() {
    let bench = bench();
    let mut port = bench.edits("weights_doubled");
    port.push(edit(Site::TopkWeights, |rows| rows[[3, 0]] *= 1.01));
    let found = explained(&bench, port, 1);
    assert_eq!((found.outcome, found.hypotheses[0].rows_beyond), (Outcome::Bugs, 2));
    assert!(
        found.sentence.contains("in all but 2 of 480 rows if there is weights_doubled"),
        "{}",
        found.sentence
    );
}

#[test]
fn a_sign_that_no_bug_flips_is_found_as_a_factor() {
    let found = explained(&bench(), vec![edit(Site::MoeBranch, |rows| *rows *= -1.0)], 1);
    assert_eq!(found.outcome, Outcome::Map);
    let expected = "no known bug explains it; at layer 0, moe_branch the port's rows are the reference's \
                    with the sign flipped to 0 (2.0e0 without)";
    assert_eq!(found.sentence, expected);
}

#[test]
fn a_nan_is_explained_by_nothing() {
    let bench = bench();
    let mut port = bench.edits("weights_doubled");
    port.push(edit(Site::AttnBranch, |rows| rows[[5, 0]] = f32::NAN));
    let found = explained(&bench, port, 2);
    assert_eq!(found.outcome, Outcome::Unexplained);
    assert!(found.base.residual.is_nan() && found.hypotheses.iter().all(|other| !other.explains));
}

#[test]
fn what_no_bug_and_no_map_makes_is_left_unexplained() {
    let found =
        explained(&bench(), vec![edit(Site::MoeBranch, |rows| rows.mapv_inplace(|x| (97.0 * x).sin()))], 3);
    assert_eq!(found.outcome, Outcome::Unexplained);
    assert!(found.sentence.starts_with("nothing explains it: "), "{}", found.sentence);
    assert!(found.sentence.contains("; no known bug brings it nearer; "), "{}", found.sentence);
    let maps = found.maps_at.expect("maps were tried");
    assert_eq!(maps.at, "layer 0, moe_branch");
    assert!(maps.tried.iter().all(|map| map.residual.is_none_or(|left| left > 0.1)));
}
