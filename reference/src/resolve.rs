//! Which tensors of the files hold each tensor of the model, and everything that is wrong with them (K3, K4).
//!
//! Inputs: a configuration and the tensors of the files. Outputs: a [`Stored`] for each tensor of the census
//! that is sound, and the [`Problem`]s. A matrix may be plain, packed by MLX's affine quantiser (`weight` in
//! U32 beside `scales` and `biases`) or FP8 (`weight` in F8_E4M3 beside `weight_scale_inv`); the experts of
//! a layer may be stacked as `switch_mlp`. Absent on purpose: values.

use crate::checkpoint::{Entry, Files};
use crate::storage::{Form, Part, Stored};
use crate::survey::{Problem, ProblemKind};
use safetensors::Dtype;
use spec::ModelConfig;
use spec::census::{self, Expected, Role};
use std::collections::{BTreeMap, BTreeSet};

/// What the files hold of the model.
pub(crate) struct Resolved {
    /// By name of the census; without problems it has all of them.
    pub stored: BTreeMap<String, Stored>,
    /// Everything that is wrong: with the files, then with the expected tensors in census order, then extra
    /// tensors.
    pub problems: Vec<Problem>,
}

/// Finds every tensor of the model in `files`.
pub(crate) fn resolve(config: &ModelConfig, files: &Files) -> Resolved {
    let mut resolver = Resolver {
        config,
        files,
        problems: files.problems.clone(),
        claimed: BTreeSet::new(),
        stacks: BTreeMap::new(),
    };
    let mut stored = BTreeMap::new();
    for tensor in census::expected(config) {
        if let Some(found) = resolver.tensor(&tensor) {
            stored.insert(tensor.name, found);
        }
    }
    resolver.refuse_extra();
    Resolved { stored, problems: resolver.problems }
}

/// Dtypes that may stand in one place, and their words.
type Dtypes = (&'static [Dtype], &'static str);
const FLOATS: &[Dtype] = &[Dtype::BF16, Dtype::F16, Dtype::F32];
const VALUES: Dtypes = (FLOATS, "BF16, F16 or F32");
/// Of a matrix that is neither packed nor FP8.
const MATRIX: Dtypes = (FLOATS, "BF16, F16 or F32 values, U32 codes or F8_E4M3");
const WORDS: Dtypes = (&[Dtype::U32], "U32");
const FP8: Dtypes = (&[Dtype::F8_E4M3], "F8_E4M3");
const SCALE_INV: Dtypes = (&[Dtype::F32], "F32");

/// What may stand beside a module's `weight`.
const BESIDE: [&str; 3] = ["scales", "biases", "weight_scale_inv"];

const OTHER_CONFIG: &str = "use the config.json that belongs to these files";

struct Resolver<'a> {
    config: &'a ModelConfig,
    files: &'a Files,
    problems: Vec<Problem>,
    /// Tensors of the files that belong to some tensor of the model, sound or not.
    claimed: BTreeSet<String>,
    /// Stacked matrices by module, each looked at once for all experts; `None`: with problems.
    stacks: BTreeMap<String, Option<Stored>>,
}

impl<'a> Resolver<'a> {
    fn tensor(&mut self, expected: &Expected) -> Option<Stored> {
        if let Some((module, expert)) = self.stack_of(expected) {
            if !self.stacks.contains_key(&module) {
                let shape = [&[self.config.num_experts], expected.shape.as_slice()].concat();
                let stack = self.matrix(&module, &shape);
                self.stacks.insert(module.clone(), stack);
            }
            return self.stacks[&module].as_ref().map(|stack| stack.expert(expert));
        }
        match expected.name.strip_suffix(".weight") {
            Some(module) if expected.shape.len() == 2 => self.matrix(module, &expected.shape),
            _ => {
                let weight = self.part(&expected.name, &expected.shape, "", VALUES)?;
                Some(Stored { shape: expected.shape.clone(), weight, form: Form::Plain })
            }
        }
    }

    /// Module of the stack that an expert's matrix is in, and the expert's place there; `None` where the
    /// layer's first expert has a matrix of its own, and for all that is no expert's.
    fn stack_of(&self, expected: &Expected) -> Option<(String, usize)> {
        if expected.role != Role::Expert {
            return None;
        }
        let (mlp, rest) = expected.name.split_once(".experts.").expect("experts have this name (K3)");
        let (expert, part) = rest.split_once('.').expect("experts have this name (K3)");
        let module = format!("{mlp}.switch_mlp.{}", part.strip_suffix(".weight").expect("K3"));
        let any =
            ["weight"].iter().chain(&BESIDE).any(|tail| self.entry(&format!("{module}.{tail}")).is_some());
        let stacked = any && self.entry(&format!("{mlp}.experts.0.{part}")).is_none();
        stacked.then(|| (module, expert.parse().expect("experts are numbered (K3)")))
    }

    /// A matrix `[out, in]` or a stack of them `[E, out, in]`.
    fn matrix(&mut self, module: &str, shape: &[usize]) -> Option<Stored> {
        let name = format!("{module}.weight");
        let (weight, form) = match self.entry(&name).map(|entry| entry.dtype) {
            Some(Dtype::U32) => self.affine(module, &name, shape)?,
            Some(Dtype::F8_E4M3) => self.fp8(module, &name, shape)?,
            Some(dtype) if self.entry(&format!("{module}.scales")).is_some() => {
                let all = [name.clone(), format!("{module}.scales"), format!("{module}.biases")];
                self.claimed.extend(all);
                let expected = format!("U32 codes, as `{module}.scales` is there");
                self.refuse(ProblemKind::Dtype, &name, expected, dtype.to_string(), PACK_AGAIN);
                return None;
            }
            None => {
                // what is beside a missing weight is not extra
                self.claimed.extend(BESIDE.map(|tail| format!("{module}.{tail}")));
                (self.part(&name, shape, "", MATRIX)?, Form::Plain)
            }
            Some(_) => (self.part(&name, shape, "", MATRIX)?, Form::Plain),
        };
        Some(Stored { shape: shape.into(), weight, form })
    }

    fn affine(&mut self, module: &str, name: &str, shape: &[usize]) -> Option<(Part, Form)> {
        let [scales, biases] = ["scales", "biases"].map(|tail| format!("{module}.{tail}"));
        self.claimed.extend([name.to_owned(), scales.clone(), biases.clone()]);
        let columns = *shape.last().expect("a matrix");
        let Some(packing) = self.config.quantization.affine(module) else {
            let expected =
                format!("BF16, F16 or F32 values, as config.json has no `quantization` for `{module}`");
            self.refuse(ProblemKind::Packing, name, expected, "U32 codes".into(), OTHER_CONFIG);
            return None;
        };
        let (bits, group) = (packing.bits as usize, packing.group);
        if !columns.is_multiple_of(group) {
            let expected = format!("a group size that divides the row of {columns} values");
            self.refuse(ProblemKind::Packing, name, expected, format!("groups of {group}"), OTHER_CONFIG);
            return None;
        }
        if !(columns * bits).is_multiple_of(32) {
            let found = format!("{columns} columns of {bits} bits, {} bits", columns * bits);
            let expected = "rows of whole 32-bit words".into();
            self.refuse(ProblemKind::Packing, name, expected, found, OTHER_CONFIG);
            return None;
        }
        let words = format!(" ({columns} columns of {bits} bits in 32-bit words)");
        let groups = format!(" (groups of {group} values)");
        let weight = self.part(name, &with_last(shape, columns * bits / 32), &words, WORDS);
        let [scales, biases] = [scales, biases]
            .map(|part| self.part(&part, &with_last(shape, columns / group), &groups, VALUES));
        Some((weight?, Form::Affine { scales: scales?, biases: biases?, packing }))
    }

    fn fp8(&mut self, module: &str, name: &str, shape: &[usize]) -> Option<(Part, Form)> {
        let block @ [high, wide] = self.config.quantization.fp8_block;
        let [lead @ .., rows, columns] = shape else { unreachable!("a matrix") };
        let grid = [lead, &[rows.div_ceil(high), columns.div_ceil(wide)]].concat();
        let words = format!(" (blocks of {high} x {wide})");
        let weight = self.part(name, shape, "", FP8);
        let scales = self.part(&format!("{module}.weight_scale_inv"), &grid, &words, SCALE_INV);
        Some((weight?, Form::Fp8 { scales: scales?, block }))
    }

    /// One tensor of the files, of that shape (`words` say why) and one of the dtypes.
    fn part(&mut self, name: &str, shape: &[usize], words: &str, dtypes: Dtypes) -> Option<Part> {
        let Some(entry) = self.entry(name) else {
            if self.files.complete {
                let expected = format!("a tensor of shape {shape:?}{words}");
                let next = "fetch the missing file, or use the config.json that belongs to these files";
                self.refuse(ProblemKind::Missing, name, expected, "no such tensor".into(), next);
            }
            return None;
        };
        self.claimed.insert(name.into());
        if entry.shape != shape {
            let expected = format!("shape {shape:?}{words}");
            self.refuse(ProblemKind::Shape, name, expected, format!("{:?}", entry.shape), OTHER_CONFIG);
            return None;
        }
        if !dtypes.0.contains(&entry.dtype) {
            let next = "use a release in one of those dtypes";
            self.refuse(ProblemKind::Dtype, name, dtypes.1.into(), entry.dtype.to_string(), next);
            return None;
        }
        Some(Part::whole(name, entry))
    }

    fn refuse_extra(&mut self) {
        for (name, entry) in &self.files.entries {
            if !self.claimed.contains(name) {
                let expected = "only the tensors of docs/kolibri-1.md (K3, K4)".into();
                let found = format!("an extra one, {} {:?}", entry.dtype, entry.shape);
                let next = "use the config.json that belongs to these files, or a checkpoint of this family";
                self.refuse(ProblemKind::Extra, name, expected, found, next);
            }
        }
    }

    fn entry(&self, name: &str) -> Option<&'a Entry> {
        self.files.entries.get(name)
    }

    fn refuse(&mut self, kind: ProblemKind, tensor: &str, expected: String, found: String, next: &str) {
        let shard = self.entry(tensor).map(|entry| &self.files.shards[entry.shard.0].path);
        self.problems.push(Problem {
            kind,
            path: shard.unwrap_or(&self.files.dir).clone(),
            tensor: Some(tensor.into()),
            expected,
            found,
            next: next.into(),
        });
    }
}

const PACK_AGAIN: &str = "fetch the checkpoint's files again, or convert the checkpoint again";

/// The shape with another last size.
fn with_last(shape: &[usize], last: usize) -> Vec<usize> {
    [&shape[..shape.len() - 1], &[last]].concat()
}
