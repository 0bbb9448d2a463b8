//! What a bug needs to be able to show itself: of a checkpoint that has it not, a table says *not exercised*,
//! never *caught* or *missed*.

use spec::{LayerKind, ModelConfig};

/// A feature of a checkpoint, a text or a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// More tokens than a sliding layer's window.
    PastWindow,
    /// More tokens than one prefill call takes.
    SecondCall,
    /// A prefill call that begins when more tokens have passed than a rotating cache keeps for it.
    CallPastWindow,
    /// More than 256 tokens: positions that bf16 does not hold.
    Past256,
    /// Several sequences in one call.
    Batch,
    /// A selection bias that is not zero.
    NonzeroBias,
    /// A selection bias stored in a type wider than BF16.
    WideBias,
    /// A layer that sees everything and does not rotate.
    FullLayer,
    /// Heads of another width than hidden size over heads.
    HeadsOtherThanHidden,
    /// Several query heads to a key-value head, and several of those.
    GroupedHeads,
    /// Expert matrices that are square.
    SquareExpert,
    /// A shared expert as wide as the routed ones.
    EqualWidths,
    /// A RoPE base other than 10000.
    OtherRopeBase,
    /// A scale of the routed weights other than 1.
    RouteScale,
    /// Routed weights that are not divided by their sum anyway.
    RawWeights,
    /// More than ten experts, whose ids sort otherwise as strings.
    TwoDigitExperts,
    /// Matrices that are not packed.
    Plain,
    /// Matrices that MLX's affine quantiser packed.
    Packed,
    /// Matrices in FP8.
    Fp8,
}

/// What there is.
#[derive(Debug, Clone, Copy)]
pub struct Occasion<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// Tokens of the sequence.
    pub tokens: usize,
    /// Tokens per prefill call.
    pub chunk: usize,
    /// Whether several sequences go through together.
    pub batch: bool,
    /// Whether some selection bias is not zero.
    pub nonzero_bias: bool,
    /// Whether some selection bias is not a bf16 number.
    pub wide_bias: bool,
}

impl Need {
    /// In words, after "needs".
    pub fn words(self) -> &'static str {
        match self {
            Need::PastWindow => "more tokens than the window",
            Need::SecondCall => "more tokens than one prefill call takes",
            Need::CallPastWindow => "a prefill call that begins a window or more after the first token",
            Need::Past256 => "more than 256 tokens",
            Need::Batch => "several sequences in one call",
            Need::NonzeroBias => "a selection bias that is not zero",
            Need::WideBias => "a selection bias that is not a bf16 number",
            Need::FullLayer => "a full layer",
            Need::HeadsOtherThanHidden => "heads of another width than hidden size over heads",
            Need::GroupedHeads => "several key-value heads, each of several query heads",
            Need::SquareExpert => "square expert matrices",
            Need::EqualWidths => "a shared expert as wide as the routed ones",
            Need::OtherRopeBase => "a RoPE base other than 10000",
            Need::RouteScale => "a scale of routed weights other than 1",
            Need::RawWeights => "routed weights that are not renormalised anyway",
            Need::TwoDigitExperts => "more than ten experts",
            Need::Plain => "matrices that are not packed",
            Need::Packed => "matrices that MLX's affine quantiser packed",
            Need::Fp8 => "matrices in FP8",
        }
    }

    /// Whether it is there.
    pub fn is_met(self, occasion: &Occasion<'_>) -> bool {
        let config = occasion.config;
        match self {
            Need::PastWindow => config.sliding_window.is_some_and(|window| occasion.tokens > window),
            Need::SecondCall => occasion.tokens > occasion.chunk,
            Need::CallPastWindow => {
                let last = occasion.tokens.saturating_sub(1) / occasion.chunk * occasion.chunk;
                config.sliding_window.is_some_and(|window| last >= window)
            }
            Need::Past256 => occasion.tokens > 257,
            Need::Batch => occasion.batch,
            Need::NonzeroBias => occasion.nonzero_bias,
            Need::WideBias => occasion.wide_bias,
            Need::FullLayer => config.layer_ids().any(|layer| config.kind(layer) == LayerKind::Full),
            Need::HeadsOtherThanHidden => config.head_dim * config.num_heads != config.hidden_size,
            Need::GroupedHeads => config.num_kv_heads > 1 && config.num_heads > config.num_kv_heads,
            Need::SquareExpert => config.hidden_size == config.expert_width,
            Need::EqualWidths => config.shared_width == config.expert_width,
            Need::OtherRopeBase => config.rope_theta != 10_000.0,
            Need::RouteScale => config.route_scale != 1.0,
            Need::RawWeights => !config.renormalise_topk,
            Need::TwoDigitExperts => config.num_experts > 10,
            Need::Plain => config.quantization.affine.is_none() && !config.quantization.fp8,
            Need::Packed => config.quantization.affine.is_some(),
            Need::Fp8 => config.quantization.fp8,
        }
    }
}
