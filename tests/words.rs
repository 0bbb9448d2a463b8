//! What the command line says, as reviewed snapshots: words only, numbers are asserted elsewhere.

mod support;

use rstest::rstest;
use support::{TEXT, TRAINED, stdout};

#[rstest]
fn the_help_of_each_verb(#[values("", "inspect", "run", "compare", "make", "convert", "probe")] verb: &str) {
    let arguments = if verb.is_empty() { vec!["--help"] } else { vec![verb, "--help"] };
    insta::assert_snapshot!(format!("help-{verb}"), stdout(&arguments));
}

#[test]
fn the_census_of_the_trained_checkpoint() {
    insta::assert_snapshot!("inspect", stdout(&["inspect", TRAINED]));
}

#[test]
fn the_fields_of_a_comparison() {
    let found = support::json(&["compare", TRAINED, "--text", TEXT, "--length", "40", "--json"]);
    insta::assert_snapshot!("compare-fields", fields(&found, ""));
}

/// Every field's path, once; of a list, the fields of its first element.
fn fields(value: &serde_json::Value, path: &str) -> String {
    match value {
        serde_json::Value::Object(map) => {
            map.iter().map(|(k, v)| fields(v, &format!("{path}.{k}"))).collect()
        }
        serde_json::Value::Array(list) if !list.is_empty() => fields(&list[0], &format!("{path}[]")),
        _ => format!("{path}\n"),
    }
}
