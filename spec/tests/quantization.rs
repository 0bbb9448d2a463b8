//! The blocks of `config.json` that say how a build's matrices are stored (K4).

use rstest::rstest;
use serde_json::{Value, json};
use spec::{Affine, Error, ModelConfig, config_file};
use std::path::Path;

/// The committed checkpoint's config with keys added.
fn with(keys: &Value) -> spec::Result<ModelConfig> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/kolibri-tiny-kjv/config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(dir).unwrap()).unwrap();
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    config_file::parse(Path::new("here/config.json"), &config.to_string())
}

#[test]
fn a_config_without_a_block_says_that_nothing_is_packed() {
    let quantization = with(&json!({})).unwrap().quantization;
    assert_eq!(quantization.affine("lm_head"), None);
    assert_eq!(quantization.fp8_block, [128, 128]);
}

#[rstest]
#[case::one_name(json!({"quantization": {"group_size": 64, "bits": 4}}))]
#[case::with_its_copy(json!({
    "quantization": {"group_size": 64, "bits": 4, "mode": "affine"},
    "quantization_config": {"group_size": 64, "bits": 4, "mode": "affine"},
}))]
#[case::the_copy_alone(json!({"quantization_config": {"group_size": 64, "bits": 4}}))]
fn the_block_that_mlx_lm_writes_is_read_under_either_name(#[case] keys: Value) {
    let quantization = with(&keys).unwrap().quantization;
    assert_eq!(quantization.affine("model.layers.3.self_attn.q_proj"), Some(Affine { bits: 4, group: 64 }));
}

#[test]
fn a_module_named_in_the_block_has_its_own_packing() {
    let block = json!({"quantization": {
        "group_size": 64, "bits": 4, "lm_head": {"group_size": 32, "bits": 6}, "model.embed_tokens": false,
    }});
    let quantization = with(&block).unwrap().quantization;
    assert_eq!(quantization.affine("lm_head"), Some(Affine { bits: 6, group: 32 }));
    assert_eq!(quantization.affine("model.embed_tokens"), None);
    assert_eq!(quantization.affine("model.norm"), Some(Affine { bits: 4, group: 64 }));
}

#[test]
fn an_fp8_block_of_another_size_is_read() {
    let block = json!({"quantization_config": {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [64, 32],
    }});
    let quantization = with(&block).unwrap().quantization;
    assert_eq!((quantization.fp8_block, quantization.affine), ([64, 32], None));
}

#[rstest]
#[case::mode(
    json!({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}),
    "mode", "\"affine\"", "mxfp4"
)]
#[case::method(
    json!({"quantization_config": {"quant_method": "gptq", "bits": 4}}),
    "quant_method", "fp8", "gptq"
)]
#[case::bits(json!({"quantization": {"group_size": 32, "bits": 9}}), "bits", "2 to 8", "9")]
#[case::no_bits(json!({"quantization": {"group_size": 32}}), "bits", "whole number", "no such key")]
#[case::group(json!({"quantization": {"group_size": 0, "bits": 4}}), "group_size", "at least 1", "0")]
#[case::unknown(
    json!({"quantization": {"group_size": 32, "bits": 4, "kind": 1}}), "kind", "no such key", "not known"
)]
#[case::module(
    json!({"quantization": {"group_size": 32, "bits": 4, "lm_head": 7}}), "lm_head", "or false", "7"
)]
#[case::two_blocks(
    json!({"quantization": {"group_size": 32, "bits": 4}, "quantization_config": {"quant_method": "fp8"}}),
    "quantization", "one block", "another"
)]
#[case::block_size(
    json!({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}}),
    "weight_block_size", "two whole numbers", "[128]"
)]
fn a_block_that_cannot_be_run_is_refused_with_what_is_supported(
    #[case] keys: Value,
    #[case] key: &str,
    #[case] expected: &str,
    #[case] found: &str,
) {
    let error = with(&keys).unwrap_err();
    assert!(matches!(&error, Error::Config { key: named, .. } if named == key), "{error}");
    let words = error.to_string();
    assert!(words.contains(expected) && words.contains(found), "{words}");
}
