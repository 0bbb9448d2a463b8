//! Relative L2 error by layer and branch: the port in f32 and bf16 beside the emulation.

use super::{EMULATION, Figure, PORT_BF16, PORT_F32, full_layers, hollow, layer_scale, limit_of};
use crate::content::layers;
use crate::number::{limit, number};
use crate::plot::mark::{Look, legend};
use crate::plot::panel::{Axis, Limit, Panel, Series, panels};
use crate::plot::scale::Scale;
use diff::gate::record::{Branches, LayerRecord, Record, SetRecord};
use diff::stats::Spread;

type Arm = fn(&LayerRecord) -> &Branches;
type Branch = fn(&Branches) -> &Spread;

const ARMS: [(&str, Look, Arm); 3] = [
    ("port f32", PORT_F32, |layer| &layer.f32),
    ("port bf16", PORT_BF16, |layer| &layer.bf16),
    ("emulation (bf16)", EMULATION, |layer| &layer.emulation),
];
const BRANCHES: [(&str, &str, Branch); 2] = [
    ("Attention branch", "attn", |branches| &branches.attn),
    ("MoE branch", "moe", |branches| &branches.moe),
];

/// Two panels, one per branch, on one scale.
pub fn figure(record: &Record, set: &SetRecord) -> Figure {
    let limits = |key: &str| -> Vec<Limit> {
        let of = |statistic: &str| {
            let found = limit_of(record, "layer.branch", &format!("{key}.{statistic}"), &set.name)?;
            Some(Limit {
                name: format!("f32 {statistic}"), bound: format!("≤ {}", limit(found)), at: found
            })
        };
        ["median", "max"].into_iter().filter_map(of).collect()
    };
    let all: Vec<f64> = BRANCHES
        .iter()
        .flat_map(|(_, key, branch)| {
            let series = series(set, *branch);
            let values = series.iter().flat_map(|series| &series.points).map(|(_, y)| *y);
            values.chain(limits(key).into_iter().map(|limit| limit.at)).collect::<Vec<_>>()
        })
        .collect();
    let plots = BRANCHES.iter().map(|(title, key, branch)| Panel {
        title: (*title).into(),
        x: Axis { label: "layer".into(), scale: layer_scale(&set.layers) },
        y: Axis { label: "relative L2 error".into(), scale: Scale::log(all.iter().copied()) },
        series: series(set, *branch),
        limits: limits(key),
        bands: full_layers(&set.layers),
    });
    let names: Vec<(Look, String)> = ARMS
        .iter()
        .flat_map(|(name, look, _)| {
            [(*look, format!("{name}, median")), (hollow(*look), format!("{name}, largest"))]
        })
        .collect();
    let entries: Vec<(Look, &str)> = names.iter().map(|(look, name)| (*look, name.as_str())).collect();
    Figure {
        title: format!("Error of every layer, set {}", set.name),
        legend: legend(&entries, BRANCHES.iter().any(|(_, key, _)| !limits(key).is_empty())),
        plots: panels(&plots.collect::<Vec<_>>()),
        caption: format!(
            "Each layer re-injected with the reference's input. The port in f32 should stay under its \
             limits, at the level of rounding, in every layer alike; the port in bf16 should lie on the \
             emulation. A defect lifts single layers or one branch. Layers with full attention are shaded. \
             {}",
            ratios(record, set)
        ),
        tables: vec![layers::branches(set)],
    }
}

fn series(set: &SetRecord, branch: Branch) -> Vec<Series> {
    let points = |arm: Arm, value: fn(&Spread) -> f64| {
        let point = |layer: &LayerRecord| (layer.layer.0 as f64, value(branch(arm(layer))));
        set.layers.iter().map(point).collect()
    };
    let both = |(name, look, arm): &(&str, Look, Arm)| {
        [
            Series {
                name: format!("{name}, largest"),
                look: hollow(*look),
                points: points(*arm, |spread| spread.max),
            },
            Series {
                name: format!("{name}, median"),
                look: *look,
                points: points(*arm, |spread| spread.p50),
            },
        ]
    };
    ARMS.iter().rev().flat_map(both).collect()
}

/// What the medians in bf16 are held against: a ratio, so that it is no line.
fn ratios(record: &Record, set: &SetRecord) -> String {
    let legs = record.findings.iter().filter(|found| {
        found.check == "layer.branch_bf16"
            && found.leg.ends_with(".median")
            && found.set.as_deref() == Some(&set.name)
    });
    let words: Vec<String> = legs
        .filter_map(|found| {
            let (calibrator, at) = (found.calibrator?, number(found.value));
            let (limit, excess) = (limit(found.limit), number(found.excess));
            let leg = found.leg.trim_end_matches(".median");
            let calibrator = number(calibrator);
            Some(format!(
                "{leg} reaches {at} where the emulation has {calibrator} (limit {limit}, excess {excess})"
            ))
        })
        .collect();
    if words.is_empty() {
        String::new()
    } else {
        format!("In bf16 the worst median of {}.", words.join("; of "))
    }
}
