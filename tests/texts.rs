//! How a text becomes tokens, as the recorded traces show it.

mod support;

use std::fs;
use std::path::Path;
use support::{Checkpoint, TEXT, TRAINED, assay, refusal, stdout};

/// Records the reference and gives the tokens of each trace, by file name.
fn tokens(checkpoint: &str, more: &[&str]) -> Vec<Vec<i32>> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").to_str().unwrap().to_owned();
    let run = ["run", checkpoint, "--side", "reference", "--sites", "none", "-o", &out];
    stdout(&[&run[..], more].concat());
    let mut files: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|path| tokens_of(path)).collect()
}

fn tokens_of(trace: &Path) -> Vec<i32> {
    let bytes = fs::read(trace).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let tokens = file.tensor("tokens").unwrap().data().to_vec();
    tokens.chunks_exact(4).map(|id| i32::from_le_bytes(id.try_into().unwrap())).collect()
}

#[test]
fn bytes_are_tokens_where_the_vocabulary_is_256_and_there_is_no_tokenizer() {
    let text = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(TEXT)).unwrap();
    let ids: Vec<i32> = text[..60].iter().map(|&byte| byte.into()).collect();
    let found = tokens(TRAINED, &["--text", TEXT, "--sequences", "3", "--length", "20"]);
    assert_eq!(found, [&ids[..20], &ids[20..40], &ids[40..]]);
}

#[test]
fn the_checkpoints_own_tokenizer_is_used_where_there_is_one() {
    let checkpoint = Checkpoint::trained();
    checkpoint.write();
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "?",
                  "vocab": {"in": 7, "the": 1, "beginning": 200, "was": 3, "word": 4, "?": 0}},
    });
    fs::write(checkpoint.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let text = checkpoint.path().join("text.txt");
    fs::write(&text, "in the beginning was the great word").unwrap();
    let dir = checkpoint.path().to_str().unwrap();
    assert_eq!(tokens(dir, &["--text", text.to_str().unwrap()]), [[7, 1, 200, 3, 1, 0, 4]]);
    fs::write(&text, b"in \xff the").unwrap();
    let message = refusal(&["compare", dir, "--text", text.to_str().unwrap()]);
    assert!(message.contains("offset 3"), "{message}");
    fs::write(checkpoint.path().join("tokenizer.json"), "{}").unwrap();
    let message = refusal(&["compare", dir, "--text", text.to_str().unwrap()]);
    assert!(message.contains("tokenizer.json"), "{message}");
}

#[test]
fn a_text_for_another_vocabulary_without_a_tokenizer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("made").to_str().unwrap().to_owned();
    stdout(&["make", "pattern5", "--seed", "4", "-o", &dir]);
    let message = refusal(&["compare", &dir, "--text", TEXT]);
    assert!(message.contains("tokenizer.json") && message.contains("320"), "{message}");
}

#[test]
fn token_lists_are_cut_and_lists_of_lists_are_taken_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ids.json");
    let path = file.to_str().unwrap();
    fs::write(&file, "[1, 2, 3, 4, 5, 6, 7]").unwrap();
    assert_eq!(tokens(TRAINED, &["--tokens", path, "--length", "3"]), [[1, 2, 3], [4, 5, 6]]);
    fs::write(&file, "[[1, 2], [3, 4, 5], [6]]").unwrap();
    let found = tokens(TRAINED, &["--tokens", path, "--sequences", "2"]);
    assert_eq!(found, [vec![1, 2], vec![3, 4, 5]]);
}

#[test]
fn random_tokens_are_those_of_the_presets_seed_and_the_first_n_of_more() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("made").to_str().unwrap().to_owned();
    stdout(&["make", "pattern5", "--seed", "4", "-o", &dir]);
    let ids = |seed| -> Vec<i32> {
        fixtures::random_tokens(seed, 320, 30).iter().map(|id| id.0.try_into().unwrap()).collect()
    };
    assert_eq!(tokens(&dir, &["--random-tokens", "20"]), [&ids(4)[..20]]);
    assert_ne!(ids(4), ids(5));
}

#[test]
fn a_text_longer_than_the_model_was_made_for_gets_a_warning() {
    let checkpoint = Checkpoint::trained();
    checkpoint.write();
    checkpoint.configure(&[("max_position_embeddings", 30.into())]);
    let dir = checkpoint.path().to_str().unwrap();
    let warned = |length| {
        let output = assay(&["compare", dir, "--text", TEXT, "--length", length, "--csv"]);
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap().contains("31 tokens, the model was made for 30")
    };
    assert!(warned("31"));
    assert!(!warned("30"));
}
