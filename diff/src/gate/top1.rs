//! Confident top-1 of the free bf16 runs: the port's rate beside the emulation's, on the same positions.

use super::bootstrap::{Block, blocks, mean, percentiles};
use super::finding::Measurement;
use super::logits::LogitsRows;
use super::record::PairedTop1;

/// The leg of `free.top1`: by how much the port's rate falls short of the emulation's, at the 2.5th
/// percentile over blocks of text. On few confident positions one token is more than any limit on the rate
/// itself.
pub(crate) fn leg(port: &LogitsRows, emulation: &LogitsRows) -> Measurement {
    let (found, reached, paired) = (port.confident(), emulation.confident(), paired(port, emulation));
    let words = format!(
        "port {} and emulation {} of {}; {:.2} points short",
        found.count,
        reached.count,
        found.of,
        100.0 * paired.shortfall
    );
    Measurement::new("free.top1", "shortfall", found.of, paired.low).at(words)
}

/// The emulation's rate of confident tokens kept minus the port's, both arms drawn together.
pub(crate) fn paired(port: &LogitsRows, emulation: &LogitsRows) -> PairedTop1 {
    let pair = |(port, reached): (&Vec<Option<bool>>, &Vec<Option<bool>>)| -> Vec<Block> {
        let position = |(port, reached): (&Option<bool>, &Option<bool>)| match (port, reached) {
            (Some(port), Some(reached)) => {
                Block { sum: f64::from(u8::from(*reached)) - f64::from(u8::from(*port)), weight: 1.0 }
            }
            // confidence is the reference's, the same for both arms
            _ => Block::default(),
        };
        port.iter().zip(reached).map(position).collect()
    };
    let sequences: Vec<Vec<Block>> = port.kept.iter().zip(&emulation.kept).map(pair).collect();
    let blocks = blocks(&sequences, |block| *block);
    let [low, high] = percentiles(&blocks, [0.025, 0.975]);
    PairedTop1 { blocks: blocks.len(), shortfall: mean(&blocks), low, high }
}
