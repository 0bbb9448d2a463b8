//! The final norm and the head (K18), for every lane of which they are wanted.
//!
//! `lm_head` is decoded once per pass and whole; logits are made and recorded a block of rows at a time.

use crate::lane::{LaneState, Tap};
use crate::model::Model;
use crate::steps::{Matrix, Norm};
use ndarray::s;
use spec::config::HeadDtype;
use spec::{Recorder, Result, Site};

/// Logits that are in memory at a time: 64 MB.
const LOGITS: usize = 1 << 24;

/// Takes every lane from the last layer's output to logits.
pub(crate) fn pass(model: &Model, lanes: &[LaneState<'_>], recorder: &mut dyn Recorder) -> Result<()> {
    let wants =
        |recorder: &dyn Recorder, site| lanes.iter().any(|lane| recorder.wants(lane.index, None, site));
    let any_logits = wants(recorder, Site::Logits);
    if !any_logits && !wants(recorder, Site::FinalNorm) {
        return Ok(());
    }
    let norm = model.weights.vector("model.norm.weight")?;
    let head = match model.config.head_dtype {
        HeadDtype::F32 if any_logits => {
            Some(model.weights.matrix_in_parallel("lm_head.weight", &model.workers)?)
        }
        HeadDtype::F32 => None,
    };
    let block = (LOGITS / model.config.vocab_size).max(1);
    for lane in lanes {
        let mut tap = Tap { recorder, run: lane.index, layer: None };
        if !tap.wants(Site::FinalNorm) && !tap.wants(Site::Logits) {
            continue;
        }
        let x = model.norm(lane, Norm::Final, lane.h.clone(), &norm);
        tap.all(Site::FinalNorm, &x)?;
        let Some(head) = head.as_ref().filter(|_| tap.wants(Site::Logits)) else {
            continue;
        };
        for first in (0..x.nrows()).step_by(block) {
            let x = x.slice(s![first..(first + block).min(x.nrows()), ..]);
            let logits = model.workers.product(lane.steps, Matrix::Head, x, head.view());
            tap.block(Site::Logits, first, logits.view())?;
        }
    }
    Ok(())
}
