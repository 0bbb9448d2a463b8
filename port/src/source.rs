//! A checkpoint's matrices in whichever form they are stored: plain, packed by MLX's affine quantiser, FP8.
//!
//! Inputs: an open checkpoint, its config, a module's path ("model.layers.0.self_attn.q_proj") and shape.
//! Outputs: vectors and [`Weight`]s in the dtypes that a precision wants. A module is packed if the
//! checkpoint has `scales` for it, and FP8 if it has `weight_scale_inv` (K4). Experts may lie one by one (K3)
//! or stacked, as builds of mlx-lm have them. Absent on purpose: which modules a model has.

use crate::engine::{Doing, Op, on_gpu, working_dtype};
use crate::fp8;
use crate::load::{Tensors, refuse};
use crate::weight::{Packed, Weight};
use mlx_rs::{Array, Dtype, ops};
use spec::{Affine, ModelConfig, Precision, Quantization, Result};
use std::path::Path;

/// Bits and groups that MLX has kernels for.
pub(crate) const BITS: [u32; 6] = [2, 3, 4, 5, 6, 8];
pub(crate) const GROUPS: [usize; 3] = [32, 64, 128];

/// The open checkpoint and the dtypes its tensors are wanted in.
pub struct Source {
    /// What has not been taken yet.
    pub tensors: Tensors,
    quantization: Quantization,
    working: Dtype,
    /// Of operands of the products that MLX has in f32 only on the CPU.
    wide: Dtype,
}

impl Source {
    /// Opens every file of `dir`. Errors: as [`Tensors::open`].
    pub fn open(dir: &Path, config: &ModelConfig, precision: Precision) -> Result<Self> {
        let working = working_dtype(precision);
        let wide = wide_dtype(working).doing("ask for the device")?;
        Ok(Self { tensors: Tensors::open(dir)?, quantization: config.quantization.clone(), working, wide })
    }

    /// A vector in the working dtype.
    pub fn vector(&mut self, name: &str, length: usize) -> Result<Array> {
        let working = self.working;
        self.tensors.take(name, &[length])?.as_dtype(working).doing(format!("load {name}"))
    }

    /// A vector in f32.
    pub fn f32_vector(&mut self, name: &str, length: usize) -> Result<Array> {
        self.tensors.take(name, &[length])?.as_dtype(Dtype::Float32).doing(format!("load {name}"))
    }

    /// A matrix `[out, in]` for products in the working dtype. Errors: [`spec::Error::Tensor`] on one that is
    /// missing, mis-shaped, or whose scales do not fit.
    pub fn matrix(&mut self, module: &str, shape: [usize; 2]) -> Result<Weight> {
        self.matrix_in(module, shape, self.working, self.wide)
    }

    /// A matrix `[out, in]` for products in f32. Errors: as [`Source::matrix`].
    pub fn f32_matrix(&mut self, module: &str, shape: [usize; 2]) -> Result<Weight> {
        self.matrix_in(module, shape, Dtype::Float32, Dtype::Float32)
    }

    /// The experts' matrices of one part, `[E, out, in]`. `mlp` is the path above both layouts. Errors: as
    /// [`Source::matrix`]; experts of one stack that are packed otherwise than the first.
    pub fn stack(&mut self, mlp: &str, part: &str, experts: usize, shape: [usize; 2]) -> Result<Weight> {
        let stacked = format!("{mlp}.switch_mlp.{part}");
        let weight = match self.tensors.has(&format!("{stacked}.weight")) {
            true => self.stored(&stacked, &[experts, shape[0], shape[1]])?,
            false => {
                let one = |expert| self.stored(&format!("{mlp}.experts.{expert}.{part}"), &shape);
                let each: Vec<Weight> = (0..experts).map(one).collect::<Result<_>>()?;
                self.stacked(&format!("{mlp}.experts.*.{part}"), &each)?
            }
        };
        // plain stacks through the working dtype: on the CPU f32 holds what bf16 would
        let rounded = if weight.packing().is_none() { cast(weight, self.working) } else { Ok(weight) };
        rounded.and_then(|weight| cast(weight, self.wide)).doing(format!("load {stacked}"))
    }

    /// Matrices, alike in shape and packing, as one stack.
    pub(crate) fn stacked(&self, module: &str, each: &[Weight]) -> Result<Weight> {
        let packing = each[0].packing();
        if each.iter().any(|one| one.packing() != packing) {
            let expected = "the experts of one layer and part packed alike";
            return Err(refuse(self.tensors.dir(), module, expected, "several packings"));
        }
        let stack = |part: usize| {
            let parts: Vec<&Array> = each.iter().map(|one| one.arrays()[part]).collect();
            ops::stack(&parts, 0).doing(format!("stack {module}"))
        };
        Ok(match packing {
            None => Weight::Dense(stack(0)?),
            Some(packing) => {
                let (words, scales, biases) = (stack(0)?, stack(1)?, stack(2)?);
                Weight::Packed(Packed { words, scales, biases, packing })
            }
        })
    }

    fn matrix_in(&mut self, module: &str, shape: [usize; 2], plain: Dtype, packed: Dtype) -> Result<Weight> {
        let weight = self.stored(module, &shape)?;
        let dtype = if weight.packing().is_some() { packed } else { plain };
        cast(weight, dtype).doing(format!("load {module}"))
    }

    /// A matrix, or a stack of them, as it lies in the file; FP8 unpacked to f32.
    pub(crate) fn stored(&mut self, module: &str, shape: &[usize]) -> Result<Weight> {
        let name = |part: &str| format!("{module}.{part}");
        if self.tensors.has(&name("scales")) || self.tensors.is(&name("weight"), Dtype::Uint32) {
            return self.packed(module, shape);
        }
        if self.tensors.is(&name("weight"), Dtype::Uint8) {
            return self.fp8(module, shape);
        }
        Ok(Weight::Dense(self.tensors.take(&name("weight"), shape)?))
    }

    fn packed(&mut self, module: &str, shape: &[usize]) -> Result<Weight> {
        let name = format!("{module}.weight");
        let wrong = |source: &Self, expected: String, found: String| {
            Err(refuse(source.tensors.dir(), &name, &expected, found))
        };
        let Some(packing) = self.quantization.affine(module) else {
            let expected = "a `quantization` block in config.json that says how it is packed";
            return wrong(self, expected.into(), "none, or one that says it is not".into());
        };
        let Affine { bits, group } = packing;
        if !BITS.contains(&bits) || !GROUPS.contains(&group) {
            let expected = format!("a packing that MLX can multiply: {BITS:?} bits in groups of {GROUPS:?}");
            return wrong(self, expected, format!("{bits} bits in groups of {group}"));
        }
        let (above, columns) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
        if !columns.is_multiple_of(group) {
            return wrong(
                self,
                format!("a group that divides rows of {columns}"),
                format!("groups of {group}"),
            );
        }
        let of = |width: usize| [above, &[width]].concat();
        let words = self.tensors.take_as(&name, &of(columns * bits as usize / 32), Dtype::Uint32)?;
        let scales = self.tensors.take(&format!("{module}.scales"), &of(columns / group))?;
        let biases = self.tensors.take(&format!("{module}.biases"), &of(columns / group))?;
        Ok(Weight::Packed(Packed { words, scales, biases, packing }))
    }

    fn fp8(&mut self, module: &str, shape: &[usize]) -> Result<Weight> {
        let block = self.quantization.fp8_block;
        let codes = self.tensors.take_as(&format!("{module}.weight"), shape, Dtype::Uint8)?;
        let scales = format!("{module}.weight_scale_inv");
        let [out, columns] = *shape else {
            let found = format!("shape {shape:?}");
            return Err(refuse(self.tensors.dir(), &scales, "an FP8 matrix of one expert (K4)", found));
        };
        let grid = fp8::grid([out, columns], block);
        let scales = self.tensors.take_as(&scales, &grid, Dtype::Float32)?;
        fp8::unpack(&codes, &scales, block).map(Weight::Dense).doing(format!("unpack {module}"))
    }
}

/// The dtype of operands of gathers and packed products: the working dtype, except on the CPU, whose gather
/// takes f32 only and whose packed product sums in the dtype of its operands. There bf16 stacks are rounded
/// to bf16 and widened once, here, rather than at each call.
fn wide_dtype(working: Dtype) -> Op<Dtype> {
    Ok(if on_gpu()? { working } else { Dtype::Float32 })
}

/// Values, or scales and biases, in another dtype.
fn cast(weight: Weight, dtype: Dtype) -> Op<Weight> {
    Ok(match weight {
        Weight::Dense(array) => Weight::Dense(array.as_dtype(dtype)?),
        Weight::Packed(packed) => Weight::Packed(Packed {
            scales: packed.scales.as_dtype(dtype)?,
            biases: packed.biases.as_dtype(dtype)?,
            ..packed
        }),
    })
}
