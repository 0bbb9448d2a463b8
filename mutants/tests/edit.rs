//! Edited checkpoints: what is written anew, what is a link, and what the loaders make of it.
mod support;

use mutants::edit::{Edit, apply};
use mutants::{Facts, PortPlant, catalogue, find};
use port::Port;
use reference::Reference;
use rstest::rstest;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};
use spec::{Error, ExpertId, LayerId, Precision, Result, Side};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use support::{Feed, checkpoint, config, moved, port};
use tempfile::TempDir;

const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
const INDEX: &str = "model.safetensors.index.json";

/// Dtype, shape and bytes of every tensor.
type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn read(dir: &Path) -> Tensors {
    let shards = if dir.join(INDEX).is_file() { &SHARDS[..] } else { &["model.safetensors"] };
    let mut all = Tensors::new();
    for shard in shards {
        let bytes = std::fs::read(dir.join(shard)).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
            all.insert(name, (view.dtype(), view.shape().into(), view.data().into()));
        }
    }
    all
}

/// Layers 0 to 4 are in the first shard, all else in the second.
fn shard_of(name: &str) -> &'static str {
    SHARDS[usize::from(!(0..5).any(|layer| name.starts_with(&format!("model.layers.{layer}."))))]
}

/// The checkpoint in one file, or a copy of it in two.
fn original(sharded: bool) -> (PathBuf, Option<TempDir>) {
    if !sharded {
        return (checkpoint(), None);
    }
    let copy = tempfile::tempdir().unwrap();
    let all = read(&checkpoint());
    for shard in SHARDS {
        let mine = all.iter().filter(|(name, _)| shard_of(name) == shard);
        let view = |(dtype, shape, bytes)| TensorView::new(dtype, shape, bytes).unwrap();
        let mine = mine.map(|(name, (dtype, shape, bytes))| (name, view((*dtype, shape.clone(), bytes))));
        safetensors::serialize_to_file(mine, None, &copy.path().join(shard)).unwrap();
    }
    let homes: BTreeMap<_, _> = all.keys().map(|name| (name, shard_of(name))).collect();
    let bytes: usize = all.values().map(|(_, _, bytes)| bytes.len()).sum();
    let index = json!({"metadata": {"total_size": bytes}, "weight_map": homes});
    std::fs::write(copy.path().join(INDEX), index.to_string()).unwrap();
    std::fs::copy(checkpoint().join("config.json"), copy.path().join("config.json")).unwrap();
    (copy.path().into(), Some(copy))
}

/// An edited copy beside its original.
struct Edited {
    from: PathBuf,
    to: TempDir,
    _copy: Option<TempDir>,
}

impl Edited {
    fn new(sharded: bool, edits: &[Edit]) -> Self {
        let ((from, _copy), to) = (original(sharded), tempfile::tempdir().unwrap());
        apply(&from, edits, to.path()).unwrap();
        Self { from, to, _copy }
    }

    /// Names of the files that are not links; the links lead to the original's files.
    fn written(&self) -> BTreeSet<String> {
        let mut written = BTreeSet::new();
        for entry in std::fs::read_dir(&self.from).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            match std::fs::read_link(self.to.path().join(&name)) {
                Ok(link) => assert_eq!(link, self.from.canonicalize().unwrap().join(&name)),
                Err(_) => assert!(written.insert(name)),
            }
        }
        let count = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
        assert_eq!(count(self.to.path()), count(&self.from));
        written
    }

    fn port(&self) -> Result<Port> {
        Port::load(self.to.path(), Precision::F32)
    }

    fn reference(&self) -> Result<Reference> {
        Reference::open(self.to.path(), reference::Options::default())
    }

    fn index(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.to.path().join(INDEX)).unwrap()).unwrap()
    }
}

/// Files that are written when these shards, or the single file, and the index (if there is one) change.
fn files(sharded: bool, shards: &[usize], index: bool) -> BTreeSet<String> {
    if !sharded {
        return BTreeSet::from(["model.safetensors".to_owned()]);
    }
    shards.iter().map(|&shard| SHARDS[shard].into()).chain(index.then(|| INDEX.into())).collect()
}

const Q0: &str = "model.layers.0.self_attn.q_proj.weight";
const Q1: &str = "model.layers.1.self_attn.q_proj.weight";
const Q7: &str = "model.layers.7.self_attn.q_proj.weight";

#[rstest]
fn nothing_edited_is_all_links_and_the_same_model(#[values(false, true)] sharded: bool) {
    let same = Edited::new(sharded, &[]);
    assert_eq!(same.written(), BTreeSet::new());
    let right = port(Precision::F32);
    let feed = Feed::of(&right, Precision::F32, &[0, 9]);
    assert!(moved(&feed.rows(&right), &feed.rows(&same.port().unwrap())).is_empty());
    same.reference().unwrap();
}

#[rstest]
fn a_removed_tensor_is_missing(#[values(false, true)] sharded: bool) {
    let edited = Edited::new(sharded, &[Edit::Remove(Q7.into())]);
    assert_eq!(edited.written(), files(sharded, &[1], true));
    let mut expected = read(&edited.from);
    let bytes = expected.remove(Q7).unwrap().2.len() as u64;
    assert!(read(edited.to.path()) == expected);
    if sharded {
        let (index, total) = (edited.index(), read(&edited.from).values().map(|t| t.2.len()).sum::<usize>());
        assert_eq!(index["metadata"]["total_size"], total as u64 - bytes);
        assert_eq!(index["weight_map"].as_object().unwrap().len(), expected.len());
    }
}

#[rstest]
fn an_added_tensor_is_of_zeros(#[values(false, true)] sharded: bool) {
    let name = "model.layers.3.extra".to_owned();
    let edited = Edited::new(sharded, &[Edit::Add { name: name.clone(), shape: vec![2, 3] }]);
    assert_eq!(edited.written(), files(sharded, &[0], true));
    let mut expected = read(&edited.from);
    expected.insert(name.clone(), (Dtype::BF16, vec![2, 3], vec![0; 12]));
    assert!(read(edited.to.path()) == expected);
    if sharded {
        assert_eq!(edited.index()["weight_map"][name], SHARDS[0]);
    }
}

#[rstest]
fn swapped_dimensions_keep_the_bytes(#[values(false, true)] sharded: bool) {
    let edited = Edited::new(sharded, &[Edit::SwapDims(Q0.into())]);
    assert_eq!(edited.written(), files(sharded, &[0], false));
    let mut expected = read(&edited.from);
    let tensor = expected.get_mut(Q0).unwrap();
    assert_eq!(tensor.1, [128, 96]);
    tensor.1 = vec![96, 128];
    assert!(read(edited.to.path()) == expected);
}

#[rstest]
fn a_zeroed_tensor_is_zero(#[values(false, true)] sharded: bool) {
    let edited = Edited::new(sharded, &[Edit::Zero(Q7.into())]);
    assert_eq!(edited.written(), files(sharded, &[1], false));
    let mut expected = read(&edited.from);
    expected.get_mut(Q7).unwrap().2.fill(0);
    assert!(read(edited.to.path()) == expected);
    edited.port().unwrap();
    edited.reference().unwrap();
}

#[rstest]
#[case::within_one_file(Q1, &[0])]
#[case::across_shards(Q7, &[0, 1])]
fn exchanged_tensors_have_each_others_values(
    #[case] other: &str,
    #[case] shards: &[usize],
    #[values(false, true)] sharded: bool,
) {
    let edited = Edited::new(sharded, &[Edit::Exchange(Q0.into(), other.into())]);
    assert_eq!(edited.written(), files(sharded, shards, false));
    let mut expected = read(&edited.from);
    let (a, b) = (expected[Q0].clone(), expected[other].clone());
    assert!(a != b);
    expected.extend([(Q0.to_owned(), b), (other.to_owned(), a)]);
    assert!(read(edited.to.path()) == expected);
    edited.port().unwrap();
    edited.reference().unwrap();
}

#[rstest]
fn exchanged_layers_have_each_others_tensors(#[values(false, true)] sharded: bool) {
    let edited = Edited::new(sharded, &[Edit::ExchangeLayers(LayerId(2), LayerId(7))]);
    assert_eq!(edited.written(), files(sharded, &[0, 1], false));
    let renamed = |name: &str| match name.strip_prefix("model.layers.2.") {
        Some(tail) => format!("model.layers.7.{tail}"),
        None => name.replace("model.layers.7.", "model.layers.2."),
    };
    let expected: Tensors = read(&edited.from).into_iter().map(|(name, t)| (renamed(&name), t)).collect();
    assert!(expected != read(&edited.from));
    assert!(read(edited.to.path()) == expected);
    edited.reference().unwrap();
}

#[rstest]
fn a_key_of_the_configuration_is_set(#[values(false, true)] sharded: bool) {
    let set = |key: &str, value: Value| Edit::SetConfig { key: key.into(), value };
    let edits = [set("sliding_window", json!(32)), set("attention_bias", json!(false))];
    let edited = Edited::new(sharded, &edits);
    assert_eq!(edited.written(), BTreeSet::from(["config.json".to_owned()]));
    let mut expected = config();
    expected.sliding_window = Some(32);
    assert_eq!(edited.reference().unwrap().config(), &expected);
    assert_eq!(edited.port().unwrap().config(), &expected);
}

#[test]
fn edits_are_made_in_order() {
    let gone = "model.norm.weight".to_owned();
    let again = Edit::Add { name: gone.clone(), shape: vec![96] };
    let edited = Edited::new(true, &[Edit::Remove(gone.clone()), again]);
    assert_eq!(read(edited.to.path())[&gone], (Dtype::BF16, vec![96], vec![0; 192]));
    edited.port().unwrap();
    edited.reference().unwrap();
}

#[rstest]
#[case::remove(Edit::Remove("no.such".into()), "no.such")]
#[case::zero(Edit::Zero("no.such".into()), "no.such")]
#[case::swap(Edit::SwapDims("no.such".into()), "no.such")]
#[case::swap_of_a_vector(Edit::SwapDims("model.norm.weight".into()), "[96]")]
#[case::exchange(Edit::Exchange(Q0.into(), "no.such".into()), "no.such")]
#[case::exchange_of_other_shapes(Edit::Exchange(Q0.into(), "model.norm.weight".into()), "[128, 96]")]
#[case::add(Edit::Add { name: Q0.into(), shape: vec![1] }, "[128, 96]")]
#[case::layers(Edit::ExchangeLayers(LayerId(0), LayerId(10)), "layer 10")]
#[case::layer(Edit::ExchangeLayers(LayerId(11), LayerId(0)), "layer 11")]
fn an_edit_of_what_is_not_there_is_refused(
    #[case] edit: Edit,
    #[case] named: &str,
    #[values(false, true)] sharded: bool,
) {
    let ((from, _copy), to) = (original(sharded), tempfile::tempdir().unwrap());
    let error = apply(&from, &[edit], to.path()).unwrap_err();
    assert!(matches!(error, Error::Tensor { .. } | Error::Argument { .. }), "{error}");
    assert!(error.to_string().contains(named), "{error}");
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_without_a_checkpoint_and_one_that_is_full_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(apply(empty.path(), &[], empty.path()), Err(Error::Io { .. })));
    let full = tempfile::tempdir().unwrap();
    std::fs::write(full.path().join("config.json"), "{}").unwrap();
    assert!(matches!(apply(&checkpoint(), &[], full.path()), Err(Error::Io { .. })));
}

fn planted(id: &str, idle: (LayerId, ExpertId), sharded: bool) -> Edited {
    let config = config();
    match find(id).unwrap().port {
        Some(PortPlant::Checkpoint(edits)) => Edited::new(sharded, &edits(&Facts { config: &config, idle })),
        other => panic!("{id} is {other:?}"),
    }
}

#[rstest]
#[case::extra("attn_output_gate", "model.layers.0.self_attn.gate_proj.weight")]
#[case::missing("missing_tensor", "model.layers.9.self_attn.k_norm.weight")]
#[case::misshaped("misshaped_tensor", Q0)]
fn both_loaders_refuse_by_name(#[case] id: &str, #[case] name: &str, #[values(false, true)] sharded: bool) {
    let edited = planted(id, (LayerId(0), ExpertId(0)), sharded);
    let errors = [edited.port().err().unwrap(), edited.reference().err().unwrap()];
    for error in errors {
        assert!(matches!(&error, Error::Tensor { name: found, .. } if found == name), "{error}");
    }
}

#[test]
fn an_expert_that_no_token_chose_is_missed_by_no_layer() {
    let right = port(Precision::F32);
    let feed = Feed::of(&right, Precision::F32, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let (layer, expert) = feed.idle();
    let edited = planted("zeroed_idle_expert", (layer, expert), false);
    let name = format!("model.layers.{layer}.mlp.experts.{expert}.down_proj.weight");
    let tensors = read(edited.to.path());
    let changed: Vec<_> = read(&edited.from).into_iter().filter(|(name, t)| tensors[name] != *t).collect();
    assert_eq!(changed.iter().map(|(name, _)| name).collect::<Vec<_>>(), [&name]);
    assert!(moved(&feed.rows(&right), &feed.rows(&edited.port().unwrap())).is_empty());
}

#[test]
fn the_first_two_sliding_layers_are_exchanged_and_no_other_moves() {
    let right = port(Precision::F32);
    let feed = Feed::of(&right, Precision::F32, &[0, 1, 2, 4]);
    let edited = planted("layers_exchanged", (LayerId(0), ExpertId(0)), false);
    let found = moved(&feed.rows(&right), &feed.rows(&edited.port().unwrap()));
    let layers: BTreeSet<_> = found.keys().map(|(layer, _)| layer.map(|layer| layer.0)).collect();
    assert_eq!(layers, BTreeSet::from([Some(0), Some(1)]));
}

#[test]
fn every_edit_of_the_catalogue_loads_or_is_refused_for_a_tensor() {
    let edits = catalogue().filter(|m| matches!(m.port, Some(PortPlant::Checkpoint(_))));
    let loads: BTreeMap<_, _> =
        edits.map(|m| (m.id, planted(m.id, (LayerId(1), ExpertId(7)), false).port().is_ok())).collect();
    let expected = [
        ("attn_output_gate", false),
        ("layers_exchanged", true),
        ("missing_tensor", false),
        ("misshaped_tensor", false),
        ("swap_sandwich_norms", true),
        ("zeroed_idle_expert", true),
    ];
    assert_eq!(loads, BTreeMap::from(expected));
}
