//! What becomes of a tensor's values between reading and writing.
//!
//! Inputs: bytes as they are stored, row-major, little-endian. Outputs: as many bytes. Absent on purpose:
//! whether a tensor can be changed so ([`super::plan`] refuses before anything is read).

use half::{bf16, f16};
use safetensors::Dtype;

/// A type of fewer bits, rounded to the nearest, ties to even; f16 has infinities beyond 65504.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Narrow {
    /// 5 bits of exponent, 10 of mantissa.
    F16,
    /// 8 bits of exponent, 7 of mantissa.
    Bf16,
    /// As bf16 with 5 bits of mantissa: what a weight may have been some training steps before.
    Coarse,
}

/// One change of all values of a tensor.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    /// Takes equal parts for a matrix `[rows, columns]` of them and gives its transpose.
    Transpose { rows: usize, columns: usize },
    /// Values of this dtype, BF16 or F32, through a narrower one.
    Round(Dtype, Narrow),
    /// Codes of so many bits, which divide 32, in the opposite order in each u32.
    ReverseCodes(u32),
    /// Values of so many bytes with the opposite sign.
    Negate(usize),
    /// Takes rows of so many equal parts and gives each part the one at half its place.
    HalvePlaces { row: usize, part: usize },
    /// The last so many bytes zero.
    ZeroTail(usize),
}

impl Change {
    pub fn of(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Change::Transpose { rows, columns } => {
                let part = bytes.len() / (rows * columns);
                let start = |row, column| (row * columns + column) * part;
                let column = |column| (0..rows).map(move |row| start(row, column));
                (0..columns).flat_map(column).flat_map(|at| &bytes[at..at + part]).copied().collect()
            }
            Change::Round(Dtype::F32, to) => {
                let round = |value: &[u8; 4]| to.round(f32::from_le_bytes(*value)).to_le_bytes();
                bytes.as_chunks().0.iter().flat_map(round).collect()
            }
            Change::ReverseCodes(bits) => {
                let reverse = |word: u32| {
                    (0..32 / bits).fold(0, |all, place| {
                        let code = word >> (place * bits) & (u32::MAX >> (32 - bits));
                        all | code << (32 - bits - place * bits)
                    })
                };
                let word = |word: &[u8; 4]| reverse(u32::from_le_bytes(*word)).to_le_bytes();
                bytes.as_chunks().0.iter().flat_map(word).collect()
            }
            Change::Negate(size) => {
                let flip = |(at, byte): (usize, &u8)| if at % size == size - 1 { byte ^ 0x80 } else { *byte };
                bytes.iter().enumerate().map(flip).collect()
            }
            Change::HalvePlaces { row, part } => {
                let half = |row: &[u8]| -> Vec<u8> {
                    let places = 0..row.len() / part;
                    places.flat_map(|place| row[place / 2 * part..][..part].to_vec()).collect()
                };
                bytes.chunks_exact(row).flat_map(half).collect()
            }
            Change::ZeroTail(tail) => {
                let kept = bytes.len() - tail;
                bytes.iter().enumerate().map(|(at, byte)| if at < kept { *byte } else { 0 }).collect()
            }
            Change::Round(_, to) => {
                let wide = |value: &[u8; 2]| bf16::from_le_bytes(*value).to_f32();
                let round = |value| bf16::from_f32(to.round(wide(value))).to_le_bytes();
                bytes.as_chunks().0.iter().flat_map(round).collect()
            }
        }
    }
}

impl Narrow {
    fn round(self, value: f32) -> f32 {
        match self {
            Narrow::F16 => f16::from_f32(value).to_f32(),
            Narrow::Bf16 => bf16::from_f32(value).to_f32(),
            // the upper 16 bits of an f32 are a bf16, the last two of them go
            Narrow::Coarse => f32::from_bits(value.to_bits() & 0xfffc_0000),
        }
    }
}
