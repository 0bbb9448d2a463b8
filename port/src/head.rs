//! Final norm and head (K18).
//!
//! Inputs: the last layer's output of one call, `[1, T, H]`. Outputs: rows of `final_norm` and `logits` for
//! the recorder. Absent on purpose: all logits of a call at once; they are made in blocks of tokens.

use crate::engine::{Doing, dim, length};
use crate::record::{Taps, deliver};
use crate::steps::Steps;
use crate::weights::HeadWeights;
use mlx_rs::Array;
use mlx_rs::ops::indexing::TryIndexOp;
use spec::{At, ModelConfig, Recorder, Result, Site};
use std::ops::Range;

/// Logits held at once, at most (64 MiB of f32), unless one token has more.
const BLOCK_VALUES: usize = 1 << 24;

/// Runs the head on `h`, `[1, T, H]`, the tokens at `positions`, as far as the recorder wants it. Errors:
/// MLX's, the recorder's.
pub fn head(
    steps: &dyn Steps,
    weights: &HeadWeights,
    config: &ModelConfig,
    h: &Array,
    (run, positions): (usize, Range<usize>),
    recorder: &mut dyn Recorder,
) -> Result<()> {
    let mut taps = Taps::new(run, None, positions.clone(), recorder);
    let wants_logits = taps.wants(Site::Logits);
    if !wants_logits && !taps.wants(Site::FinalNorm) {
        return Ok(());
    }
    let doing = "run the head";
    let normed = steps.final_norm(h, &weights.norm, config.rms_norm_eps as f32).doing(doing)?;
    taps.put(Site::FinalNorm, &normed).doing(doing)?;
    taps.deliver(recorder)?;
    if !wants_logits {
        return Ok(());
    }
    let block = (BLOCK_VALUES / config.vocab_size).max(1);
    for start in (0..length(&normed, 1)).step_by(block) {
        let stop = (start + block).min(positions.len());
        let logits = normed
            .try_index((.., dim(start)..dim(stop), ..))
            .and_then(|rows| steps.logits(&rows, &weights.lm_head)?.reshape(&[dim(stop - start), -1]))
            .and_then(|rows| rows.contiguous())
            .doing(doing)?;
        let rows = positions.start + start..positions.start + stop;
        deliver(&At { run, layer: None, site: Site::Logits, rows }, &logits, recorder)?;
    }
    Ok(())
}
