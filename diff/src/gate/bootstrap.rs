//! Block bootstrap: how much a mean over text would move with other text.
//!
//! Neighbouring positions are alike, so whole blocks of consecutive positions are drawn, never across
//! sequences. The draws follow from a fixed seed, so that a record can be made again bit for bit.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Draws of as many blocks as there are.
const DRAWS: usize = 2000;
/// Blocks in all, at least.
const BLOCKS_MIN: usize = 48;
/// Blocks of each sequence, at least.
const BLOCKS_PER_SEQUENCE_MIN: usize = 6;
const SEED: u64 = 48;

/// What a block adds to a mean: a sum, and over how much.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Block {
    pub(crate) sum: f64,
    pub(crate) weight: f64,
}

/// Cuts every sequence of positions into blocks of nearly equal length and sums each.
pub(crate) fn blocks<T>(sequences: &[Vec<T>], value: impl Fn(&T) -> Block) -> Vec<Block> {
    let per_sequence = BLOCKS_PER_SEQUENCE_MIN.max(BLOCKS_MIN.div_ceil(sequences.len().max(1)));
    let mut blocks = Vec::new();
    for positions in sequences {
        for block in 0..per_sequence {
            let cut = |i: usize| i * positions.len() / per_sequence;
            let of = &positions[cut(block)..cut(block + 1)];
            blocks.push(
                of.iter()
                    .map(&value)
                    .fold(Block::default(), |a, b| Block { sum: a.sum + b.sum, weight: a.weight + b.weight }),
            );
        }
    }
    blocks
}

/// The mean over all blocks; NaN of no weight.
pub(crate) fn mean(blocks: &[Block]) -> f64 {
    let total = |pick: fn(&Block) -> f64| blocks.iter().map(pick).sum::<f64>();
    total(|block| block.sum) / total(|block| block.weight)
}

/// Percentiles, by nearest rank, of the mean over drawn blocks, at shares from 0 to 1. A draw without weight
/// counts as the largest.
pub(crate) fn percentiles<const N: usize>(blocks: &[Block], shares: [f64; N]) -> [f64; N] {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut means: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let draw: Vec<Block> =
                blocks.iter().map(|_| blocks[random.random_range(0..blocks.len())]).collect();
            mean(&draw)
        })
        .collect();
    means.sort_by(|a, b| crate::stats::order(*a, *b));
    shares.map(|share| means[((share * DRAWS as f64).ceil() as usize).clamp(1, DRAWS) - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_value(value: &f64) -> Block {
        Block { sum: *value, weight: 1.0 }
    }

    #[test]
    fn blocks_cover_every_position_once_and_no_block_spans_two_sequences() {
        let sequences = vec![vec![1.0; 100], vec![1000.0; 50]];
        let blocks = blocks(&sequences, of_value);
        assert_eq!(blocks.len(), 48);
        assert_eq!(blocks.iter().map(|block| block.weight).sum::<f64>(), 150.0);
        assert!(blocks.iter().all(|block| block.sum == block.weight || block.sum == 1000.0 * block.weight));
    }

    #[test]
    fn the_spread_of_the_mean_of_independent_values_is_the_textbook_one() {
        // 48 blocks of one value each, half 0, half 1: the mean of 48 draws has sd 0.5 / sqrt(48) = 0.0722
        let sequences: Vec<Vec<f64>> = (0..8).map(|_| (0..6).map(|i| f64::from(i % 2)).collect()).collect();
        let blocks = blocks(&sequences, of_value);
        let [low, high] = percentiles(&blocks, [0.025, 0.975]);
        let expected = 1.96 * 0.5 / 48_f64.sqrt();
        assert!((0.5 - low - expected).abs() <= 0.03, "{low}");
        assert!((high - 0.5 - expected).abs() <= 0.03, "{high}");
    }

    #[test]
    fn a_constant_has_no_spread() {
        let blocks = blocks(&vec![vec![0.25; 60]; 2], of_value);
        assert_eq!(percentiles(&blocks, [0.01, 0.99]), [0.25, 0.25]);
    }
}
