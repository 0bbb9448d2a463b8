//! The matrix of planted bugs as documents, made from numbers written by hand.

mod support;

use diff::matrix::Matrix;
use reports::{Format, matrix, matrix_terminal};
use support::HOSTILE;
use support::matrix::made_up;

#[test]
fn the_terminal_names_what_failed_and_ends_in_the_score() {
    let text = matrix_terminal(&made_up());
    assert_eq!(text.lines().last().unwrap(), "Score: 3 caught of 5 exercised (0.600)");
    for line in ["1 MISSED: unseen (port)", "1 CRASHED: broken (port)", "1 FALSE ALARM: noisy (port)"] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(text.contains("idle (port)") && text.contains("needs a full layer"));
    assert!(text.contains("fails without any bug") && text.contains("free.top1 shortfall"));
    assert!(text.contains("under ten times their limit: free.kl, layer.head"), "{text}");
}

#[test]
fn every_line_of_a_markdown_table_has_as_many_cells_as_its_header() {
    let text = matrix(&made_up(), Format::Md);
    let mut width = None;
    let mut tables = 0;
    for line in text.lines() {
        if !line.starts_with('|') {
            width = None;
            continue;
        }
        let cells = line.replace("\\|", "").matches('|').count();
        tables += usize::from(width.is_none());
        assert_eq!(*width.get_or_insert(cells), cells, "{line}");
    }
    assert_eq!(tables, 3);
}

#[test]
fn csv_has_a_line_for_every_cell_and_for_every_row_without_one() {
    let text = matrix(&made_up(), Format::Csv);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    // two, one, one, two cells; two rows without; one and one
    assert_eq!(records.len(), 2 + 1 + 1 + 2 + 1 + 1 + 1 + 1);
    let seen: Vec<&str> = records[0].iter().collect();
    let expected = [
        HOSTILE,
        "seen",
        "port",
        "false",
        "norm",
        "caught",
        "forced.kl",
        "mean",
        "2469",
        "2",
        "1234.5",
        "true",
    ];
    assert_eq!(seen, expected);
    assert_eq!(&records[3][10], "NaN");
}

#[test]
fn html_shades_by_power_of_ten_and_lets_no_name_out_of_its_cell() {
    let text = matrix(&made_up(), Format::Html);
    assert!(!text.contains("<script>") && !text.contains("<img"));
    assert!(text.contains(r#"<td class="heat3" title="mean: 2469 against 2, 1,235 times">3</td>"#), "{text}");
    assert!(text.contains(r#"<td class="weak" title="mean: 5 against 2, 2.50 times">0</td>"#));
    assert!(text.contains("NaN"));
    // layer.head was run on no row
    assert_eq!(text.matches(r#"<td class="none">"#).count(), 8 * 3 - 8);
}

#[test]
fn json_is_read_back() {
    let mut whole = made_up();
    let read: Matrix = serde_json::from_str(&matrix(&whole, Format::Json)).unwrap();
    // NaN is not equal to itself
    assert!(read.sheets[0].rows[2].cells[0].margin.is_nan());
    whole.sheets[0].rows.remove(2);
    let read: Matrix = serde_json::from_str(&matrix(&whole, Format::Json)).unwrap();
    assert_eq!(read, whole);
}
