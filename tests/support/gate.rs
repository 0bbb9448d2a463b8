//! Small gates, cut from the committed one, and runs of them.
#![allow(dead_code, reason = "each test file uses its own part")]

use crate::support::{TRAINED, assay};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Exit codes of a verdict (README, "Exit codes").
pub const PASS: Option<i32> = Some(0);
pub const FAIL: Option<i32> = Some(1);
pub const VOID: Option<i32> = Some(3);
pub const INCOMPLETE: Option<i32> = Some(5);

/// One bug a check, the cheapest that 160 tokens show.
const CONTROLS: [(&str, &[&str]); 27] = [
    ("static.census", &["missing_tensor"]),
    ("static.weights", &["zeroed_idle_expert"]),
    ("harness.forcing_exact", &["forcing_in_order_of_id"]),
    ("harness.forcing_active", &["forcing_off"]),
    ("harness.reference_f64", &["reference_tf32"]),
    ("layer.embedding", &["mup_embed_scale"]),
    ("layer.head", &["one_plus_w_norm"]),
    ("layer.branch", &["renorm_topk", "window_one_short"]),
    ("layer.branch_bf16", &["renorm_topk"]),
    ("site.bf16_ulp", &["combine_rounded_per_term"]),
    ("router.logits", &["bf16_router_logits"]),
    ("router.selection", &["sigmoid_bias_select"]),
    ("router.sigma", &["sigmoid_bias_select"]),
    ("router.weights", &["renorm_topk"]),
    ("forced.kl", &["renorm_topk"]),
    ("forced.top1", &["swap_sandwich_norms"]),
    ("forced.bf16", &["renorm_topk"]),
    ("free.kl", &["sigmoid_bias_select"]),
    ("free.top1", &["sigmoid_bias_select"]),
    ("schedule.chunk", &["mask_top_left"]),
    ("schedule.decode", &["decode_offset_frozen"]),
    ("schedule.batch", &["rows_misaligned_after_leave"]),
    ("kernel.gather", &["decode_beyond_1024"]),
    ("runtime.buffers", &["unread_offset"]),
    ("dtype.head", &["bf16_head_logits"]),
    ("nll.bits_per_byte", &["sigmoid_bias_select"]),
    ("anchor.golden", &["renorm_topk"]),
];

/// The checks of [`lean`].
const LEAN: [&str; 5] =
    ["static.census", "layer.branch", "router.logits", "router.selection", "router.weights"];

/// Every check with its committed limits, on one sequence. Likelihood needs its 384 tokens: on 160 two of the
/// misreadings cost too little to be told from none.
pub fn small() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gates/trained.json");
    let mut gate: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    gate["sets"] = json!([{"name": "short", "sequences": 1, "length": 384}]);
    gate["chunk"] = json!(32);
    gate["control_tokens"] = json!(160);
    for (check, kept) in CONTROLS {
        let applied = &mut gate["checks"][check];
        applied["controls"].as_object_mut().unwrap().retain(|bug, _| kept.contains(&bug.as_str()));
        let bound: Vec<Value> = applied["controls"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|of| of.as_array().unwrap().clone())
            .collect();
        for (leg, limit) in applied["legs"].as_object_mut().unwrap() {
            let limit = limit.as_object_mut().unwrap();
            limit.remove("no_control");
            if !bound.contains(&json!(leg)) {
                limit.insert("no_control".into(), json!("bound in the gate that this one is cut from"));
            }
        }
    }
    gate
}

/// The same with five checks on 160 tokens, which takes a few seconds.
pub fn lean() -> Value {
    let mut gate = small();
    gate["sets"] = json!([{"name": "short", "sequences": 1, "length": 160}]);
    for (check, _) in CONTROLS {
        if !LEAN.contains(&check) {
            gate["checks"].as_object_mut().unwrap().remove(check);
            gate["not_applicable"][check] = json!("left out of the small gate");
        }
    }
    gate
}

/// A folder for a gate file, texts and runs.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// An empty one.
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().into()
    }

    /// Writes a file; returns its path.
    pub fn file(&self, name: &str, content: &str) -> String {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    /// Runs a gate on the trained checkpoint, into a folder of its own.
    pub fn gate(&self, gate: &Value, out: &str, more: &[&str]) -> Run {
        let file = self.file(&format!("{out}.json"), &gate.to_string());
        let output = assay(&[&["gate", TRAINED, "--gate", &file, "-o", &self.path(out)], more].concat());
        Run { folder: only_entry(Path::new(&self.path(out))), output }
    }
}

/// The one entry of a folder; `None` if there is no such folder.
pub fn only_entry(folder: &Path) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.map(|entry| entry.unwrap().path()).collect();
    assert!(entries.len() < 2, "{entries:?}");
    entries.into_iter().next()
}

/// A run of a gate that ended.
pub struct Run {
    pub folder: Option<PathBuf>,
    pub output: Output,
}

impl Run {
    /// Asserts on the exit code.
    pub fn ends_with(self, code: Option<i32>) -> Self {
        let error = String::from_utf8_lossy(&self.output.stderr);
        let out = String::from_utf8_lossy(&self.output.stdout);
        let verdict = out.find("Verdict").map_or(&*out, |at| &out[at..]);
        assert_eq!(self.output.status.code(), code, "{error}\n{verdict}");
        self
    }

    /// A file of its folder.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.as_ref().expect("a folder").join(name)).unwrap()
    }

    /// The record.
    pub fn record(&self) -> Value {
        serde_json::from_str(&self.read("record.json")).unwrap()
    }
}

/// A record without what differs from run to run.
pub fn comparable(mut record: Value) -> Value {
    let times = record["times"].take();
    assert!(times["started"].is_string(), "{times}");
    assert!(record["environment"].take()["sides"].is_array());
    record
}

/// The list under a key.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no list `{key}`"))
}
