//! Final norm and head (K18).
//!
//! Inputs: the last layer's output of one call, `[B, T, H]`. Outputs: rows of `final_norm` and `logits` for
//! the recorder. Absent on purpose: all logits of a call at once; they are made in blocks of tokens.

use crate::engine::{Doing, dim, length};
use crate::record::{Span, Taps, deliver};
use crate::steps::Steps;
use crate::weights::HeadWeights;
use mlx_rs::Array;
use mlx_rs::ops::indexing::TryIndexOp;
use spec::{At, ModelConfig, Recorder, Result, Site};
use std::ops::Range;

/// Logits held at once, at most (64 MiB of f32), unless one token has more.
const BLOCK_VALUES: usize = 1 << 24;

/// Runs the head on `h`, `[B, T, H]`, whose tokens the spans tell, as far as the recorder wants it. Errors:
/// MLX's, the recorder's.
pub fn head(
    steps: &dyn Steps,
    weights: &HeadWeights,
    config: &ModelConfig,
    h: &Array,
    spans: &[Span],
    recorder: &mut dyn Recorder,
) -> Result<()> {
    let mut taps = Taps::new(spans, None, recorder);
    let wanting: Vec<&Span> = taps.wanting(Site::Logits).collect();
    if wanting.is_empty() && !taps.wants(Site::FinalNorm) {
        return Ok(());
    }
    let doing = "run the head";
    let normed = steps.final_norm(h, &weights.norm, config.rms_norm_eps as f32).doing(doing)?;
    taps.put(Site::FinalNorm, &normed).doing(doing)?;
    taps.deliver(recorder)?;
    if wanting.is_empty() {
        return Ok(());
    }
    let block = (BLOCK_VALUES / config.vocab_size / length(&normed, 0)).max(1);
    for start in (0..length(&normed, 1)).step_by(block) {
        let stop = (start + block).min(length(&normed, 1));
        let logits = normed
            .try_index((.., dim(start)..dim(stop), ..))
            .and_then(|rows| steps.logits(&rows, &weights.lm_head))
            .doing(doing)?;
        for part in wanting.iter().filter_map(|span| within(span, start..stop)) {
            let rows = part.rows(&logits).doing(doing)?;
            let at = At { run: part.run, layer: None, site: Site::Logits, rows: part.positions };
            deliver(&at, &rows, recorder)?;
        }
    }
    Ok(())
}

/// What of a span lies in these columns, counted from the first of them.
fn within(span: &Span, columns: Range<usize>) -> Option<Span> {
    let own = span.columns();
    let (start, stop) = (own.start.max(columns.start), own.end.min(columns.end));
    let position = |column: usize| span.positions.start + column - own.start;
    (start < stop).then(|| Span {
        column: start - columns.start,
        positions: position(start)..position(stop),
        ..span.clone()
    })
}
