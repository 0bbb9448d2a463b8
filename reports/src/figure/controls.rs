//! Every planted bug against every check: the margin by which the check fired.

use super::Figure;
use crate::content::Table;
use crate::number::number;
use crate::plot::cells::{Filled, cells};
use diff::gate::record::{Control, ControlLeg, Record};
use diff::stats::order;
use maud::html;

/// A bug on a check: its legs there, and the least of their margins.
struct Met<'a> {
    control: &'a Control,
    check: &'a str,
    column: usize,
    legs: Vec<&'a ControlLeg>,
}

impl Met<'_> {
    fn caught(&self) -> bool {
        self.legs.iter().all(|leg| leg.caught)
    }

    fn weak(&self) -> bool {
        self.legs.iter().any(|leg| leg.weak)
    }

    /// NaN if one of them is.
    fn margin(&self) -> f64 {
        let margins = self.legs.iter().map(|leg| leg.margin);
        margins.min_by(|a, b| b.is_nan().cmp(&a.is_nan()).then(order(*a, *b))).expect("a leg")
    }

    fn words(&self) -> &'static str {
        match (self.caught(), self.weak()) {
            (false, _) => "NOT CAUGHT",
            (true, true) => "caught, weak",
            (true, false) => "caught",
        }
    }
}

/// `None` where no bug was planted.
pub fn figure(record: &Record) -> Option<Figure> {
    if record.controls.is_empty() {
        return None;
    }
    let columns = columns(record);
    let mut rows: Vec<(&Control, Vec<Met>)> =
        record.controls.iter().map(|control| (control, met(control, &columns))).collect();
    rows.sort_by_key(|(_, met)| met.first().map_or(usize::MAX, |first| first.column));
    let filled: Vec<(&str, Vec<Filled>)> =
        rows.iter().map(|(control, met)| (control.mutant.as_str(), met.iter().map(fill).collect())).collect();
    let title = "Planted bugs and the checks that must catch them";
    Some(Figure {
        title: title.into(),
        legend: legend(),
        plots: vec![cells(title, &columns, &filled)],
        caption: "Each row is a bug, planted on purpose; each filled cell a check that must fire on it, \
                  with log10 of the margin: 1.0 is ten times beyond the limit. Several legs of a check \
                  show the least. Empty: the bug is not bound to the check. A column with no filled cell \
                  has no control in this run. Any × means that power was not shown."
            .into(),
        tables: vec![table(&rows)],
    })
}

/// The checks, in the order of the findings; then those that controls alone name.
fn columns(record: &Record) -> Vec<&str> {
    let mut columns: Vec<&str> = Vec::new();
    let legs = record.controls.iter().flat_map(|control| &control.legs);
    let names = record.findings.iter().map(|found| found.check.as_str());
    for name in names.chain(legs.map(|leg| leg.check.as_str())) {
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    columns
}

fn met<'a>(control: &'a Control, columns: &[&'a str]) -> Vec<Met<'a>> {
    let of = |(column, check): (usize, &&'a str)| {
        let legs: Vec<&ControlLeg> = control.legs.iter().filter(|leg| leg.check == *check).collect();
        (!legs.is_empty()).then_some(Met { control, check, column, legs })
    };
    columns.iter().enumerate().filter_map(of).collect()
}

/// log10 of a margin, to a tenth, cut: what is short of 1.0 is weak and not shown as 1.0.
fn log10(margin: f64) -> String {
    match margin {
        _ if margin.is_infinite() => "∞".into(),
        _ if margin.is_nan() => "NaN".into(),
        _ if margin <= 0.0 => "−∞".into(),
        _ => {
            let tenths = (margin.log10() * 10.0 + 1e-9).floor() / 10.0;
            if tenths < 10.0 { format!("{tenths:.1}") } else { format!("{tenths:.0}") }
        }
    }
}

fn fill(met: &Met) -> Filled {
    let margin = met.margin();
    let class = match margin {
        _ if !met.caught() => "missed",
        _ if met.weak() || margin.is_nan() => "weak",
        _ if margin < 1e2 => "heat1",
        _ if margin < 1e3 => "heat2",
        _ if margin < 1e5 => "heat3",
        _ => "heat4",
    };
    let word = if met.caught() { log10(margin) } else { "×".into() };
    let (bug, check) = (&met.control.mutant, met.check);
    let says = format!("{bug} on {check}: margin {}, {}", number(margin), met.words());
    Filled { column: met.column, class, word, says }
}

fn table(rows: &[(&Control, Vec<Met>)]) -> Table {
    let names = ["bug", "check", "legs", "#least margin", "#log10 of it", "caught"];
    let mut table = Table::new("Margins", &names);
    for (control, met) in rows {
        if met.is_empty() {
            table.push(
                [control.mutant.as_str(), "-", "bound to no leg", "-", "-", "-"].map(Into::into).into(),
            );
        }
        for met in met {
            let legs: Vec<&str> = met.legs.iter().map(|leg| leg.leg.as_str()).collect();
            table.push(vec![
                control.mutant.as_str().into(),
                met.check.into(),
                legs.join(", ").into(),
                number(met.margin()).into(),
                log10(met.margin()).into(),
                met.words().into(),
            ]);
        }
    }
    table
}

fn legend() -> maud::Markup {
    let entries = [
        ("missed", "×", "not caught"),
        ("weak", "0.5", "weak: under 10"),
        ("heat1", "1.5", "10 … 100"),
        ("heat2", "2.5", "100 … 1,000"),
        ("heat3", "4.0", "to 100,000"),
        ("heat4", "6.0", "beyond"),
    ];
    html! {
        ul class="legend" {
            @for (class, word, name) in entries {
                li {
                    svg viewBox="0 0 26 18" width="26" height="18" aria-hidden="true" {
                        g class={ "cell " (class) } {
                            rect x="1" y="1" width="24" height="16" rx="2" {}
                            text x="13" y="12.3" { (word) }
                        }
                    }
                    (name)
                }
            }
        }
    }
}
