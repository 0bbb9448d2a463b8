//! Packed builds under the names of K3: a stack of experts taken apart where an edit names one of them; and
//! where in a file tensors lie.
//!
//! Inputs: tensors by name, an edit. Outputs: tensors by name. Absent on purpose: values.

use super::Edit;
use super::files::{INDEX, Tensor, Values};
use spec::quantization::expert_of;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Takes the stacks apart that hold an expert which the edit names.
pub fn unstack(edit: &Edit, tensors: &mut BTreeMap<String, Tensor>, touched: &mut BTreeSet<String>) {
    let named: Vec<&String> = match edit {
        Edit::Zero(name) | Edit::Remove(name) | Edit::SwapDims(name) | Edit::Transpose(name) => vec![name],
        Edit::Round { name, .. } => vec![name],
        Edit::Copy { from, to } => vec![from, to],
        Edit::Exchange(a, b) => vec![a, b],
        _ => Vec::new(),
    };
    for name in named {
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let Some((mlp, part)) = expert_of(module).filter(|_| !tensors.contains_key(name)) else { continue };
        let stack = format!("{mlp}.switch_mlp.{part}");
        for kind in ["weight", "scales", "biases"] {
            let Some(whole) = tensors.remove(&format!("{stack}.{kind}")) else { continue };
            touched.extend([whole.home.clone(), INDEX.into()]);
            for (expert, one) in apart(&whole).into_iter().enumerate() {
                tensors.insert(format!("{mlp}.experts.{expert}.{part}.{kind}"), one);
            }
        }
    }
}

/// The tensors of a stack.
fn apart(stack: &Tensor) -> Vec<Tensor> {
    let Values::Stored(file, start) = &stack.values else {
        unreachable!("a stack is taken apart before anything of it changes")
    };
    let bytes = stack.bytes() / stack.shape[0];
    let one = |expert: usize| Tensor {
        shape: stack.shape[1..].to_vec(),
        values: Values::Stored(Rc::clone(file), start + (expert * bytes) as u64),
        ..stack.clone()
    };
    (0..stack.shape[0]).map(one).collect()
}

/// The tensors of the last file that its last hundredth lies in, and how many bytes of each.
pub fn tail(tensors: &BTreeMap<String, Tensor>) -> Vec<(String, usize)> {
    let Some(last) = tensors.values().map(|tensor| &tensor.home).max() else { return Vec::new() };
    let mut of_file: Vec<(u64, &String, usize)> = tensors
        .iter()
        .filter(|(_, tensor)| tensor.home == *last)
        .filter_map(|(name, tensor)| match &tensor.values {
            Values::Stored(_, start) => Some((*start, name, tensor.bytes())),
            _ => None,
        })
        .collect();
    of_file.sort();
    let mut left = of_file.iter().map(|(_, _, bytes)| bytes).sum::<usize>() / 100;
    let mut tail = Vec::new();
    for (_, name, bytes) in of_file.into_iter().rev() {
        // whole values: two bytes at least, four at most
        let of_tensor = left.min(bytes) / 4 * 4;
        if of_tensor == 0 {
            break;
        }
        tail.push((name.clone(), of_tensor));
        left -= of_tensor;
    }
    tail
}
