//! Holds two recordings against each other, case by case, reading sites a range of rows at a time.

use super::comparison::{SCHEMA, Source, TraceComparison};
use super::layer::{LayerTally, SITES};
use super::pairs::{self, Pair, Recording};
use super::presence::Presence;
use crate::compare::{CaseInfo, LogitsTally, Nll, Progress, RoutingDifference};
use crate::metrics::logits;
use ndarray::Array2;
use spec::trace::{Origin, Trace};
use spec::{Error, LayerId, LayerKind, Result, Site};
use std::ops::Range;
use std::path::Path;

/// Values of one site read at once from each side: 4 MiB.
const VALUES_AT_ONCE: usize = 1 << 20;

/// Compares the recordings at `port` with those at `reference`, each a folder made by [`super::record`] or
/// one trace file; `layers` are decoder layers, `None`: all.
///
/// Errors: [`Error::Unpaired`] if a case is on one side only, a side kept a site for some layers or cases
/// only, or nothing was compared; [`Error::Trace`] if a trace is malformed, of another checkpoint, of other
/// tokens or of another number of layers, or if the port's recordings are given first;
/// [`Error::Argument`] on layers that are not recorded; [`Error::Io`].
pub fn compare(
    reference: &Path,
    port: &Path,
    layers: Option<Range<usize>>,
    progress: &mut dyn Progress,
) -> Result<TraceComparison> {
    let files = pairs::find(reference, port)?;
    progress.phase("comparing traces", files.len());
    let mut tally: Option<Tally> = None;
    for (reference_file, port_file) in files {
        let pair = Pair::open(&reference_file, &port_file)?;
        let tally = match &mut tally {
            Some(tally) => {
                pairs::check_layers(&tally.first, &pair.reference.trace)?;
                tally
            }
            None => tally.insert(Tally::new(reference, port, &pair, layers.clone())?),
        };
        tally.take(&pair)?;
        progress.step(1);
    }
    tally.expect("a listing is never empty").finish()
}

/// What has been seen of the cases so far.
struct Tally {
    reference: Source,
    port: Source,
    /// The reference's trace of the first case: its layers are those of every case.
    first: Trace,
    /// What either side kept: the reference's, the port's.
    kept: [Presence; 2],
    /// Indices along L, with a tally each.
    layers: Vec<(usize, LayerTally)>,
    cases: Vec<CaseInfo>,
    logits: Option<LogitsTally>,
    nll_nats: f64,
    nll_tokens: usize,
    forced_rows: usize,
}

impl Tally {
    fn new(reference: &Path, port: &Path, pair: &Pair, layers: Option<Range<usize>>) -> Result<Self> {
        let first = pair.reference.trace.clone();
        let wanted = |layer: LayerId| layers.as_ref().is_none_or(|layers| layers.contains(&layer.0));
        let indices = (0..first.layers.len()).filter(|&index| wanted(first.layers[index]));
        let tallies: Vec<_> = indices.map(|index| (index, LayerTally::default())).collect();
        let known = layers.as_ref().is_none_or(|layers| layers.end <= first.meta.num_hidden_layers);
        if tallies.is_empty() || !known {
            return Err(Error::Argument {
                what: "the range of layers".into(),
                expected: format!("at least one of 0..{}", first.meta.num_hidden_layers),
                found: format!("{:?}", layers.unwrap_or_default()),
                next: "count layers from 0; the end is not included".into(),
            });
        }
        Ok(Self {
            reference: source(reference, &pair.reference.trace),
            port: source(port, &pair.port.trace),
            first,
            kept: Default::default(),
            layers: tallies,
            cases: Vec::new(),
            logits: None,
            nll_nats: 0.0,
            nll_tokens: 0,
            forced_rows: 0,
        })
    }

    fn take(&mut self, pair: &Pair) -> Result<()> {
        let (reference, port) = (&pair.reference.trace, &pair.port.trace);
        let (case, pos0) = (&reference.meta.case, reference.meta.pos0);
        self.kept[0].check(&pair.reference)?;
        self.kept[1].check(&pair.port)?;
        self.cases.push(CaseInfo { name: case.clone(), tokens: reference.tokens.len() });
        for (index, tally) in &mut self.layers {
            tally.sets(reference, port, *index);
            let forced = |token: &usize| is_forced(port, *token, *index);
            self.forced_rows += (0..port.rows()).filter(forced).count();
            for site in SITES {
                each_range(pair, site, Some(reference.layers[*index]), |first, expected, found| {
                    tally.site(site, case, pos0 + first, expected.view(), found.view());
                })?;
            }
        }
        each_range(pair, Site::Logits, None, |first, expected, found| {
            let tally = self.logits.get_or_insert_default();
            for row in 0..expected.nrows() {
                let position = pos0 + first + row;
                tally.position(case, position, expected.row(row), found.row(row));
                if let Some(next) = reference.tokens.get(position + 1) {
                    self.nll_nats += logits::nll_nats(expected.row(row), next.index());
                    self.nll_tokens += 1;
                }
            }
        })
    }

    fn finish(self) -> Result<TraceComparison> {
        let executed = self.layers.iter().map(|(_, tally)| tally.executed());
        let (differing, rows) = executed.fold((0, 0), |sum, layer| (sum.0 + layer.0, sum.1 + layer.1));
        if rows == 0 {
            return Err(Error::Unpaired {
                expected: "rows with a route on both sides".into(),
                found: "none".into(),
                next: "record both traces with `assay run`".into(),
            });
        }
        let share = differing as f64 / rows as f64;
        let routing = RoutingDifference { rows, forced_rows: self.forced_rows, differing, share };
        let nats_per_token = self.nll_nats / self.nll_tokens as f64;
        let bits_per_token = nats_per_token / std::f64::consts::LN_2;
        let nll = Nll { tokens: self.nll_tokens, nats_per_token, bits_per_token };
        let kind = |index: usize| -> Option<LayerKind> { Some(self.first.meta.layer_kinds.as_ref()?[index]) };
        let row = |(index, tally): (usize, LayerTally)| tally.finish(self.first.layers[index], kind(index));
        Ok(TraceComparison {
            schema: SCHEMA,
            reference: self.reference,
            port: self.port,
            cases: self.cases,
            layers: self.layers.into_iter().map(row).collect(),
            reference_nll: self.logits.is_some().then_some(nll),
            end_to_end: self.logits.map(|tally| tally.finish(routing.clone())),
            routing,
        })
    }
}

fn source(path: &Path, trace: &Trace) -> Source {
    let meta = &trace.meta;
    let (engine, calls) = (meta.engine.clone(), meta.calls.clone());
    Source { path: path.into(), engine, calls, precision: meta.precision }
}

fn is_forced(trace: &Trace, token: usize, index: usize) -> bool {
    trace.origin.as_ref().is_some_and(|origin| origin[[token, index]] == Origin::Forced)
}

/// Both sides' rows of one site, a range at a time with its first row; nothing if a side did not keep the
/// site, which is then so for every layer and case: [`Presence`].
/// Errors: [`Error::Unpaired`] on rows of different widths, and those of reading.
fn each_range(
    pair: &Pair,
    site: Site,
    layer: Option<LayerId>,
    mut take: impl FnMut(usize, Array2<f32>, Array2<f32>),
) -> Result<()> {
    let width = |side: &Recording| side.sites.as_ref()?.width(site, layer);
    let (Some(expected), Some(found)) = (width(&pair.reference), width(&pair.port)) else { return Ok(()) };
    if expected != found {
        return Err(Error::Unpaired {
            expected: format!("rows of `{site}` of {expected} values"),
            found: format!("{found} in {}", pair.port.trace.path.display()),
            next: "record both sides on the same checkpoint".into(),
        });
    }
    let rows = pair.reference.trace.rows();
    let step = (VALUES_AT_ONCE / expected.max(1)).max(1);
    let read = |side: &Recording, range: Range<usize>| {
        side.sites.as_ref().expect("it has the site").rows(site, layer, range)
    };
    for first in (0..rows).step_by(step) {
        let range = first..(first + step).min(rows);
        take(first, read(&pair.reference, range.clone())?, read(&pair.port, range)?);
    }
    Ok(())
}
