//! Layer by layer: branch errors and the router, one table each per set.

use super::{Cell, Section, Table};
use crate::number::{count, number, share};
use diff::gate::record::{LayerRecord, Record, Router, SetRecord};

/// The section; `None` where no set has layers.
pub fn section(record: &Record) -> Option<Section> {
    let sets = record.sets.iter().filter(|set| !set.layers.is_empty());
    let tables: Vec<Table> = sets.flat_map(|set| [branches(set), router(set)]).collect();
    (!tables.is_empty()).then(|| Section {
        id: "layers",
        title: "Layer by layer".into(),
        intro: vec![
            "Each layer is fed the reference's own input (re-injected), so that one defect does not smear. \
             Emulation is the reference rounded to bf16 wherever a bf16 runtime stores a tensor: what \
             correct bf16 arithmetic reaches."
                .into(),
            "σ is the RMS error of the router logits. Sets ≠ counts rows whose chosen set of experts \
             differs; M is the largest z = gap / σ of such a row, 0 where none differs. The free runs, \
             from end to end, are reported and not judged."
                .into(),
        ],
        tables,
    })
}

/// Relative L2 error of both branches.
pub fn branches(set: &SetRecord) -> Table {
    let names = [
        "#layer",
        "attention",
        "#rows",
        "#attn f32 median",
        "#attn f32 max",
        "#moe f32 median",
        "#moe f32 max",
        "#attn bf16 median",
        "#attn emulation median",
        "#attn bf16 max",
        "#attn emulation max",
        "#moe bf16 median",
        "#moe emulation median",
        "#moe bf16 max",
        "#moe emulation max",
    ];
    let mut table = Table::new(format!("Branches, set {}: relative L2 error", set.name), &names);
    for layer in &set.layers {
        let mut row = head(layer);
        let LayerRecord { f32, bf16, emulation, .. } = layer;
        let values = [f32.attn.p50, f32.attn.max, f32.moe.p50, f32.moe.max];
        row.extend(values.map(number).map(Cell::from));
        for (port, other) in [(&bf16.attn, &emulation.attn), (&bf16.moe, &emulation.moe)] {
            row.extend([port.p50, other.p50, port.max, other.max].map(number).map(Cell::from));
        }
        table.push(row);
    }
    table
}

/// Router logits and chosen sets.
pub fn router(set: &SetRecord) -> Table {
    let names = [
        "#layer",
        "attention",
        "#rows",
        "#σ f32",
        "#σ f32 / logit RMS",
        "#σ bf16",
        "#σ emulation",
        "#sets ≠ f32",
        "#sets ≠ bf16",
        "#sets ≠ emulation",
        "#M bf16",
        "#M emulation",
        "#sets ≠ bf16 free",
        "#sets ≠ emulation free",
        "#M bf16 free",
        "#M emulation free",
    ];
    let mut table = Table::new(format!("Router, set {}", set.name), &names);
    for layer in &set.layers {
        let mut row = head(layer);
        let (f32, port, emulation) = (&layer.router_f32, &layer.router_bf16, &layer.router_emulation);
        let (free, emulation_free) = (&layer.router_bf16_free, &layer.router_emulation_free);
        let sigmas = [f32.sigma, f32.sigma / f32.logits_rms, port.sigma, emulation.sigma];
        row.extend(sigmas.map(number).map(Cell::from));
        row.extend([f32, port, emulation].map(differing).map(Cell::from));
        row.extend([port, emulation].map(|router| number(router.largest_z)).map(Cell::from));
        row.extend([free, emulation_free].map(differing).map(Cell::from));
        row.extend([free, emulation_free].map(|router| number(router.largest_z)).map(Cell::from));
        table.push(row);
    }
    table
}

fn head(layer: &LayerRecord) -> Vec<Cell> {
    vec![layer.layer.to_string().into(), layer.kind.to_string().into(), count(layer.rows as u64).into()]
}

fn differing(router: &Router) -> String {
    let rate = &router.differing;
    match rate.count {
        0 if rate.of > 0 => "0".into(),
        part => format!("{} ({})", count(part as u64), share(part, rate.of)),
    }
}
