//! Edits of packed builds: what each does to words, scales and biases, and how a stack of experts is edited.
mod support;

use half::bf16;
use mutants::edit::{Edit, apply};
use mutants::{Facts, PortPlant, find};
use port::Port;
use port::convert::{Policy, convert};
use spec::{ExpertId, LayerId, Precision, Side, config_file};
use std::collections::BTreeMap;
use std::path::PathBuf;
use support::checkpoint;
use support::edited::{Tensors, read};
use tempfile::TempDir;

const O_PROJ: &str = "model.layers.0.self_attn.o_proj";
const LAST: &str = "model.layers.9.mlp.experts.7.down_proj";
const STACK: &str = "model.layers.9.mlp.switch_mlp.down_proj";

struct Built {
    _folder: TempDir,
    from: PathBuf,
    to: PathBuf,
}

/// The trained checkpoint packed at 4 bits, and an edited copy.
fn built(edits: impl FnOnce(&Facts<'_>) -> Vec<Edit>) -> Built {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("build"), folder.path().join("edited"));
    let policy = Policy { bits: 4, group: None, embedding: Some(4), head: Some(4) };
    convert(&checkpoint(), policy, &from, &|_| {}).unwrap();
    std::fs::create_dir(&to).unwrap();
    let config = config_file::read(&from).unwrap();
    let facts = Facts { config: &config, idle: (LayerId(9), ExpertId(7)) };
    apply(&from, &edits(&facts), &to).unwrap();
    Built { _folder: folder, from, to }
}

fn bug(id: &str) -> Built {
    let Some(PortPlant::Checkpoint(edits)) = find(id).unwrap().port else {
        panic!("{id} edits a checkpoint")
    };
    built(edits)
}

/// The names of tensors that differ.
fn changed(built: &Built) -> (Tensors, Tensors, Vec<String>) {
    let (before, after) = (read(&built.from), read(&built.to));
    let names = before.iter().filter(|(name, t)| after.get(*name) != Some(t)).map(|(name, _)| name.clone());
    let names = names.collect();
    (before, after, names)
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]]).to_f32()).collect()
}

/// Every tensor as the port holds it.
fn held(built: &Built) -> BTreeMap<String, Vec<f32>> {
    let mut all = BTreeMap::new();
    let port = Port::load(&built.to, Precision::F32).unwrap();
    port.tensors(&mut |name, values| {
        all.insert(name.to_owned(), values.to_vec());
        Ok(())
    })
    .unwrap();
    all
}

#[test]
fn reversed_codes_are_nibbles_from_the_other_end_of_each_word() {
    let (before, after, names) = changed(&bug("codes_reversed"));
    assert_eq!(names, [format!("{O_PROJ}.weight")]);
    let nibbles =
        |bytes: &[u8]| -> Vec<u8> { bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect() };
    let (before, after) = (nibbles(&before[&names[0]].2), nibbles(&after[&names[0]].2));
    for (before, after) in before.chunks(8).zip(after.chunks(8)) {
        assert!(before.iter().rev().eq(after));
    }
}

#[test]
fn a_negated_zero_point_is_every_bias_with_the_other_sign() {
    let (before, after, names) = changed(&bug("zero_point_negated"));
    assert_eq!(names, [format!("{O_PROJ}.biases")]);
    let negated: Vec<f32> = numbers(&before[&names[0]].2).iter().map(|bias| -bias).collect();
    assert_eq!(numbers(&after[&names[0]].2), negated);
}

#[test]
fn doubled_groups_read_the_scale_at_half_their_place() {
    let (before, after, names) = changed(&bug("group_size_doubled"));
    assert_eq!(names, [format!("{O_PROJ}.biases"), format!("{O_PROJ}.scales")]);
    for name in names {
        // two groups of 64 to a row of 128: both read the first
        let first: Vec<f32> = numbers(&before[&name].2).chunks(2).flat_map(|row| [row[0]; 2]).collect();
        assert_eq!(numbers(&after[&name].2), first, "{name}");
    }
}

#[test]
fn one_expert_of_a_stack_is_zero_and_the_others_are_what_they_were() {
    let built = bug("zeroed_idle_expert");
    let after = read(&built.to);
    assert!(!after.contains_key(&format!("{STACK}.weight")));
    let changed = held(&built);
    let same = held(&Built { to: built.from.clone(), ..bug("zeroed_idle_expert") });
    for (name, values) in &same {
        if *name == format!("{LAST}.weight") {
            assert!(
                changed[name].iter().all(|value| *value == 0.0) && values.iter().any(|value| *value != 0.0)
            );
        } else {
            assert!(changed[name] == *values, "{name}");
        }
    }
}

#[test]
fn exchanged_layers_take_their_scales_along() {
    let built = bug("layers_exchanged");
    let (changed, same) = (held(&built), held(&Built { to: built.from.clone(), ..bug("layers_exchanged") }));
    for name in ["self_attn.o_proj.weight", "mlp.experts.3.up_proj.weight", "post_ffn_norm.weight"] {
        assert!(changed[&format!("model.layers.0.{name}")] == same[&format!("model.layers.1.{name}")]);
        assert!(changed[&format!("model.layers.2.{name}")] == same[&format!("model.layers.2.{name}")]);
    }
}
