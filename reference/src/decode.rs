//! Bytes of a checkpoint to f32, exactly (K3, K4), and the first value that is not finite.
//!
//! Inputs: little-endian BF16, F16, F32 or FP8 E4M3 bytes, at any alignment. Outputs: f32 values. Absent on
//! purpose: the scales of FP8 codes (`storage`).

use half::f16;
use safetensors::Dtype;

/// Widens `bytes` into `values`, one element each. Panics on a dtype that the census refuses.
pub(crate) fn widen(dtype: Dtype, bytes: &[u8], values: &mut [f32]) {
    assert_eq!(bytes.len(), values.len() * element_bytes(dtype), "bytes of {} elements", values.len());
    match dtype {
        Dtype::BF16 => {
            for (value, pair) in values.iter_mut().zip(bytes.as_chunks().0) {
                // a bf16 is the upper half of an f32
                *value = f32::from_bits(u32::from(u16::from_le_bytes(*pair)) << 16);
            }
        }
        Dtype::F16 => {
            for (value, pair) in values.iter_mut().zip(bytes.as_chunks().0) {
                *value = f16::from_le_bytes(*pair).to_f32();
            }
        }
        Dtype::F32 => {
            for (value, four) in values.iter_mut().zip(bytes.as_chunks().0) {
                *value = f32::from_le_bytes(*four);
            }
        }
        Dtype::F8_E4M3 => {
            for (value, &code) in values.iter_mut().zip(bytes) {
                *value = E4M3[usize::from(code)];
            }
        }
        other => unreachable!("the census lets no {other} tensor through"),
    }
}

/// Every FP8 E4M3 code's value.
static E4M3: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        values[code as usize] = e4m3(code);
        code += 1;
    }
    values
};

/// FP8 E4M3: sign, 4 bits of exponent with bias 7, 3 bits of significand, subnormals, no infinities; all
/// seven bits set are NaN.
const fn e4m3(code: u32) -> f32 {
    let (sign, exponent, fraction) = (code >> 7, code >> 3 & 0b1111, code & 0b111);
    let magnitude = match (exponent, fraction) {
        (0b1111, 0b111) => return f32::NAN,
        // in units of 2^(1 - 7 - 3)
        (0, fraction) => fraction as f32 / 512.0,
        // an f32 has bias 127 and 23 bits of significand
        _ => f32::from_bits(((exponent + 127 - 7) << 23) | (fraction << 20)),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// Bytes of one element. Panics on a dtype that the census refuses.
pub(crate) fn element_bytes(dtype: Dtype) -> usize {
    match dtype {
        Dtype::BF16 | Dtype::F16 => 2,
        Dtype::F32 => 4,
        Dtype::F8_E4M3 => 1,
        other => unreachable!("the census lets no {other} tensor through"),
    }
}

/// Index of the first NaN or infinity.
pub(crate) fn first_not_finite(values: &[f32]) -> Option<usize> {
    const EXPONENT: u32 = 0x7f80_0000;
    let bad = |value: &f32| value.to_bits() & EXPONENT == EXPONENT;
    // without an early exit, so that the usual case is one fast sweep
    let any = values.iter().fold(false, |any, value| any | bad(value));
    if any { values.iter().position(bad) } else { None }
}

/// The value and its index in words: `NaN at [3, 17]`.
pub(crate) fn not_finite_words(value: f32, index: &[usize]) -> String {
    let what = match value {
        value if value.is_nan() => "NaN",
        f32::NEG_INFINITY => "-infinity",
        _ => "infinity",
    };
    format!("{what} at {index:?}")
}

/// The index of element number `flat` of a row-major tensor of that shape.
pub(crate) fn index_of(flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    let mut rest = flat;
    for (place, size) in index.iter_mut().zip(shape).rev() {
        *place = rest % size;
        rest /= size;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn every_finite_bf16_and_f16_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let mut value = [0.0];
            widen(Dtype::BF16, &bits.to_le_bytes(), &mut value);
            if value[0].is_finite() {
                assert_eq!(bf16::from_f32(value[0]).to_bits(), bits, "bf16 {bits:#x}");
            }
            widen(Dtype::F16, &bits.to_le_bytes(), &mut value);
            if value[0].is_finite() {
                assert_eq!(f16::from_f32(value[0]).to_bits(), bits, "f16 {bits:#x}");
            }
        }
    }

    #[test]
    fn a_quiet_nan_in_bf16_stays_a_nan() {
        let mut value = [0.0];
        widen(Dtype::BF16, &0x7fc0_u16.to_le_bytes(), &mut value);
        assert!(value[0].is_nan());
    }

    #[test]
    fn every_fp8_code_is_widened_exactly() {
        for code in 0..=u8::MAX {
            let mut value = [0.0];
            widen(Dtype::F8_E4M3, &[code], &mut value);
            let (e, m) = (i32::from(code >> 3 & 15), f64::from(code & 7));
            let size = if e == 0 { m / 8.0 * 2_f64.powi(-6) } else { 2_f64.powi(e - 7) * (1.0 + m / 8.0) };
            let exact = if code < 128 { size } else { -size };
            if code & 127 == 127 {
                assert!(value[0].is_nan(), "{code:#x}");
            } else {
                assert_eq!(f64::from(value[0]).to_bits(), exact.to_bits(), "{code:#x}");
            }
        }
    }

    #[test]
    fn fp8_codes_by_hand() {
        // smallest and largest subnormal, smallest normal, one, largest, minus zero, minus one and a half
        let mut values = [0.0_f32; 7];
        widen(Dtype::F8_E4M3, &[0x01, 0x07, 0x08, 0x38, 0x7e, 0x80, 0xbc], &mut values);
        assert_eq!(values, [1.0 / 512.0, 7.0 / 512.0, 1.0 / 64.0, 1.0, 448.0, -0.0, -1.5]);
        assert!(values[5].is_sign_negative());
    }

    #[test]
    fn flat_position_is_row_major() {
        assert_eq!(index_of(3 * 20 + 17, &[5, 20]), [3, 17]);
        assert_eq!(index_of(4, &[7]), [4]);
    }

    #[test]
    fn the_first_of_several_bad_values_is_named() {
        let values = [1.0, f32::MAX, f32::NEG_INFINITY, f32::NAN];
        assert_eq!(first_not_finite(&values), Some(2));
        assert_eq!(first_not_finite(&values[..2]), None);
        assert_eq!(not_finite_words(values[2], &[2]), "-infinity at [2]");
        assert_eq!(not_finite_words(values[3], &[0, 3]), "NaN at [0, 3]");
    }
}
