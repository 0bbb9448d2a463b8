//! The named points of the forward pass, in order, and the width of what each holds.

use crate::ModelConfig;

/// A named point of the forward pass. A row is one token; heads and experts are laid out along the row.
///
/// The order of the variants is the order in which one token passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Site {
    /// The embedding's row, `[T, H]` (K5). Of no layer.
    Embedding,
    /// `input_layernorm(h)`, `[T, H]` (K6).
    AttnNorm,
    /// Query projection, `[T, Nq*D]`, head-major (K8).
    Q,
    /// Key projection, `[T, Nkv*D]` (K8).
    K,
    /// Value projection, `[T, Nkv*D]` (K8).
    V,
    /// Queries after the per-head norm, `[T, Nq*D]` (K9).
    QNorm,
    /// Keys after the per-head norm, `[T, Nkv*D]` (K9).
    KNorm,
    /// Queries as attention takes them: rotated in sliding layers, equal to `q_norm` in full ones (K10, K11).
    QRope,
    /// Keys as attention takes them (K10, K11).
    KRope,
    /// Attention's output, `[T, Nq*D]` (K12, K13).
    AttnOut,
    /// Output projection, `[T, H]` (K8).
    OProj,
    /// The attention branch after `post_attn_norm`, as added to the residual, `[T, H]` (K6).
    AttnBranch,
    /// The residual after the attention branch, `[T, H]` (K6).
    AttnResidual,
    /// `post_attention_layernorm(h)`, the MoE's input, `[T, H]` (K6).
    MoeNorm,
    /// Router logits in f32, `[T, E]` (K14).
    RouterLogits,
    /// Selection scores: f32(logit + bias), as this side rounds them, `[T, E]` (K15).
    SelectionScores,
    /// The executed expert ids as f32, in executed order, `[T, k]`.
    Choice,
    /// What this side's own router chooses, `[T, k]`; equal to `choice` in a free run.
    ShadowChoice,
    /// The weights of the executed experts, aligned with `choice`, `[T, k]` (K16).
    TopkWeights,
    /// Each executed expert's output, unweighted, aligned with `choice`, `[T, k*H]` (K17).
    ExpertOut,
    /// The weighted sum over the routed experts, `[T, H]` (K17).
    Routed,
    /// The shared expert's gate projection, `[T, S]` (K17).
    SharedGate,
    /// The shared expert's up projection, `[T, S]` (K17).
    SharedUp,
    /// What the shared expert's down projection takes: `silu(gate) * up`, `[T, S]` (K17).
    SharedAct,
    /// The shared expert's output, `[T, H]` (K17).
    Shared,
    /// The MoE branch after `post_ffn_norm`, as added to the residual, `[T, H]` (K6).
    MoeBranch,
    /// The layer's output: the residual after the MoE branch, `[T, H]` (K6).
    LayerOut,
    /// The final norm's output, `[T, H]` (K18). Of no layer.
    FinalNorm,
    /// Logits in f32, `[T, V]` (K18). Of no layer.
    Logits,
}

impl Site {
    /// Every site, in order.
    pub const ALL: [Site; 29] = [
        Site::Embedding,
        Site::AttnNorm,
        Site::Q,
        Site::K,
        Site::V,
        Site::QNorm,
        Site::KNorm,
        Site::QRope,
        Site::KRope,
        Site::AttnOut,
        Site::OProj,
        Site::AttnBranch,
        Site::AttnResidual,
        Site::MoeNorm,
        Site::RouterLogits,
        Site::SelectionScores,
        Site::Choice,
        Site::ShadowChoice,
        Site::TopkWeights,
        Site::ExpertOut,
        Site::Routed,
        Site::SharedGate,
        Site::SharedUp,
        Site::SharedAct,
        Site::Shared,
        Site::MoeBranch,
        Site::LayerOut,
        Site::FinalNorm,
        Site::Logits,
    ];

    /// The name used in files, options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Site::Embedding => "embedding",
            Site::AttnNorm => "attn_norm",
            Site::Q => "q",
            Site::K => "k",
            Site::V => "v",
            Site::QNorm => "q_norm",
            Site::KNorm => "k_norm",
            Site::QRope => "q_rope",
            Site::KRope => "k_rope",
            Site::AttnOut => "attn_out",
            Site::OProj => "o_proj",
            Site::AttnBranch => "attn_branch",
            Site::AttnResidual => "attn_residual",
            Site::MoeNorm => "moe_norm",
            Site::RouterLogits => "router_logits",
            Site::SelectionScores => "selection_scores",
            Site::Choice => "choice",
            Site::ShadowChoice => "shadow_choice",
            Site::TopkWeights => "topk_weights",
            Site::ExpertOut => "expert_out",
            Site::Routed => "routed",
            Site::SharedGate => "shared_gate",
            Site::SharedUp => "shared_up",
            Site::SharedAct => "shared_act",
            Site::Shared => "shared",
            Site::MoeBranch => "moe_branch",
            Site::LayerOut => "layer_out",
            Site::FinalNorm => "final_norm",
            Site::Logits => "logits",
        }
    }

    /// The site of that name.
    pub fn from_name(name: &str) -> Option<Site> {
        Site::ALL.into_iter().find(|site| site.name() == name)
    }

    /// Whether every layer has one (all but `embedding`, `final_norm` and `logits`).
    pub fn is_per_layer(self) -> bool {
        !matches!(self, Site::Embedding | Site::FinalNorm | Site::Logits)
    }

    /// Values per row.
    pub fn width(self, config: &ModelConfig) -> usize {
        match self {
            Site::Q | Site::QNorm | Site::QRope | Site::AttnOut => config.num_heads * config.head_dim,
            Site::K | Site::V | Site::KNorm | Site::KRope => config.num_kv_heads * config.head_dim,
            Site::RouterLogits | Site::SelectionScores => config.num_experts,
            Site::Choice | Site::ShadowChoice | Site::TopkWeights => config.experts_per_token,
            Site::ExpertOut => config.experts_per_token * config.hidden_size,
            Site::SharedGate | Site::SharedUp | Site::SharedAct => config.shared_width,
            Site::Logits => config.vocab_size,
            _ => config.hidden_size,
        }
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
