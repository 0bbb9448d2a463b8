//! What a comparison looks like in JSON and CSV; above all, what NaN looks like.

use crate::compare;
use crate::fake::{Fake, cases};
use diff::compare::Comparison;
use ndarray::array;
use serde_json::{Value, json};
use spec::Site;

/// Layer 0: a NaN row, no disagreement. Layer 1: one disagreement at a gap of 2 and a sigma of 0.
fn with_a_nan() -> Comparison {
    let (reference, mut port) = (Fake::new("reference", &[2]), Fake::new("port", &[2]));
    port.set(0, Site::AttnBranch, array![[3.0, 4.0], [f32::NAN, 4.0]]);
    port.set(1, Site::ShadowChoice, array![[0.0, 1.0], [0.0, 2.0]]);
    compare(&reference, &port, &cases(&[2])).unwrap()
}

#[test]
fn json_names_its_version_and_both_sides() {
    let found = serde_json::to_value(with_a_nan()).unwrap();
    assert_eq!(found["schema"], "assay-compare/1");
    assert_eq!((&found["reference"]["side"], &found["port"]["side"]), (&json!("reference"), &json!("port")));
    assert_eq!(found["cases"], json!([{"name": "case-0", "tokens": 2}]));
    assert_eq!(found["options"]["routing"], "forced_and_free");
}

#[test]
fn json_has_a_word_for_what_is_no_number() {
    let found = serde_json::to_value(with_a_nan()).unwrap();
    let [nan, inf] = [&found["layers"][0], &found["layers"][1]];
    assert_eq!((&nan["attn_branch"]["max"], &nan["worst"]["error"]), (&json!("NaN"), &json!("NaN")));
    assert_eq!(nan["worst"]["position"], 1);
    assert_eq!(nan["attn_branch"]["p50"], json!(0.0));
    assert_eq!(nan["disagreements"]["largest"], Value::Null);
    let largest = json!({"gap": 2.0, "z": "inf", "case": "case-0", "position": 1});
    assert_eq!(inf["disagreements"]["largest"], largest);
}

#[test]
fn csv_has_one_row_per_layer() {
    let found = with_a_nan().layers_csv();
    let mut lines = found.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 2);
    let field = |row: usize, name: &str| rows[row][header.iter().position(|column| *column == name).unwrap()];
    assert_eq!((field(0, "layer"), field(0, "kind"), field(0, "rows")), ("0", "sliding", "2"));
    assert_eq!((field(0, "attn_branch_rel_l2_p50"), field(0, "attn_branch_rel_l2_max")), ("0e0", "NaN"));
    assert_eq!((field(0, "worst_branch"), field(0, "worst_position")), ("attn_branch", "1"));
    assert_eq!((field(0, "largest_gap_logits"), field(0, "largest_z")), ("", ""));
    assert_eq!(
        (field(1, "set_disagreements_rows"), field(1, "set_disagreements_beyond_tie_rows")),
        ("1", "1")
    );
    assert_eq!((field(1, "largest_gap_logits"), field(1, "largest_z")), ("2e0", "inf"));
    assert_eq!((field(1, "router_sigma_logits"), field(1, "router_rms_logits")), ("0e0", "3e0"));
}
