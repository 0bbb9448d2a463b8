//! How much worse each planted bug of the reference predicts real text.

use super::{Figure, PORT_F32};
use crate::content::ends;
use crate::plot::intervals::{Interval, Row, intervals};
use crate::plot::mark::legend;
use crate::plot::panel::Axis;
use crate::plot::scale::Scale;
use diff::gate::record::{Damage, NllRecord};

/// `None` where no damage was measured.
pub fn figure(set: &str, nll: &NllRecord) -> Option<Figure> {
    if nll.damage.is_empty() {
        return None;
    }
    let look = crate::plot::mark::Look { colour: "ink", ..PORT_F32 };
    let mut sorted: Vec<&Damage> = nll.damage.iter().collect();
    sorted.sort_by(|a, b| diff::stats::order(b.nats_per_token, a.nats_per_token));
    let rows: Vec<Row> = sorted
        .iter()
        .map(|damage| {
            let low_value_high = [damage.p1, damage.nats_per_token, damage.p99];
            Row {
                label: damage.mutant.clone(),
                values: vec![Interval { name: "damage".into(), look, low_value_high }],
            }
        })
        .collect();
    let values: Vec<f64> = nll.damage.iter().flat_map(|d| [d.p1, d.nats_per_token, d.p99]).collect();
    let scale = Scale::signed(values.into_iter());
    let axis = Axis { label: "damage (nats per token; even near 0, logarithmic beyond)".into(), scale };
    let title = format!("Damage of bugs planted in the reference, set {set}");
    Some(Figure {
        legend: legend(&[(look, "mean, with 1st and 99th percentile")], false),
        plots: vec![intervals(&title, &axis, &rows, true)],
        title,
        caption: format!(
            "Each bug's extra loss on real text against the unmutated reference, over {} bootstrap blocks. \
             A bug whose whole interval lies to the right of 0 shows that the text can tell the model from \
             its misreading; one that touches 0 is not separable by likelihood.",
            nll.blocks
        ),
        tables: vec![ends::damage(set, nll)],
    })
}
