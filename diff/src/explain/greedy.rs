//! The search: every bug alone, then the best of them with each other bug, until the divergence is explained.

use super::FEWER_ORDERS;
use super::trials::{Trial, Trials};
use crate::bench::PlantedIn;
use crate::beside::Part;
use crate::compare::Progress;
use crate::stats::order;
use spec::{Result, Site};

/// Hypotheses to which another bug is added, of each of two rankings.
const BEAM: usize = 4;
/// A further bug must leave so many times fewer orders to be worth naming, where fewer bugs explain already.
const WORTH_A_BUG: f64 = 3.0;
/// Up to this share of a place's rows a rounding may have put on the other side.
const FEW: f64 = 0.1;
/// The stage of bugs in the reference's own precision, which are no bugs of a port.
const CHECKER: &str = "checker";

/// What has been tried.
pub(crate) struct Search {
    base: Trial,
    /// All that change something, best first.
    pub(crate) tried: Vec<Trial>,
    /// Bugs that change nothing here.
    pub(crate) idle: Vec<String>,
}

impl Search {
    /// Every bug alone.
    pub(crate) fn begin(trials: &mut Trials<'_>, progress: &mut dyn Progress) -> Result<Self> {
        let planted = trials.of.bench.planted().into_iter();
        let bug = |p: &crate::bench::Planted| {
            !p.rewrite && p.stage != CHECKER && p.sides.contains(&PlantedIn::Reference)
        };
        let bugs: Vec<Vec<String>> = planted.filter(bug).map(|p| vec![p.id]).collect();
        progress.section("one bug");
        let mut all = trials.run(&bugs, progress)?;
        let base = all.remove(0);
        let (idle, mut tried): (Vec<Trial>, Vec<Trial>) = all.into_iter().partition(|t| t.acts.is_empty());
        sort(&mut tried);
        let idle = idle.into_iter().flat_map(|trial| trial.bugs).collect();
        Ok(Self { base, tried, idle })
    }

    /// Bugs together, up to so many.
    pub(crate) fn go_on(
        &mut self,
        trials: &mut Trials<'_>,
        together: usize,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        for size in 2..=together {
            if self.best().is_some_and(Trial::is_honest) {
                return Ok(());
            }
            let next = self.next(size, trials);
            if next.is_empty() {
                return Ok(());
            }
            progress.section(if size == 2 { "two bugs" } else { "three bugs" });
            let mut found = trials.run(&next, progress)?;
            found.remove(0);
            let best_so_far = self.best().map_or(f64::INFINITY, Trial::orders);
            let explained = self.best_explains();
            // what is explained is not explained better by a bug more that adds little
            found.retain(|trial| !explained || trial.orders() * WORTH_A_BUG <= best_so_far);
            self.tried.append(&mut found);
            sort(&mut self.tried);
        }
        Ok(())
    }

    /// Each of the best of one size with each other bug that may mend what it leaves, as far as both can be
    /// planted; each set once.
    ///
    /// The first wrong place of a part has right inputs. Of the bugs that are still missing, one must act
    /// there first: a bug that acts later leaves it wrong, and one that acts before makes wrong what is
    /// right.
    fn next(&self, size: usize, trials: &Trials<'_>) -> Vec<Vec<String>> {
        let of_size = |size: usize| self.tried.iter().filter(move |trial| trial.bugs.len() == size);
        let mut by_mending: Vec<&Trial> = of_size(size - 1).collect();
        by_mending.sort_by(|a, b| order(b.mends(&self.base), a.mends(&self.base)));
        let mut next: Vec<Vec<String>> = Vec::new();
        for first in of_size(size - 1).take(BEAM).chain(by_mending.into_iter().take(BEAM)) {
            let left = [first.first_wrong(0.0), first.first_wrong(FEW)];
            let may_mend = |other: &&Trial| {
                let acts_there = |(part, site): (&Part, &Site)| other.acts.get(part) == Some(site);
                !first.bugs.contains(&other.bugs[0]) && left.iter().flatten().any(acts_there)
            };
            for other in of_size(1).filter(may_mend) {
                let mut bugs: Vec<String> = first.bugs.iter().chain(&other.bugs).cloned().collect();
                bugs.sort();
                if !next.contains(&bugs) && trials.of.bench.together(&bugs.join(",")) {
                    next.push(bugs);
                }
            }
        }
        next
    }

    /// The correct reference against the port.
    pub(crate) fn base(&self) -> &Trial {
        &self.base
    }

    /// The best hypothesis.
    pub(crate) fn best(&self) -> Option<&Trial> {
        self.tried.first()
    }

    /// Whether the best hypothesis explains the divergence.
    pub(crate) fn best_explains(&self) -> bool {
        self.best().is_some_and(|best| explains(best, &self.base))
    }
}

/// Whether a hypothesis explains the divergence: all is honest, or next to all rows are.
pub(crate) fn explains(trial: &Trial, base: &Trial) -> bool {
    trial.is_honest() || (trial.orders().is_finite() && trial.orders() * FEWER_ORDERS <= base.orders())
}

/// Best first: fewest orders, then the smallest residual, then the fewest bugs.
fn sort(trials: &mut [Trial]) {
    trials.sort_by(|a, b| {
        let rest = order(a.worst().1.rms, b.worst().1.rms).then(a.bugs.len().cmp(&b.bugs.len()));
        order(a.orders(), b.orders()).then(rest)
    });
}
