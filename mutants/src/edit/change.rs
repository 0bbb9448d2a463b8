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
}

/// One change of all values of a tensor.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    /// Takes equal parts for a matrix `[rows, columns]` of them and gives its transpose.
    Transpose { rows: usize, columns: usize },
    /// Values of this dtype, BF16 or F32, through a narrower one.
    Round(Dtype, Narrow),
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
        }
    }
}
