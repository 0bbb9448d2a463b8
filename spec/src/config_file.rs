//! Reads `config.json` (K1) and refuses what the forward pass does not cover (K2).
//!
//! Every key is used, or listed as known to have no effect; any other key is an error, because a key that
//! nobody read may be one that changes arithmetic.

use crate::config::{HeadDtype, NormPlacement, QkNorm, RopeOn, RouterScore, SelectionBias, SharedExpert};
use crate::keys::{Keys, SIZE_MAX};
use crate::quantization;
use crate::unique_json::UniqueMap;
use crate::{Error, LayerKind, ModelConfig, Result};
use serde_json::{Map, Value};
use std::path::Path;

/// No real model comes near these; lists of tensors and choices are as long as they say.
const LAYERS_MAX: usize = 1024;
const EXPERTS_MAX: usize = 4096;
/// Experts of all layers together (the released model: 19 200).
const LAYER_EXPERTS_MAX: usize = 1 << 18;

/// Reads and checks `dir/config.json`. Errors: [`Error::Io`], [`Error::Config`] naming key and value.
pub fn read(dir: &Path) -> Result<ModelConfig> {
    let path = dir.join("config.json");
    let next = "name a folder that holds a checkpoint with its config.json";
    let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path, next))?;
    parse(&path, &text)
}

/// Checks the text of a `config.json`; `path` only appears in messages. Errors: [`Error::Config`].
pub fn parse(path: &Path, text: &str) -> Result<ModelConfig> {
    let UniqueMap(map) = serde_json::from_str(text).map_err(|e| Error::Config {
        path: path.into(),
        key: "(whole file)".into(),
        expected: "a JSON object with each key once".into(),
        found: e.to_string(),
        next: "restore the config.json that came with the checkpoint".into(),
    })?;
    let keys = Keys::new(path, map);
    let config = model(&keys)?;
    keys.refuse_unread()?;
    Ok(config)
}

fn model(keys: &Keys) -> Result<ModelConfig> {
    keys.only("model_type", "kolibri1")?;
    keys.only("hidden_act", "silu")?;
    keys.only_if_present("head_dtype", &Value::from("float32"))?;
    keys.only_if_present("attention_bias", &Value::from(false))?;
    keys.only_if_present("tie_word_embeddings", &Value::from(false))?;
    keys.only_if_present("use_sliding_window", &Value::from(true))?;
    keys.only_if_present("rope_scaling", &Value::Null)?;
    let layers = layer_kinds(keys)?;
    let config = ModelConfig {
        hidden_size: keys.size("hidden_size")?,
        num_heads: keys.size("num_attention_heads")?,
        num_kv_heads: keys.size("num_key_value_heads")?,
        head_dim: keys.size("head_dim")?,
        vocab_size: keys.size("vocab_size")?,
        rms_norm_eps: keys.positive("rms_norm_eps")?,
        sliding_window: window(keys, &layers)?,
        rope_theta: rope_theta(keys)?,
        num_experts: num_experts(keys)?,
        experts_per_token: keys.size("num_experts_per_tok")?,
        expert_width: keys.size("moe_intermediate_size")?,
        shared_width: keys.size("shared_expert_intermediate_size")?,
        renormalise_topk: keys.flag("norm_topk_prob")?.unwrap_or(false),
        max_positions: keys
            .get("max_position_embeddings")
            .map(|_| keys.size("max_position_embeddings"))
            .transpose()?,
        declared_dtype: declared_dtype(keys)?,
        layers,
        router_score: RouterScore::Sigmoid,
        selection_bias: SelectionBias::OnLogit,
        route_scale: 1.0,
        shared_expert: SharedExpert::Ungated,
        qk_norm: QkNorm::PerHeadBeforeRope,
        rope_on: RopeOn::SlidingLayers,
        norm_placement: NormPlacement::Sandwich,
        head_dtype: HeadDtype::F32,
        quantization: quantization::read(keys)?,
    };
    consistent(keys, &config)?;
    Ok(config)
}

/// Relations between keys that no single key shows.
fn consistent(keys: &Keys, config: &ModelConfig) -> Result<()> {
    let (nq, nkv) = (config.num_heads, config.num_kv_heads);
    if !nq.is_multiple_of(nkv) {
        return Err(keys.refuse("num_key_value_heads", format!("a divisor of the {nq} query heads"), nkv));
    }
    if (nq * config.head_dim) as u64 > SIZE_MAX {
        let found = format!("{nq}, with a head_dim of {}", config.head_dim);
        return Err(keys.refuse(
            "num_attention_heads",
            format!("at most {SIZE_MAX} values in all heads"),
            found,
        ));
    }
    if !config.head_dim.is_multiple_of(2) {
        return Err(keys.refuse("head_dim", "an even number (RoPE pairs j with j + D/2)", config.head_dim));
    }
    if config.experts_per_token > config.num_experts {
        let expected = format!("at most the {} experts", config.num_experts);
        return Err(keys.refuse("num_experts_per_tok", expected, config.experts_per_token));
    }
    let (layers, experts) = (config.num_layers(), config.num_experts);
    if layers > LAYERS_MAX {
        return Err(keys.refuse("num_hidden_layers", format!("at most {LAYERS_MAX} layers"), layers));
    }
    if experts > EXPERTS_MAX {
        return Err(keys.refuse("num_experts", format!("at most {EXPERTS_MAX} experts"), experts));
    }
    if layers * experts > LAYER_EXPERTS_MAX {
        let expected = format!("at most {LAYER_EXPERTS_MAX} experts in all layers together");
        return Err(keys.refuse("num_experts", expected, format!("{experts} in each of {layers} layers")));
    }
    Ok(())
}

fn layer_kinds(keys: &Keys) -> Result<Vec<LayerKind>> {
    let expected = "a list of \"sliding_attention\" and \"full_attention\"";
    let count = keys.size("num_hidden_layers")?;
    let Value::Array(words) = keys.need("layer_types", expected)? else {
        return Err(keys.refuse_value("layer_types", expected));
    };
    let kind = |(index, word): (usize, &Value)| match word.as_str() {
        Some("sliding_attention") => Ok(LayerKind::Sliding),
        Some("full_attention") => Ok(LayerKind::Full),
        _ => Err(keys.refuse("layer_types", expected, format!("{word} for layer {index}"))),
    };
    let kinds = words.iter().enumerate().map(kind).collect::<Result<Vec<_>>>()?;
    if kinds.len() != count {
        let expected = format!("{count} entries, as num_hidden_layers says");
        return Err(keys.refuse("layer_types", expected, format!("{} entries", kinds.len())));
    }
    Ok(kinds)
}

fn window(keys: &Keys, layers: &[LayerKind]) -> Result<Option<usize>> {
    let needed = layers.contains(&LayerKind::Sliding);
    match keys.get("sliding_window") {
        None | Some(Value::Null) if !needed => Ok(None),
        None => {
            Err(keys.refuse("sliding_window", "a positive number (some layers are sliding)", "no such key"))
        }
        Some(_) => keys.size("sliding_window").map(Some),
    }
}

fn num_experts(keys: &Keys) -> Result<usize> {
    let (old, new) = (keys.get("num_experts"), keys.get("num_local_experts"));
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        let found = format!("{old} beside num_local_experts {new}");
        return Err(keys.refuse("num_experts", "one count, or the same under both names", found));
    }
    keys.size(if new.is_some() { "num_local_experts" } else { "num_experts" })
}

fn rope_theta(keys: &Keys) -> Result<f64> {
    let flat = keys.get("rope_theta").map(|_| keys.positive("rope_theta")).transpose()?;
    let nested = match keys.get("rope_parameters") {
        None | Some(Value::Null) => None,
        Some(Value::Object(map)) => Some(nested_theta(keys, map)?),
        Some(_) => return Err(keys.refuse_value("rope_parameters", "an object")),
    };
    match (flat, nested) {
        (Some(flat), Some(nested)) if flat != nested => {
            let found = format!("{flat} beside {nested} in rope_parameters");
            Err(keys.refuse("rope_theta", "one base, or the same in both places", found))
        }
        (Some(theta), _) | (None, Some(theta)) => Ok(theta),
        (None, None) => {
            Err(keys.refuse("rope_theta", "a positive number, flat or in rope_parameters", "no such key"))
        }
    }
}

fn nested_theta(keys: &Keys, map: &Map<String, Value>) -> Result<f64> {
    let inner = keys.inside(map);
    inner.only_if_present("rope_type", &Value::from("default"))?;
    inner.only_if_present("type", &Value::from("default"))?;
    let theta = inner.positive("rope_theta")?;
    inner.refuse_unread()?;
    Ok(theta)
}

fn declared_dtype(keys: &Keys) -> Result<Option<String>> {
    let read = |key: &str| match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(word)) => Ok(Some(word.clone())),
        Some(_) => Err(keys.refuse_value(key, "the name of a dtype")),
    };
    let (dtype, torch_dtype) = (read("dtype")?, read("torch_dtype")?);
    if let (Some(a), Some(b)) = (&dtype, &torch_dtype)
        && a != b
    {
        return Err(keys.refuse(
            "dtype",
            "one dtype, or the same under both names",
            format!("{a} beside torch_dtype {b}"),
        ));
    }
    Ok(dtype.or(torch_dtype))
}
