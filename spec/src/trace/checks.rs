//! Whether a trace is a sound record of one sequence, in the order of `docs/trace-format.md`: shape, range,
//! duplicates, partial -1, uncaptured layers, id wrap, stale rows, row count; then the name of the
//! case. The hashes are checked on reading.
//!
//! Absent on purpose: whether the numbers are finite. A trace records what a side computed; a side that
//! computes NaN is a finding of the comparison, not a malformed file.

use super::{MISSING, Origin, Trace, patterns};
use crate::{Case, Error, LayerId, Result};
use ndarray::Array3;
use std::cmp::Ordering;

/// Most experts that an expert id can count.
const EXPERTS_MAX: usize = 65_535;
/// What to do about a malformed trace.
pub(super) const NEXT: &str = "record it again, or mend the program that wrote it";

impl Trace {
    /// Refuses what is not a sound record. Errors: [`crate::Error::Trace`] naming token and layer.
    pub fn check(&self) -> Result<()> {
        self.check_shape()?;
        self.check_range()?;
        self.check_duplicates()?;
        self.check_missing()?;
        patterns::refuse_wrapped_ids(self)?;
        patterns::refuse_stale_rows(self)?;
        self.check_row_count()?;
        self.check_name()
    }

    fn check_shape(&self) -> Result<()> {
        let (rows, layers, k) = self.ids.dim();
        let meta = &self.meta;
        let ok = k == meta.k && (1..=meta.num_experts).contains(&k) && meta.num_experts <= EXPERTS_MAX;
        if !ok || rows == 0 || layers == 0 {
            let expected =
                format!("ids of shape [tokens, layers, {}] out of {} experts", meta.k, meta.num_experts);
            return Err(self.refuse(expected, format!("shape {:?}", self.ids.shape()), NEXT));
        }
        let inside = self.layers.iter().all(|layer| layer.0 < meta.num_hidden_layers);
        if self.layers.len() != layers || !inside || !self.layers.is_sorted_by(|a, b| a < b) {
            let expected = format!("{layers} ascending layers below {}", meta.num_hidden_layers);
            let found: Vec<usize> = self.layers.iter().map(|layer| layer.0).collect();
            return Err(self.refuse(expected, format!("layers {found:?}"), NEXT));
        }
        let same = [
            ("weights", self.weights.as_ref().map(|w| w.shape().to_vec()), vec![rows, layers, k]),
            ("shadow_ids", self.shadow.as_ref().map(|s| s.shape().to_vec()), vec![rows, layers, k]),
            ("origin", self.origin.as_ref().map(|o| o.shape().to_vec()), vec![rows, layers]),
            ("call", self.call.as_ref().map(|c| vec![c.len()]), vec![rows]),
            ("layer_kinds", meta.layer_kinds.as_ref().map(|k| vec![k.len()]), vec![layers]),
        ];
        for (name, found, expected) in same {
            if let Some(found) = found.filter(|found| *found != expected) {
                let expected = format!("`{name}` of shape {expected:?}");
                return Err(self.refuse(expected, format!("{found:?}"), NEXT));
            }
        }
        self.check_candidate_shapes()
    }

    fn check_candidate_shapes(&self) -> Result<()> {
        let Some(candidates) = &self.candidates else { return Ok(()) };
        let (rows, layers, k) = self.ids.dim();
        let width = candidates.ids.dim().2;
        let least = (k + super::EXTRA_CANDIDATES).min(self.meta.num_experts);
        let shape = (rows, layers, width);
        let dims = [candidates.ids.dim(), candidates.sel.dim(), candidates.logit.dim()];
        if !(least..=self.meta.num_experts).contains(&width) || dims != [shape; 3] {
            let expected =
                format!("three candidate tensors of one shape [{rows}, {layers}, {least} or more]");
            return Err(self.refuse(expected, format!("{dims:?}"), NEXT));
        }
        Ok(())
    }

    fn check_range(&self) -> Result<()> {
        let experts = i32::try_from(self.meta.num_experts).expect("checked with the shape");
        let candidates = self.candidates.as_ref().map(|candidates| &candidates.ids);
        for (name, ids) in self.id_tensors().into_iter().chain(candidates.map(|ids| ("cand_ids", ids))) {
            let bad = ids.indexed_iter().find(|(_, id)| !(MISSING..experts).contains(*id));
            if let Some(((token, layer, _), id)) = bad {
                let expected = format!("`{name}` from 0 to {} or {MISSING}", experts - 1);
                return Err(self.refuse(expected, format!("{id} {}", self.place(token, layer)), NEXT));
            }
        }
        Ok(())
    }

    fn check_duplicates(&self) -> Result<()> {
        let candidates = self.candidates.as_ref().map(|candidates| &candidates.ids);
        for (name, ids) in self.id_tensors().into_iter().chain(candidates.map(|ids| ("cand_ids", ids))) {
            for (token, layer, row) in rows(ids) {
                let repeats = |i: &usize| row[*i] != MISSING && row[..*i].contains(&row[*i]);
                let Some(slot) = (1..row.len()).find(repeats) else { continue };
                let found = format!("expert {} twice {}", row[slot], self.place(token, layer));
                let blank = rows(ids).all(|(_, l, row)| l != layer || row.iter().all(|&id| id == 0));
                let found =
                    if blank { format!("{found}; the layer is all zeros, so never captured") } else { found };
                return Err(self.refuse(format!("different experts in a row of `{name}`"), found, NEXT));
            }
        }
        self.check_candidate_order()
    }

    fn check_candidate_order(&self) -> Result<()> {
        let Some(candidates) = &self.candidates else { return Ok(()) };
        for (token, layer, ids) in rows(&candidates.ids) {
            let score = |slot: usize| candidates.sel[[token, layer, slot]];
            let before = |slot: usize| match score(slot - 1).partial_cmp(&score(slot)) {
                Some(Ordering::Equal) => ids[slot - 1] < ids[slot] || ids[slot] == MISSING,
                order => order != Some(Ordering::Less),
            };
            if let Some(slot) = (1..ids.len()).find(|&slot| !before(slot)) {
                let found = format!(
                    "expert {} at {} before expert {} at {} {}",
                    ids[slot - 1],
                    score(slot - 1),
                    ids[slot],
                    score(slot),
                    self.place(token, layer)
                );
                return Err(self.refuse("candidates best first, equal scores by id", found, NEXT));
            }
        }
        Ok(())
    }

    fn check_missing(&self) -> Result<()> {
        for (name, ids) in self.id_tensors() {
            for (token, layer, row) in rows(ids) {
                let missing = row.iter().filter(|&&id| id == MISSING).count();
                if missing != 0 && missing != row.len() {
                    let expected = format!("a row of `{name}` to be whole or all {MISSING}");
                    return Err(self.refuse(expected, format!("{row:?} {}", self.place(token, layer)), NEXT));
                }
            }
        }
        let Some(origin) = &self.origin else { return Ok(()) };
        for ((token, layer), &origin) in origin.indexed_iter() {
            if (origin == Origin::Missing) != self.row(token, layer).is_none() {
                let expected = "`origin` 0 exactly where a row has no route";
                return Err(self.refuse(expected, format!("{origin:?} {}", self.place(token, layer)), NEXT));
            }
        }
        Ok(())
    }

    fn check_row_count(&self) -> Result<()> {
        let (rows, tokens, pos0) = (self.rows(), self.tokens.len(), self.meta.pos0);
        if rows + pos0 == tokens || rows + pos0 + 1 == tokens {
            return Ok(());
        }
        let expected =
            format!("a row for each of {tokens} tokens from position {pos0} on, or all but the last");
        Err(self.refuse(expected, format!("{rows} rows"), "record the trace and its tokens in one run"))
    }

    /// The case can name a file, like every case that is run.
    fn check_name(&self) -> Result<()> {
        match Case::new(self.meta.case.as_str(), self.tokens.clone()) {
            Err(Error::Case { expected, found, .. }) => {
                let next = "record it under another name, or rename the file where it names the case";
                let found = found.escape_debug().to_string();
                Err(self.refuse(format!("metadata `case`, {expected}"), found, next))
            }
            checked => checked.map(drop),
        }
    }

    /// `ids`, and the shadow where there is one.
    fn id_tensors(&self) -> Vec<(&'static str, &Array3<i32>)> {
        let shadow = self.shadow.as_ref().map(|shadow| ("shadow_ids", shadow));
        [("ids", &self.ids)].into_iter().chain(shadow).collect()
    }

    /// Where a row is: "at token 7, layer 3", the token as a position of the sequence.
    pub(super) fn place(&self, token: usize, layer: usize) -> String {
        format!(
            "at token {}, layer {}",
            self.meta.pos0 + token,
            self.layers.get(layer).unwrap_or(&LayerId(layer))
        )
    }
}

/// Every row with its token and its index along L.
fn rows(ids: &Array3<i32>) -> impl Iterator<Item = (usize, usize, &[i32])> {
    let (_, layers, k) = ids.dim();
    let all = ids.as_slice().expect("ids in C order").chunks_exact(k).enumerate();
    all.map(move |(index, row)| (index / layers, index % layers, row))
}
