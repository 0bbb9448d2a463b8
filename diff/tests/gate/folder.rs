//! A run's folder.

use crate::fake::Fake;
use crate::gates::{blank, judged};
use diff::gate::folder::{RECORD, read, write};
use diff::gate::record::Record;
use rstest::rstest;

fn tables(record: &Record) -> String {
    format!("layers of {}\n", record.name)
}

#[test]
fn a_record_is_read_as_it_was_written_with_nan_and_infinities() {
    let folder = tempfile::tempdir().unwrap();
    let mut record = judged(&Fake::new());
    record.findings[0].value = f64::NAN;
    record.findings[1].excess = f64::INFINITY;
    record.findings[2].calibrator = Some(f64::NEG_INFINITY);
    write(folder.path(), &record, tables).unwrap();
    assert_eq!(format!("{:?}", read(folder.path()).unwrap()), format!("{record:?}"));
    assert_eq!(std::fs::read_to_string(folder.path().join("layers.csv")).unwrap(), "layers of table\n");
    let controls = std::fs::read_to_string(folder.path().join("controls.json")).unwrap();
    assert_eq!(controls, serde_json::to_string_pretty(&record.controls).unwrap() + "\n");
}

#[rstest]
#[case::newer_schema("assay-record/1\"", "assay-record/2\"", "assay-record/2")]
#[case::no_schema("\"schema\":", "\"scheme\":", "no schema")]
#[case::a_key_twice("\"name\": \"table\"", "\"name\": \"a\", \"name\": \"b\"", "twice")]
#[case::an_unknown_key("\"name\": \"table\"", "\"name\": \"a\", \"mood\": \"b\"", "mood")]
#[case::truncated("\"findings\"", "", "line")]
fn a_damaged_record_is_refused(#[case] from: &str, #[case] to: &str, #[case] word: &str) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &blank(), tables).unwrap();
    let path = folder.path().join(RECORD);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from));
    let damaged = match to {
        "" => text[..text.find(from).unwrap()].to_owned(),
        _ => text.replacen(from, to, 1),
    };
    std::fs::write(&path, damaged).unwrap();
    let message = read(folder.path()).unwrap_err().to_string();
    assert!(message.contains(RECORD) && message.contains(word), "{message}");
}

#[test]
fn a_missing_record_is_refused_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let message = read(folder.path()).unwrap_err().to_string();
    assert!(message.contains(&folder.path().join(RECORD).display().to_string()), "{message}");
}

#[test]
fn a_write_that_fails_leaves_the_record_that_was_there() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &blank(), tables).unwrap();
    let before = std::fs::read(folder.path().join(RECORD)).unwrap();
    // nothing can be renamed onto a folder that is not empty
    std::fs::remove_file(folder.path().join("controls.json")).unwrap();
    std::fs::create_dir_all(folder.path().join("controls.json/in-the-way")).unwrap();
    let other = Record { name: "other".into(), ..blank() };
    write(folder.path(), &other, tables).unwrap_err();
    assert_eq!(std::fs::read(folder.path().join(RECORD)).unwrap(), before);
    assert_eq!(read(folder.path()).unwrap(), blank());
}
