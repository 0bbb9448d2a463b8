//! Hypotheses beside the port: each a lane of a pass, so many lanes at a time as fit into memory.

use super::distance::{Distance, errors};
use super::place::{HINTS, JUDGED, Place};
use super::{HONEST_FACTOR, Question};
use crate::bench::PlantedIn;
use crate::beside::{Beside, Part, SiteRows};
use crate::compare::Progress;
use spec::{ModelConfig, Precision, Result, Site};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of rows that the lanes of one pass may hold.
const HELD_BYTES_MAX: usize = 1 << 30;

/// A hypothesis and how far the port is from it.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    /// The ids of its bugs; none: the correct reference.
    pub(crate) bugs: Vec<String>,
    pub(crate) at: BTreeMap<Place, Distance>,
    /// The first place of each part at which its rows are other than the correct ones.
    pub(crate) acts: BTreeMap<Part, Site>,
}

impl Trial {
    fn judged(&self) -> impl Iterator<Item = (&Place, &Distance)> {
        self.at.iter().filter(|(place, _)| place.is_judged())
    }

    /// The mean of the orders of all judged places; infinite where there is a NaN.
    pub(crate) fn orders(&self) -> f64 {
        let orders: Vec<f64> = self.judged().map(|(_, distance)| distance.orders).collect();
        orders.iter().sum::<f64>() / orders.len() as f64
    }

    /// Where the most is left, and how much; a NaN is the most.
    pub(crate) fn worst(&self) -> (Place, Distance) {
        let judged = self.judged().map(|(&place, &distance)| (place, distance));
        crate::stats::first_worst(judged, |(_, distance)| distance.rms).expect("some place is judged")
    }

    /// Rows beyond the honest level, of how many.
    pub(crate) fn beyond(&self) -> (usize, usize) {
        self.judged().fold((0, 0), |(beyond, rows), (_, at)| (beyond + at.beyond, rows + at.rows))
    }

    /// The largest RMS over the rows that are within the honest level.
    pub(crate) fn rms_within(&self) -> f64 {
        self.judged().map(|(_, at)| at.rms_within).fold(0.0, f64::max)
    }

    /// Whether nothing is left but what rounding may do.
    pub(crate) fn is_honest(&self) -> bool {
        self.judged().all(|(_, distance)| distance.is_honest())
    }

    /// The first place of each part at which more than this share of the rows are beyond the honest level.
    pub(crate) fn first_wrong(&self, share: f64) -> BTreeMap<Part, Site> {
        let mut first = BTreeMap::new();
        // places are in the order in which a token passes them
        for (place, _) in self.at.iter().filter(|(_, at)| at.beyond as f64 > share * at.rows as f64) {
            first.entry(place.part).or_insert(place.site);
        }
        first
    }

    /// The orders by which it mends places, also those that are not judged; what it makes worse does not
    /// count.
    pub(crate) fn mends(&self, base: &Trial) -> f64 {
        let gain =
            |(place, distance): (&Place, &Distance)| (base.at[place].orders - distance.orders).max(0.0);
        // of two infinite ones the difference is NaN, and `max` gives 0
        self.at.iter().map(gain).sum()
    }
}

/// Runs hypotheses.
pub(crate) struct Trials<'a> {
    pub(crate) of: &'a Question<'a>,
    /// Correct rewrites of the reference.
    rewrites: Vec<String>,
    bounds: BTreeMap<Place, f64>,
    /// The port's logits end to end, forced, against the correct lane's.
    pub(crate) end_to_end: Option<Distance>,
    /// Passes of the reference so far.
    pub(crate) passes: usize,
    /// Lanes in them.
    pub(crate) lanes: usize,
}

impl<'a> Trials<'a> {
    pub(crate) fn new(of: &'a Question<'a>) -> Self {
        let planted = of.bench.planted().into_iter();
        let rewrites = planted.filter(|p| p.rewrite && p.sides.contains(&PlantedIn::Reference)).map(|p| p.id);
        Self {
            of,
            rewrites: rewrites.collect(),
            bounds: BTreeMap::new(),
            end_to_end: None,
            passes: 0,
            lanes: 0,
        }
    }

    /// The correct reference, then each hypothesis: lists of bugs. Errors: as [`Beside::run`].
    pub(crate) fn run(&mut self, bugs: &[Vec<String>], progress: &mut dyn Progress) -> Result<Vec<Trial>> {
        let sites: Vec<Site> = [Site::SelectionScores].into_iter().chain(JUDGED).chain(HINTS).collect();
        let room = lanes_at_once(self.of.case.len(), &sites, self.of.port.config());
        let mut found = Vec::new();
        let mut rest = bugs;
        loop {
            let (now, later) = rest.split_at(rest.len().min(room));
            let mut trials = self.pass(now, &sites, &mut |_, _, _, _| (), progress)?;
            if !found.is_empty() {
                trials.remove(0);
            }
            found.append(&mut trials);
            rest = later;
            if rest.is_empty() {
                return Ok(found);
            }
        }
    }

    /// One pass; `see` is shown each place's rows of the correct lane and of the port.
    pub(crate) fn pass(
        &mut self,
        bugs: &[Vec<String>],
        sites: &[Site],
        see: &mut dyn FnMut(Place, &Distance, &SiteRows, &SiteRows),
        progress: &mut dyn Progress,
    ) -> Result<Vec<Trial>> {
        let joined: Vec<String> = bugs.iter().map(|bugs| bugs.join(",")).collect();
        // the rewrites come first, until every place has its bound
        let measured: BTreeSet<Site> = self.bounds.keys().map(|place| place.site).collect();
        let fresh = sites.iter().any(|site| *site != Site::SelectionScores && !measured.contains(site));
        let rewrites = if fresh { self.rewrites.clone() } else { Vec::new() };
        let named = rewrites.iter().chain(&joined).map(|id| Some(id.as_str()));
        let lanes: Vec<Option<&str>> = [None].into_iter().chain(named).collect();
        let empty =
            |bugs: &[String]| Trial { bugs: bugs.to_vec(), at: BTreeMap::new(), acts: BTreeMap::new() };
        let mut trials: Vec<Trial> =
            [&[][..]].into_iter().chain(bugs.iter().map(Vec::as_slice)).map(empty).collect();
        let precision = self.of.precision;
        let (bounds, end_to_end) = (&mut self.bounds, &mut self.end_to_end);
        let mut witness = |part: Part, lanes: &[SiteRows], port: &SiteRows| {
            for &site in port.keys().filter(|site| **site != Site::SelectionScores) {
                let place = Place { part, site };
                let bound = *bounds
                    .entry(place)
                    .or_insert_with(|| honest(site, &lanes[0], &lanes[1..=rewrites.len()], precision));
                if part == Part::EndToEnd {
                    *end_to_end = Some(Distance::of(&errors(site, &lanes[0], port), bound));
                    continue;
                }
                let hypotheses = [&lanes[0]].into_iter().chain(&lanes[1 + rewrites.len()..]);
                for (trial, lane) in trials.iter_mut().zip(hypotheses) {
                    if lane[&site] != lanes[0][&site] {
                        trial.acts.entry(part).or_insert(site);
                    }
                    trial.at.insert(place, Distance::of(&errors(site, lane, port), bound));
                }
                see(place, &trials[0].at[&place], &lanes[0], port);
            }
            Ok(())
        };
        let Question { bench, port, case, schedule, .. } = *self.of;
        let beside = Beside { bench, port, case, schedule, precision, lanes: &lanes, sites };
        beside.run(&mut witness, progress)?;
        self.passes += 1;
        self.lanes += lanes.len();
        Ok(trials)
    }
}

/// What rounding may do at one place: a multiple of the largest that a correct rewrite does, and at least of
/// the unit roundoff.
fn honest(site: Site, correct: &SiteRows, rewrites: &[SiteRows], precision: Precision) -> f64 {
    let roundoff = match precision {
        Precision::F32 => 2_f64.powi(-24),
        Precision::Bf16 => 2_f64.powi(-9),
    };
    let moved = |rewrite| Distance::of(&errors(site, correct, rewrite), f64::INFINITY).rms;
    // a rewrite that gives a NaN is no measure of anything
    HONEST_FACTOR * rewrites.iter().map(moved).fold(roundoff, f64::max)
}

/// How many lanes' rows fit into [`HELD_BYTES_MAX`], those of one layer or of the head; at least one.
fn lanes_at_once(tokens: usize, sites: &[Site], config: &ModelConfig) -> usize {
    let width = |sites: &[Site]| sites.iter().map(|site| site.width(config)).sum::<usize>();
    let layer = width(sites) + width(&[Site::Embedding]);
    let head = width(&[Site::Embedding, Site::FinalNorm, Site::Logits]);
    (HELD_BYTES_MAX / (tokens * layer.max(head) * size_of::<f32>())).max(1)
}
