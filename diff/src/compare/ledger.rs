//! Which rows one side owes, and how far they have come: the pairing of two sides.
//!
//! Every (run, layer, site, position) must come exactly once, the ranges of one site in ascending order, and
//! nothing else may come. Rows of two sides are never walked together: each side is held against this ledger,
//! and rows meet by position.

use ndarray::ArrayView2;
use spec::{At, Case, Error, LayerId, ModelConfig, Result, Site};
use std::collections::BTreeMap;

/// The rows of one site of one run.
pub(crate) type Key = (usize, Option<LayerId>, Site);

/// What one side owes in one call.
#[derive(Debug)]
pub(crate) struct Ledger<'a> {
    /// "reference" or "port", for messages.
    side: &'static str,
    cases: &'a [Case],
    config: &'a ModelConfig,
    /// How many rows of each site have come; they are rows `0..n`.
    taken: BTreeMap<Key, usize>,
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(side: &'static str, cases: &'a [Case], config: &'a ModelConfig) -> Self {
        Self { side, cases, config, taken: BTreeMap::new() }
    }

    /// From now on every run owes this site.
    pub(crate) fn expect(&mut self, layer: Option<LayerId>, site: Site) {
        self.taken.extend((0..self.cases.len()).map(|run| ((run, layer, site), 0)));
    }

    /// From now on one run owes this site.
    pub(crate) fn expect_of(&mut self, run: usize, layer: Option<LayerId>, site: Site) {
        self.taken.insert((run, layer, site), 0);
    }

    pub(crate) fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.taken.contains_key(&(run, layer, site))
    }

    /// Takes rows as they come. Errors: [`Error::Unpaired`] on rows nobody expects, on a gap before them, on
    /// rows that came before, on rows of the wrong shape.
    pub(crate) fn take(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        let Some(taken) = self.taken.get_mut(&(at.run, at.layer, at.site)) else {
            let found = format!("rows {:?} of {}", at.rows, place((at.run, at.layer, at.site), self.cases));
            return Err(self.unpaired("no rows but those asked for".into(), found));
        };
        let tokens = self.cases[at.run].len();
        let shape = [at.rows.len(), at.site.width(self.config)];
        if at.rows.start == *taken && at.rows.end <= tokens && rows.shape() == shape {
            *taken = at.rows.end;
            return Ok(());
        }
        let place = place((at.run, at.layer, at.site), self.cases);
        let width = shape[1];
        let expected = format!("the next of rows {taken}..{tokens}, each of width {width}, of {place}");
        Err(self.unpaired(expected, format!("rows {:?} of shape {:?}", at.rows, rows.shape())))
    }

    /// Refuses rows that are still owed. Errors: [`Error::Unpaired`].
    pub(crate) fn finish(&self) -> Result<()> {
        self.finish_where(|_| true)
    }

    /// Refuses rows that are still owed at some sites. Errors: [`Error::Unpaired`].
    pub(crate) fn finish_where(&self, belongs: impl Fn(Key) -> bool) -> Result<()> {
        for (&key, &taken) in self.taken.iter().filter(|(key, _)| belongs(**key)) {
            let tokens = self.cases[key.0].len();
            if taken != tokens {
                let expected = format!("{tokens} rows of {}", place(key, self.cases));
                return Err(self.unpaired(expected, format!("{taken}")));
            }
        }
        Ok(())
    }

    fn unpaired(&self, expected: String, found: String) -> Error {
        let next = "a side must record every row it is asked for once, in order of position".into();
        Error::Unpaired { expected: format!("from the {}, {expected}", self.side), found, next }
    }
}

fn place((run, layer, site): Key, cases: &[Case]) -> String {
    let case = cases.get(run).map_or_else(|| format!("run {run}"), |case| format!("case `{}`", case.name));
    match layer {
        Some(layer) => format!("`{site}` in layer {layer} of {case}"),
        None => format!("`{site}` of {case}"),
    }
}
