//! The FP8 release (K4): every code, blocks cut short at the edges, and what is refused.
mod support;

use half::bf16;
use port::Port;
use rstest::rstest;
use safetensors::tensor::Dtype;
use spec::{Error, Precision, Side};
use std::collections::BTreeMap;
use support::{Checkpoint, Stored, TINY_CONFIG, tiny, write_file};

const Q: &str = "model.layers.1.self_attn.q_proj";
/// Rows and columns of a block; q is [24, 12], so that there are 4 x 3 blocks, the last ones cut short.
const BLOCK: [usize; 2] = [7, 5];
const GRID: [usize; 2] = [4, 3];

/// The tiny checkpoint with one matrix in FP8; `codes` are repeated.
fn with(codes: &[u8], scales: Stored) -> Checkpoint {
    let mut all = tiny();
    let bytes = codes.iter().copied().cycle().take(24 * 12).collect();
    all.insert(format!("{Q}.weight"), Stored { dtype: Dtype::F8_E4M3, shape: vec![24, 12], bytes });
    all.insert(format!("{Q}.weight_scale_inv"), scales);
    all
}

fn scales() -> Vec<f32> {
    // no powers of two, so that products are rounded
    (0..12).map(|i| 0.0123 * (1.0 + i as f32 / 3.0)).collect()
}

fn load(all: &Checkpoint, precision: Precision) -> spec::Result<Port> {
    let dir = tempfile::tempdir().unwrap();
    let mut config: serde_json::Value = serde_json::from_str(TINY_CONFIG).unwrap();
    config["quantization_config"] = serde_json::json!({"quant_method": "fp8", "weight_block_size": BLOCK});
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    write_file(&dir.path().join("model.safetensors"), all);
    Port::load(dir.path(), precision)
}

fn held(port: &Port) -> Vec<f32> {
    let mut all = BTreeMap::new();
    port.tensors(&mut |name, values| {
        all.insert(name.to_owned(), values.to_vec());
        Ok(())
    })
    .unwrap();
    all.remove(&format!("{Q}.weight")).unwrap()
}

/// E4M3: a sign, 4 bits of exponent with bias 7, 3 of mantissa; exponent 0 is subnormal.
fn exact(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let magnitude = match exponent {
        0 => mantissa / 8.0 * 2_f64.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2_f64.powi(exponent - 7),
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

#[test]
fn every_code_times_its_blocks_scale_is_the_exact_value_rounded_once() {
    let numbers: Vec<u8> = (0..=255).filter(|code| code & 0x7f != 0x7f).collect();
    assert_eq!(numbers.len(), 254);
    let scales = scales();
    let all = with(&numbers, Stored::f32(&GRID, &scales));
    let (f32, bf16) = (load(&all, Precision::F32).unwrap(), load(&all, Precision::Bf16).unwrap());
    let (f32, rounded) = (held(&f32), held(&bf16));
    for (at, (found, rounded)) in f32.iter().zip(rounded).enumerate() {
        let (row, column) = (at / 12, at % 12);
        let scale = scales[row / BLOCK[0] * GRID[1] + column / BLOCK[1]];
        let expected = (exact(numbers[at % 254]) * f64::from(scale)) as f32;
        assert_eq!(found.to_bits(), expected.to_bits(), "row {row}, column {column}");
        assert_eq!(rounded, bf16::from_f32(expected).to_f32(), "row {row}, column {column}, bf16");
    }
}

#[rstest]
#[case::transposed_grid(with(&[8], Stored::f32(&[3, 4], &scales())), "weight_scale_inv", "[4, 3]", "[3, 4]")]
#[case::grid_of_whole_blocks(
    with(&[8], Stored::f32(&[3, 2], &scales()[..6])),
    "weight_scale_inv", "[4, 3]", "[3, 2]"
)]
#[case::bf16_scales(with(&[8], Stored::bf16(&GRID, &scales())), "weight_scale_inv", "Float32", "Bfloat16")]
#[case::nan(
    with(&[8, 9, 0xff], Stored::f32(&GRID, &scales())),
    "q_proj.weight", "finite", "code of NaN at index 2"
)]
#[case::nan_scale(
    with(&[8], Stored::f32(&GRID, &[f32::NAN; 12])),
    "weight_scale_inv", "finite", "NaN at index 0"
)]
fn codes_and_scales_that_are_none_are_refused(
    #[case] all: Checkpoint,
    #[case] name: &str,
    #[case] expected: &str,
    #[case] found: &str,
) {
    let error = load(&all, Precision::F32).err().expect("a refusal");
    assert!(matches!(error, Error::Tensor { .. }), "{error}");
    let words = error.to_string();
    assert!(words.contains(name) && words.contains(expected) && words.contains(found), "{words}");
}

#[test]
fn scales_that_nothing_uses_are_refused() {
    let mut all = tiny();
    all.insert(format!("{Q}.weight_scale_inv"), Stored::f32(&GRID, &scales()));
    let words = load(&all, Precision::F32).err().expect("a refusal").to_string();
    assert!(words.contains("weight_scale_inv") && words.contains("no tensor beyond"), "{words}");
}
