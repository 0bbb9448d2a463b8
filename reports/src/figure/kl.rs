//! KL along the position, for every run.

use super::{EMULATION, FLOOR, Figure, PORT_BF16, PORT_F32, hollow};
use crate::content::ends;
use crate::plot::mark::{Look, legend};
use crate::plot::panel::{Axis, Panel, Series, panels};
use crate::plot::scale::Scale;
use diff::gate::record::{Bucket, RunName, SetRecord};

/// Two panels on one scale: mean and largest per bucket.
pub fn figure(set: &SetRecord) -> Figure {
    let buckets = || set.runs.iter().flat_map(|run| &run.buckets);
    let end = buckets().map(|bucket| bucket.to).max().unwrap_or(1) as f64;
    let scale = Scale::log(buckets().flat_map(|bucket| [bucket.mean, bucket.max]));
    let draw = |title: &str, value: fn(&Bucket) -> f64| {
        let middle = |bucket: &Bucket| (bucket.from + bucket.to) as f64 / 2.0;
        let series = set.runs.iter().map(|run| Series {
            name: run.run.words().into(),
            look: look(run.run),
            points: run.buckets.iter().map(|bucket| (middle(bucket), value(bucket))).collect(),
        });
        Panel {
            title: title.into(),
            x: Axis {
                label: "position (middle of bucket, tokens)".into(),
                scale: Scale::Linear { low: 0.0, high: end },
            },
            y: Axis { label: "KL (nats per position)".into(), scale: scale.clone() },
            series: series.collect(),
            limits: Vec::new(),
            bands: Vec::new(),
        }
    };
    let entries: Vec<(Look, &str)> = set.runs.iter().map(|run| (look(run.run), run.run.words())).collect();
    Figure {
        title: format!("Error along the context, set {}", set.name),
        legend: legend(&entries, false),
        plots: panels(&[draw("Mean", |bucket| bucket.mean), draw("Largest", |bucket| bucket.max)]),
        caption: "KL of the reference to each run, by position. Lines should be level: one that climbs \
                  grows with the context (positions, windows, caches). In bf16 the port should lie on the \
                  emulation of the same kind; in f32, near the sorted floor, which is the order of \
                  summation alone."
            .into(),
        tables: vec![ends::buckets(set)],
    }
}

fn look(run: RunName) -> Look {
    match run {
        RunName::F32Forced => PORT_F32,
        RunName::SortedFloor => FLOOR,
        RunName::Bf16Forced => PORT_BF16,
        RunName::EmulationForced => EMULATION,
        RunName::Bf16Free => hollow(PORT_BF16),
        RunName::EmulationFree => hollow(EMULATION),
    }
}
