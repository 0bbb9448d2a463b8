//! Recorders, texts, and tiny random checkpoints for the port's tests.
#![allow(dead_code, reason = "each test file uses its own part")]

use half::bf16;
use ndarray::{Array2, ArrayView2};
use port::Port;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use spec::{
    At, Case, Executed, LayerId, ModelConfig, Precision, Recorder, Result, Routing, Run, Schedule, Side,
    Site, TokenId,
};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The folder of the committed data.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// The trained checkpoint: 10 layers, window 33, 32 experts, top-4.
pub fn kjv(precision: Precision) -> Port {
    Port::load(&fixtures().join("kolibri-tiny-kjv"), precision).unwrap()
}

/// The first `len` bytes of the held-out text.
pub fn kjv_text(len: usize) -> Case {
    let bytes = std::fs::read(fixtures().join("texts/kjv-heldout.txt")).unwrap();
    Case::new("kjv", bytes[..len].iter().map(|&b| TokenId(b.into())).collect()).unwrap()
}

/// All rows of the wanted sites of run 0.
pub struct Rows {
    wanted: Vec<Site>,
    /// Values by layer and site, `[T, width]` in C order.
    pub rows: HashMap<(Option<LayerId>, Site), Vec<f32>>,
    next: HashMap<(Option<LayerId>, Site), usize>,
}

impl Rows {
    pub fn of(wanted: &[Site]) -> Self {
        Self { wanted: wanted.into(), rows: HashMap::new(), next: HashMap::new() }
    }

    pub fn at(&self, layer: usize, site: Site) -> &[f32] {
        &self.rows[&(Some(LayerId(layer)), site)]
    }

    pub fn outer(&self, site: Site) -> &[f32] {
        &self.rows[&(None, site)]
    }

    /// One site as a matrix of `width` columns.
    pub fn matrix(&self, layer: Option<usize>, site: Site, width: usize) -> Array2<f32> {
        let rows = &self.rows[&(layer.map(LayerId), site)];
        Array2::from_shape_vec((rows.len() / width, width), rows.clone()).unwrap()
    }

    /// The sites whose bits differ between two recordings; the same sites must be in both.
    pub fn differing(&self, other: &Rows) -> Vec<(Option<LayerId>, Site)> {
        assert!(!self.rows.is_empty());
        assert_eq!(self.rows.len(), other.rows.len());
        let bits = |rows: &[f32]| rows.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let differs = |key: &&(Option<LayerId>, Site)| bits(&self.rows[*key]) != bits(&other.rows[*key]);
        self.rows.keys().filter(differs).copied().collect()
    }
}

impl Recorder for Rows {
    fn wants(&self, _run: usize, _layer: Option<LayerId>, site: Site) -> bool {
        self.wanted.contains(&site)
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        let key = (at.layer, at.site);
        let next = self.next.entry(key).or_insert(0);
        assert_eq!(*next, at.rows.start, "rows of {} come in order, each once", at.site);
        *next = at.rows.end;
        assert_eq!(rows.nrows(), at.rows.len());
        self.rows.entry(key).or_default().extend(rows.iter());
        Ok(())
    }
}

pub fn run<'a>(case: &'a Case, schedule: Schedule, routing: Routing<'a>, precision: Precision) -> Run<'a> {
    Run { case, schedule, routing, precision }
}

/// One forward pass with every site recorded.
pub fn forward(port: &Port, run: Run<'_>) -> (Executed, Rows) {
    let mut rows = Rows::of(&Site::ALL);
    let executed = port.forward(&[run], &mut rows).unwrap().remove(0);
    (executed, rows)
}

/// `|a - b| / |b|`, in f64.
pub fn relative_l2(a: &[f32], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    assert!(!a.is_empty());
    let error: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
    let size: f64 = b.iter().map(|b| b.powi(2)).sum();
    (error / size).sqrt()
}

pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| x.into()).collect()
}

/// Numbers in -1..1 from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn number(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.number()).collect()
    }
}

/// One tensor of a checkpoint file.
#[derive(Clone)]
pub struct Stored {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Stored {
    pub fn bf16(shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
        Self { dtype: Dtype::BF16, shape: shape.into(), bytes }
    }

    pub fn f32(shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self { dtype: Dtype::F32, shape: shape.into(), bytes }
    }
}

pub type Checkpoint = BTreeMap<String, Stored>;

/// H 12, 4 query and 2 key-value heads of 6, 11 tokens, top-3 of 12 experts of 7 (enough for numeric and
/// string order to differ), shared 9, a sliding layer (window 3) and a full one.
pub const TINY_CONFIG: &str = r#"{
    "model_type": "kolibri1", "hidden_act": "silu", "hidden_size": 12, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 11, "rms_norm_eps": 1e-6,
    "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"], "rope_theta": 5000.0,
    "num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 7,
    "shared_expert_intermediate_size": 9, "norm_topk_prob": true
}"#;

/// Random BF16 tensors for [`TINY_CONFIG`], the selection bias in F32.
pub fn tiny() -> Checkpoint {
    let mut random = Random(5);
    let mut all = Checkpoint::new();
    let mut add = |name: String, shape: &[usize]| {
        let values = random.numbers(shape.iter().product());
        all.insert(name, Stored::bf16(shape, &values));
    };
    add("model.embed_tokens.weight".into(), &[11, 12]);
    add("lm_head.weight".into(), &[11, 12]);
    add("model.norm.weight".into(), &[12]);
    for layer in 0..2 {
        let p = format!("model.layers.{layer}");
        for norm in ["input_layernorm", "post_attn_norm", "post_attention_layernorm", "post_ffn_norm"] {
            add(format!("{p}.{norm}.weight"), &[12]);
        }
        for (part, shape) in [("q", [24, 12]), ("k", [12, 12]), ("v", [12, 12]), ("o", [12, 24])] {
            add(format!("{p}.self_attn.{part}_proj.weight"), &shape);
        }
        add(format!("{p}.self_attn.q_norm.weight"), &[6]);
        add(format!("{p}.self_attn.k_norm.weight"), &[6]);
        add(format!("{p}.mlp.gate.weight"), &[12, 12]);
        let mut ffn = |prefix: String, width: usize| {
            add(format!("{prefix}.gate_proj.weight"), &[width, 12]);
            add(format!("{prefix}.up_proj.weight"), &[width, 12]);
            add(format!("{prefix}.down_proj.weight"), &[12, width]);
        };
        (0..12).for_each(|expert| ffn(format!("{p}.mlp.experts.{expert}"), 7));
        ffn(format!("{p}.mlp.shared_experts"), 9);
    }
    for layer in 0..2 {
        let bias = random.numbers(12);
        all.insert(format!("model.layers.{layer}.moe.router.expert_bias"), Stored::f32(&[12], &bias));
    }
    all
}

/// Writes `config.json` and one `model.safetensors`.
pub fn write(dir: &Path, checkpoint: &Checkpoint) {
    std::fs::write(dir.join("config.json"), TINY_CONFIG).unwrap();
    write_file(&dir.join("model.safetensors"), checkpoint);
}

pub fn write_file(path: &Path, checkpoint: &Checkpoint) {
    let view = |t: &Stored| {
        let bytes: &[u8] = Box::leak(t.bytes.clone().into_boxed_slice());
        TensorView::new(t.dtype, t.shape.clone(), bytes).unwrap()
    };
    let views: Vec<_> = checkpoint.iter().map(|(name, t)| (name.clone(), view(t))).collect();
    safetensors::serialize_to_file(views, None, path).unwrap();
}

/// Writes two shards and their index; tensors go to the first or the second in turn.
pub fn write_shards(dir: &Path, checkpoint: &Checkpoint) {
    std::fs::write(dir.join("config.json"), TINY_CONFIG).unwrap();
    let shard = |number: usize| format!("model-{number:05}-of-00002.safetensors");
    let mut homes = BTreeMap::new();
    let mut shards = [Checkpoint::new(), Checkpoint::new()];
    for (i, (name, tensor)) in checkpoint.iter().enumerate() {
        homes.insert(name.clone(), shard(i % 2 + 1));
        shards[i % 2].insert(name.clone(), tensor.clone());
    }
    write_file(&dir.join(shard(1)), &shards[0]);
    write_file(&dir.join(shard(2)), &shards[1]);
    let index = serde_json::json!({"metadata": {"total_size": 0}, "weight_map": homes});
    std::fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

/// A tensor of the golden outputs (transformers in f32) as f64.
pub fn golden(name: &str) -> Vec<f64> {
    let bytes = std::fs::read(fixtures().join("golden/kolibri-tiny-kjv.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = file.tensor(name).unwrap();
    let words = tensor.data().chunks_exact(4).map(|w| <[u8; 4]>::try_from(w).unwrap());
    match tensor.dtype() {
        Dtype::F32 => words.map(|w| f32::from_le_bytes(w).into()).collect(),
        Dtype::I32 => words.map(|w| i32::from_le_bytes(w).into()).collect(),
        other => panic!("{name} is {other:?}"),
    }
}

pub fn layers(config: &ModelConfig) -> std::ops::Range<usize> {
    0..config.num_layers()
}
