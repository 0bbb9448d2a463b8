//! From a checkpoint to a build that MLX's affine quantiser packed, laid out as mlx-lm lays it out.
//!
//! Inputs: a folder that passed the census, and what is packed how. Outputs: a folder with packed matrices,
//! stacked experts, config.json with the block `quantization`, everything else as it was; and what became of
//! each kind of module. Absent on purpose: packing the router, its bias or a norm, and any rounding of what
//! is kept.

use crate::engine::{Doing, Op, dim, length};
use crate::source::{BITS, GROUPS, Source};
use crate::weight::{Packed, Weight};
use crate::write::Writer;
use mlx_rs::{Array, ops, transforms};
use serde_json::{Map, Value};
use spec::quantization::expert_of;
use spec::{Affine, Error, Precision, Result, config_file};
use std::collections::BTreeMap;
use std::path::Path;

/// What is packed, and how.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Bits of a code in attention, experts and shared expert.
    pub bits: u32,
    /// Values that share a scale; `None`: 64, or 32 where 64 does not divide the row, and rows that 32 does
    /// not divide either are kept.
    pub group: Option<usize>,
    /// Bits of a code in the embedding; `None`: kept.
    pub embedding: Option<u32>,
    /// Bits of a code in the head; `None`: kept.
    pub head: Option<u32>,
}

/// What became of the modules of one kind.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Kind {
    /// Path of the modules, `*` for the number of a layer or expert.
    pub module: String,
    /// How many tensors of the checkpoint.
    pub tensors: usize,
    /// Bits of a code and values that share a scale; `None`: kept.
    pub packed: Option<(u32, usize)>,
    /// Why it was kept; empty if it was not.
    pub kept: &'static str,
    /// Bytes in the checkpoint.
    pub bytes_before: u64,
    /// Bytes in the build.
    pub bytes_after: u64,
}

/// Writes the build to `out`, whole or not at all. `progress` is told the bytes read, as they are done; they
/// add up to those of the checkpoint's tensors.
///
/// Errors: [`Error::Argument`] on bits or a group that MLX has not, or that does not fit a row, on a
/// checkpoint that is packed already, and if `out` exists; [`Error::Tensor`], [`Error::Io`].
pub fn convert(dir: &Path, policy: Policy, out: &Path, progress: &dyn Fn(u64)) -> Result<Vec<Kind>> {
    check(policy)?;
    let config = config_file::read(dir)?;
    if config.quantization.affine.is_some() {
        let found = "one whose config.json has a `quantization` block";
        return Err(refuse(
            dir.display(),
            "a checkpoint that is not packed",
            found,
            "convert the one it was made of",
        ));
    }
    let mut source = Source::open(dir, &config, Precision::F32)?;
    let mut build =
        Build { policy, writer: Writer::create(out)?, kinds: Vec::new(), packed: BTreeMap::new() };
    for name in source.tensors.names() {
        // scales go with their codes, and the experts of a layer with the first
        if !source.tensors.has(&name) {
            continue;
        }
        let bytes = match name.strip_suffix(".weight") {
            None if name.ends_with(".weight_scale_inv") => continue,
            None => build.bias(&mut source, &name)?,
            Some(module) => match expert_of(module) {
                Some(experts) => build.stack(&mut source, experts, config.num_experts)?,
                None => build.module(&mut source, module)?,
            },
        };
        progress(bytes);
    }
    build.finish(dir)
}

struct Build {
    policy: Policy,
    writer: Writer,
    kinds: Vec<Kind>,
    /// Every packed module of the build.
    packed: BTreeMap<String, Affine>,
}

impl Build {
    /// The router's bias.
    fn bias(&mut self, source: &mut Source, name: &str) -> Result<u64> {
        let array = source.tensors.take(name, &source.tensors.shape(name))?;
        let bytes = source.tensors.just_taken_bytes();
        self.note(&kind(name), 1, Err("the router's bias"), [bytes, bytes]);
        self.writer.add(name, &array)?;
        Ok(bytes)
    }

    fn module(&mut self, source: &mut Source, module: &str) -> Result<u64> {
        let shape = source.tensors.shape(&format!("{module}.weight"));
        let bits = match module {
            "model.embed_tokens" => self.policy.embedding.ok_or("as asked"),
            "lm_head" => self.policy.head.ok_or("as asked"),
            _ if shape.len() == 1 => Err("a norm"),
            _ if module.ends_with(".mlp.gate") => Err("the router"),
            _ => Ok(self.policy.bits),
        };
        let weight = source.stored(module, &shape)?;
        let bytes = source.tensors.just_taken_bytes();
        self.put(module, module, &weight, bits, (1, bytes))
    }

    fn stack(&mut self, source: &mut Source, (mlp, part): (&str, &str), experts: usize) -> Result<u64> {
        let one = |expert: usize| format!("{mlp}.experts.{expert}.{part}");
        let shape = source.tensors.shape(&format!("{}.weight", one(0)));
        let each: Vec<Weight> =
            (0..experts).map(|expert| source.stored(&one(expert), &shape)).collect::<Result<_>>()?;
        let bytes = source.tensors.just_taken_bytes();
        let weight = source.stacked(&one(0), &each)?;
        let bits = Ok(self.policy.bits);
        self.put(&format!("{mlp}.switch_mlp.{part}"), &one(0), &weight, bits, (experts, bytes))
    }

    /// Writes a module packed, or as it is and why. `of` is its path in the checkpoint. Output: `bytes`.
    fn put(
        &mut self,
        module: &str,
        of: &str,
        weight: &Weight,
        bits: Result<u32, &'static str>,
        (tensors, bytes): (usize, u64),
    ) -> Result<u64> {
        let doing = format!("pack {module}");
        let values = weight.dense().doing(&doing)?;
        let columns = length(&values, -1);
        let packing = match bits {
            Ok(bits) => self.packing(bits, of, columns)?.ok_or("no group divides its rows"),
            Err(why) => Err(why),
        };
        let (parts, weight): (&[&str], _) = match packing {
            Ok(packing) => (&["weight", "scales", "biases"], packed(&values, packing).doing(&doing)?),
            Err(_) => (&["weight"], Weight::Dense(values)),
        };
        transforms::eval(weight.arrays()).doing(doing)?;
        let after = weight.arrays().iter().map(|array| array.nbytes() as u64).sum();
        if let Ok(packing) = packing {
            self.packed.insert(module.into(), packing);
        }
        self.note(&kind(of), tensors, packing, [bytes, after]);
        for (part, array) in parts.iter().zip(weight.arrays()) {
            self.writer.add(&format!("{module}.{part}"), array)?;
        }
        Ok(bytes)
    }

    /// The packing of rows of `columns`; `None`: nobody asked for a group, and none divides them. Errors:
    /// [`Error::Argument`] where the one asked for does not.
    fn packing(&self, bits: u32, of: &str, columns: usize) -> Result<Option<Affine>> {
        let divides = |group: &usize| columns.is_multiple_of(*group);
        match self.policy.group {
            Some(group) if !divides(&group) => {
                let expected = format!("a group that divides the rows of {}", kind(of));
                let next = "give another one, or leave it out: rows get 64 or 32, or are kept";
                Err(refuse(format!("--group {group}"), &expected, &format!("rows of {columns}"), next))
            }
            Some(group) => Ok(Some(Affine { bits, group })),
            None => Ok(GROUPS_TRIED.into_iter().find(divides).map(|group| Affine { bits, group })),
        }
    }

    fn note(&mut self, module: &str, tensors: usize, packing: Result<Affine, &'static str>, bytes: [u64; 2]) {
        let packed = packing.ok().map(|packing| (packing.bits, packing.group));
        let place = self.kinds.iter().position(|kind| kind.module == module && kind.packed == packed);
        let place = place.unwrap_or_else(|| {
            let (module, kept) = (module.into(), packing.err().unwrap_or_default());
            self.kinds.push(Kind { module, tensors: 0, packed, kept, bytes_before: 0, bytes_after: 0 });
            self.kinds.len() - 1
        });
        let kind = &mut self.kinds[place];
        kind.tensors += tensors;
        kind.bytes_before += bytes[0];
        kind.bytes_after += bytes[1];
    }

    /// The config names what is packed otherwise than most modules are.
    fn finish(self, dir: &Path) -> Result<Vec<Kind>> {
        let count = |of: &Affine| self.packed.values().filter(|packing| *packing == of).count();
        let usual = self.packed.values().copied().max_by_key(count);
        let usual = usual.unwrap_or(Affine { bits: self.policy.bits, group: GROUPS_TRIED[0] });
        let mut block = block(usual);
        let others = self.packed.into_iter().filter(|(_, packing)| *packing != usual);
        block.extend(others.map(|(module, packing)| (module, Value::from(self::block(packing)))));
        self.writer.finish(dir, block)?;
        Ok(self.kinds)
    }
}

/// A packing as mlx-lm writes it.
fn block(packing: Affine) -> Map<String, Value> {
    let (group, bits) = (Value::from(packing.group), Value::from(packing.bits));
    Map::from_iter([("group_size".into(), group), ("bits".into(), bits), ("mode".into(), "affine".into())])
}

/// Tried in this order where nobody asked for a group.
const GROUPS_TRIED: [usize; 2] = [64, 32];

fn packed(values: &Array, packing: Affine) -> Op<Weight> {
    let (words, scales, biases) = ops::quantize(values, dim(packing.group), packing.bits.cast_signed())?;
    Ok(Weight::Packed(Packed { words, scales, biases, packing }))
}

/// A path with `*` for its numbers.
fn kind(module: &str) -> String {
    let part = |part: &str| if part.parse::<usize>().is_ok() { "*".to_owned() } else { part.to_owned() };
    module.split('.').map(part).collect::<Vec<_>>().join(".")
}

fn check(policy: Policy) -> Result<()> {
    let asked = [("--bits", Some(policy.bits)), ("--embedding", policy.embedding), ("--head", policy.head)];
    for (option, bits) in asked {
        if let Some(bits) = bits.filter(|bits| !BITS.contains(bits)) {
            let next = "give one of these";
            return Err(refuse(
                option,
                &format!("one of {BITS:?} bits (MLX packs no other)"),
                &bits.to_string(),
                next,
            ));
        }
    }
    match policy.group.filter(|group| !GROUPS.contains(group)) {
        None => Ok(()),
        Some(group) => {
            let expected = format!("one of {GROUPS:?} (MLX packs no other)");
            Err(refuse("--group", &expected, &group.to_string(), "give one of these"))
        }
    }
}

fn refuse(what: impl std::fmt::Display, expected: &str, found: &str, next: &str) -> Error {
    Error::Argument {
        what: what.to_string(),
        expected: expected.into(),
        found: found.into(),
        next: next.into(),
    }
}
