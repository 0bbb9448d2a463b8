//! Small checkpoints of every storage, for cases that damage one tensor of them.

use super::{TINY, Tensor, folder, pack, random_tensors, write_shard};
use safetensors::Dtype;
use serde_json::{Value, json};
use tempfile::TempDir;

/// TINY with matrices of 32 columns; those of `o_proj [32, 24]` have 24.
fn config() -> Value {
    let mut config: Value = serde_json::from_str(TINY).unwrap();
    for key in ["hidden_size", "moe_intermediate_size", "shared_expert_intermediate_size"] {
        config[key] = 32.into();
    }
    config
}

/// How the sound checkpoint is stored that a case then damages.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// 3 bits in groups of 16; `o_proj` 4 bits in groups of 8.
    Affine,
    /// The same, experts stacked.
    AffineStacked,
    /// FP8 in blocks of 16 x 8.
    Fp8,
    Plain,
}

pub fn sound(kind: Kind) -> (Value, Vec<Tensor>) {
    let mut config = config();
    let mut tensors = Vec::new();
    let block = match kind {
        Kind::Fp8 => json!({ "quant_method": "fp8", "weight_block_size": [16, 8] }),
        Kind::Plain => Value::Null,
        _ => json!({ "bits": 3, "group_size": 16 }),
    };
    config[if kind == Kind::Fp8 { "quantization_config" } else { "quantization" }] = block;
    for tensor in random_tensors(&config.to_string(), Dtype::BF16) {
        let o = tensor.name.ends_with("o_proj.weight");
        match kind {
            _ if tensor.shape.len() == 1 => tensors.push(tensor),
            Kind::Plain => tensors.push(tensor),
            Kind::Fp8 => tensors.extend(pack::fp8(&tensor, [16, 8]).tensors),
            _ if o => tensors.extend(pack::affine(&tensor, 4, 8, Dtype::BF16).tensors),
            _ => tensors.extend(pack::affine(&tensor, 3, 16, Dtype::BF16).tensors),
        }
        if o && [Kind::Affine, Kind::AffineStacked].contains(&kind) {
            let module = tensors.last().unwrap().name.strip_suffix(".biases").unwrap().to_owned();
            config["quantization"][module] = json!({ "bits": 4, "group_size": 8 });
        }
    }
    let tensors = if kind == Kind::AffineStacked { pack::stacked(&tensors) } else { tensors };
    (config, tensors)
}

pub type Edit = fn(&mut Value, &mut Vec<Tensor>);

pub fn damaged(kind: Kind, edit: Edit) -> TempDir {
    let (mut config, mut tensors) = sound(kind);
    edit(&mut config, &mut tensors);
    let dir = folder(&config.to_string());
    write_shard(dir.path(), "model.safetensors", &tensors);
    dir
}

pub fn named<'a>(tensors: &'a mut [Tensor], module: &str, tail: &str) -> &'a mut Tensor {
    tensors.iter_mut().find(|tensor| tensor.name == format!("{module}.{tail}")).unwrap()
}
