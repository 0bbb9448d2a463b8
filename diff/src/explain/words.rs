//! From trials to a finding and its sentence.

use super::Question;
use super::finding::{Finding, Hypothesis, MapTried, MapsAt, Outcome, SCHEMA};
use super::first_wrong::Maps;
use super::greedy::{Search, explains};
use super::maps::Tried;
use super::trials::{Trial, Trials};
use crate::bench::Planted;
use crate::number::short;
use crate::stats::order;

/// A map fits if it leaves what is honest, or so many times less than there was.
const FEWER_TIMES: f64 = 1000.0;

/// Puts everything together.
pub(crate) fn finding(
    question: &Question<'_>,
    trials: &Trials<'_>,
    search: Search,
    maps: Option<Maps>,
) -> Finding {
    let planted = question.bench.planted();
    let base = search.base();
    let hypotheses = grouped(&search.tried, base, &planted);
    let explained = search.best_explains();
    let maps_at = maps.map(maps_at);
    let map = maps_at.as_ref().and_then(|maps| Some((maps, maps.fit()?)));
    let end_to_end = trials.end_to_end.expect("every pass ends with it");
    // each part may add what is honest
    let parts = question.port.config().num_layers() + 2;
    let ends_are_honest = end_to_end.rms <= parts as f64 * end_to_end.bound;
    let outcome = match (base.is_honest(), explained, map) {
        (true, ..) if ends_are_honest => Outcome::NothingToExplain,
        (true, ..) => Outcome::BetweenLayers,
        (_, true, _) => Outcome::Bugs,
        (.., Some(_)) => Outcome::Map,
        _ => Outcome::Unexplained,
    };
    let base = hypothesis(base, base, &planted);
    let sentence = match outcome {
        Outcome::NothingToExplain => {
            format!("nothing to explain: agrees with the reference to {}", short(base.residual))
        }
        Outcome::BetweenLayers => format!(
            "each layer by itself agrees with the reference to {}, but the logits end to end are {} away: \
             what is wrong is between layers, which bisection searches",
            short(base.residual),
            short(end_to_end.rms)
        ),
        Outcome::Bugs => by_bugs(search.best().expect("it explains"), &hypotheses),
        Outcome::Map => {
            let (maps, (fit, residual)) = map.expect("this outcome is of a map");
            format!(
                "no known bug explains it; at {} the port's rows are the reference's {} to {} ({} without)",
                maps.at,
                fit.what,
                short(residual),
                short(maps.residual)
            )
        }
        Outcome::Unexplained => unexplained(&base, &hypotheses, maps_at.as_ref()),
    };
    Finding {
        schema: SCHEMA.into(),
        outcome,
        sentence,
        base,
        hypotheses,
        without_effect: search.idle,
        maps_at,
        end_to_end: end_to_end.rms,
        passes: trials.passes,
        lanes: trials.lanes,
    }
}

/// Hypotheses, best first; those that are the same to the last bit are one.
fn grouped(tried: &[Trial], base: &Trial, planted: &[Planted]) -> Vec<Hypothesis> {
    let mut groups: Vec<(&Trial, Hypothesis)> = Vec::new();
    for trial in tried {
        let same = |(other, _): &&mut (&Trial, Hypothesis)| other.at == trial.at;
        // to add a bug that changes nothing beside others says nothing of it
        match groups.iter_mut().find(same) {
            Some((other, _)) if other.bugs.len() < trial.bugs.len() => {}
            Some((_, group)) => group.same_as.push(trial.bugs.join(" + ")),
            None => groups.push((trial, hypothesis(trial, base, planted))),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn hypothesis(trial: &Trial, base: &Trial, planted: &[Planted]) -> Hypothesis {
    let (place, worst) = trial.worst();
    let (rows_beyond, rows) = trial.beyond();
    let what = |id: &String| planted.iter().find(|p| p.id == *id).map(|p| p.what.clone()).unwrap_or_default();
    Hypothesis {
        bugs: trial.bugs.clone(),
        what: trial.bugs.iter().map(what).collect(),
        same_as: Vec::new(),
        residual: worst.rms,
        at: place.to_string(),
        honest: worst.bound,
        orders: trial.orders(),
        rows_beyond,
        rows,
        explains: explains(trial, base),
    }
}

fn by_bugs(best: &Trial, all: &[Hypothesis]) -> String {
    let (first, others) = all.split_first().expect("one explains");
    let agrees = if best.is_honest() {
        format!("agrees with the reference to {}", short(first.residual))
    } else {
        let (within, beyond, rows) = (short(best.rms_within()), first.rows_beyond, first.rows);
        format!("agrees with the reference to {within} in all but {beyond} of {rows} rows")
    };
    let what: Vec<String> =
        first.bugs.iter().zip(&first.what).map(|(id, what)| format!("{what} (`{id}`)")).collect();
    let mut sentence = format!("{agrees} if {}", what.join(" and "));
    let as_well: Vec<String> = first
        .same_as
        .iter()
        .cloned()
        .chain(others.iter().filter(|other| other.explains).map(|other| other.bugs.join(" + ")))
        .map(|names| format!("`{names}`"))
        .collect();
    if !as_well.is_empty() {
        sentence += &format!("; so it does if {}", as_well.join(", or "));
    }
    if let Some(next) = others.iter().find(|other| !other.explains) {
        sentence += &format!("; next best {}", beside(next, first.residual));
    }
    sentence
}

fn unexplained(base: &Hypothesis, all: &[Hypothesis], maps: Option<&MapsAt>) -> String {
    let mut sentence =
        format!("nothing explains it: {} away from the reference at {}", short(base.residual), base.at);
    match all.first() {
        Some(closest) if closest.orders < base.orders => {
            let (names, left) = (closest.bugs.join(" + "), short(closest.residual));
            sentence += &format!("; closest `{names}`, which leaves {left} at {}", closest.at);
        }
        _ => sentence += "; no known bug brings it nearer",
    }
    if let Some((maps, best)) = maps.and_then(|maps| Some((maps, maps.tried.first()?)))
        && let Some(left) = best.residual
    {
        let (map, at, of) = (&best.map, &maps.at, short(maps.residual));
        sentence += &if left < maps.residual {
            format!("; {map} at {at}, where nothing before is wrong, leaves {} of {of}", short(left))
        } else {
            format!("; no simple map helps at {at}, where nothing before is wrong")
        };
    }
    sentence
}

/// "`x`, 3 orders worse".
fn beside(next: &Hypothesis, best: f64) -> String {
    let names = next.bugs.join(" + ");
    let orders = (next.residual / best).log10().round();
    match orders {
        orders if !orders.is_finite() => format!("`{names}`, which leaves {}", short(next.residual)),
        1.0 => format!("`{names}`, 1 order worse"),
        orders if orders >= 2.0 => format!("`{names}`, {orders} orders worse"),
        _ => format!("`{names}`, which leaves {} at {}", short(next.residual), next.at),
    }
}

fn maps_at(Maps { place, base, tried }: Maps) -> MapsAt {
    let map = |Tried { map, found }: Tried| match found {
        Ok((what, residual)) => MapTried { map: map.into(), what, residual: Some(residual) },
        Err(why) => MapTried { map: map.into(), what: why, residual: None },
    };
    let mut tried: Vec<MapTried> = tried.into_iter().map(map).collect();
    let number = |tried: &MapTried| tried.residual.unwrap_or(f64::NAN);
    tried.sort_by(|a, b| order(number(a), number(b)));
    MapsAt { at: place.to_string(), residual: base.rms, honest: base.bound, tried }
}

impl MapsAt {
    /// The map that fits, and what it leaves.
    fn fit(&self) -> Option<(&MapTried, f64)> {
        let best = self.tried.first()?;
        let left = best.residual?;
        let fits = left <= self.honest || left * FEWER_TIMES <= self.residual;
        fits.then_some((best, left))
    }
}
