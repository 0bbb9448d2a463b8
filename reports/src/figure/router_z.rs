//! M by layer: how far beyond the router's own error a chosen set differs.

use super::{EMULATION, Figure, PORT_BF16, full_layers, hollow, layer_scale, limit_of};
use crate::content::layers;
use crate::number::limit;
use crate::plot::mark::{Look, legend};
use crate::plot::panel::{Axis, Limit, Panel, Series, panels};
use crate::plot::scale::Scale;
use diff::gate::record::{LayerRecord, Record, Router, SetRecord};

type Of = fn(&LayerRecord) -> &Router;

/// Two panels on one scale: re-injected, which is judged, and free, which is not.
pub fn figure(record: &Record, set: &SetRecord) -> Figure {
    let judged: [(&str, Look, Of); 2] = [
        ("emulation", EMULATION, |layer| &layer.router_emulation),
        ("port bf16", PORT_BF16, |layer| &layer.router_bf16),
    ];
    let free: [(&str, Look, Of); 2] = [
        ("emulation, free", hollow(EMULATION), |layer| &layer.router_emulation_free),
        ("port bf16, free", hollow(PORT_BF16), |layer| &layer.router_bf16_free),
    ];
    let found = limit_of(record, "router.sigma", "largest_z", &set.name);
    let limits: Vec<Limit> = found
        .into_iter()
        .map(|found| Limit { name: "M".into(), bound: format!("≤ {}", limit(found)), at: found })
        .collect();
    let of = |arms: &[(&str, Look, Of)]| -> Vec<Series> {
        let series = arms.iter().map(|(name, look, router)| {
            let points = set.layers.iter().map(|layer| (layer.layer.0 as f64, router(layer).largest_z));
            Series { name: (*name).into(), look: *look, points: points.collect() }
        });
        series.collect()
    };
    let (judged, free) = (of(&judged), of(&free));
    let values = judged.iter().chain(&free).flat_map(|series| &series.points).map(|(_, y)| *y);
    let scale = Scale::linear_from_zero(values.chain(found.map(|found| found * 1.1)));
    let draw = |title: &str, series, limits| -> Panel {
        Panel {
            title: title.into(),
            x: Axis { label: "layer".into(), scale: layer_scale(&set.layers) },
            y: Axis { label: "M (largest gap / σ)".into(), scale: scale.clone() },
            series,
            limits,
            bands: full_layers(&set.layers),
        }
    };
    let entries = [
        (PORT_BF16, "port bf16, re-injected"),
        (EMULATION, "emulation, re-injected"),
        (hollow(PORT_BF16), "port bf16, free"),
        (hollow(EMULATION), "emulation, free"),
    ];
    Figure {
        title: format!("Router disagreements, set {}", set.name),
        legend: legend(&entries, !limits.is_empty()),
        plots: panels(&[
            draw("Re-injected: judged", judged, limits),
            draw("Free run: reported, not judged", free, Vec::new()),
        ]),
        caption: "Where port and reference choose different sets of experts, the reference's gap between \
                  the last expert in and the first one out, in units of the router's error σ in that \
                  layer. Rounding flips near-ties only, so the port should stay near the emulation and \
                  under the limit; a router that selects by something else goes far above it. 0: no set \
                  differs."
            .into(),
        tables: vec![layers::router(set)],
    }
}
