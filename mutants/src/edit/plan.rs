//! What an edited checkpoint will be, before anything of it is written.
//!
//! Inputs: a checkpoint, edits one after another. Outputs: the files that differ, and links to the others.
//! Absent on purpose: reading and writing values ([`super::files`]).

use super::change::Change;
use super::files::{self, INDEX, Strings, Tensor, Values};
use super::{Edit, builds};
use safetensors::Dtype;
use serde_json::{Map, Value, json};
use spec::{Error, LayerId, Result, output};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const CONFIG: &str = "config.json";

pub struct Plan {
    dir: PathBuf,
    tensors: BTreeMap<String, Tensor>,
    /// Strings of every file's header.
    files: BTreeMap<String, Strings>,
    /// Files that are written anew.
    touched: BTreeSet<String>,
    /// What `config.json` will say, if something else.
    config: Option<Map<String, Value>>,
}

impl Plan {
    /// The checkpoint as it is.
    pub fn read(dir: &Path) -> Result<Self> {
        let (tensors, files) = files::read(dir)?;
        Ok(Self { dir: dir.into(), tensors, files, touched: BTreeSet::new(), config: None })
    }

    /// Makes one edit.
    pub fn take(&mut self, edit: &Edit) -> Result<()> {
        builds::unstack(edit, &mut self.tensors, &mut self.touched);
        match edit {
            Edit::Remove(name) => {
                self.touch(name)?;
                self.tensors.remove(name);
                self.touched.insert(INDEX.into());
                Ok(())
            }
            Edit::Add { name, shape } => self.add(name, shape),
            Edit::SwapDims(name) => {
                let tensor = self.touch(name)?;
                if tensor.shape.len() != 2 {
                    let found = format!("shape {:?}", tensor.shape);
                    return Err(self.refuse(name, "a matrix, to swap its dimensions", found));
                }
                tensor.shape.reverse();
                Ok(())
            }
            Edit::Transpose(name) => match self.touch(name)?.shape[..] {
                [rows, columns] if rows == columns => self.change(name, Change::Transpose { rows, columns }),
                ref other => {
                    let found = format!("shape {other:?}");
                    Err(self.refuse(name, "a square matrix, to transpose it", found))
                }
            },
            Edit::Interleave { name, groups } => match self.touch(name)?.shape[..] {
                [rows, _] if *groups > 0 && rows.is_multiple_of(*groups) => {
                    let change = Change::Transpose { rows: *groups, columns: rows / groups };
                    self.parts(name).iter().try_for_each(|part| self.change(part, change))
                }
                ref other => {
                    let found = format!("shape {other:?}");
                    Err(self.refuse(name, &format!("a matrix of rows in {groups} groups"), found))
                }
            },
            Edit::Round { name, to } => match self.touch(name)?.dtype {
                dtype @ (Dtype::BF16 | Dtype::F32) => self.change(name, Change::Round(dtype, *to)),
                other => Err(self.refuse(name, "BF16 or F32, to round it", format!("{other:?}"))),
            },
            Edit::Zero(name) => self.parts(name).iter().try_for_each(|part| {
                self.touch(part)?.values = Values::Zeros;
                Ok(())
            }),
            Edit::Copy { from, to } => {
                self.parts(from).iter().zip(self.parts(to)).try_for_each(|(from, to)| {
                    let values = self.alike(from, &to)?.0;
                    self.touch(&to)?.values = values;
                    Ok(())
                })
            }
            Edit::Exchange(a, b) => {
                self.parts(a).iter().zip(self.parts(b)).try_for_each(|(a, b)| self.exchange(a, &b))
            }
            Edit::ExchangeLayers(a, b) => self.exchange_layers(*a, *b),
            Edit::SetConfig { key, value } => {
                let config = match self.config.take() {
                    Some(config) => config,
                    None => files::read_json(&self.dir.join(CONFIG))?,
                };
                self.config.insert(config).insert(key.clone(), value.clone());
                self.touched.insert(CONFIG.into());
                Ok(())
            }
            other => self.take_stored(other),
        }
    }

    /// An edit of values as they are stored.
    fn take_stored(&mut self, edit: &Edit) -> Result<()> {
        match edit {
            Edit::ZeroTail => {
                for (name, tail) in builds::tail(&self.tensors) {
                    self.change(&name, Change::ZeroTail(tail))?;
                }
                Ok(())
            }
            Edit::ReverseCodes { name, bits } => self.change(name, Change::ReverseCodes(*bits)),
            Edit::Negate(name) => {
                let size = self.tensor(name)?.dtype.bitsize() / 8;
                self.change(name, Change::Negate(size))
            }
            Edit::HalvePlaces(name) => {
                let tensor = self.tensor(name)?;
                let part = tensor.dtype.bitsize() / 8;
                let row = tensor.shape.last().map_or(0, |columns| columns * part);
                self.change(name, Change::HalvePlaces { row, part })
            }
            Edit::TransposeGrid(name) => match self.tensor(name)?.shape[..] {
                [rows, columns] => self.change(name, Change::Transpose { rows, columns }),
                ref other => {
                    let found = format!("shape {other:?}");
                    Err(self.refuse(name, "a matrix, to transpose its values", found))
                }
            },
            other => unreachable!("{other:?} is an edit of whole tensors"),
        }
    }

    /// A tensor, and its scales and biases if it is packed.
    fn parts(&self, name: &str) -> Vec<String> {
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let more = ["scales", "biases"].map(|part| format!("{module}.{part}"));
        let more = more.into_iter().filter(|part| self.tensors.contains_key(part));
        std::iter::once(name.to_owned()).chain(more).collect()
    }

    fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.tensors.get(name).ok_or_else(|| {
            let found = format!("{} tensors of other names", self.tensors.len());
            self.refuse(name, "a tensor of this name, to edit it", found)
        })
    }

    /// The tensor, whose file will be written anew.
    fn touch(&mut self, name: &str) -> Result<&mut Tensor> {
        self.tensor(name)?;
        let tensor = self.tensors.get_mut(name).expect("its name was looked up");
        self.touched.insert(tensor.home.clone());
        Ok(tensor)
    }

    fn add(&mut self, name: &str, shape: &[usize]) -> Result<()> {
        if let Some(tensor) = self.tensors.get(name) {
            let found = format!("one of shape {:?}", tensor.shape);
            return Err(self.refuse(name, "no tensor of this name, to add one", found));
        }
        let home = self.files.keys().next().expect("a checkpoint has a file").clone();
        self.touched.extend([home.clone(), INDEX.into()]);
        let tensor = Tensor { home, dtype: Dtype::BF16, shape: shape.into(), values: Values::Zeros };
        self.tensors.insert(name.into(), tensor);
        Ok(())
    }

    fn change(&mut self, name: &str, change: Change) -> Result<()> {
        let tensor = self.touch(name)?;
        tensor.values = Values::Changed(Box::new(tensor.values.clone()), change);
        Ok(())
    }

    fn exchange(&mut self, a: &str, b: &str) -> Result<()> {
        let (of_a, of_b) = self.alike(a, b)?;
        self.touch(a)?.values = of_b;
        self.touch(b)?.values = of_a;
        Ok(())
    }

    /// The values of two tensors that either could have.
    fn alike(&self, a: &str, b: &str) -> Result<(Values, Values)> {
        let (first, second) = (self.tensor(a)?, self.tensor(b)?);
        if (first.dtype, &first.shape) != (second.dtype, &second.shape) {
            let expected = format!("{:?} {:?} as `{a}` has, to share values", first.dtype, first.shape);
            let found = format!("{:?} {:?}", second.dtype, second.shape);
            return Err(self.refuse(b, &expected, found));
        }
        Ok((first.values.clone(), second.values.clone()))
    }

    fn exchange_layers(&mut self, a: LayerId, b: LayerId) -> Result<()> {
        let prefix = |layer: LayerId| format!("model.layers.{layer}.");
        let tails = |layer: LayerId| -> BTreeSet<String> {
            let tail = |name: &String| name.strip_prefix(&prefix(layer)).map(str::to_owned);
            self.tensors.keys().filter_map(tail).collect()
        };
        let (of_a, of_b) = (tails(a), tails(b));
        for (layer, tails) in [(a, &of_a), (b, &of_b)] {
            if tails.is_empty() {
                return Err(Error::Argument {
                    what: format!("layer {layer} of {}", self.dir.display()),
                    expected: format!("tensors named `{}…`, to exchange layers {a} and {b}", prefix(layer)),
                    found: "none".into(),
                    next: "name layers that the checkpoint has".into(),
                });
            }
        }
        let exchange = |tail: &String| self.exchange(&(prefix(a) + tail), &(prefix(b) + tail));
        of_a.union(&of_b).try_for_each(exchange)
    }

    fn refuse(&self, name: &str, expected: &str, found: String) -> Error {
        Error::Tensor {
            path: self.dir.clone(),
            name: name.into(),
            expected: expected.into(),
            found,
            next: "correct the edit, or make it on another checkpoint".into(),
        }
    }

    /// Writes what differs into `target` and links to the rest.
    pub fn write(mut self, target: &Path) -> Result<()> {
        if !self.dir.join(INDEX).is_file() {
            self.touched.remove(INDEX);
        }
        files::link(&self.dir, &self.touched, target)?;
        for (home, strings) in &self.files {
            if self.touched.contains(home) {
                let tensors = self.tensors.iter().filter(|(_, tensor)| tensor.home == *home).collect();
                files::write(&target.join(home), tensors, strings.clone())?;
            }
        }
        if let Some(config) = &self.config {
            write_json(&target.join(CONFIG), config)?;
        }
        if self.touched.contains(INDEX) {
            write_json(&target.join(INDEX), &self.index()?)?;
        }
        Ok(())
    }

    /// The original's index with the tensors that there are now.
    fn index(&self) -> Result<Map<String, Value>> {
        let mut index = files::read_json(&self.dir.join(INDEX))?;
        let homes: BTreeMap<_, _> = self.tensors.iter().map(|(name, t)| (name, &t.home)).collect();
        index.insert("weight_map".into(), json!(homes));
        if let Some(total) = index.get_mut("metadata").and_then(|m| m.get_mut("total_size")) {
            *total = self.tensors.values().map(Tensor::bytes).sum::<usize>().into();
        }
        Ok(index)
    }
}

fn write_json(path: &Path, object: &Map<String, Value>) -> Result<()> {
    output::write_file(path, |file| {
        serde_json::to_writer_pretty(&mut *file, object)?;
        file.write_all(b"\n")
    })
}
