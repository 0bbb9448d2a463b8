//! A recorded trace: which experts every token of one sequence went to, by what margin, and who says so.
//!
//! Job: the `moe-trace/1` file of `docs/trace-format.md`, read, checked and written. Inputs: such a file, or
//! the parts of one. Outputs: a [`Trace`] that is a sound record of one sequence, or a refusal that names the
//! place. Absent on purpose: running anything, converters from other formats, and the values at sites.

mod checks;
mod meta;
mod patterns;
mod read;
pub mod tensors;
mod write;

pub use meta::{Meta, SCHEMA, SlotOrder, TIE_RULE};

use crate::{Case, Choices, Error, ExpertId, LayerId, ModelConfig, Result, TokenId};
use ndarray::{Array2, Array3, s};
use std::path::PathBuf;

/// What follows the case's name in the name of a trace file.
pub const SUFFIX: &str = ".trace.safetensors";
/// Candidates recorded beyond the k best, where there are as many experts: enough for the margin and one
/// more.
pub const EXTRA_CANDIDATES: usize = 2;
/// The id of every slot of a row that has no route.
pub const MISSING: i32 = -1;

/// Where a row's ids come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// No route was recorded.
    Missing = 0,
    /// The router chose.
    Live = 1,
    /// Given from outside.
    Forced = 2,
    /// Looked up by token id.
    HashTable = 3,
    /// Taken from another program's file.
    Imported = 4,
}

/// The best experts of every row by selection score, best first, equal scores by id; all `[T, L, C]`, C >= K.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidates {
    /// Expert ids.
    pub ids: Array3<i32>,
    /// Selection scores, the bias included (K15).
    pub sel: Array3<f32>,
    /// Router logits, without the bias (K14).
    pub logit: Array3<f32>,
}

/// The experts of every (token, layer) of one sequence. T rows, L layers with experts, K slots, N tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The file it is read from or written to; for messages only.
    pub path: PathBuf,
    /// What the trace says about itself.
    pub meta: Meta,
    /// Expert ids, `[T, L, K]`, slots in the order that `meta.slot_order` says; a row of [`MISSING`]: no
    /// route.
    pub ids: Array3<i32>,
    /// The decoder layer of each index along L, ascending.
    pub layers: Vec<LayerId>,
    /// All token ids, `[N]`; row t routes the token at position `pos0 + t`.
    pub tokens: Vec<TokenId>,
    /// Gate weights as used, `[T, L, K]`, aligned with `ids` (K16).
    pub weights: Option<Array3<f32>>,
    /// The best experts by score, and their scores.
    pub candidates: Option<Candidates>,
    /// Where each row's ids come from, `[T, L]`.
    pub origin: Option<Array2<Origin>>,
    /// The call that made each row, `[T]`.
    pub call: Option<Vec<u32>>,
    /// What the side's own router chose while its ids were forced, `[T, L, K]`.
    pub shadow: Option<Array3<i32>>,
}

impl Trace {
    /// Number of rows, T.
    pub fn rows(&self) -> usize {
        self.ids.dim().0
    }

    /// The experts of one row at one index along L, `None` where there is no route.
    pub fn row(&self, token: usize, layer: usize) -> Option<&[i32]> {
        row_of(&self.ids, token, layer)
    }

    /// Like [`Trace::row`], for the side's own choice: the shadow where one was recorded, else the row
    /// itself.
    pub fn own_row(&self, token: usize, layer: usize) -> Option<&[i32]> {
        row_of(self.shadow.as_ref().unwrap_or(&self.ids), token, layer)
    }

    /// Selection score of the k-th candidate minus that of the next, `>= 0`; NaN if one of the scores up to
    /// there is. `None` where there is no route, or the trace has no candidates beyond the k-th.
    pub fn gap(&self, token: usize, layer: usize) -> Option<f64> {
        let k = self.meta.k;
        let candidates = self.candidates.as_ref().filter(|candidates| candidates.sel.dim().2 > k)?;
        self.row(token, layer)?;
        let scores = candidates.sel.slice(s![token, layer, ..=k]);
        let nan = scores.iter().any(|score| score.is_nan());
        Some(if nan { f64::NAN } else { f64::from(scores[k - 1]) - f64::from(scores[k]) })
    }

    /// Refuses a trace of another checkpoint. Errors: [`Error::Trace`] naming both hashes, also where the
    /// trace has none.
    pub fn check_same_checkpoint(&self, weights_sha256: &str, config_sha256: &str) -> Result<()> {
        let hashes = [
            ("weights_sha256", &self.meta.weights_sha256, weights_sha256),
            ("config_sha256", &self.meta.config_sha256, config_sha256),
        ];
        for (key, found, wanted) in hashes {
            if found.as_deref() != Some(wanted) {
                let found = found.as_deref().unwrap_or("no such hash").escape_debug();
                let next = "record the trace on the checkpoint it is compared with";
                let expected = format!("a trace of the checkpoint whose {key} is {}", wanted.escape_debug());
                return Err(self.refuse(expected, format!("a trace of another checkpoint ({found})"), next));
            }
        }
        Ok(())
    }

    /// Refuses a trace of other tokens than the case's. Errors: [`Error::Trace`] naming the first position.
    pub fn check_tokens(&self, case: &Case) -> Result<()> {
        if self.tokens == case.tokens {
            return Ok(());
        }
        let differs = |position: &usize| self.tokens.get(*position) != case.tokens.get(*position);
        let position = (0..).find(differs).expect("the tokens differ");
        let show = |tokens: &[TokenId]| match tokens.get(position) {
            Some(id) => format!("id {id} at position {position} of {}", tokens.len()),
            None => format!("{} tokens", tokens.len()),
        };
        let next = "record the trace on the text it is compared with";
        let expected = format!("the tokens of case `{}`, {}", case.name, show(&case.tokens));
        Err(self.refuse(expected, format!("a trace of other tokens, {}", show(&self.tokens)), next))
    }

    /// Refuses a trace whose layers, experts or k are not `config`'s. Errors: [`Error::Trace`].
    pub fn check_layers(&self, config: &ModelConfig) -> Result<()> {
        let of =
            |layers: usize, experts: usize, k: usize| format!("{layers} layers of {experts} experts, k {k}");
        let wanted = of(config.num_layers(), config.num_experts, config.experts_per_token);
        let found = of(self.layers.len(), self.meta.num_experts, self.meta.k);
        if found == wanted && self.layers.iter().copied().eq(config.layer_ids()) {
            return Ok(());
        }
        let found = format!("another number of layers or experts: {found}");
        Err(self.refuse(wanted, found, "record the trace on the checkpoint it is used with"))
    }

    /// The recorded ids, for forcing a whole case. Errors: [`Error::Trace`] unless every token of the
    /// sequence has a route in every decoder layer.
    pub fn choices(&self) -> Result<Choices> {
        let (rows, layers, k) = self.ids.dim();
        let next = "force only traces recorded over the whole sequence, such as those of `assay run`";
        if rows != self.tokens.len() {
            let found = format!("rows for {rows} tokens from position {}", self.meta.pos0);
            return Err(self.refuse(format!("a row for each of {} tokens", self.tokens.len()), found, next));
        }
        if !self.layers.iter().copied().eq((0..self.meta.num_hidden_layers).map(LayerId)) {
            let expected = format!("routes for all {} layers", self.meta.num_hidden_layers);
            let layers: Vec<usize> = self.layers.iter().map(|layer| layer.0).collect();
            return Err(self.refuse(expected, format!("routes for layers {layers:?}"), next));
        }
        let mut choices = Choices::unset(rows, layers, k);
        for (token, layer) in (0..rows).flat_map(|token| (0..layers).map(move |layer| (token, layer))) {
            let Some(row) = self.row(token, layer) else {
                let found = format!("no route at token {token}, layer {layer}");
                return Err(self.refuse("a route for every token and layer", found, next));
            };
            let id = |&id: &i32| ExpertId(u16::try_from(id).expect("checked against the number of experts"));
            choices.set(token, LayerId(layer), &row.iter().map(id).collect::<Vec<_>>());
        }
        Ok(choices)
    }

    /// A refusal of this trace.
    pub fn refuse(&self, expected: impl Into<String>, found: impl Into<String>, next: &str) -> Error {
        let (expected, found, next) = (expected.into(), found.into(), next.into());
        Error::Trace { path: self.path.clone(), expected, found, next }
    }
}

fn row_of(ids: &Array3<i32>, token: usize, layer: usize) -> Option<&[i32]> {
    let (_, layers, k) = ids.dim();
    let start = (token * layers + layer) * k;
    let row = &ids.as_slice().expect("ids in C order")[start..start + k];
    (row[0] != MISSING).then_some(row)
}
