//! How a build's matrices are stored: as they are, packed by MLX's affine quantiser, or in FP8 (K4).
//!
//! Inputs: the keys `quantization` (MLX) and `quantization_config` (MLX's copy of it, or the FP8 release's)
//! of `config.json`. Outputs: a [`Quantization`]. Absent on purpose: any arithmetic, and which tensors are
//! stored how: a module is packed if it has `scales`, and FP8 if its dtype says so; each side looks itself.

use crate::Result;
use crate::keys::Keys;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// One packing of MLX's affine quantiser: groups of `group` values of a row share a scale and a bias, value =
/// scale * code + bias; codes of `bits` bits lie end to end, lowest bits first, in little-endian u32 words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affine {
    /// Bits of a code, 2 to 8.
    pub bits: u32,
    /// Values that share a scale; divides the row.
    pub group: usize,
}

/// The block `quantization`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffineBuild {
    /// Of every packed module that is not named.
    pub default: Affine,
    /// By module ("model.layers.0.self_attn.q_proj"): its own packing; `None`: not packed.
    pub modules: BTreeMap<String, Option<Affine>>,
}

/// How matrices may be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantization {
    /// MLX's affine packing, if the build has any.
    pub affine: Option<AffineBuild>,
    /// Whether the config says that matrices are FP8.
    pub fp8: bool,
    /// Rows and columns of the block that shares one scale where a matrix is FP8 (K4: 128 x 128).
    pub fp8_block: [usize; 2],
}

impl Default for Quantization {
    fn default() -> Self {
        Self { affine: None, fp8: false, fp8_block: [FP8_BLOCK; 2] }
    }
}

impl Quantization {
    /// What the config says about a module, if it is packed: its packing; `None`: it says that it is not, or
    /// nothing at all. What it says of a stack of experts it says of each.
    pub fn affine(&self, module: &str) -> Option<Affine> {
        let build = self.affine.as_ref()?;
        let named = build.modules.get(module).or_else(|| build.modules.get(&stack_of(module)?));
        named.copied().unwrap_or(Some(build.default))
    }
}

/// The stack that an expert's matrix lies in where a build has stacks: of
/// `model.layers.0.mlp.experts.3.up_proj` it is `model.layers.0.mlp.switch_mlp.up_proj`.
pub fn stack_of(module: &str) -> Option<String> {
    let (mlp, part) = expert_of(module)?;
    Some(format!("{mlp}.switch_mlp.{part}"))
}

/// The path above an expert's number, and what comes after it: of `model.layers.0.mlp.experts.3.up_proj`
/// `model.layers.0.mlp` and `up_proj`.
pub fn expert_of(module: &str) -> Option<(&str, &str)> {
    let (mlp, rest) = module.split_once(".experts.")?;
    rest.split_once('.').map(|(_, part)| (mlp, part))
}

/// K4
const FP8_BLOCK: usize = 128;

/// Reads both keys. Errors: [`crate::Error::Config`].
pub(crate) fn read(keys: &Keys) -> Result<Quantization> {
    let mut read = Quantization::default();
    let (mlx, other) = (object(keys, "quantization")?, object(keys, "quantization_config")?);
    if let (Some(mlx), Some(other)) = (mlx, other)
        && mlx != other
    {
        let found = "another block under each name";
        return Err(keys.refuse("quantization", "one block, or the same under both names", found));
    }
    if let Some(block) = mlx.or(other) {
        let inner = keys.inside(block);
        if inner.get("quant_method").is_some() {
            (read.fp8, read.fp8_block) = (true, fp8_block(&inner)?);
        } else {
            read.affine = Some(affine_build(&inner)?);
        }
        inner.refuse_unread()?;
    }
    Ok(read)
}

fn object<'a>(keys: &'a Keys, key: &str) -> Result<Option<&'a Map<String, Value>>> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(_) => Err(keys.refuse_value(key, "an object")),
    }
}

/// The FP8 release's block. How activations would be quantised has no effect here: they are not (K4).
fn fp8_block(keys: &Keys) -> Result<[usize; 2]> {
    keys.only("quant_method", "fp8")?;
    keys.only_if_present("fmt", &Value::from("e4m3"))?;
    for key in ["activation_scheme", "modules_to_not_convert", "ignored_layers"] {
        keys.get(key);
    }
    let expected = "two whole numbers of at least 1, rows and columns";
    let side = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    match keys.get("weight_block_size") {
        None => Ok([FP8_BLOCK; 2]),
        Some(Value::Array(sides)) => match sides.iter().map(side).collect::<Vec<_>>()[..] {
            [Some(rows), Some(columns)] => Ok([rows, columns]),
            _ => Err(keys.refuse_value("weight_block_size", expected)),
        },
        Some(_) => Err(keys.refuse_value("weight_block_size", expected)),
    }
}

fn affine_build(keys: &Keys) -> Result<AffineBuild> {
    let default = affine(keys)?;
    let mut modules = BTreeMap::new();
    for name in keys.names().filter(|name| name.contains('.') || *name == "lm_head") {
        let packing = match keys.get(name) {
            Some(Value::Object(map)) => {
                let inner = keys.inside(map);
                let packing = affine(&inner)?;
                inner.refuse_unread()?;
                Some(packing)
            }
            // `true` is what a build's writer says where it changes nothing
            Some(Value::Bool(true)) => Some(default),
            Some(Value::Bool(false)) => None,
            _ => return Err(keys.refuse_value(name, "an object of `bits` and `group_size`, or false")),
        };
        modules.insert(name.to_owned(), packing);
    }
    Ok(AffineBuild { default, modules })
}

fn affine(keys: &Keys) -> Result<Affine> {
    keys.only_if_present("mode", &Value::from("affine"))?;
    let bits = keys.size("bits")?;
    if !(2..=8).contains(&bits) {
        return Err(keys.refuse_value("bits", "2 to 8"));
    }
    Ok(Affine { bits: u32::try_from(bits).expect("at most 8"), group: keys.size("group_size")? })
}
