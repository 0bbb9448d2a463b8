//! RoPE against f64, with the angle as K10 rounds it.
mod support;

use half::bf16;
use mlx_rs::{Array, Dtype};
use port::engine::{dim, values};
use port::rope::{periods, rotate};
use rstest::rstest;

/// `[1, 2, T, D]` rotated by K10: angles in f32, everything after them in f64.
fn expected(x: &[f32], head_dim: usize, theta: f64, offset: usize, tokens: usize) -> Vec<f64> {
    let half = head_dim / 2;
    let mut out = vec![0.0; x.len()];
    for (row, x) in x.chunks_exact(head_dim).enumerate() {
        let position = (offset + row % tokens) as f32;
        for j in 0..half {
            let exponent = f64::from((2.0 * j as f64 / head_dim as f64) as f32);
            let inv_freq = 1.0 / theta.powf(exponent) as f32;
            let angle = f64::from(position * inv_freq);
            let (a, b) = (f64::from(x[j]), f64::from(x[j + half]));
            out[row * head_dim + j] = a * angle.cos() - b * angle.sin();
            out[row * head_dim + j + half] = b * angle.cos() + a * angle.sin();
        }
    }
    out
}

#[rstest]
fn rotation_follows_f64_up_to_position_260000(
    #[values((16, 1e4), (128, 1e4), (128, 1e6), (64, 5e3), (96, 1.5e5))] (head_dim, theta): (usize, f64),
    #[values(0, 1, 511, 4_095, 65_535, 131_072, 260_000)] offset: usize,
    #[values(1, 3)] tokens: usize,
) {
    let x = support::Random(3).numbers(2 * tokens * head_dim);
    let array = Array::from_slice(&x, &[1, 2, dim(tokens), dim(head_dim)]);
    let out = values::<f32>(&rotate(&array, &periods(theta, head_dim), offset).unwrap()).unwrap();
    let worst = out.iter().zip(expected(&x, head_dim, theta, offset, tokens));
    let worst = worst.map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
    // four roundings of numbers below 2
    assert!(worst <= 3e-7, "{worst:e}");
}

#[test]
fn bf16_rotation_rounds_once() {
    let x: Vec<f32> =
        support::Random(4).numbers(2 * 50 * 16).iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
    let array = Array::from_slice(&x, &[1, 2, 50, 16]).as_dtype(Dtype::Bfloat16).unwrap();
    let out = rotate(&array, &periods(1e4, 16), 1000).unwrap();
    assert_eq!(out.dtype(), Dtype::Bfloat16);
    let out = values::<f32>(&out.as_dtype(Dtype::Float32).unwrap()).unwrap();
    for (found, exact) in out.iter().zip(expected(&x, 16, 1e4, 1000, 50)) {
        let half_ulp = 2f64.powi(exact.abs().log2().floor() as i32 - 8);
        // half a unit in the last place, and the f32 error before the rounding
        assert!((f64::from(*found) - exact).abs() <= half_ulp + 3e-7, "{found} for {exact}");
    }
}

#[test]
fn periods_of_a_head_that_is_no_power_of_two_come_from_the_rounded_exponent() {
    // base 10000, worked to 60 decimal digits, with exponent and power each rounded to f32
    let twelve = [0x3f800000, 0x409487e6, 0x41ac5ad4, 0x42c80000, 0x43e81459, 0x4506a6f3];
    let ninety_six = [
        0x3f800000, 0x3f9b1357, 0x3fbbe0d9, 0x3fe39ea9, 0x4009e242, 0x40270cd1, 0x404a62c2, 0x4075322a,
        0x409487e6, 0x40b3f300, 0x40da0372, 0x4104108f, 0x41200000, 0x4141d82d, 0x416ad90d, 0x418e432a,
        0x41ac5ad4, 0x41d0d004, 0x41fcfb72, 0x42193f5b, 0x4239a9de, 0x4260efc0, 0x42884228, 0x42a514b1,
        0x42c80000, 0x42f24e34, 0x4312c7ab, 0x4331d3f4, 0x43577185, 0x43828205, 0x439e1d27, 0x43bf8f2f,
        0x43e81459, 0x440c95d8, 0x442a52af, 0x444e59e1, 0x447a0000, 0x449770e1, 0x44b77996, 0x44de48f1,
        0x4506a6f3, 0x45232286, 0x4545a471, 0x456f72fa, 0x45910cb8, 0x45afbb4e, 0x45d4e75b, 0x4600f82c,
    ];
    let bits = |width| values::<f32>(&periods(1e4, width)).unwrap().into_iter().map(f32::to_bits);
    assert!(bits(12).eq(twelve), "{:x?}", bits(12).collect::<Vec<_>>());
    assert!(bits(96).eq(ninety_six), "{:x?}", bits(96).collect::<Vec<_>>());
}
