//! What a checkpoint's `config.json` says, as types (K1, K2).
//!
//! What differs between families of mixture-of-experts models is data here, read once, so that no side
//! branches on a model's name. Enums with one variant are places where the next family adds one; each side
//! matches on them, so the compiler lists what has to learn about it.
//! Absent on purpose: reading the file ([`crate::config_file`]) and the list of tensors ([`crate::census`]).

use crate::LayerId;
use crate::quantization::Quantization;

/// Which keys a layer's queries see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// The last `sliding_window` keys, the query's own included; rotated (K10, K12).
    Sliding,
    /// All keys up to the query's own; not rotated (K11).
    Full,
}

impl std::fmt::Display for LayerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LayerKind::Sliding => "sliding",
            LayerKind::Full => "full",
        })
    }
}

/// From router logits to routing weights (K16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterScore {
    /// `sigmoid(logit)` of each selected expert.
    Sigmoid,
}

/// Where the per-expert selection bias enters (K15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectionBias {
    /// Added to the raw logit, for selection only.
    OnLogit,
}

/// The form of the expert that every token passes (K17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedExpert {
    /// Added as it is: no gate, no scale.
    Ungated,
}

/// Norms on queries and keys (K9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    /// RMSNorm over each head's `head_dim` values, one weight for all heads, before RoPE, in every layer.
    PerHeadBeforeRope,
}

/// Which layers rotate queries and keys (K10, K11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeOn {
    /// Sliding layers only.
    SlidingLayers,
}

/// Where a layer's norms sit (K6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormPlacement {
    /// One before and one after each branch, the latter before the residual add.
    Sandwich,
}

/// Arithmetic of the head (K18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadDtype {
    /// Logits in f32 from f32 operands.
    F32,
}

/// A checkpoint's configuration. Field docs give the key of `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// `hidden_size`, H.
    pub hidden_size: usize,
    /// `layer_types`, one per decoder layer.
    pub layers: Vec<LayerKind>,
    /// `num_attention_heads`, Nq.
    pub num_heads: usize,
    /// `num_key_value_heads`, Nkv; divides Nq.
    pub num_kv_heads: usize,
    /// `head_dim`, D.
    pub head_dim: usize,
    /// `vocab_size`, V.
    pub vocab_size: usize,
    /// `rms_norm_eps`, as written; each side rounds it to f32 itself.
    pub rms_norm_eps: f64,
    /// `sliding_window`, W, the query's own key included; `None` only where no layer is sliding.
    pub sliding_window: Option<usize>,
    /// `rope_theta`, flat or inside `rope_parameters`.
    pub rope_theta: f64,
    /// `num_experts` or `num_local_experts`, E.
    pub num_experts: usize,
    /// `num_experts_per_tok`, k.
    pub experts_per_token: usize,
    /// `moe_intermediate_size`, I.
    pub expert_width: usize,
    /// `shared_expert_intermediate_size`, S.
    pub shared_width: usize,
    /// `norm_topk_prob`: routing weights divided by their sum.
    pub renormalise_topk: bool,
    /// `max_position_embeddings`: longer input gets a printed warning.
    pub max_positions: Option<usize>,
    /// `dtype` or `torch_dtype`, as declared; the tensors' own dtypes decide.
    pub declared_dtype: Option<String>,
    /// Family: router score.
    pub router_score: RouterScore,
    /// Family: where the selection bias enters.
    pub selection_bias: SelectionBias,
    /// Family: factor on the routing weights; 1 for Kolibri-1 (K16).
    pub route_scale: f32,
    /// Family: shared expert.
    pub shared_expert: SharedExpert,
    /// Family: query and key norms.
    pub qk_norm: QkNorm,
    /// Family: which layers rotate.
    pub rope_on: RopeOn,
    /// Family: norm placement.
    pub norm_placement: NormPlacement,
    /// `head_dtype`.
    pub head_dtype: HeadDtype,
    /// `quantization`, `quantization_config`: how matrices may be stored.
    pub quantization: Quantization,
}

impl ModelConfig {
    /// Number of decoder layers, L.
    pub fn num_layers(&self) -> usize {
        self.layers.len()
    }

    /// Every layer's id, in order.
    pub fn layer_ids(&self) -> impl Iterator<Item = LayerId> + use<> {
        (0..self.layers.len()).map(LayerId)
    }

    /// The kind of one layer. Panics on a layer the model does not have.
    pub fn kind(&self, layer: LayerId) -> LayerKind {
        self.layers[layer.0]
    }

    /// How many keys a query of this layer sees at most: W in sliding layers, no bound in full ones (K12).
    pub fn window(&self, layer: LayerId) -> Option<usize> {
        match self.kind(layer) {
            LayerKind::Sliding => self.sliding_window,
            LayerKind::Full => None,
        }
    }

    /// Whether this layer rotates queries and keys (K10, K11).
    pub fn rotates(&self, layer: LayerId) -> bool {
        match self.rope_on {
            RopeOn::SlidingLayers => self.kind(layer) == LayerKind::Sliding,
        }
    }
}
