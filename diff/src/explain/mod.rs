//! Which known bug makes the port's divergence vanish; where none does, which simple map.
//!
//! Input: a bench, a port, a sequence. Output: a [`Finding`]: every bug that the reference can have, planted
//! in a lane of its own and ranked by how far the port is from that lane, then bugs together, then maps of
//! rows. The reference runs each lane's layers on its correct lane's input and experts, so one pass tries all
//! bugs and no layer's divergence is that of an earlier layer.
//!
//! How far a hypothesis is from the port ([`finding::Hypothesis`]): per part of the model and site, the RMS
//! over rows of the relative L2 error; its *residual* is the largest. Hypotheses are ranked by *orders*: by
//! how many orders of magnitude a row is beyond the honest level, on average over rows, sites and parts. A
//! rounding that falls to the other side in a few rows costs a bug next to nothing there, while it may be all
//! of the residual. The honest level of a place is what the correct rewrites of the reference move it by,
//! times [`HONEST_FACTOR`].
//!
//! Absent on purpose: where the port is wrong, which bisection says; what any bug is, which the bench knows.

mod distance;
pub mod finding;
mod first_wrong;
mod greedy;
mod maps;
mod place;
mod trials;
mod words;

pub use finding::{Finding, Outcome};

use crate::bench::Bench;
use crate::compare::{Progress, check_cases};
use greedy::Search;
use spec::{Case, Precision, Result, Schedule, Side};
use trials::Trials;

/// Of these many times the honest level a port may be away from the reference, and is honest: two engines
/// differ by the rounding of both, and of a sum of `n` terms theirs is up to `sqrt(n)` of what a fixed order
/// leaves; both together stay below this on every site measured.
pub const HONEST_FACTOR: f64 = 16.0;
/// A bug that leaves some rows beyond the honest level still explains them if it leaves so many times fewer
/// orders than were there.
pub const FEWER_ORDERS: f64 = 30.0;

/// What is explained.
pub struct Question<'a> {
    /// Both sides and the bugs.
    pub bench: &'a dyn Bench,
    /// The port.
    pub port: &'a dyn Side,
    /// The sequence.
    pub case: &'a Case,
    /// How the port is fed.
    pub schedule: Schedule,
    /// Of both sides; on the reference bf16 is the emulation.
    pub precision: Precision,
    /// Bugs that are tried together, at most; at least one.
    pub together: usize,
}

/// Explains. Errors: [`spec::Error::Case`] on a case that cannot be run, whatever a side returns,
/// [`spec::Error::Unpaired`] on rows that do not pair.
pub fn explain(question: &Question<'_>, progress: &mut dyn Progress) -> Result<Finding> {
    check_cases(std::slice::from_ref(question.case), question.bench.reference().config())?;
    let mut trials = Trials::new(question);
    let mut search = Search::begin(&mut trials, progress)?;
    if !search.base().is_honest() {
        search.go_on(&mut trials, question.together, progress)?;
    }
    let maps = match search.base().is_honest() || search.best_explains() {
        true => None,
        false => first_wrong::maps(&mut trials, progress)?,
    };
    Ok(words::finding(question, &trials, search, maps))
}
