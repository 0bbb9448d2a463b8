//! The committed sample is what this version makes of its record.

use diff::gate::folder;
use reports::{Format, layers_csv, render};
use rstest::rstest;
use std::path::Path;

fn sample() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample")
}

#[rstest]
#[case("report.md", Format::Md)]
#[case("report.html", Format::Html)]
#[case("layers.csv", Format::Csv)]
#[case("record.json", Format::Json)]
fn the_sample_is_what_its_record_renders_to(#[case] file: &str, #[case] format: Format) {
    let record = folder::read(&sample()).unwrap();
    let committed = std::fs::read_to_string(sample().join(file)).unwrap();
    assert!(render(&record, format) == committed, "{file}: make it again with `assay report reports/sample`");
    assert!(layers_csv(&record).lines().count() > 2);
}
