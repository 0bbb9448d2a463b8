//! A comparison as two Markdown tables: layer by layer, and end to end.

use super::{count, percent, say, share, short, table};
use crate::text::Texts;
use diff::compare::{Comparison, EndToEnd, LayerRow, Nll, WorstRow};
use diff::stats::{Rate, Spread};
use diff::trace::{Source, TraceComparison, TraceLayer};
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
pub fn print_live(found: &Comparison, texts: &Texts, out: &mut String) {
    say!(out, "reference  {}", side(&found.reference));
    say!(out, "port       {}", side(&found.port));
    say!(out, "text       {}", texts.about);
    let schedule = found.options.schedule;
    let decode = schedule.decode_from.map(|from| format!(", one token per call from position {from} on"));
    say!(
        out,
        "calls      prefill in chunks of {} tokens{}\n",
        count(schedule.prefill_chunk as u64),
        decode.unwrap_or_default()
    );
    say!(out, "Layer by layer: the port's layer on the reference's own input, forced onto its choices.");
    say!(out, "Relative L2 error per row; sets ≠: rows where the port's router would choose another set.\n");
    print_layers(found.layers.iter().map(LayerView::from), out);
    let runs = [("forced", found.forced.as_ref()), ("free", found.free.as_ref())];
    let runs: Vec<_> = runs.into_iter().filter_map(|(name, run)| Some((name, run?))).collect();
    say!(out, "End to end, over every position; KL in nats, reference → port.\n");
    print_end_to_end(&runs, Some(texts), out);
    print_nll(&found.reference_nll, out);
    print_changes(&runs, texts, out);
}

/// Prints a comparison of two recorded traces.
pub fn print_traces(found: &TraceComparison, out: &mut String) {
    say!(out, "reference  {}", source(&found.reference));
    say!(out, "port       {}\n", source(&found.port));
    say!(out, "Layer by layer, end to end: errors of earlier layers are in later ones. `-`: not recorded.\n");
    print_layers(found.layers.iter().map(LayerView::from), out);
    if let Some(end_to_end) = &found.end_to_end {
        say!(out, "End to end, over every position; KL in nats, reference → port.\n");
        print_end_to_end(&[("recorded", end_to_end)], None, out);
    } else {
        say!(out, "Logits were not recorded on both sides: no KL.");
        let (differing, rows) = (found.routing.differing as u64, found.routing.rows as u64);
        say!(out, "Expert sets that differ: {} of {}.", count(differing), count(rows));
    }
    if let Some(nll) = &found.reference_nll {
        print_nll(nll, out);
    }
}

/// Engine, device and precision.
pub fn side(info: &SideInfo) -> String {
    format!("{}, {}, {}", info.engine, info.device, info.precision.name())
}

/// Where a recording is and, as far as it says so, who made it and how.
fn source(source: &Source) -> String {
    let of = |value: &Option<serde_json::Value>, key| Some(value.as_ref()?.get(key)?.clone());
    let engine = ["name", "version", "device"].into_iter().filter_map(|key| of(&source.engine, key));
    let engine: Vec<String> = engine.filter_map(|word| word.as_str().map(str::to_owned)).collect();
    let mut words = vec![source.path.display().to_string(), engine.join(" ")];
    words.extend(source.precision.map(|precision| precision.name().to_owned()));
    words.extend(of(&source.calls, "prefill_chunk").map(|chunk| format!("chunks of {chunk}")));
    words.retain(|word| !word.is_empty());
    words.join(", ")
}

/// What both kinds of comparison show of a layer.
struct LayerView<'a> {
    layer: LayerId,
    kind: Option<LayerKind>,
    attn: Option<&'a Spread>,
    moe: Option<&'a Spread>,
    sigma: Option<f64>,
    differing: usize,
    /// `None` where the reference recorded no margin to judge by.
    beyond_tie: Option<usize>,
    missing: usize,
    unforced: usize,
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
            beyond_tie: Some(row.disagreements.beyond_tie),
            missing: 0,
            unforced: row.unforced_rows,
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
            beyond_tie: (row.unjudged == 0).then_some(row.beyond_tie),
            missing: row.missing,
            unforced: row.unforced_rows,
            z: row.largest.as_ref().and_then(|largest| largest.z),
            worst: row.worst.as_ref(),
        }
    }
}

fn print_layers<'a>(rows: impl Iterator<Item = LayerView<'a>>, out: &mut String) {
    let mut layers = table(&LAYERS, 2);
    let none = || "-".to_owned();
    let number = |value: Option<f64>| value.map_or_else(none, short);
    let mut notes = Vec::new();
    for row in rows {
        let layer = row.layer;
        if row.missing > 0 {
            notes.push(format!(
                "layer {layer}: {} rows lack a route on a side and were left out",
                row.missing
            ));
        }
        if row.unforced > 0 {
            notes.push(format!("layer {layer}: {} rows ran other experts than were forced", row.unforced));
        }
        let kind = row.kind.map_or_else(none, |kind| kind.to_string());
        let mut cells = vec![row.layer.to_string(), kind];
        for spread in [row.attn, row.moe] {
            cells.extend([
                number(spread.map(|s| s.p50)),
                number(spread.map(|s| s.p99)),
                number(spread.map(|s| s.max)),
            ]);
        }
        let beyond_tie = row.beyond_tie.map_or_else(|| "?".into(), |rows| count(rows as u64));
        cells.extend([
            number(row.sigma),
            count(row.differing as u64),
            beyond_tie,
            row.z.map_or_else(none, z),
        ]);
        cells.push(row.worst.map_or_else(none, |worst| worst.branch.to_string()));
        cells.push(
            row.worst.map_or_else(none, |worst| format!("{}:{}", worst.place.case, worst.place.position)),
        );
        layers.add_row(cells);
    }
    say!(out, "{layers}\n");
    notes.iter().for_each(|note| say!(out, "{note}"));
}

fn print_end_to_end(runs: &[(&str, &EndToEnd)], texts: Option<&Texts>, out: &mut String) {
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
    row("95 % interval of that", &|run| interval(&run.confident_top1));
    row("positions with a NaN", &|run| count(run.nan_positions as u64));
    row("expert sets ≠", &|run| {
        format!("{} of {}", count(run.routing.differing as u64), count(run.routing.rows as u64))
    });
    row("rows forced", &|run| count(run.routing.forced_rows as u64));
    say!(out, "{block}\n");
}

fn rate(rate: &Rate) -> String {
    format!("{} ({})", count(rate.count as u64), share(rate.count, rate.of))
}

/// A distance in units of σ: plain where it is of a size that people read.
fn z(z: f64) -> String {
    if (0.1..1e4).contains(&z) { format!("{z:.1}") } else { short(z) }
}

fn interval(rate: &Rate) -> String {
    if rate.of == 0 {
        return "-".into();
    }
    format!("{} … {}", percent((rate.low * 1e4).floor()), percent((rate.high * 1e4).ceil()))
}

/// Text that stays one cell of a Markdown table.
fn cell_text(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|").replace('`', "'"))
}

fn print_nll(nll: &Nll, out: &mut String) {
    if nll.tokens == 0 {
        return;
    }
    let (bits, nats) = (nll.bits_per_token, nll.nats_per_token);
    say!(out, "The reference predicts the text at {bits:.4} bits ({nats:.4} nats) per token.");
}

fn print_changes(runs: &[(&str, &EndToEnd)], texts: &Texts, out: &mut String) {
    for (name, run) in runs {
        for change in &run.confident_changes {
            let (case, position) = (&change.place.case, change.place.position);
            let before = texts.around(case, position, CONTEXT_TOKENS);
            let port = change.port.map_or("a NaN".into(), |id| format!("`{}`", texts.token(id)));
            let reference = texts.token(change.reference);
            say!(
                out,
                "{name}: confident top-1 at {case}:{position}, after `{before}`: `{reference}` → {port}"
            );
        }
    }
}
