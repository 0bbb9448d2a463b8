//! Helpers of the reference's tests: small checkpoints from a seed, a recorder that keeps rows, golden
//! outputs.
#![allow(dead_code)] // each test file uses a part

pub mod damage;
pub mod pack;

use half::{bf16, f16};
use ndarray::{Array2, ArrayView2};
use reference::{Options, Reference};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use spec::census::{self, Role};
use spec::{At, Case, Choices, LayerId, Precision, Recorder, Result, Routing, Run, Schedule, Site, TokenId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A model of odd sizes: 3 layers, 4 query and 2 key-value heads of 6, 7 experts of which 3, window 5.
pub const TINY: &str = r#"{
  "model_type": "kolibri1", "hidden_act": "silu", "hidden_size": 22, "num_hidden_layers": 3,
  "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 19,
  "rms_norm_eps": 1e-6, "sliding_window": 5, "rope_theta": 10000.0, "num_experts": 7,
  "num_experts_per_tok": 3, "moe_intermediate_size": 10, "shared_expert_intermediate_size": 13
}"#;

/// A tensor to be written.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub dtype: Dtype,
    pub bytes: Vec<u8>,
}

impl Tensor {
    pub fn new(name: &str, shape: &[usize], dtype: Dtype, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|&value| encode(dtype, value)).collect();
        Self { name: name.into(), shape: shape.into(), dtype, bytes }
    }

    /// Overwrites one element.
    pub fn set(&mut self, flat: usize, value: f32) {
        let bytes = encode(self.dtype, value);
        let width = bytes.len();
        self.bytes[flat * width..(flat + 1) * width].copy_from_slice(&bytes);
    }
}

fn encode(dtype: Dtype, value: f32) -> Vec<u8> {
    match dtype {
        Dtype::BF16 => bf16::from_f32(value).to_le_bytes().into(),
        Dtype::F16 => f16::from_f32(value).to_le_bytes().into(),
        Dtype::F32 => value.to_le_bytes().into(),
        other => panic!("no test writes {other}"),
    }
}

/// Numbers in [-1, 1) from a linear congruential generator (Knuth's MMIX constants).
pub struct Lcg(pub u64);

impl Lcg {
    pub fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 40) as f32 / (1 << 23) as f32) - 1.0
    }

    pub fn matrix(&mut self, rows: usize, columns: usize) -> Array2<f32> {
        Array2::from_shape_simple_fn((rows, columns), || self.next())
    }
}

/// Every tensor of the model, random, in census order.
pub fn random_tensors(config: &str, dtype: Dtype) -> Vec<Tensor> {
    let config = spec::config_file::parse(Path::new("config.json"), config).unwrap();
    let mut random = Lcg(37);
    let tensor = |expected: census::Expected| {
        let count: usize = expected.shape.iter().product();
        let scale = 2.0 / (*expected.shape.last().unwrap() as f32).sqrt();
        let mut value = || match expected.role {
            Role::Norm => 1.0 + 0.3 * random.next(),
            Role::SelectionBias => 0.5 * random.next(),
            _ => scale * random.next(),
        };
        let values: Vec<f32> = (0..count).map(|_| value()).collect();
        Tensor::new(&expected.name, &expected.shape, dtype, &values)
    };
    census::expected(&config).into_iter().map(tensor).collect()
}

/// A folder with `config.json`.
pub fn folder(config: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    dir
}

pub fn write_shard(dir: &Path, file: &str, tensors: &[Tensor]) {
    let view = |t: &Tensor| TensorView::new(t.dtype, t.shape.clone(), &t.bytes).map(|v| v.data().to_vec());
    assert!(tensors.iter().all(|t| view(t).is_ok()), "shapes fit the bytes");
    let views = tensors.iter().map(|t| {
        (t.name.clone(), TensorView::new(t.dtype, t.shape.clone(), &t.bytes).expect("checked above"))
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(dir.join(file), bytes).unwrap();
}

pub fn write_index(dir: &Path, places: &[(&str, &str)]) {
    let map: BTreeMap<&str, &str> = places.iter().copied().collect();
    let text = serde_json::json!({ "metadata": { "total_size": 0 }, "weight_map": map }).to_string();
    std::fs::write(dir.join("model.safetensors.index.json"), text).unwrap();
}

/// A sound checkpoint in one file.
pub fn tiny(dtype: Dtype) -> TempDir {
    let dir = folder(TINY);
    write_shard(dir.path(), "model.safetensors", &random_tensors(TINY, dtype));
    dir
}

pub fn open(dir: &Path) -> Reference {
    Reference::open(dir, Options::default()).unwrap()
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// The trained checkpoint.
pub fn trained() -> PathBuf {
    fixtures().join("kolibri-tiny-kjv")
}

/// `len` bytes of the held-out text from `start` on, as tokens.
pub fn held_out(name: &str, start: usize, len: usize) -> Case {
    let text = std::fs::read(fixtures().join("texts/kjv-heldout.txt")).unwrap();
    let tokens = text[start..start + len].iter().map(|&byte| TokenId(u32::from(byte))).collect();
    Case::new(name, tokens).unwrap()
}

/// `len` tokens below `vocabulary`, from a seed.
pub fn random_case(len: usize, vocabulary: u32, seed: u64) -> Case {
    let mut random = Lcg(seed);
    let mut token = || TokenId(((random.next() + 1.0) * 0.5 * vocabulary as f32) as u32 % vocabulary);
    Case::new(format!("random-{seed}"), (0..len).map(|_| token()).collect()).unwrap()
}

pub fn free(case: &Case, precision: Precision) -> Run<'_> {
    Run { case, schedule: Schedule::chunks_of(64), routing: Routing::Free, precision }
}

pub fn forced<'a>(case: &'a Case, choices: &'a Choices, precision: Precision) -> Run<'a> {
    Run { routing: Routing::Forced(choices), ..free(case, precision) }
}

type Key = (usize, Option<LayerId>, Site);

/// Keeps the rows of the sites it wants, and refuses rows that come twice, late or out of order.
#[derive(Default)]
pub struct Keep {
    wanted: Vec<Site>,
    rows: BTreeMap<Key, (usize, Vec<f32>)>,
    pub layers_done: Vec<LayerId>,
}

impl Keep {
    pub fn all() -> Self {
        Self::only(&Site::ALL)
    }

    pub fn only(sites: &[Site]) -> Self {
        Self { wanted: sites.into(), ..Self::default() }
    }

    /// All rows of a site, `[T, width]`.
    pub fn get(&self, run: usize, layer: Option<usize>, site: Site) -> Array2<f32> {
        let (rows, values) = &self.rows[&(run, layer.map(LayerId), site)];
        Array2::from_shape_vec((*rows, values.len() / rows), values.clone()).unwrap()
    }

    /// Everything of one run, as bits.
    pub fn bits(&self, run: usize) -> BTreeMap<(Option<LayerId>, Site), Vec<u32>> {
        let of_run = self.rows.iter().filter(|((r, _, _), _)| *r == run);
        of_run.map(|(&(_, layer, site), (_, values))| ((layer, site), bits(values))).collect()
    }

    pub fn keys(&self) -> Vec<Key> {
        self.rows.keys().copied().collect()
    }

    pub fn row_count(&self, key: Key) -> usize {
        self.rows[&key].0
    }
}

pub fn bits<'a>(values: impl IntoIterator<Item = &'a f32>) -> Vec<u32> {
    values.into_iter().map(|value| value.to_bits()).collect()
}

impl Recorder for Keep {
    fn wants(&self, _run: usize, _layer: Option<LayerId>, site: Site) -> bool {
        self.wanted.contains(&site)
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        assert!(self.wanted.contains(&at.site), "{at:?} was not asked for");
        assert!(at.layer.is_none_or(|layer| !self.layers_done.contains(&layer)), "{at:?} comes late");
        assert_eq!(at.rows.len(), rows.nrows(), "{at:?}");
        let (count, values) = self.rows.entry((at.run, at.layer, at.site)).or_default();
        assert_eq!(*count, at.rows.start, "{at:?} comes after {count} rows");
        *count = at.rows.end;
        values.extend(rows.iter());
        Ok(())
    }

    fn layer_done(&mut self, layer: LayerId) -> Result<()> {
        self.layers_done.push(layer);
        Ok(())
    }
}

/// The golden outputs of the trained checkpoint on the first 256 held-out bytes.
pub struct Golden(Vec<u8>);

impl Golden {
    pub fn read() -> Self {
        Self(std::fs::read(fixtures().join("golden/kolibri-tiny-kjv.safetensors")).unwrap())
    }

    /// A tensor as f64.
    pub fn get(&self, name: &str) -> Array2<f64> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = tensors.tensor(name).unwrap();
        let number = |four: &[u8; 4]| match tensor.dtype() {
            Dtype::F32 => f64::from(f32::from_le_bytes(*four)),
            Dtype::I32 => f64::from(i32::from_le_bytes(*four)),
            other => panic!("{name} is {other}"),
        };
        let values: Vec<f64> = tensor.data().as_chunks().0.iter().map(number).collect();
        let columns = tensor.shape().get(1).copied().unwrap_or(1);
        Array2::from_shape_vec((tensor.shape()[0], columns), values).unwrap()
    }
}

/// `|a - b| / |b|` over all elements, in f64.
pub fn relative_l2(a: &Array2<f32>, b: &Array2<f64>) -> f64 {
    assert_eq!(a.dim(), b.dim());
    let difference: f64 = a.iter().zip(b).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
    let size: f64 = b.iter().map(|b| b.powi(2)).sum();
    (difference / size).sqrt()
}
