//! `config.json`: both spellings of each key, every refusal of K2, and nothing read past.

use rstest::rstest;
use serde_json::{Value, json};
use spec::{Error, LayerId, LayerKind, ModelConfig, config_file};
use std::path::Path;

/// The released model's config, as K1 gives it (its layer pattern for six layers).
fn released() -> Value {
    json!({
        "model_type": "kolibri1", "hidden_size": 2560, "num_hidden_layers": 6, "num_attention_heads": 48,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 128_000, "rms_norm_eps": 1e-6,
        "hidden_act": "silu", "sliding_window": 513, "use_sliding_window": true,
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
                        "full_attention", "sliding_attention"],
        "num_experts": 384, "num_experts_per_tok": 6, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "norm_topk_prob": false, "attention_bias": false,
        "tie_word_embeddings": false, "head_dtype": "float32", "max_position_embeddings": 262_144,
        "rope_theta": 10000, "torch_dtype": "bfloat16",
    })
}

fn parse(config: &Value) -> spec::Result<ModelConfig> {
    config_file::parse(Path::new("here/config.json"), &config.to_string())
}

/// `released()` with keys set, or removed where the value is `"-"`.
fn edited(edits: &Value) -> Value {
    let mut config = released();
    let map = config.as_object_mut().unwrap();
    for (key, value) in edits.as_object().unwrap() {
        if value == "-" {
            map.remove(key);
        } else {
            map.insert(key.clone(), value.clone());
        }
    }
    config
}

#[test]
fn the_released_config_is_read_as_k1_states_it() {
    let config = parse(&released()).unwrap();
    let heads = (config.hidden_size, config.num_heads, config.num_kv_heads, config.head_dim);
    assert_eq!(heads, (2560, 48, 4, 128));
    assert_eq!((config.num_experts, config.experts_per_token, config.expert_width), (384, 6, 512));
    assert_eq!((config.vocab_size, config.shared_width, config.num_layers()), (128_000, 512, 6));
    assert_eq!((config.rms_norm_eps, config.rope_theta), (1e-6, 10_000.0));
    assert!(!config.renormalise_topk);
    assert_eq!(config.kind(LayerId(4)), LayerKind::Full);
    assert_eq!((config.window(LayerId(3)), config.window(LayerId(4))), (Some(513), None));
    assert_eq!((config.rotates(LayerId(3)), config.rotates(LayerId(4))), (true, false));
}

#[rstest]
#[case::experts(json!({"num_experts": "-", "num_local_experts": 384}))]
#[case::experts_twice_the_same(json!({"num_local_experts": 384}))]
#[case::rope_nested(
    json!({"rope_theta": "-", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})
)]
#[case::rope_in_both_places(json!({"rope_parameters": {"rope_theta": 10000}}))]
#[case::dtype(json!({"torch_dtype": "-", "dtype": "bfloat16"}))]
#[case::absences(json!({"head_dtype": "-", "attention_bias": "-", "use_sliding_window": "-",
    "norm_topk_prob": "-", "tie_word_embeddings": "-"}))]
#[case::without_effect(json!({"use_cache": true, "architectures": ["X"], "output_router_logits": false,
    "eos_token_id": [1, 2], "rope_scaling": null, "transformers_version": "5"}))]
fn other_spellings_mean_the_same(#[case] edits: Value) {
    assert_eq!(parse(&edited(&edits)).unwrap(), parse(&released()).unwrap());
}

#[rstest]
#[case("hidden_act", json!({"hidden_act": "gelu"}), "\"gelu\"")]
#[case("model_type", json!({"model_type": "qwen3_moe"}), "\"qwen3_moe\"")]
#[case("attention_bias", json!({"attention_bias": true}), "true")]
#[case("tie_word_embeddings", json!({"tie_word_embeddings": true}), "true")]
#[case("use_sliding_window", json!({"use_sliding_window": false}), "false")]
#[case("head_dtype", json!({"head_dtype": "bfloat16"}), "\"bfloat16\"")]
#[case("rope_scaling", json!({"rope_scaling": {"type": "yarn", "factor": 4}}), "yarn")]
#[case("rope_type", json!({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}), "\"yarn\"")]
#[case("factor", json!({"rope_parameters": {"rope_theta": 10000, "factor": 4}}), "4")]
#[case("rope_theta", json!({"rope_theta": "-"}), "no such key")]
#[case("rope_theta", json!({"rope_parameters": {"rope_theta": 5000}}), "10000 beside 5000")]
#[case("sliding_window", json!({"sliding_window": "-"}), "no such key")]
#[case("sliding_window", json!({"sliding_window": 0}), "0")]
#[case("sliding_window", json!({"sliding_window": -3}), "-3")]
#[case("sliding_window", json!({"sliding_window": null}), "null")]
#[case("layer_types", json!({"num_hidden_layers": 7}), "6 entries")]
#[case("layer_types", json!({"layer_types": "-"}), "no such key")]
#[case("layer_types", json!({"layer_types": ["full_attention", "chunked", "a", "b", "c", "d"]}), "layer 1")]
#[case("num_key_value_heads", json!({"num_key_value_heads": 5}), "5")]
#[case("num_experts", json!({"num_local_experts": 256}), "384 beside num_local_experts 256")]
#[case("num_experts", json!({"num_experts": "-"}), "no such key")]
#[case("num_experts_per_tok", json!({"num_experts_per_tok": 385}), "385")]
#[case("head_dim", json!({"head_dim": 127}), "127")]
#[case("num_attention_heads", json!({"num_attention_heads": 1 << 20}), "head_dim of 128")]
#[case("vocab_size", json!({"vocab_size": 1_u64 << 31}), "2147483648")]
#[case("hidden_size", json!({"hidden_size": 0}), "0")]
#[case("hidden_size", json!({"hidden_size": "2560"}), "\"2560\"")]
#[case("rms_norm_eps", json!({"rms_norm_eps": 0}), "0")]
#[case("rms_norm_eps", json!({"rms_norm_eps": 1e39}), "1e+39")]
#[case("rms_norm_eps", json!({"rms_norm_eps": 1e-50}), "1e-50")]
#[case("rope_theta", json!({"rope_theta": 1e39}), "1e+39")]
#[case("rope_theta", json!({"rope_theta": "-", "rope_parameters": {"rope_theta": 1e39}}), "1e+39")]
#[case("num_experts", json!({"num_experts": 4097}), "4097")]
#[case("num_hidden_layers",
    json!({"num_hidden_layers": 1025, "layer_types": vec!["full_attention"; 1025]}), "1025")]
#[case("num_experts",
    json!({"num_hidden_layers": 1024, "layer_types": vec!["full_attention"; 1024], "num_experts": 257}),
    "257 in each of 1024 layers")]
#[case("norm_topk_prob", json!({"norm_topk_prob": 1}), "1")]
#[case("dtype", json!({"dtype": "float16"}), "float16 beside torch_dtype bfloat16")]
#[case("attn_output_gate", json!({"attn_output_gate": true}), "true, a key that is not known")]
#[case("compression_config", json!({"compression_config": {}}), "a key that is not known")]
fn what_the_forward_pass_does_not_cover_is_refused(
    #[case] wrong_key: &str,
    #[case] edits: Value,
    #[case] value: &str,
) {
    let error = parse(&edited(&edits)).unwrap_err();
    let Error::Config { key, found, .. } = &error else { panic!("{error:?}") };
    assert_eq!(key, wrong_key, "{error}");
    assert!(found.contains(value), "{error}");
    assert!(error.to_string().starts_with("failed to read key `"), "{error}");
    assert!(error.to_string().contains("here/config.json"), "{error}");
}

#[test]
fn a_config_that_is_not_json_is_refused_with_its_place() {
    let error = config_file::parse(Path::new("config.json"), "{\"hidden_size\": 1,").unwrap_err();
    assert!(error.to_string().contains("line 1 column"), "{error}");
}

#[rstest]
#[case::flat("\"hidden_size\"", "\"rope_theta\": 10000, \"hidden_size\"", "key `rope_theta` twice")]
#[case::nested("\"hidden_size\"", "\"id2label\": [{\"a\": 1, \"a\": 1}], \"hidden_size\"", "key `a` twice")]
fn a_key_given_twice_is_refused(#[case] from: &str, #[case] to: &str, #[case] words: &str) {
    let text = released().to_string().replacen(from, to, 1);
    let error = config_file::parse(Path::new("config.json"), &text).unwrap_err();
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn a_model_without_sliding_layers_needs_no_window() {
    let kinds = vec!["full_attention"; 6];
    let config = parse(&edited(&json!({"layer_types": kinds, "sliding_window": "-"}))).unwrap();
    assert_eq!(config.window(LayerId(0)), None);
}

#[test]
fn the_census_of_the_released_shape_counts_what_k3_counts() {
    let kind = |i| if i % 5 == 4 { "full_attention" } else { "sliding_attention" };
    let kinds: Vec<&str> = (0..50).map(kind).collect();
    let config = parse(&edited(&json!({"num_hidden_layers": 50, "layer_types": kinds}))).unwrap();
    let tensors = spec::census::expected(&config);
    let parameters: usize = tensors.iter().map(|t| t.shape.iter().product::<usize>()).sum();
    assert_eq!(tensors.len(), 58_353);
    assert_eq!(parameters, 78_103_074_560);
    let names: std::collections::BTreeSet<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names.len(), tensors.len(), "each name once");
}
