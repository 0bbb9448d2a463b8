//! Every kind of bad input: exit 2, one message that names what is wrong, nothing written.

mod support;

use rstest::rstest;
use safetensors::tensor::Dtype;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use support::{Checkpoint, SHARDS, TEXT, TRAINED, assay, in_first, refusal, stdout};

const EXPERT: &str = "model.layers.3.mlp.experts.17.up_proj.weight";

/// What `compare` and both sides of `run` say of a checkpoint; each must say all the words.
fn check(checkpoint: &Path, words: &[&str]) {
    let dir = checkpoint.to_str().unwrap();
    let out = checkpoint.join("out");
    let short = ["--text", TEXT, "--sequences", "1", "--length", "40"];
    let run = |side| [&["run", dir, "--side", side, "-o", out.to_str().unwrap()][..], &short].concat();
    for arguments in [[&["compare", dir][..], &short].concat(), run("reference"), run("port")] {
        let message = refusal(&arguments);
        for word in words {
            assert!(message.contains(word), "no `{word}` in: {message}");
        }
    }
    assert!(!out.exists());
}

#[test]
fn a_truncated_shard_is_refused() {
    let checkpoint = Checkpoint::trained();
    let file = checkpoint.write().join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1000]).unwrap();
    check(checkpoint.path(), &["model.safetensors", "expected", "found"]);
}

#[test]
fn a_header_longer_than_the_file_is_refused() {
    let checkpoint = Checkpoint::trained();
    let file = checkpoint.write().join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    bytes[..8].copy_from_slice(&10_000_000_u64.to_le_bytes());
    fs::write(&file, &bytes).unwrap();
    check(checkpoint.path(), &["model.safetensors", "header"]);
}

#[rstest]
#[case::missing(None, &[EXPERT, "[32, 96]"])]
#[case::mis_shaped(Some((Dtype::BF16, vec![96, 32])), &[EXPERT, "[32, 96]", "[96, 32]"])]
#[case::of_an_unsupported_dtype(Some((Dtype::I16, vec![32, 96])), &[EXPERT, "I16", "BF16"])]
fn a_tensor_that_is_not_as_expected_is_refused(
    #[case] replacement: Option<(Dtype, Vec<usize>)>,
    #[case] words: &[&str],
) {
    let mut checkpoint = Checkpoint::trained();
    let (_, _, bytes) = checkpoint.tensors.remove(EXPERT).unwrap();
    if let Some((dtype, shape)) = replacement {
        checkpoint.tensors.insert(EXPERT.into(), (dtype, shape, bytes));
    }
    checkpoint.write();
    check(checkpoint.path(), words);
}

#[test]
fn an_extra_tensor_is_refused() {
    let mut checkpoint = Checkpoint::trained();
    let gate = "model.layers.0.self_attn.gate_proj.weight";
    checkpoint.tensors.insert(gate.into(), (Dtype::BF16, vec![2, 3], vec![0; 12]));
    checkpoint.write();
    check(checkpoint.path(), &[gate]);
}

#[rstest]
#[case::nan(0x7fc0_u16, "NaN")]
#[case::infinity(0xff80, "inf")]
fn a_value_that_is_not_finite_is_refused_with_its_index(#[case] bits: u16, #[case] word: &str) {
    let mut checkpoint = Checkpoint::trained();
    let at = 2 * (5 * 96 + 7);
    checkpoint.tensor(EXPERT).2[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    checkpoint.write();
    check(checkpoint.path(), &[EXPERT, word, "[5, 7]"]);
}

#[test]
fn an_index_naming_a_missing_shard_is_refused() {
    let checkpoint = Checkpoint::trained();
    checkpoint.write_sharded();
    fs::remove_file(checkpoint.path().join(SHARDS[1])).unwrap();
    check(checkpoint.path(), &[SHARDS[1]]);
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let checkpoint = Checkpoint::trained();
    checkpoint.write_sharded();
    checkpoint.write_shard(SHARDS[1], |name| !in_first(name) || name == EXPERT);
    check(checkpoint.path(), &[EXPERT, SHARDS[1]]);
}

#[test]
fn a_sound_sharded_checkpoint_is_the_same_as_a_single_file() {
    let (single, sharded) = (Checkpoint::trained(), Checkpoint::trained());
    single.write();
    sharded.write_sharded();
    let table = |dir: &Path| {
        let arguments = ["compare", dir.to_str().unwrap(), "--text", TEXT, "--length", "40", "--csv"];
        stdout(&arguments)
    };
    assert_eq!(table(single.path()), table(sharded.path()));
}

#[rstest]
#[case("attn_output_gate", json!(true))]
#[case("hidden_act", json!("gelu"))]
#[case("use_sliding_window", json!(false))]
#[case("tie_word_embeddings", json!(true))]
#[case("attention_bias", json!(true))]
#[case("head_dtype", json!("bfloat16"))]
#[case("sliding_window", json!(0))]
#[case("layer_types", json!(["full_attention"]))]
#[case("num_key_value_heads", json!(3))]
#[case("num_experts", json!(64))]
#[case("rope_scaling", json!({"type": "linear"}))]
fn a_config_that_the_forward_pass_does_not_cover_is_refused(
    #[case] key: &str,
    #[case] value: serde_json::Value,
) {
    let checkpoint = Checkpoint::trained();
    checkpoint.write();
    checkpoint.configure(&[(key, value)]);
    check(checkpoint.path(), &["config.json", key]);
}

/// A folder for inputs and outputs of one test.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().into()
    }

    fn out(&self) -> String {
        self.0.path().join("out").to_str().unwrap().into()
    }
}

#[rstest]
#[case::a_token_past_the_vocabulary("[1, 2, 256]", &["256", "position 2"])]
#[case::no_tokens("[]", &["empty"])]
#[case::no_list("{\"a\": 1}", &["list of token ids"])]
#[case::negative("[1, -2]", &["list of token ids"])]
fn token_lists_that_cannot_be_run_are_refused(#[case] content: &str, #[case] words: &[&str]) {
    let scratch = Scratch::new();
    let message = refusal(&["compare", TRAINED, "--tokens", &scratch.file("ids.json", content)]);
    words.iter().for_each(|word| assert!(message.contains(word), "no `{word}` in: {message}"));
}

#[test]
fn an_empty_text_a_missing_text_and_no_text_are_refused() {
    let scratch = Scratch::new();
    let empty = refusal(&["compare", TRAINED, "--text", &scratch.file("empty.txt", "")]);
    assert!(empty.contains("empty text"), "{empty}");
    let missing = refusal(&["compare", TRAINED, "--text", "no-such-file.txt"]);
    assert!(missing.contains("no-such-file.txt"), "{missing}");
    let none = refusal(&["compare", TRAINED]);
    assert!(none.contains("--text FILE"), "{none}");
}

#[test]
fn more_text_than_there_is_is_refused() {
    let message = refusal(&["compare", TRAINED, "--text", TEXT, "--sequences", "17", "--length", "1024"]);
    assert!(message.contains("17408") && message.contains("16384"), "{message}");
}

#[test]
fn layers_that_the_model_does_not_have_are_refused() {
    let message = refusal(&["compare", TRAINED, "--text", TEXT, "--layers", "8..11", "--length", "20"]);
    assert!(message.contains("8..11"), "{message}");
}

#[test]
fn an_output_folder_that_exists_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    let out = scratch.out();
    fs::create_dir(&out).unwrap();
    fs::write(Path::new(&out).join("mine"), "mine").unwrap();
    let run = ["run", TRAINED, "--side", "reference", "--text", TEXT, "--length", "20", "-o", &out];
    for arguments in [&run[..], &["make", "pattern5", "--seed", "1", "-o", &out]] {
        let message = refusal(arguments);
        assert!(message.contains("out"), "{message}");
    }
    assert_eq!(fs::read(Path::new(&out).join("mine")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(scratch.0.path()).unwrap().count(), 1);
}

/// Records the reference on the first `length` bytes of the text, in `dir`.
fn record(checkpoint: &str, dir: &Path, length: &str) -> String {
    let out = dir.to_str().unwrap().to_owned();
    let text = ["--text", TEXT, "--sequences", "1", "--length", length];
    stdout(&[&["run", checkpoint, "--side", "reference", "-o", &out][..], &text].concat());
    out
}

/// The one trace file of a recording.
fn trace_file(dir: &str) -> PathBuf {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut traces = files.filter(|path| path.to_str().unwrap().ends_with(".trace.safetensors"));
    traces.next().expect("a trace")
}

/// Rewrites the ids of a trace, with the hash of ids put right, so that only the ids themselves are wrong.
fn edit_ids(path: &Path, edit: impl Fn(&mut [u8])) {
    let bytes = fs::read(path).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut ids = file.tensor("ids").unwrap().data().to_vec();
    edit(&mut ids);
    let mut metadata = header.metadata().clone().unwrap();
    metadata.insert("ids_sha256".into(), spec::hash::of_bytes(&ids));
    let views: Vec<_> = file
        .tensors()
        .into_iter()
        .map(|(name, view)| {
            let data = if name == "ids" { ids.as_slice() } else { view.data() };
            (name, safetensors::tensor::TensorView::new(view.dtype(), view.shape().to_vec(), data).unwrap())
        })
        .collect();
    let edited = safetensors::serialize(views, Some(metadata)).unwrap();
    fs::write(path, edited).unwrap();
}

#[rstest]
#[case::repeated(|ids: &mut [u8]| ids.copy_within(0..2, 2), "twice")]
#[case::out_of_range(|ids: &mut [u8]| ids[..2].copy_from_slice(&32_i16.to_le_bytes()), "32")]
#[case::missing(|ids: &mut [u8]| ids[..8].fill(0xff), "token 0")]
#[case::partly_missing(|ids: &mut [u8]| ids[..2].fill(0xff), "-1")]
fn forced_choices_that_are_no_route_are_refused(#[case] edit: fn(&mut [u8]), #[case] word: &str) {
    let scratch = Scratch::new();
    let recording = record(TRAINED, &scratch.0.path().join("recording"), "40");
    edit_ids(&trace_file(&recording), edit);
    let text = ["--text", TEXT, "--sequences", "1", "--length", "40", "-o", &scratch.out()];
    for side in ["reference", "port"] {
        let run = ["run", TRAINED, "--side", side, "--routing", "forced", "--trace", &recording];
        let message = refusal(&[&run[..], &text].concat());
        assert!(message.contains(word), "no `{word}` in: {message}");
        assert!(!Path::new(&scratch.out()).exists());
    }
}

#[test]
fn a_trace_of_another_checkpoint_of_other_tokens_or_of_other_layers_is_refused() {
    let scratch = Scratch::new();
    let recording = record(TRAINED, &scratch.0.path().join("recording"), "40");
    let mut other = Checkpoint::trained();
    other.tensor("model.norm.weight").2[0] ^= 1;
    other.write();
    let force = |checkpoint: &str, length: &str| {
        let run = ["run", checkpoint, "--side", "port", "--routing", "forced", "--trace", &recording];
        let text = ["--text", TEXT, "--sequences", "1", "--length", length, "-o", &scratch.out()];
        refusal(&[&run[..], &text].concat())
    };
    let message = force(other.path().to_str().unwrap(), "40");
    assert!(message.contains("checkpoint") && message.contains("weights"), "{message}");
    let message = force(TRAINED, "41");
    assert!(message.contains("token"), "{message}");

    let other_recording = record(other.path().to_str().unwrap(), &scratch.0.path().join("other"), "40");
    let message = refusal(&["compare", &recording, &other_recording]);
    assert!(message.contains("checkpoint"), "{message}");
    let longer = record(TRAINED, &scratch.0.path().join("longer"), "41");
    let message = refusal(&["compare", &recording, &longer]);
    assert!(message.contains("token"), "{message}");
}

#[test]
fn a_folder_that_holds_no_checkpoint_is_refused() {
    let scratch = Scratch::new();
    for verb in [&["inspect"][..], &["compare", "--random-tokens", "9"]] {
        let dir = scratch.0.path().to_str().unwrap();
        let message = refusal(&[&verb[..1], &[dir], &verb[1..]].concat());
        assert!(message.contains("config.json"), "{message}");
    }
}

#[test]
fn unknown_presets_layers_and_options_are_refused() {
    let scratch = Scratch::new();
    let message = refusal(&["make", "huge", "--seed", "1", "-o", &scratch.out()]);
    assert!(message.contains("pattern5") && message.contains("`huge`"), "{message}");
    let message = refusal(&["make", "pattern5", "--seed", "1", "--layers", "3", "-o", &scratch.out()]);
    assert!(message.contains("layers"), "{message}");
    let message = refusal(&[
        "run",
        TRAINED,
        "--side",
        "port",
        "--text",
        TEXT,
        "--sites",
        "q,nonsense",
        "-o",
        &scratch.out(),
    ]);
    assert!(message.contains("`nonsense`"), "{message}");
    assert_eq!(assay(&["compare", TRAINED, "--chunk", "0", "--text", TEXT]).status.code(), Some(2));
    assert_eq!(assay(&["nonsense"]).status.code(), Some(2));
    assert_eq!(fs::read_dir(scratch.0.path()).unwrap().count(), 0);
}

#[test]
fn inspect_lists_every_problem_and_exits_with_2() {
    let mut checkpoint = Checkpoint::trained();
    checkpoint.tensors.remove(EXPERT);
    checkpoint.tensors.insert("extra".into(), (Dtype::BF16, vec![1], vec![0, 0]));
    checkpoint.write();
    let output = assay(&["inspect", checkpoint.path().to_str().unwrap()]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(shown.contains("2 problems") && shown.contains(EXPERT) && shown.contains("`extra`"), "{shown}");
}
