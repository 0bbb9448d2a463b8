//! A comparison as two Markdown tables: layer by layer, and end to end.

use super::{count, percent, short, table};
use crate::text::Texts;
use diff::compare::{Comparison, EndToEnd, LayerRow, Nll, WorstRow};
use diff::stats::{Rate, Spread};
use diff::trace::{TraceComparison, TraceLayer};
use spec::{LayerId, LayerKind, SideInfo};

/// Tokens of text shown before a position.
const CONTEXT_TOKENS: usize = 24;

const LAYERS: [&str; 14] = [
    "layer",
    "kind",
    "attn p50",
    "attn p99",
    "attn max",
    "moe p50",
    "moe p99",
    "moe max",
    "σ logits",
    "sets ≠",
    "≥ 1e-4",
    "max z",
    "worst branch",
    "worst at",
];

/// Prints a live comparison: who, what, per-layer table, end-to-end table.
pub fn print_live(found: &Comparison, texts: &Texts) {
    println!("reference  {}", side(&found.reference));
    println!("port       {}", side(&found.port));
    println!("text       {}", texts.about);
    println!(
        "calls      prefill in chunks of {} tokens\n",
        count(found.options.schedule.prefill_chunk as u64)
    );
    println!("Layer by layer: the port's layer on the reference's own input, forced onto its choices.");
    println!("Relative L2 error per row; sets ≠: rows where the port's router would choose another set.\n");
    print_layers(found.layers.iter().map(LayerView::from));
    let runs = [("forced", found.forced.as_ref()), ("free", found.free.as_ref())];
    let runs: Vec<_> = runs.into_iter().filter_map(|(name, run)| Some((name, run?))).collect();
    println!("End to end, over every position; KL in nats, reference → port.\n");
    print_end_to_end(&runs, Some(texts));
    print_nll(&found.reference_nll);
    print_changes(&runs, texts);
}

/// Prints a comparison of two recorded traces.
pub fn print_traces(found: &TraceComparison) {
    println!("reference  {}", found.reference.path.display());
    println!("port       {}\n", found.port.path.display());
    println!("Layer by layer, end to end: errors of earlier layers are in later ones. `-`: not recorded.\n");
    print_layers(found.layers.iter().map(LayerView::from));
    if let Some(end_to_end) = &found.end_to_end {
        println!("End to end, over every position; KL in nats, reference → port.\n");
        print_end_to_end(&[("recorded", end_to_end)], None);
    } else {
        println!("Logits were not recorded on both sides: no KL.");
    }
    if let Some(nll) = &found.reference_nll {
        print_nll(nll);
    }
}

fn side(info: &SideInfo) -> String {
    let precision = serde_json::to_value(info.precision).expect("a word");
    format!("{}, {}, {}", info.engine, info.device, precision.as_str().unwrap_or_default())
}

/// What both kinds of comparison show of a layer.
struct LayerView<'a> {
    layer: LayerId,
    kind: Option<LayerKind>,
    attn: Option<&'a Spread>,
    moe: Option<&'a Spread>,
    sigma: Option<f64>,
    differing: usize,
    beyond_tie: usize,
    z: Option<f64>,
    worst: Option<&'a WorstRow>,
}

impl<'a> From<&'a LayerRow> for LayerView<'a> {
    fn from(row: &'a LayerRow) -> Self {
        Self {
            layer: row.layer,
            kind: Some(row.kind),
            attn: Some(&row.attn_branch),
            moe: Some(&row.moe_branch),
            sigma: Some(row.router_sigma),
            differing: row.disagreements.count,
            beyond_tie: row.disagreements.beyond_tie,
            z: row.disagreements.largest.as_ref().map(|largest| largest.z),
            worst: Some(&row.worst),
        }
    }
}

impl<'a> From<&'a TraceLayer> for LayerView<'a> {
    fn from(row: &'a TraceLayer) -> Self {
        Self {
            layer: row.layer,
            kind: row.kind,
            attn: row.attn_branch.as_ref(),
            moe: row.moe_branch.as_ref(),
            sigma: row.router_sigma,
            differing: row.disagreements,
            beyond_tie: row.beyond_tie,
            z: row.largest.as_ref().and_then(|largest| largest.z),
            worst: row.worst.as_ref(),
        }
    }
}

fn print_layers<'a>(rows: impl Iterator<Item = LayerView<'a>>) {
    let mut layers = table(&LAYERS, 2);
    let none = || "-".to_owned();
    let number = |value: Option<f64>| value.map_or_else(none, short);
    for row in rows {
        let kind = row.kind.map_or_else(none, |kind| kind.to_string());
        let mut cells = vec![row.layer.to_string(), kind];
        for spread in [row.attn, row.moe] {
            cells.extend([
                number(spread.map(|s| s.p50)),
                number(spread.map(|s| s.p99)),
                number(spread.map(|s| s.max)),
            ]);
        }
        cells.extend([
            number(row.sigma),
            count(row.differing as u64),
            count(row.beyond_tie as u64),
            number(row.z),
        ]);
        cells.push(row.worst.map_or_else(none, |worst| worst.branch.to_string()));
        cells.push(
            row.worst.map_or_else(none, |worst| format!("{}:{}", worst.place.case, worst.place.position)),
        );
        layers.add_row(cells);
    }
    println!("{layers}\n");
}

fn print_end_to_end(runs: &[(&str, &EndToEnd)], texts: Option<&Texts>) {
    let header: Vec<&str> = std::iter::once("end to end").chain(runs.iter().map(|(name, _)| *name)).collect();
    let mut block = table(&header, 1);
    let mut row = |name: &str, cell: &dyn Fn(&EndToEnd) -> String| {
        block.add_row(std::iter::once(name.to_owned()).chain(runs.iter().map(|(_, run)| cell(run))));
    };
    row("positions", &|run| count(run.kl_nats.count as u64));
    row("KL mean", &|run| short(run.kl_nats.mean));
    row("KL p50", &|run| short(run.kl_nats.p50));
    row("KL p99", &|run| short(run.kl_nats.p99));
    row("KL max", &|run| short(run.kl_nats.max));
    row("KL max at", &|run| format!("{}:{}", run.kl_worst.case, run.kl_worst.position));
    if let Some(texts) = texts {
        row("text up to there", &|run| {
            cell_text(&texts.around(&run.kl_worst.case, run.kl_worst.position, CONTEXT_TOKENS))
        });
    }
    row("same top-1", &|run| rate(&run.top1));
    row("confident positions", &|run| count(run.confident_top1.of as u64));
    row("same top-1 there", &|run| rate(&run.confident_top1));
    row("95 % interval", &|run| interval(&run.confident_top1));
    row("positions with a NaN", &|run| count(run.nan_positions as u64));
    row("expert sets ≠", &|run| {
        format!("{} of {}", count(run.routing.differing as u64), count(run.routing.rows as u64))
    });
    row("rows forced", &|run| count(run.routing.forced_rows as u64));
    println!("{block}\n");
}

fn rate(rate: &Rate) -> String {
    format!("{} ({})", count(rate.count as u64), percent(rate.rate))
}

fn interval(rate: &Rate) -> String {
    format!("{} … {}", percent(rate.low), percent(rate.high))
}

/// Text that stays one cell of a Markdown table.
fn cell_text(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|").replace('`', "'"))
}

fn print_nll(nll: &Nll) {
    let (bits, nats) = (nll.bits_per_token, nll.nats_per_token);
    println!("The reference predicts the text at {bits:.4} bits ({nats:.4} nats) per token.");
}

fn print_changes(runs: &[(&str, &EndToEnd)], texts: &Texts) {
    for (name, run) in runs {
        for change in &run.confident_changes {
            let (case, position) = (&change.place.case, change.place.position);
            let before = texts.around(case, position, CONTEXT_TOKENS);
            let port = change.port.map_or("a NaN".into(), |id| format!("`{}`", texts.token(id)));
            let reference = texts.token(change.reference);
            println!(
                "{name}: confident top-1 at {case}:{position}, after `{before}`: `{reference}` → {port}"
            );
        }
    }
}
