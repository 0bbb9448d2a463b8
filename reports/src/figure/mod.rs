//! The figures of a report: what is plotted, what to see in it, and the same numbers as tables.
//!
//! Absent on purpose: judging. Lines of limits are those of the record's findings.

mod controls;
mod damage;
mod kl;
mod layer_error;
mod router_z;
mod top1;

use crate::content::Table;
use crate::plot::mark::{Look, Shape};
use crate::plot::scale::Scale;
use diff::gate::record::{LayerRecord, Record};
use maud::Markup;
use spec::LayerKind;

/// A figure.
pub struct Figure {
    /// Its title.
    pub title: String,
    /// Names of what is drawn.
    pub legend: Markup,
    /// The plots, side by side where there is room.
    pub plots: Vec<Markup>,
    /// What to see.
    pub caption: String,
    /// The same numbers.
    pub tables: Vec<Table>,
}

/// Every figure that the record has numbers for.
pub fn figures(record: &Record) -> Vec<Figure> {
    let mut figures = Vec::new();
    for set in &record.sets {
        if !set.layers.is_empty() {
            figures.push(layer_error::figure(record, set));
            figures.push(router_z::figure(record, set));
        }
        if set.runs.iter().any(|run| !run.buckets.is_empty()) {
            figures.push(kl::figure(set));
        }
        figures.extend(top1::figure(set));
    }
    figures.extend(controls::figure(record));
    for set in &record.sets {
        figures.extend(set.nll.as_ref().and_then(|nll| damage::figure(&set.name, nll)));
    }
    figures
}

const PORT_F32: Look = Look { colour: "port-f32", shape: Shape::Circle, hollow: false };
const PORT_BF16: Look = Look { colour: "port-bf16", shape: Shape::Square, hollow: false };
const EMULATION: Look = Look { colour: "emulation", shape: Shape::Triangle, hollow: false };
const FLOOR: Look = Look { colour: "floor", shape: Shape::Diamond, hollow: false };

fn hollow(look: Look) -> Look {
    Look { hollow: true, ..look }
}

/// One place per layer.
fn layer_scale(layers: &[LayerRecord]) -> Scale {
    let last = layers.iter().map(|layer| layer.layer.0).max().unwrap_or(0);
    Scale::Linear { low: -0.5, high: last as f64 + 0.5 }
}

/// The places of layers with full attention.
fn full_layers(layers: &[LayerRecord]) -> Vec<(f64, f64)> {
    let full = layers.iter().filter(|layer| layer.kind == LayerKind::Full).map(|layer| layer.layer.0 as f64);
    full.map(|layer| (layer - 0.5, layer + 0.5)).collect()
}

/// The limit of a leg on a set, or of one that is measured once.
fn limit_of(record: &Record, check: &str, leg: &str, set: &str) -> Option<f64> {
    let is_it = |found: &&diff::gate::record::Finding| {
        found.check == check && found.leg == leg && found.set.as_deref().is_none_or(|name| name == set)
    };
    Some(record.findings.iter().find(is_it)?.limit)
}
