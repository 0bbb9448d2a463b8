//! A long decode holds the keys and values that full layers must keep, and nothing else beyond its start.
mod support;

use ndarray::ArrayView2;
use port::engine::active_bytes;
use spec::{At, LayerId, Precision, Recorder, Result, Routing, Schedule, Side, Site};

/// Tokens of prefill, and steps of a block: caches grow by as many slots.
const BLOCK: usize = 256;

struct Held(Vec<usize>);

impl Recorder for Held {
    fn wants(&self, _run: usize, _layer: Option<LayerId>, site: Site) -> bool {
        site == Site::Logits
    }

    fn record(&mut self, at: &At, _rows: ArrayView2<'_, f32>) -> Result<()> {
        if at.rows.start >= BLOCK {
            self.0.push(active_bytes().unwrap());
        }
        Ok(())
    }
}

#[test]
fn decoding_holds_no_more_than_full_layers_must_keep() {
    let port = support::kjv(Precision::F32);
    let case = support::kjv_text(5 * BLOCK);
    let schedule = Schedule::chunks_of(BLOCK).decoding_from(BLOCK);
    let mut held = Held(Vec::new());
    port.forward(&[support::run(&case, schedule, Routing::Free, Precision::F32)], &mut held).unwrap();
    let least: Vec<usize> = held.0.chunks_exact(BLOCK).map(|block| *block.iter().min().unwrap()).collect();
    // 2 full layers, keys and values, 2 heads of 16 f32
    let kept = 2 * 2 * 2 * 16 * 4 * BLOCK;
    let grown: Vec<usize> = least.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(grown, [kept; 3], "{least:?}");
}
