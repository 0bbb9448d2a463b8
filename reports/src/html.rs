//! The report as one HTML file: no network, no script, light and dark, for screens, phones and paper.

use crate::content::{self, Cell, Section, Summary, Table, Tone};
use crate::figure::{Figure, figures};
use diff::gate::record::Record;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// The whole file.
pub fn document(record: &Record) -> String {
    let summary = content::summary(record);
    let sections = content::sections(record);
    let figures = figures(record);
    page(
        &format!("{}: {}", summary.verdict, summary.name),
        &html! {
            (head(&summary))
            (contents(&sections, !figures.is_empty()))
            @if !figures.is_empty() {
                section id="figures" {
                    h2 { "Figures" }
                    @for (index, drawn) in figures.iter().enumerate() { (figure(index + 1, drawn)) }
                }
            }
            @for part in &sections { (section(part)) }
        },
    )
}

/// A file around what it shows.
pub fn page(title: &str, shown: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (shown) } }
        }
    };
    let mut text = page.into_string();
    text.push('\n');
    text
}

fn head(summary: &Summary) -> Markup {
    html! {
        header {
            p class="kind" { "Gate report" }
            h1 { (summary.name) }
            @for notice in &summary.notices { p class="notice" role="note" { strong { (notice) } } }
            p class="verdict" {
                span class={ "badge " (summary.verdict.to_lowercase()) } { (summary.verdict) }
                span { (summary.meaning) }
            }
            @if !summary.reasons.is_empty() {
                h2 { "What keeps it from PASS" }
                ul { @for reason in &summary.reasons { li { (reason) } } }
            }
            dl class="facts" {
                @for (name, value) in &summary.facts { div { dt { (name) } dd { (value) } } }
            }
            h2 { "What this gate cannot see" }
            ul class="blind" { @for blind in &summary.blind { li { (blind) } } }
        }
    }
}

fn contents(sections: &[Section], has_figures: bool) -> Markup {
    html! {
        nav aria-label="Contents" {
            @if has_figures { a href="#figures" { "Figures" } }
            @for section in sections { a href={ "#" (section.id) } { (section.title) } }
        }
    }
}

fn figure(number: usize, figure: &Figure) -> Markup {
    html! {
        figure id={ "figure-" (number) } {
            h3 { "Figure " (number) ". " (figure.title) }
            (figure.legend)
            div class="plots" role="region" tabindex="0" aria-label={ "Plots of figure " (number) } {
                @for plot in &figure.plots { (plot) }
            }
            figcaption { (figure.caption) }
            details {
                summary { "The same numbers as a table" }
                @for numbers in &figure.tables { (table(numbers)) }
            }
        }
    }
}

fn section(section: &Section) -> Markup {
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            @for words in &section.intro { p { (words) } }
            @for numbers in &section.tables {
                @if !numbers.title.is_empty() { h3 { (numbers.title) } }
                (table(numbers))
            }
        }
    }
}

/// A table that scrolls where it is too wide.
pub fn table(table: &Table) -> Markup {
    let name = if table.title.is_empty() { "Table" } else { &table.title };
    html! {
        div class="scroll" role="region" tabindex="0" aria-label=(name) {
            table {
                thead {
                    tr {
                        @for column in &table.columns {
                            th scope="col" class=[column.is_number.then_some("number")] { (column.name) }
                        }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (index, cell) in row.iter().enumerate() {
                                @let class = class(table.columns[index].is_number, cell);
                                @if index == 0 { th scope="row" class=[class] { (words(cell)) } }
                                @else { td class=[class] { (words(cell)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn class(is_number: bool, cell: &Cell) -> Option<&'static str> {
    match cell.tone {
        _ if is_number => Some("number"),
        Tone::Plain if cell.text.chars().count() > 40 => Some("long"),
        _ => None,
    }
}

fn words(cell: &Cell) -> Markup {
    let tone = match cell.tone {
        Tone::Plain => return html! { (cell.text) },
        Tone::Good => "good",
        Tone::Weak => "weak",
        Tone::Bad => "bad",
    };
    html! { span class={ "tone " (tone) } { (cell.text) } }
}
