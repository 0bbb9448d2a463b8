//! One run of both sides part by part: which parts are wrong, and everything about the first of them.
//!
//! Architecture invariant: of a part nothing is kept but numbers, and of the first wrong layer its input and
//! its executed experts, so that it can be run again on a cut of them.

use super::bound::{bound, holds_ids, is_row_out, of_angles, part_errors, row_errors, worst};
use super::finding::{Origin, PartName, PartRow, SiteRow, Which};
use super::origin::origins;
use super::pattern::{Facts, classify, grows};
use super::probe::Start;
use crate::beside::{Part, SiteRows};
use crate::stats::first_worst;
use ndarray::{Array2, s};
use serde::{Deserialize, Serialize};
use spec::{Case, LayerId, ModelConfig, Schedule, Site};
use std::collections::{BTreeMap, BTreeSet};

/// Columns that carry the error carry this share of its square.
const CARRIED_MIN: f64 = 0.99;

/// What one run of all parts found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sweep {
    /// In the order of the forward pass.
    pub(crate) parts: Vec<PartRow>,
    /// The first wrong one.
    pub(crate) origin: Option<Origin>,
    /// How many times more than by rounding queries and keys were off after RoPE, at worst, and still right;
    /// at least 1.
    pub(crate) slack: f64,
}

/// Is shown the parts; lane 0 is the reference, lane 1 repeats it in f64.
pub(crate) struct Judge<'a> {
    config: &'a ModelConfig,
    case: &'a Case,
    schedule: Schedule,
    parts: Vec<PartRow>,
    slack: f64,
    /// The first wrong part but the embedding.
    origin: Option<Origin>,
    wrong_embedding: Option<Origin>,
    /// What the part at hand was fed by lane 0; nothing for layer 0, whose input comes last.
    input: Option<Array2<f32>>,
    start: Option<Unfed>,
}

/// Where a part starts, as long as its input has not come.
struct Unfed {
    input: Option<Array2<f32>>,
    choice: Option<Array2<f32>>,
}

/// One site of one part.
struct Judged {
    site: Site,
    errors: Vec<f64>,
    bound: f64,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(config: &'a ModelConfig, case: &'a Case, schedule: Schedule) -> Self {
        Self {
            config,
            case,
            schedule,
            parts: Vec::new(),
            slack: 1.0,
            origin: None,
            wrong_embedding: None,
            input: None,
            start: None,
        }
    }

    /// Takes one part, in the order of [`crate::beside::Beside::run`].
    pub(crate) fn take(&mut self, part: Part, lanes: &[SiteRows], port: &SiteRows) {
        let name = match part {
            Part::Embedding => PartName::Embedding,
            Part::Layer(layer) => PartName::Layer(layer, self.config.kind(layer)),
            Part::Head => PartName::Head,
            // what every part alone does not show, a run of its own is made for
            Part::EndToEnd => return,
        };
        let mut judged: BTreeMap<Site, Judged> = port
            .keys()
            .map(|&site| {
                let own = row_errors(site, &lanes[1], &lanes[0]);
                let errors = row_errors(site, &lanes[0], port);
                (site, Judged { site, errors, bound: bound(site, own.into_iter()) })
            })
            .collect();
        self.slack = self.slack.max(loosen(&mut judged));
        let row = part_row(name, &judged);
        if row.is_out() && (self.origin.is_none() || name == PartName::Embedding) {
            let origin = self.origin(name, lanes, port, &judged);
            if name == PartName::Embedding {
                self.wrong_embedding = Some(origin);
            } else {
                self.origin = Some(origin);
                let choice = lanes[0].get(&Site::Choice).cloned();
                self.start = Some(Unfed { input: self.input.clone(), choice });
            }
        }
        self.parts.push(row);
        if let Some(output) = lanes[0].get(&Site::LayerOut) {
            self.input = Some(output.clone());
        }
        if let (Some(start), Some(embedding)) = (&mut self.start, lanes[0].get(&Site::Embedding)) {
            start.input.get_or_insert_with(|| embedding.clone());
        }
    }

    /// What was found, and where the first wrong part starts; the embedding starts with the tokens.
    pub(crate) fn finish(mut self) -> (Sweep, Option<Start>) {
        self.parts.sort_by_key(|row| match row.part {
            PartName::Embedding => 0,
            PartName::Layer(LayerId(layer), _) => 1 + layer,
            PartName::Head => usize::MAX,
        });
        let start = self.start.filter(|_| self.wrong_embedding.is_none()).map(|start| Start {
            input: start.input.expect("the embedding came last"),
            choice: start.choice,
        });
        (Sweep { parts: self.parts, origin: self.wrong_embedding.or(self.origin), slack: self.slack }, start)
    }

    fn origin(
        &self,
        part: PartName,
        lanes: &[SiteRows],
        port: &SiteRows,
        judged: &BTreeMap<Site, Judged>,
    ) -> Origin {
        let out: BTreeSet<Site> =
            judged.iter().filter(|(_, judged)| judged.first().is_some()).map(|(site, _)| *site).collect();
        let sites = origins(&out);
        let first = |site: &Site| judged[site].first().expect("an origin is out of bound");
        let site = *sites.iter().min_by_key(|site| first(site)).expect("something is out of bound");
        let (of_site, position) = (&judged[&site], first(&site));
        let is_out: Vec<bool> = (0..of_site.errors.len()).map(|row| of_site.is_out(row)).collect();
        let rows: Vec<usize> = (0..is_out.len()).filter(|&row| is_out[row]).collect();
        let errors: Vec<f64> = rows.iter().map(|&row| of_site.errors[row]).collect();
        let of_experts = matches!(site, Site::ExpertOut | Site::TopkWeights | Site::Routed);
        let experts = lanes[0].get(&Site::Choice).filter(|_| of_experts).map(ids);
        let facts = Facts {
            calls: self.schedule.calls(self.case.len()),
            decode_from: self.schedule.decode_from,
            window: matches!(part, PartName::Layer(..)).then_some(self.config.sliding_window).flatten(),
            experts,
        };
        let carriers = Carriers { config: self.config, site, lanes, port, rows: &rows };
        Origin {
            part,
            site,
            position,
            error: of_site.errors[position],
            bound: of_site.bound + of_angles(site, position),
            pattern: classify(&is_out, &facts),
            rows_out: rows.len(),
            in_one_call: None,
            grows: !holds_ids(site) && grows(&rows, &errors),
            heads: carriers.heads(),
            experts: carriers.experts(),
            channels: carriers.channels(),
            evidence: evidence(judged, &sites),
            sites,
        }
    }
}

impl Judged {
    fn is_out(&self, row: usize) -> bool {
        is_row_out(self.site, row, self.errors[row], self.bound)
    }

    fn first(&self) -> Option<usize> {
        (0..self.errors.len()).find(|&row| self.is_out(row))
    }

    /// The largest error of a row over what the row is allowed.
    fn share(&self) -> f64 {
        let share = |(row, &error): (usize, &f64)| match self.bound + of_angles(self.site, row) {
            none if none == 0.0 && error == 0.0 => 0.0,
            allowed => error / allowed,
        };
        worst(self.errors.iter().enumerate().map(share))
    }
}

/// Where queries or keys are off by their angles and still right, what is made of them may be off as many
/// times more than by rounding alone: errors this small add up. Gives that number, at least 1.
fn loosen(judged: &mut BTreeMap<Site, Judged>) -> f64 {
    let turned = [Site::QRope, Site::KRope].into_iter().filter_map(|site| judged.get(&site));
    let right = turned.filter(|judged| judged.first().is_none());
    let times = right.map(|judged| worst(judged.errors.iter().copied()) / judged.bound);
    let slack = worst(times).max(1.0);
    for (_, judged) in judged.iter_mut().filter(|(site, _)| **site > Site::KRope) {
        judged.bound *= slack;
    }
    slack
}

fn part_row(part: PartName, judged: &BTreeMap<Site, Judged>) -> PartRow {
    let (site, share_of_bound) =
        first_worst(judged.iter().map(|(site, judged)| (*site, judged.share())), |(_, share)| *share)
            .expect("every part has a site");
    let numbers = judged.iter().filter(|(site, _)| !holds_ids(**site));
    PartRow {
        part,
        error_max: worst(numbers.flat_map(|(_, judged)| judged.errors.iter().copied())),
        site,
        share_of_bound,
        out: judged.iter().filter(|(_, judged)| judged.first().is_some()).map(|(site, _)| *site).collect(),
    }
}

/// Rows of all sites out of bound, and the closest of the others.
fn evidence(judged: &BTreeMap<Site, Judged>, origins: &[Site]) -> Vec<SiteRow> {
    let within = judged.iter().filter(|(_, judged)| judged.first().is_none());
    let closest = first_worst(within.map(|(site, judged)| (*site, judged.share())), |(_, share)| *share);
    let shown = |site: Site| judged[&site].first().is_some() || closest.is_some_and(|(of, _)| of == site);
    judged
        .iter()
        .filter(|(site, _)| shown(**site))
        .map(|(&site, judged)| SiteRow {
            site,
            error_max: worst(judged.errors.iter().copied()),
            bound: judged.bound,
            rows_out: (0..judged.errors.len()).filter(|&row| judged.is_out(row)).count(),
            first: judged.first(),
            origin: origins.contains(&site),
        })
        .collect()
}

/// Executed ids, by row.
fn ids(choice: &Array2<f32>) -> Vec<Vec<u16>> {
    choice.rows().into_iter().map(|row| row.iter().map(|&id| id as u16).collect()).collect()
}

/// Which heads, experts and channels of a site are out of bound.
struct Carriers<'a> {
    config: &'a ModelConfig,
    site: Site,
    lanes: &'a [SiteRows],
    port: &'a SiteRows,
    /// The rows out of bound.
    rows: &'a [usize],
}

impl Carriers<'_> {
    /// By row and part of the row: whether it is out of the bound of such parts.
    fn parts_out(&self, width: usize) -> Array2<bool> {
        let own = part_errors(self.site, &self.lanes[1], &self.lanes[0], width);
        let bound = bound(self.site, own.iter().copied());
        let errors = part_errors(self.site, &self.lanes[0], self.port, width);
        Array2::from_shape_fn(errors.dim(), |at| is_row_out(self.site, at.0, errors[at], bound))
    }

    fn heads(&self) -> Option<Which> {
        let width = self.head_width()?;
        let out = self.parts_out(width);
        let of = out.ncols();
        let is_out = |head: &usize| self.rows.iter().any(|&row| out[(row, *head)]);
        Some(Which { out: (0..of).filter(is_out).collect(), of })
    }

    fn head_width(&self) -> Option<usize> {
        use Site::{AttnOut, K, KNorm, KRope, Q, QNorm, QRope, V};
        matches!(self.site, Q | K | V | QNorm | KNorm | QRope | KRope | AttnOut)
            .then_some(self.config.head_dim)
    }

    fn experts(&self) -> Option<Which> {
        if self.site != Site::ExpertOut {
            return None;
        }
        let out = self.parts_out(self.config.hidden_size);
        let executed = ids(&self.lanes[0][&Site::Choice]);
        let slots = self.rows.iter().flat_map(|&row| (0..out.ncols()).map(move |slot| (row, slot)));
        let wrong: BTreeSet<usize> =
            slots.filter(|&at| out[at]).map(|(row, slot)| usize::from(executed[row][slot])).collect();
        let all: BTreeSet<usize> = executed.iter().flatten().map(|&id| usize::from(id)).collect();
        // "all experts" is of those that were executed at all
        Some(Which {
            of: if wrong == all { wrong.len() } else { self.config.num_experts },
            out: wrong.into_iter().collect(),
        })
    }

    fn channels(&self) -> Option<Which> {
        if holds_ids(self.site) || matches!(self.site, Site::ExpertOut | Site::TopkWeights) {
            return None;
        }
        let (expected, found) = (&self.lanes[0][&self.site], &self.port[&self.site]);
        let width = self.head_width().unwrap_or(expected.ncols());
        let mut squares = vec![0.0; width];
        for &row in self.rows {
            let pairs = expected.slice(s![row, ..]).into_iter().zip(found.slice(s![row, ..]));
            for (column, (a, b)) in pairs.enumerate() {
                squares[column % width] += (f64::from(*a) - f64::from(*b)).powi(2);
            }
        }
        carriers(&squares).map(|out| Which { out, of: width })
    }
}

/// The fewest columns that together carry nearly all of the squared error, ascending, if they are less than
/// half of all; none if an error is no number.
pub(crate) fn carriers(squares: &[f64]) -> Option<Vec<usize>> {
    let total: f64 = squares.iter().sum();
    if !total.is_finite() {
        return None;
    }
    let mut order: Vec<usize> = (0..squares.len()).collect();
    order.sort_by(|a, b| squares[*b].total_cmp(&squares[*a]));
    let mut carried = 0.0;
    let needed = order.iter().position(|&column| {
        carried += squares[column];
        carried >= CARRIED_MIN * total
    })?;
    let mut few = order[..=needed].to_vec();
    few.sort_unstable();
    (2 * few.len() < squares.len()).then_some(few)
}
