//! The layers of every set as CSV, one row per set and layer, at full precision.
//!
//! Units are in the header: `_rel_l2` is `||x - reference|| / ||reference||` per row, `_logit` a router
//! logit, `_z` a gap in units of sigma, `_rows` a count of rows. NaN and infinities are `NaN`, `inf`, `-inf`.

use diff::gate::record::{Branches, LayerRecord, Record, Router};

/// One row per set and layer, with a header.
pub fn layers_csv(record: &Record) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = |row: Vec<String>| writer.write_record(row).expect("rows of one length, into memory");
    write(header());
    for set in &record.sets {
        for layer in &set.layers {
            write(row(&set.name, layer));
        }
    }
    let bytes = writer.into_inner().expect("writing into memory");
    String::from_utf8(bytes).expect("made of strings")
}

const ROUTERS: [&str; 5] = ["f32", "bf16", "emulation", "bf16_free", "emulation_free"];

fn header() -> Vec<String> {
    let mut names: Vec<String> = ["set", "layer", "kind", "rows"].map(str::to_owned).into();
    for arm in ["f32", "bf16", "emulation"] {
        for branch in ["attn", "moe"] {
            names.extend(["mean", "p50", "p99", "max"].map(|s| format!("{arm}_{branch}_{s}_rel_l2")));
        }
    }
    for arm in ROUTERS {
        names.push(format!("router_{arm}_sigma_logit"));
        names.push(format!("router_{arm}_reference_rms_logit"));
        names.push(format!("router_{arm}_differing_rows"));
        names.push(format!("router_{arm}_compared_rows"));
        names.push(format!("router_{arm}_largest_z"));
    }
    names
}

fn row(set: &str, layer: &LayerRecord) -> Vec<String> {
    let mut cells =
        vec![set.to_owned(), layer.layer.to_string(), layer.kind.to_string(), layer.rows.to_string()];
    for Branches { attn, moe } in [&layer.f32, &layer.bf16, &layer.emulation] {
        for spread in [attn, moe] {
            cells.extend([spread.mean, spread.p50, spread.p99, spread.max].map(|value| value.to_string()));
        }
    }
    let routers = [
        &layer.router_f32,
        &layer.router_bf16,
        &layer.router_emulation,
        &layer.router_bf16_free,
        &layer.router_emulation_free,
    ];
    for Router { sigma, logits_rms, differing, largest_z } in routers {
        cells.extend([sigma.to_string(), logits_rms.to_string()]);
        cells.extend([differing.count.to_string(), differing.of.to_string(), largest_z.to_string()]);
    }
    cells
}
