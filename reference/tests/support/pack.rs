//! Packs matrices as MLX and the FP8 release do, from the definitions: one bit after another, one value after
//! another.

use super::{Tensor, trained};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;

/// What is written for one matrix, and the values that it stands for.
pub struct Packed {
    pub tensors: Vec<Tensor>,
    pub values: Vec<f32>,
}

/// Every tensor of the trained checkpoint, by name.
pub fn trained_tensors() -> Vec<Tensor> {
    let bytes = std::fs::read(trained().join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<Tensor> = file
        .iter()
        .map(|(name, view)| Tensor {
            name: name.into(),
            shape: view.shape().into(),
            dtype: view.dtype(),
            bytes: view.data().into(),
        })
        .collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    tensors
}

/// The numbers of a BF16, F16 or F32 tensor.
pub fn values_of(tensor: &Tensor) -> Vec<f32> {
    let bytes = &tensor.bytes;
    match tensor.dtype {
        Dtype::BF16 => bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
        Dtype::F16 => bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
        _ => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
    }
}

/// The same values in F32.
pub fn in_f32(tensor: &Tensor, values: &[f32]) -> Tensor {
    Tensor::new(&tensor.name, &tensor.shape, Dtype::F32, values)
}

/// `M.weight` of another name: `M.scales`.
pub fn beside(weight: &str, tail: &str) -> String {
    format!("{}.{tail}", weight.strip_suffix(".weight").unwrap())
}

/// Codes of `bits` bits, lowest bits first, in little-endian words.
pub fn words(codes: &[u32], bits: usize) -> Vec<u8> {
    let mut words = vec![0_u32; codes.len() * bits / 32];
    for (i, code) in codes.iter().enumerate() {
        for bit in 0..bits {
            let at = i * bits + bit;
            words[at / 32] |= (code >> bit & 1) << (at % 32);
        }
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Packs `[out, in]` by the span of each group; scales and biases are stored in `dtype`.
pub fn affine(tensor: &Tensor, bits: usize, group: usize, dtype: Dtype) -> Packed {
    let stored = |value: f32| values_of(&Tensor::new("", &[1], dtype, &[value]))[0];
    let top = ((1 << bits) - 1) as f32;
    let spans = |group: &[f32]| {
        let low = group.iter().copied().fold(f32::INFINITY, f32::min);
        let high = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        (stored(((high - low) / top).max(1e-6)), stored(low))
    };
    affine_with(tensor, bits, group, dtype, spans)
}

/// Packs with the scale and bias that `choose` gives for each group.
pub fn affine_with(
    tensor: &Tensor,
    bits: usize,
    group: usize,
    dtype: Dtype,
    choose: impl Fn(&[f32]) -> (f32, f32),
) -> Packed {
    let (mut codes, mut scales, mut biases, mut values) = (vec![], vec![], vec![], vec![]);
    let [out, columns] = tensor.shape[..] else { panic!("{} is no matrix", tensor.name) };
    for group in values_of(tensor).chunks(group) {
        let (scale, bias) = choose(group);
        for value in group {
            let code = ((value - bias) / scale).round().clamp(0.0, ((1 << bits) - 1) as f32);
            codes.push(code as u32);
            let product = scale * code;
            values.push(product + bias);
        }
        scales.push(scale);
        biases.push(bias);
    }
    let weight = Tensor {
        name: tensor.name.clone(),
        shape: vec![out, columns * bits / 32],
        dtype: Dtype::U32,
        bytes: words(&codes, bits),
    };
    let groups = [out, columns / group];
    let scales = Tensor::new(&beside(&tensor.name, "scales"), &groups, dtype, &scales);
    let biases = Tensor::new(&beside(&tensor.name, "biases"), &groups, dtype, &biases);
    Packed { tensors: vec![weight, scales, biases], values }
}

/// The size of an E4M3 code without its sign, from the definition.
fn e4m3_size(code: u8) -> f64 {
    let (e, m) = (i32::from(code >> 3), f64::from(code & 7));
    if e == 0 { m / 8.0 * 2_f64.powi(-6) } else { 2_f64.powi(e - 7) * (1.0 + m / 8.0) }
}

/// FP8 of `[out, in]`: one scale per block, so that the block's largest value is the largest code.
pub fn fp8(tensor: &Tensor, block: [usize; 2]) -> Packed {
    let [out, columns] = tensor.shape[..] else { panic!("{} is no matrix", tensor.name) };
    let grid = [out.div_ceil(block[0]), columns.div_ceil(block[1])];
    let place = |flat: usize| flat / columns / block[0] * grid[1] + flat % columns / block[1];
    let given = values_of(tensor);
    let mut scales = vec![0.0_f32; grid[0] * grid[1]];
    for (flat, value) in given.iter().enumerate() {
        scales[place(flat)] = scales[place(flat)].max(value.abs() / 448.0);
    }
    let sizes: Vec<f64> = (0..=0x7e).map(e4m3_size).collect();
    let (mut codes, mut values) = (vec![], vec![]);
    for (flat, value) in given.iter().enumerate() {
        let scale = f64::from(scales[place(flat)]);
        let size = f64::from(value.abs()) / scale;
        // sizes grow with the code; the one below or at the value is near enough
        let code = sizes.partition_point(|&s| s <= size) - 1;
        let sign = if *value < 0.0 { -1.0 } else { 1.0 };
        codes.push(code as u8 | if sign < 0.0 { 0x80 } else { 0 });
        values.push((sign * sizes[code] * scale) as f32);
    }
    let weight = Tensor { dtype: Dtype::F8_E4M3, bytes: codes, ..tensor.clone() };
    let scales = Tensor::new(&beside(&tensor.name, "weight_scale_inv"), &grid, Dtype::F32, &scales);
    Packed { tensors: vec![weight, scales], values }
}

/// The same tensors, those of routed experts stacked as `switch_mlp`, in order of expert.
pub fn stacked(tensors: &[Tensor]) -> Vec<Tensor> {
    let mut stacks: BTreeMap<String, Vec<(usize, &Tensor)>> = BTreeMap::new();
    let mut all = Vec::new();
    for tensor in tensors {
        match tensor.name.split_once(".mlp.experts.") {
            Some((layer, rest)) => {
                let (expert, part) = rest.split_once('.').unwrap();
                let stack = stacks.entry(format!("{layer}.mlp.switch_mlp.{part}")).or_default();
                stack.push((expert.parse().unwrap(), tensor));
            }
            None => all.push(tensor.clone()),
        }
    }
    all.extend(stacks.into_iter().map(|(name, mut experts)| {
        experts.sort_by_key(|(expert, _)| *expert);
        let (_, first) = experts[0];
        let shape = [&[experts.len()], first.shape.as_slice()].concat();
        let bytes = experts.iter().flat_map(|(_, tensor)| tensor.bytes.clone()).collect();
        Tensor { name, shape, dtype: first.dtype, bytes }
    }));
    all
}
