//! What was found, in one sentence for an issue.

use super::bound::worst;
use super::finding::{EndToEnd, Finding, Origin, PartName, PartRow, ranges};
use super::pattern::Pattern;
use spec::{LayerKind, Site};

/// The sentence, without a full stop.
pub(crate) fn of(finding: &Finding) -> String {
    match (&finding.origin, &finding.end_to_end) {
        (Some(origin), _) => of_part(origin, &finding.parts),
        (None, Some(ends)) if ends.schedules[0].position.is_some() => of_ends(ends, &finding.parts),
        (None, Some(ends)) => nothing(ends, &finding.parts),
        (None, None) => unreachable!("end to end is run where no part is wrong"),
    }
}

fn of_part(origin: &Origin, parts: &[PartRow]) -> String {
    let mut said = vec![format!("first wrong at {}", origin.part), sites(origin)];
    said.push(format!("position {}", origin.position));
    said.extend(origin.heads.as_ref().map(|heads| heads.words("head")));
    said.extend(origin.experts.as_ref().map(|experts| experts.words("expert")));
    said.extend(origin.channels.as_ref().map(|channels| channels.words("channel")));
    let mut rest = vec![said.join(", ")];
    if !matches!(origin.pattern, Pattern::Some { .. }) || origin.rows_out > 1 {
        rest.push(origin.pattern.words());
    }
    if origin.grows {
        rest.push("grows with position".into());
    }
    if origin.in_one_call == Some(false) {
        rest.push("not when all tokens are fed in one call".into());
    }
    rest.extend(other_layers(origin, parts));
    rest.extend(agreed(parts, |row| row.part == origin.part));
    rest.join("; ")
}

fn sites(origin: &Origin) -> String {
    let names: Vec<&str> = origin.sites.iter().map(|site: &Site| site.name()).collect();
    match names.as_slice() {
        [one] => format!("site {one}"),
        several => format!("sites {}", several.join(" and ")),
    }
}

/// Where else it is wrong.
fn other_layers(origin: &Origin, parts: &[PartRow]) -> Option<String> {
    let PartName::Layer(..) = origin.part else { return None };
    let of = |wanted: &dyn Fn(&PartRow, LayerKind) -> bool| -> Vec<usize> {
        let layer = |row: &PartRow| match row.part {
            PartName::Layer(layer, kind) if wanted(row, kind) => Some(layer.0),
            _ => None,
        };
        parts.iter().filter_map(layer).collect()
    };
    let wrong = of(&|row, _| row.is_out());
    let is_all = |kind: LayerKind| wrong == of(&|_, of| of == kind);
    Some(match () {
        () if wrong.len() == 1 => "in this layer only".into(),
        () if wrong == of(&|_, _| true) => "in every layer".into(),
        () if is_all(LayerKind::Sliding) => "in every sliding layer".into(),
        () if is_all(LayerKind::Full) => "in every full layer".into(),
        () => format!("in layers {}", ranges(&wrong)),
    })
}

/// How well everything before the first wrong part agrees.
fn agreed(parts: &[PartRow], is_first_wrong: impl Fn(&PartRow) -> bool) -> Option<String> {
    let before: Vec<&PartRow> = parts.iter().take_while(|row| !is_first_wrong(row)).collect();
    let last = before.last()?;
    let error = worst(before.iter().map(|row| row.error_max));
    Some(match last.part {
        PartName::Layer(layer, _) if layer.0 > 0 => format!("layers 0-{layer} agree to {error:.1e}"),
        PartName::Layer(..) => format!("layer 0 agrees to {error:.1e}"),
        PartName::Embedding if error == 0.0 => "the embedding agrees exactly".into(),
        _ => format!("the embedding agrees to {error:.1e}"),
    })
}

fn of_ends(ends: &EndToEnd, parts: &[PartRow]) -> String {
    let first = &ends.schedules[0];
    let position = first.position.expect("asked for where there is one");
    let place = match first.layer {
        Some(layer) => format!("layer_out of layer {layer}, position {position}"),
        None => format!("logits, position {position}"),
    };
    let of = |shows: bool| -> Vec<&str> {
        let rows = ends.schedules.iter().filter(|row| row.position.is_some() == shows);
        rows.map(|row| row.name.as_str()).collect()
    };
    let mut said =
        vec![format!("wrong end to end only: first {place}"), format!("fed in {}", of(true).join(", "))];
    if !of(false).is_empty() {
        said.push(format!("not in {}", of(false).join(", ")));
    }
    let error = worst(parts.iter().map(|row| row.error_max));
    said.push(format!("every part alone agrees to {error:.1e}"));
    said.join("; ")
}

fn nothing(ends: &EndToEnd, parts: &[PartRow]) -> String {
    let error = worst(parts.iter().map(|row| row.error_max));
    let share = worst(parts.iter().map(|row| row.share_of_bound));
    let logits = &ends.schedules[0];
    format!(
        "nothing to find: every part agrees to {error:.1e}, at most {:.0} % of its bound; end to end the \
         logits agree to {:.1e} of an allowed {:.1e}",
        100.0 * share,
        logits.logits_error_max,
        logits.logits_bound
    )
}
