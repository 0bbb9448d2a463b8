//! What one arm's rows of one layer are reduced to, against the reference's rows: branch errors, router
//! logits and sets. The port's arms and the emulation use the same.

use super::record::{Branches, Router};
use super::rows::Rows;
use crate::metrics::router::LogitsError;
use crate::metrics::{branch, router};
use crate::stats::{Rate, Spread, first_worst};
use ndarray::ArrayView2;
use spec::{At, LayerId, Result, Site};

/// Errors of rows with their places.
#[derive(Debug, Clone, Default)]
pub(crate) struct Errors(Vec<(f64, usize, usize)>);

impl Errors {
    pub(crate) fn push(&mut self, error: f64, case: usize, position: usize) {
        self.0.push((error, case, position));
    }

    /// Of all rows, or of those from a position on; `None` of none.
    pub(crate) fn spread(&self, from: usize) -> Option<Spread> {
        let values: Vec<f64> = self.0.iter().filter(|row| row.2 >= from).map(|row| row.0).collect();
        (!values.is_empty()).then(|| Spread::of(values))
    }

    /// Case and position of the largest among rows from a position on.
    pub(crate) fn worst(&self, from: usize) -> Option<(usize, usize)> {
        let worst = first_worst(self.0.iter().filter(|row| row.2 >= from), |row| row.0);
        worst.map(|row| (row.1, row.2))
    }
}

/// A row whose chosen set differs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Differing {
    pub(crate) gap: f64,
    pub(crate) case: usize,
    pub(crate) position: usize,
}

/// Router logits and sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct RouterTally {
    logits: LogitsError,
    rows: usize,
    pub(crate) differing: Vec<Differing>,
}

impl RouterTally {
    /// Takes rows of router logits, `[n, E]`, or of the shadow's choices, `[n, k]`; `case` is the
    /// reference's.
    pub(crate) fn take(
        &mut self,
        rows: &Rows<'_>,
        case: usize,
        at: &At,
        found: ArrayView2<'_, f32>,
    ) -> Result<()> {
        if at.site == Site::ShadowChoice {
            return self.sets(rows, case, at, found);
        }
        assert_eq!(at.site, Site::RouterLogits, "what a router is held by");
        let expected = rows.spool.read(&(case, at.layer, at.site), at.rows.clone())?;
        self.logits.add(expected.view(), found);
        Ok(())
    }

    fn sets(&mut self, rows: &Rows<'_>, case: usize, at: &At, found: ArrayView2<'_, f32>) -> Result<()> {
        let layer = at.layer.expect("sets are of a layer");
        let expected = rows.spool.read(&(case, at.layer, Site::ShadowChoice), at.rows.clone())?;
        for (row, position) in at.rows.clone().enumerate() {
            self.rows += 1;
            if !router::same_set(expected.row(row), found.row(row)) {
                let key = (case, at.layer, Site::RouterLogits);
                let logits = rows.spool.read(&key, position..position + 1)?;
                self.differing.push(Differing { gap: rows.gap(layer, logits.row(0)), case, position });
            }
        }
        Ok(())
    }

    pub(crate) fn sigma(&self) -> f64 {
        self.logits.sigma()
    }

    pub(crate) fn logits_rms(&self) -> f64 {
        self.logits.rms()
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The largest z and where; 0 where no set differs.
    pub(crate) fn largest_z(&self) -> (f64, Option<Differing>) {
        let largest = first_worst(self.differing.iter().copied(), |row| row.gap);
        (largest.map_or(0.0, |row| router::z(row.gap, self.sigma())), largest)
    }

    pub(crate) fn record(&self) -> Router {
        Router {
            sigma: self.sigma(),
            logits_rms: self.logits_rms(),
            differing: Rate::new(self.differing.len(), self.rows),
            largest_z: self.largest_z().0,
        }
    }
}

/// One layer of one arm.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerTally {
    pub(crate) attn: Errors,
    pub(crate) moe: Errors,
    pub(crate) router: RouterTally,
}

impl LayerTally {
    /// Takes rows of a branch, of router logits, or of the shadow's choices; `case` is the reference's.
    pub(crate) fn take(
        &mut self,
        rows: &Rows<'_>,
        case: usize,
        at: &At,
        found: ArrayView2<'_, f32>,
    ) -> Result<()> {
        let errors = match at.site {
            Site::AttnBranch => &mut self.attn,
            Site::MoeBranch => &mut self.moe,
            _ => return self.router.take(rows, case, at, found),
        };
        let expected = rows.spool.read(&(case, at.layer, at.site), at.rows.clone())?;
        for (row, position) in at.rows.clone().enumerate() {
            errors.push(branch::relative_error(expected.row(row), found.row(row)), case, position);
        }
        Ok(())
    }

    /// One branch's errors.
    pub(crate) fn branch(&self, attn: bool) -> &Errors {
        if attn { &self.attn } else { &self.moe }
    }

    /// Panics if a branch has no rows: the ledger has seen them.
    pub(crate) fn branches(&self) -> Branches {
        let spread = |errors: &Errors| errors.spread(0).expect("rows of every branch");
        Branches { attn: spread(&self.attn), moe: spread(&self.moe) }
    }
}

/// "layer 3, short-1, position 99".
pub(crate) fn place(rows: &Rows<'_>, layer: Option<LayerId>, at: Option<(usize, usize)>) -> String {
    let layer = layer.map(|layer| format!("layer {layer}"));
    let at = at.map(|(case, position)| format!("{}, position {position}", rows.cases[case].name));
    layer.into_iter().chain(at).collect::<Vec<_>>().join(", ")
}
