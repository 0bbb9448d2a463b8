//! Whole searches on sides that are tables.

use crate::fake::{Fake, Row};
use diff::bench::Bench;
use diff::bisect::{CASE, FINDING, Finding, Key, PartName, Pattern, Plan, run};
use rstest::rstest;
use spec::{Case, LayerId, LayerKind, Precision, Schedule, Site, TokenId};
use std::path::Path;

pub fn key(schedule: Schedule) -> Key {
    Key {
        assay_version: "1".into(),
        weights_sha256: "w".into(),
        config_sha256: "c".into(),
        tokens_sha256: "t".into(),
        schedule,
        precision: Precision::F32,
        port_mutant: None,
    }
}

pub fn case(tokens: usize) -> Case {
    let id = |token: usize| TokenId(u32::try_from(token % 3).unwrap());
    Case::new("case", (0..tokens).map(id).collect()).unwrap()
}

pub fn search(fake: &Fake, schedule: Schedule, folder: &Path) -> spec::Result<Finding> {
    let (key, case) = (key(schedule), case(12));
    run(fake, &Plan { case: &case, key: &key, folder }, &mut ())
}

/// Twelve tokens in chunks of four.
fn found(fake: &Fake) -> (Finding, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let finding = search(fake, Schedule::chunks_of(4), folder.path()).unwrap();
    (finding, folder)
}

#[test]
fn of_equal_sides_there_is_nothing_to_find() {
    let fake = Fake::new(|_, _| {});
    let (finding, folder) = found(&fake);
    assert!(!finding.is_wrong());
    assert!(
        finding.sentence.starts_with("nothing to find: every part agrees to 0.0e0"),
        "{}",
        finding.sentence
    );
    assert_eq!(finding.parts.len(), 4, "embedding, two layers, head");
    assert!(finding.parts.iter().all(|row| row.error_max == 0.0));
    assert!(!folder.path().join(CASE).exists());
    let written: Finding =
        serde_json::from_slice(&std::fs::read(folder.path().join(FINDING)).unwrap()).unwrap();
    assert_eq!(written, finding);
}

/// Layer 1, keys after their norm, from position 5 on, and everything made of them.
fn norm_of_keys(row: &Row, values: &mut [f32]) {
    let made_of_it = row.site >= Site::KNorm && row.site.is_per_layer() && row.site != Site::QRope;
    let of_numbers = !matches!(row.site, Site::Choice | Site::ShadowChoice);
    if row.layer == Some(1) && row.position >= 5 && made_of_it && of_numbers {
        values[0] += 0.125;
    }
}

#[test]
fn the_first_site_of_the_first_wrong_layer_is_named_with_its_rows() {
    let (finding, folder) = found(&Fake::new(norm_of_keys));
    let origin = finding.origin.as_ref().unwrap();
    assert_eq!(origin.part, PartName::Layer(LayerId(1), LayerKind::Full));
    assert_eq!((origin.sites.as_slice(), origin.position), (&[Site::KNorm][..], 5));
    assert_eq!(origin.pattern, Pattern::From { from: 5 });
    // 0.125 of a row [1, 2]
    assert!((origin.error - 0.125 / 5_f64.sqrt()).abs() <= 1e-12, "{}", origin.error);
    assert_eq!(origin.in_one_call, Some(true));
    assert_eq!(
        finding.sentence,
        "first wrong at layer 1 (full), site k_norm, position 5, all heads; from position 5 on; in this \
         layer only; layer 0 agrees to 0.0e0"
    );
    // a cut counts its positions from 0, so that only the sixth row of one shows it
    let shrunk = finding.shrunk.as_ref().unwrap();
    assert_eq!((shrunk.start, shrunk.end, shrunk.confirmed), (0, 6, true));
    assert_eq!(shrunk.layers, Some([1, 2]));
    let written = std::fs::read_to_string(folder.path().join(CASE)).unwrap();
    let ids: Vec<Vec<u32>> = serde_json::from_str(&written).unwrap();
    assert_eq!(ids, [[0, 1, 2, 0, 1, 2]]);
    assert!(finding.runs.probes <= finding.runs.probes_max, "{:?}", finding.runs);
}

fn a_nan(row: &Row, values: &mut [f32]) {
    if row.layer == Some(0) && row.site == Site::OProj && row.position == 7 {
        values[1] = f32::NAN;
    }
}

fn an_embedding(row: &Row, values: &mut [f32]) {
    if row.site == Site::Embedding && row.position == 2 || row.site == Site::Logits {
        values[0] += 1.0;
    }
}

fn a_head(row: &Row, values: &mut [f32]) {
    if row.site == Site::Logits && row.position == 3 {
        values[0] += 1.0;
    }
}

fn executed_another(row: &Row, values: &mut [f32]) {
    if row.layer == Some(1) && row.site == Site::Choice && row.position == 4 {
        values[0] = 3.0;
    }
}

#[rstest]
#[case::a_nan(a_nan, PartName::Layer(LayerId(0), LayerKind::Sliding), Site::OProj, 7)]
#[case::the_embedding_before_all(an_embedding, PartName::Embedding, Site::Embedding, 2)]
#[case::the_head(a_head, PartName::Head, Site::Logits, 3)]
#[case::an_expert_that_was_not_forced(
    executed_another,
    PartName::Layer(LayerId(1), LayerKind::Full),
    Site::Choice,
    4
)]
fn one_wrong_row_is_found(
    #[case] defect: crate::fake::Edit,
    #[case] part: PartName,
    #[case] site: Site,
    #[case] position: usize,
) {
    let (finding, _folder) = found(&Fake::new(defect));
    let origin = finding.origin.as_ref().unwrap();
    assert_eq!((origin.part, origin.site, origin.position), (part, site, position), "{}", finding.sentence);
    assert!(finding.is_wrong());
}

/// As much as sixteen times what f64 changes is rounding; more is not.
#[rstest]
#[case::within(15.0, false)]
#[case::beyond(17.0, true)]
fn bounds_come_from_the_reference_in_f64(#[case] times: f32, #[case] wrong: bool) {
    const STEP: f32 = 1.0 / 1024.0;
    let defect: crate::fake::Edit = if times > 16.0 {
        |row, values| values[0] += if row.site == Site::AttnNorm { 17.0 * STEP } else { 0.0 }
    } else {
        |row, values| values[0] += if row.site == Site::AttnNorm { 15.0 * STEP } else { 0.0 }
    };
    let mut fake = Fake::new(defect);
    fake.rounding = |row, values| values[0] += if row.site == Site::AttnNorm { STEP } else { 0.0 };
    let (finding, _folder) = found(&fake);
    assert_eq!(finding.is_wrong(), wrong, "{}", finding.sentence);
}

/// One unit in the last place of 1, as many times as the position.
fn units(row: &Row, site: Site) -> f32 {
    if row.site == site { f32::EPSILON * row.position as f32 } else { 0.0 }
}

/// Rows are `[1, 2]`, so that n units are n / sqrt(5) of them; what is allowed is 4 units, and after RoPE one
/// more a position. Twice the position stays below that everywhere, and attention may be off likewise: at
/// position 11 its 11 / sqrt(5) = 4.9 units are within 4 times 22 / sqrt(5) / 4.
fn angles(row: &Row, values: &mut [f32]) {
    values[0] += 2.0 * units(row, Site::QRope) + units(row, Site::AttnOut);
}

/// The same of attention alone: from position 9 on, 9 / sqrt(5) > 4.
fn attention(row: &Row, values: &mut [f32]) {
    values[0] += units(row, Site::AttnOut);
}

/// Four times the position is more than is allowed from position 6 on: 24 / sqrt(5) = 10.7 > 4 + 6.
fn wide_angles(row: &Row, values: &mut [f32]) {
    values[0] += 4.0 * units(row, Site::QRope);
}

#[rstest]
#[case::angles(angles, None)]
#[case::wide_angles(wide_angles, Some((Site::QRope, 6)))]
#[case::attention_without_them(attention, Some((Site::AttnOut, 9)))]
fn rounded_angles_are_no_defect(#[case] defect: crate::fake::Edit, #[case] expected: Option<(Site, usize)>) {
    let (finding, _folder) = found(&Fake::new(defect));
    let origin = finding.origin.as_ref().map(|origin| (origin.site, origin.position));
    assert_eq!(origin, expected, "{}", finding.sentence);
}

/// What the port keeps from one layer to the next, in later calls: no layer alone has it.
fn kept_between_layers(row: &Row, values: &mut [f32]) {
    let after = row.layer == Some(1) && row.site == Site::LayerOut || row.site == Site::Logits;
    if row.end_to_end && after && row.call.start > 0 && row.position >= 6 {
        values[0] += 1.0;
    }
}

#[test]
fn what_shows_end_to_end_only_is_found_by_position_layer_and_schedule() {
    let (finding, folder) = found(&Fake::new(kept_between_layers));
    assert!(finding.origin.is_none());
    let schedules = &finding.end_to_end.as_ref().unwrap().schedules;
    let told: Vec<_> = schedules.iter().map(|row| (row.name.as_str(), row.position)).collect();
    // the window is 2; of calls of one token position 6 is one
    let expected = [
        ("chunks of 4", Some(6)),
        ("one call", None),
        ("chunks of 2", Some(6)),
        ("one token per call", Some(6)),
    ];
    assert_eq!(told, expected);
    assert_eq!(schedules[0].layer, Some(LayerId(1)));
    assert_eq!(
        finding.sentence,
        "wrong end to end only: first layer_out of layer 1, position 6; fed in chunks of 4, chunks of 2, \
         one token per call; not in one call; every part alone agrees to 0.0e0"
    );
    let shrunk = finding.shrunk.as_ref().unwrap();
    assert_eq!((shrunk.start, shrunk.end, shrunk.layers, shrunk.confirmed), (0, 7, Some([0, 2]), true));
    assert!(finding.runs.probes <= finding.runs.probes_max, "{:?}", finding.runs);
    assert!(folder.path().join(CASE).exists());
}

/// Shows in sequences of twelve tokens only: no shorter one does, and that is said.
fn of_twelve_tokens(row: &Row, values: &mut [f32]) {
    if row.tokens == 12 && row.layer == Some(0) && row.site == Site::Routed && row.position == 1 {
        values[0] += 1.0;
    }
}

#[test]
fn what_no_shorter_sequence_shows_keeps_the_whole() {
    let (finding, _folder) = found(&Fake::new(of_twelve_tokens));
    assert_eq!(finding.origin.as_ref().unwrap().position, 1);
    let shrunk = finding.shrunk.unwrap();
    assert_eq!((shrunk.start, shrunk.end, shrunk.confirmed), (0, 12, false));
}

/// In decode from position 8 on, the second call of one token is wrong.
fn second_decode_call(row: &Row, values: &mut [f32]) {
    let decode = row.call.len() == 1 && row.position > 0;
    if row.layer == Some(0) && row.site == Site::QRope && decode && row.position + 1 == row.tokens {
        values[0] += 1.0;
    }
}

#[test]
fn a_cut_of_a_decode_case_starts_to_decode_at_the_same_token() {
    let folder = tempfile::tempdir().unwrap();
    let schedule = Schedule { decode_from: Some(8), ..Schedule::chunks_of(4) };
    let finding = search(&Fake::new(second_decode_call), schedule, folder.path()).unwrap();
    let origin = finding.origin.as_ref().unwrap();
    assert_eq!((origin.position, origin.in_one_call), (11, Some(false)));
    // the last two tokens, both of them in calls of one
    let shrunk = finding.shrunk.unwrap();
    assert_eq!((shrunk.start, shrunk.end), (10, 12));
    assert_eq!(shrunk.schedule.decode_from, Some(0));
}

#[test]
fn an_id_outside_the_vocabulary_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (key, case) = (key(Schedule::chunks_of(4)), Case::new("case", vec![TokenId(3)]).unwrap());
    let fake = Fake::new(|_, _| {});
    assert_eq!(fake.reference().config().vocab_size, 3);
    let refused = run(&fake, &Plan { case: &case, key: &key, folder: folder.path() }, &mut ()).unwrap_err();
    assert!(refused.to_string().contains("id 3 at position 0"), "{refused}");
}
