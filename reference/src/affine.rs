//! Rows of MLX's affine packing to f32: `scale * code + bias`, in f32, the product and the sum each rounded.
//!
//! Inputs: the codes of a row as bytes, its scales and biases in f32. Outputs: f32 values. With scales in
//! BF16 or F16 the product is exact, because a code has at most 8 bits. Absent on purpose: where the bytes
//! lie (`storage`) and whether their number is right (`resolve`).

use spec::quantization::Affine;

/// Unpacks one row: `codes` of `in` codes, `scales` and `biases [in / group]`, to `values [in]`.
pub(crate) fn unpack_row(packing: Affine, codes: &[u8], scales: &[f32], biases: &[f32], values: &mut [f32]) {
    let Affine { bits, group } = packing;
    assert_eq!(codes.len() * 8, values.len() * bits as usize, "bits of {} codes", values.len());
    assert_eq!([scales.len(), biases.len()].map(|n| n * group), [values.len(); 2], "one of each per group");
    match bits {
        2 => codes_to_f32::<2>(codes, values),
        3 => codes_to_f32::<3>(codes, values),
        4 => codes_to_f32::<4>(codes, values),
        5 => codes_to_f32::<5>(codes, values),
        6 => codes_to_f32::<6>(codes, values),
        7 => codes_to_f32::<7>(codes, values),
        8 => codes_to_f32::<8>(codes, values),
        other => unreachable!("the config has no packing of {other} bits"),
    }
    for ((values, scale), bias) in values.chunks_exact_mut(group).zip(scales).zip(biases) {
        for value in values {
            *value = scale * *value + bias;
        }
    }
}

/// Codes of `BITS` bits, end to end, lowest bits first, as numbers.
fn codes_to_f32<const BITS: usize>(codes: &[u8], values: &mut [f32]) {
    let mask = (1 << BITS) - 1;
    // eight codes fill `BITS` bytes
    let (blocks, rest) = values.as_chunks_mut::<8>();
    let (packed, packed_rest) = codes.as_chunks::<BITS>();
    let little_endian = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    for (values, bytes) in blocks.iter_mut().zip(packed) {
        let word = little_endian(bytes);
        for (i, value) in values.iter_mut().enumerate() {
            *value = f32::from((word >> (i * BITS) & mask) as u8);
        }
    }
    let word = little_endian(packed_rest);
    for (i, value) in rest.iter_mut().enumerate() {
        *value = f32::from((word >> (i * BITS) & mask) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use rstest::rstest;

    /// Bytes from a linear congruential generator (Knuth's MMIX constants).
    fn random_bytes(count: usize, seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut byte = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..count).map(|_| byte()).collect()
    }

    /// Code number `i` of 32-bit words, one bit after another.
    fn code_at(words: &[u32], bits: usize, i: usize) -> u32 {
        (0..bits).map(|b| (words[(i * bits + b) / 32] >> ((i * bits + b) % 32) & 1) << b).sum()
    }

    #[test]
    fn eight_codes_of_three_bits_by_hand() {
        // 0 to 7, the first lowest, are octal 76543210, that is 0xfac688; four times over to whole words
        let codes = [0x88, 0xc6, 0xfa].repeat(4);
        let mut values = [0.0; 32];
        let packing = Affine { bits: 3, group: 8 };
        unpack_row(packing, &codes, &[1.0, 0.5, -2.0, 0.25], &[0.0, 10.0, 1.0, -1.0], &mut values);
        assert_eq!(values[..8], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(values[8..16], [10.0, 10.5, 11.0, 11.5, 12.0, 12.5, 13.0, 13.5]);
        assert_eq!(values[16..24], [1.0, -1.0, -3.0, -5.0, -7.0, -9.0, -11.0, -13.0]);
        assert_eq!(values[24..], [-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75]);
    }

    #[test]
    fn a_code_of_five_bits_across_two_words_by_hand() {
        // code 6 takes bits 30 to 34: 0b10110, its low two bits on top of word 0, the rest below word 1
        let words = [0b10_u32 << 30, 0b101, 0, 0, 0];
        let codes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut values = [0.0; 32];
        unpack_row(Affine { bits: 5, group: 32 }, &codes, &[1.0], &[0.0], &mut values);
        let mut expected = [0.0; 32];
        expected[6] = 22.0;
        assert_eq!(values, expected);
    }

    /// Scales and biases in BF16, so that f64 holds product and sum exactly and rounds once to f32.
    #[rstest]
    fn random_words_are_unpacked_as_bit_after_bit(
        #[values(2, 3, 4, 5, 6, 7, 8)] bits: u32,
        #[values(16, 32, 64, 128, 24, 4)] group: usize,
        #[values(1, 3)] thirty_two_groups: usize,
    ) {
        let columns = group * 32 * thirty_two_groups;
        let codes = random_bytes(columns * bits as usize / 8, u64::from(bits) * 1000 + group as u64);
        let words: Vec<u32> = codes.as_chunks().0.iter().map(|four| u32::from_le_bytes(*four)).collect();
        let number = |pair: &[u8; 2]| bf16::from_f32(f32::from(i16::from_le_bytes(*pair)) / 777.0).to_f32();
        let numbers = |seed| -> Vec<f32> {
            random_bytes(columns / group * 2, seed).as_chunks().0.iter().map(number).collect()
        };
        let (scales, biases) = (numbers(1), numbers(2));
        let mut values = vec![f32::NAN; columns];
        unpack_row(Affine { bits, group }, &codes, &scales, &biases, &mut values);
        for (i, value) in values.iter().enumerate() {
            let (scale, bias) = (f64::from(scales[i / group]), f64::from(biases[i / group]));
            let exact = scale * f64::from(code_at(&words, bits as usize, i)) + bias;
            assert_eq!(value.to_bits(), (exact as f32).to_bits(), "code {i}");
        }
    }

    #[test]
    fn a_row_shorter_than_eight_codes_is_unpacked() {
        let mut values = [0.0; 4];
        unpack_row(Affine { bits: 8, group: 2 }, &[1, 2, 3, 255], &[1.0, 2.0], &[0.0, 0.5], &mut values);
        assert_eq!(values, [1.0, 2.0, 6.5, 510.5]);
    }

    #[test]
    fn product_and_sum_are_each_rounded_to_f32() {
        // 3 (1 + 2^-23) is a tie between 3 + 2 * 2^-23 and 3 + 4 * 2^-23 that goes to the latter, which is
        // even; fused, the sum with -3 would be 3 * 2^-23
        let mut values = [0.0; 4];
        let scale = 1.0 + f32::EPSILON;
        unpack_row(Affine { bits: 8, group: 4 }, &[3; 4], &[scale], &[-3.0], &mut values);
        assert_eq!(values, [4.0 * f32::EPSILON; 4]);
    }
}
