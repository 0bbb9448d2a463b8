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
            let inv_freq = 1.0 / theta.powf(2.0 * j as f64 / head_dim as f64) as f32;
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
