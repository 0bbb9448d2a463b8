//! What a person sees: progress on stderr, tables on stdout.
//!
//! Tables are Markdown, so that they can be pasted. Absent on purpose: computing any number that is shown.

mod bisect;
mod catalogue;
mod census;
mod comparison;
mod convert;
mod explain;
mod probe;
mod progress;

pub use bisect::print_bisection;
pub use catalogue::{print_catalogue, print_row};
pub use census::print_survey;
pub use comparison::{print_live, print_traces, side};
pub use convert::print_kinds;
pub use explain::print_explanation;
pub use probe::{print_kernels, print_probed};
pub use progress::{Bar, Phases};

pub use reports::{count, share};

use diff::number::short;

use comfy_table::{CellAlignment, Table, presets};
use spec::SideInfo;

/// Adds a line to what will go to stdout.
macro_rules! say {
    ($out:expr, $($words:tt)*) => {{
        use std::fmt::Write as _;
        writeln!($out, $($words)*).expect("a String takes any text");
    }};
}
pub(crate) use say;

/// Warns where MLX may compute f32 products from shortened operands.
pub fn warn_of_tf32(port: &SideInfo) {
    let off = port.notes.iter().any(|(name, value)| name == "MLX_ENABLE_TF32" && value == "0");
    if port.device == "metal" && !off {
        eprintln!("assay: warning: MLX_ENABLE_TF32 is not 0, so f32 products may be no better than TF32");
    }
}

/// After a search that found nothing in prefill.
pub const PREFILL_ONLY: &str =
    "No call of one token was made: a bug of decoding shows with --decode-from POSITION only.";

/// Says that what was run is not the port as it is.
pub fn print_planted(bugs: Option<&str>, out: &mut String) {
    if let Some(bugs) = bugs {
        say!(out, "planted    {bugs}, in the port");
    }
}

/// A Markdown table; all columns but the first `left` are right-aligned.
fn table(header: &[&str], left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Hundredths of a percent as percent: `99.66 %` of 9966.
fn percent(hundredths: f64) -> String {
    format!("{} %", hundredths / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, "0")]
    #[case(999, "999")]
    #[case(1000, "1,000")]
    #[case(78_103_074_560, "78,103,074,560")]
    fn thousands_are_separated(#[case] number: u64, #[case] shown: &str) {
        assert_eq!(count(number), shown);
    }

    #[rstest]
    #[case(7, 7, "100 %")]
    #[case(999_999, 1_000_000, "99.99 %")]
    #[case(57, 100, "57 %")]
    #[case(0, 3, "0 %")]
    #[case(0, 0, "-")]
    fn a_share_short_of_all_is_never_shown_as_all(
        #[case] part: usize,
        #[case] all: usize,
        #[case] shown: &str,
    ) {
        assert_eq!(share(part, all), shown);
    }

    #[rstest]
    #[case(1.24e-6, "1.2e-6")]
    #[case(0.0, "0")]
    #[case(f64::NAN, "NaN")]
    #[case(f64::INFINITY, "inf")]
    fn an_error_is_shown_with_two_digits(#[case] number: f64, #[case] shown: &str) {
        assert_eq!(short(number), shown);
    }
}
