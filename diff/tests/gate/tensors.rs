//! The tensors of the fake port, and the refusal of a checkpoint that lacks one.

use spec::Error;
use std::collections::BTreeMap;

/// What a checkpoint that lacks a tensor is refused with.
pub fn no_such_tensor() -> Error {
    Error::Tensor {
        path: "edited".into(),
        name: "model.norm.weight".into(),
        expected: "shape [2]".into(),
        found: "no such tensor".into(),
        next: "restore it".into(),
    }
}

/// All of a port, by name.
pub fn tensors() -> BTreeMap<String, Vec<f32>> {
    let mut all =
        BTreeMap::from([("lm_head.weight".into(), vec![0.5; 6]), ("model.norm.weight".into(), vec![1.0; 2])]);
    for layer in 0..2 {
        let mut put =
            |name: &str, values: &[f32]| all.insert(format!("model.layers.{layer}.{name}"), values.to_vec());
        put("input_layernorm.weight", &[1.0, 1.0]);
        put("post_attn_norm.weight", &[3.0, 4.0]);
        put("self_attn.q_norm.weight", &[1.0, 1.0]);
        put("self_attn.k_norm.weight", &[1.0, 1.0]);
        put("post_attention_layernorm.weight", &[1.0, 1.0]);
        put("post_ffn_norm.weight", &[1.0, 0.0]);
        put("moe.router.expert_bias", &[0.0, 0.5, 0.0, 0.0]);
    }
    all
}
