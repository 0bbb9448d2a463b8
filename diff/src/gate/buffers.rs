//! A long decode, and how much memory each of its steps leaves behind.
//!
//! The judged port decodes thousands of tokens, one per call, and after each the engine says what it holds.
//! Keys and values of full layers must grow, by as much as the config says; anything beyond is kept by
//! somebody who does not know it: an offset that nothing reads holds a buffer a layer and a step, no number
//! ever differs, and the run ends after tens of thousands of tokens. Absent on purpose: a count of live
//! arrays, which MLX does not give; bytes are exact on the CPU backend, and four of them are seen.

use super::finding::Measurement;
use super::rows::Rows;
use crate::bench::Bench;
use crate::compare::Progress;
use crate::stats::{order, percentile};
use ndarray::ArrayView2;
use spec::{
    At, Case, LayerId, LayerKind, ModelConfig, Precision, Recorder, Result, Routing, Run, Schedule, Side,
    Site,
};

/// Tokens that are decoded, a multiple of [`BLOCK`].
const STEPS: usize = 2048;
/// Steps that one number is taken from: the least that was held after any of them. Buffers grow in steps of
/// a power of two up to this; and what a worker has not let go of yet can only add.
const BLOCK: usize = 256;
/// Buffers that Metal holds at most, whatever their size (mlx-lm#1911).
const BUFFERS_MAX: f64 = 499_000.0;
/// The smallest buffer that an array has.
const BUFFER_BYTES: f64 = 4.0;

/// Growth per step of what the port's engine holds. Errors: the port's.
pub(crate) fn measure(
    bench: &dyn Bench,
    port: &dyn Side,
    rows: &Rows<'_>,
    progress: &mut dyn Progress,
) -> Result<Measurement> {
    let text = rows.cases.iter().flat_map(|case| &case.tokens).copied();
    // prefill fills a block, so that blocks of steps and of positions are the same
    let case = Case::new("long", text.collect::<Vec<_>>().into_iter().cycle().take(BLOCK + STEPS).collect())?;
    progress.phase("port, long decode", STEPS);
    let schedule = Schedule::chunks_of(BLOCK).decoding_from(BLOCK);
    let run = Run { case: &case, schedule, routing: Routing::Free, precision: Precision::F32 };
    let mut samples = Samples { bench, kept: Vec::new(), progress };
    port.forward(&[run], &mut samples)?;
    let cached = cached_bytes_per_token(rows.config);
    let grown = growth(&samples.kept) - cached;
    let mut place = format!("bytes per step beyond the caches' {cached}");
    if grown > 0.0 {
        let step = BUFFERS_MAX * BUFFER_BYTES / grown;
        place +=
            &format!("; in buffers of {BUFFER_BYTES}, Metal's {BUFFERS_MAX} are reached at step {step:.0}");
    }
    Ok(Measurement::new("runtime.buffers", "growth", samples.kept.len(), grown).at(place))
}

/// Slope over the least of each block, per step: the median over all pairs of blocks (Theil and Sen), so that
/// what somebody else of the process lets go of once does not count.
fn growth(held: &[f64]) -> f64 {
    let least = |block: &[f64]| block.iter().copied().fold(f64::INFINITY, f64::min);
    let least: Vec<f64> = held.chunks_exact(BLOCK).map(least).collect();
    let slope = |(a, b): (usize, usize)| (least[b] - least[a]) / ((b - a) * BLOCK) as f64;
    let pairs = (0..least.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
    let mut slopes: Vec<f64> = pairs.map(slope).collect();
    slopes.sort_by(|a, b| order(*a, *b));
    percentile(&slopes, 50)
}

/// Keys and values that every full layer keeps of a token, f32 (K11). Sliding layers keep no more than a
/// window.
fn cached_bytes_per_token(config: &ModelConfig) -> f64 {
    let full = config.layers.iter().filter(|kind| **kind == LayerKind::Full).count();
    (full * 2 * config.num_kv_heads * config.head_dim * size_of::<f32>()) as f64
}

/// What is held after each token that was decoded.
struct Samples<'a, 'p> {
    bench: &'a dyn Bench,
    kept: Vec<f64>,
    progress: &'p mut dyn Progress,
}

impl Recorder for Samples<'_, '_> {
    fn wants(&self, _run: usize, _layer: Option<LayerId>, site: Site) -> bool {
        site == Site::Logits
    }

    fn record(&mut self, at: &At, _rows: ArrayView2<'_, f32>) -> Result<()> {
        if at.rows.start >= BLOCK {
            self.kept.push(self.bench.active_bytes()? as f64);
            self.progress.step(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_the_slope_whatever_the_noise_above_it_and_the_steps_of_buffers() {
        // a buffer that grows by 256 tokens of 512 bytes at once, 40 bytes a step beside it, and now and
        // then something that is still held
        let held = |step: usize| {
            let late = if step % 7 == 3 { 4096 } else { 0 };
            (1000 + step / BLOCK * BLOCK * 512 + 40 * step + late) as f64
        };
        let mut held: Vec<f64> = (0..STEPS).map(held).collect();
        assert!((growth(&held) - 552.0).abs() < 1e-9, "{}", growth(&held));
        // something of before goes for good after the first block
        held[..BLOCK].iter_mut().for_each(|bytes| *bytes += 9999.0);
        assert!((growth(&held) - 552.0).abs() < 1e-9, "{}", growth(&held));
        assert_eq!(growth(&[5.0; STEPS]), 0.0);
    }
}
