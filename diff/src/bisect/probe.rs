//! The first wrong part once more, on a cut of its input, on both sides.
//!
//! What a layer is fed is kept in a file, so that a search that was stopped can go on without the pass that
//! made it. Absent on purpose: which cuts to try.

use super::bound::{is_row_out, row_errors};
use super::finding::PartName;
use crate::bench::Bench;
use crate::beside::{Rows, SiteRows};
use crate::compare::reference_pass::{lowest_experts, set_choices};
use ndarray::{Array2, s};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use spec::{Case, Choices, Error, LayerId, Precision, Result, Routing, Run, Schedule, Side, Site, output};
use std::ops::Range;
use std::path::Path;

/// Where a part starts: what lane 0 fed it, `[T, H]`, and executed in it, `[T, k]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Start {
    pub(crate) input: Array2<f32>,
    pub(crate) choice: Option<Array2<f32>>,
}

impl Start {
    /// Writes it whole. Errors: [`Error::Io`].
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let tensors = [("input", Some(&self.input)), ("choice", self.choice.as_ref())];
        let contiguous: Vec<(&str, Vec<f32>, Vec<usize>)> = tensors
            .into_iter()
            .filter_map(|(name, rows)| rows.map(|rows| (name, rows)))
            .map(|(name, rows)| (name, rows.iter().copied().collect(), rows.shape().to_vec()))
            .collect();
        let views = contiguous.iter().map(|(name, values, shape)| {
            let bytes = bytemuck::cast_slice(values);
            (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("bytes of this shape"))
        });
        let bytes = safetensors::serialize(views, None).expect("two tensors of f32");
        output::write_file(path, |file| file.write_all(&bytes))
    }

    /// Reads it. Errors: [`Error::Io`]; [`Error::Argument`] on a file that is something else.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let next = "search again into another folder with --output";
        let bytes = std::fs::read(path).map_err(Error::io("read", path, next))?;
        let tensor = |name: &str| -> Option<Array2<f32>> {
            let file = SafeTensors::deserialize(&bytes).ok()?;
            let view = file.tensor(name).ok().filter(|view| view.dtype() == Dtype::F32)?;
            let &[rows, columns] = view.shape() else { return None };
            let value = |four: &[u8]| f32::from_le_bytes(four.try_into().expect("four bytes"));
            Array2::from_shape_vec((rows, columns), view.data().chunks_exact(4).map(value).collect()).ok()
        };
        let input = tensor("input").ok_or_else(|| Error::Argument {
            what: path.display().to_string(),
            expected: "what the first wrong part was fed".into(),
            found: "another file".into(),
            next: next.into(),
        })?;
        Ok(Self { input, choice: tensor("choice") })
    }
}

/// What is run again.
pub(crate) struct Probe<'a> {
    pub(crate) bench: &'a dyn Bench,
    pub(crate) port: &'a dyn Side,
    pub(crate) case: &'a Case,
    pub(crate) part: PartName,
    pub(crate) start: &'a Start,
    /// The sites that decide, with their bounds.
    pub(crate) bounds: &'a [(Site, f64)],
}

impl Probe<'_> {
    /// The first row of a cut, counted from its start, at which a site that decides is out of bound. Errors:
    /// whatever a side returns.
    pub(crate) fn first_out(&self, cut: Range<usize>, schedule: Schedule) -> Result<Option<usize>> {
        let case = cut_case(self.case, &cut)?;
        let input = self.start.input.slice(s![cut.clone(), ..]).to_owned();
        let config = self.bench.reference().config();
        let mut choices = lowest_experts(case.len(), config);
        if let (PartName::Layer(layer, _), Some(choice)) = (self.part, &self.start.choice) {
            set_choices(&mut choices, layer, &case, config.num_experts, choice.slice(s![cut, ..]))?;
        }
        let whole = Schedule::chunks_of(case.len());
        let expected = self.rows("reference", self.bench.reference(), &case, whole, &choices, &input)?;
        let found = self.rows("port", self.port, &case, schedule, &choices, &input)?;
        Ok(first_out(self.bounds, &expected, &found))
    }

    fn rows(
        &self,
        name: &'static str,
        side: &dyn Side,
        case: &Case,
        schedule: Schedule,
        choices: &Choices,
        input: &Array2<f32>,
    ) -> Result<SiteRows> {
        let routing = Routing::Forced(choices);
        let run = Run { case, schedule, routing, precision: Precision::F32 };
        let mut rows = Rows::of(name, side.config(), case);
        let input = std::slice::from_ref(input);
        match self.part {
            PartName::Layer(layer, _) => {
                rows.expect(Some(layer), &wanted(self.bounds));
                side.layer(layer, &[run], input, &mut rows)?;
            }
            PartName::Head => {
                rows.expect(None, &[Site::FinalNorm, Site::Logits]);
                side.head(&[run], input, &mut rows)?;
            }
            PartName::Embedding => unreachable!("a row of the embedding depends on its token alone"),
        }
        rows.finish()
    }
}

/// The sites that decide, and what their rows are read by.
pub(crate) fn wanted(bounds: &[(Site, f64)]) -> Vec<Site> {
    bounds.iter().map(|(site, _)| *site).chain([Site::SelectionScores, Site::Choice]).collect()
}

/// The first row at which one of the sites is out of bound.
pub(crate) fn first_out(bounds: &[(Site, f64)], expected: &SiteRows, found: &SiteRows) -> Option<usize> {
    let first = |&(site, bound): &(Site, f64)| {
        let errors = row_errors(site, expected, found);
        (0..errors.len()).find(|&row| is_row_out(site, row, errors[row], bound))
    };
    bounds.iter().filter_map(first).min()
}

/// These tokens, as a case.
pub(crate) fn cut_case(case: &Case, cut: &Range<usize>) -> Result<Case> {
    Case::new(case.name.clone(), case.tokens[cut.clone()].to_vec())
}

/// A schedule for a sequence that starts later: decode starts at the same token.
pub(crate) fn cut_schedule(schedule: Schedule, start: usize) -> Schedule {
    let decode_from = schedule.decode_from.map(|decode| decode.saturating_sub(start));
    Schedule { decode_from, ..schedule }
}

/// The layer of a part.
pub(crate) fn layer_of(part: PartName) -> Option<LayerId> {
    match part {
        PartName::Layer(layer, _) => Some(layer),
        PartName::Embedding | PartName::Head => None,
    }
}
