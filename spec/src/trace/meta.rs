//! What a trace says about itself: the strings of its header.
//!
//! Absent on purpose: a reading of the nested JSON (`engine`, `calls`, `router`, …) beyond what this program
//! wrote itself; other recorders put other things there, and nothing here depends on them.

use super::tensors::TensorFile;
use crate::config::{RouterScore, SelectionBias, SharedExpert};
use crate::{LayerKind, ModelConfig, Precision, Result, Schedule, SideInfo};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The schema this module reads and writes.
pub const SCHEMA: &str = "moe-trace/1";
/// The discrete decision recorded: which experts a token goes to.
const DECISION: &str = "moe_topk";
/// Expert ids count the router's columns, not slots of memory and not fused shared experts.
const ID_SPACE: &str = "logical";
/// How equal selection scores are put in order by this project: the lower id first (K15).
pub const TIE_RULE: &str = "value_desc_id_asc";

/// What the order of the k slots of a row means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotOrder {
    /// The order in which the weighted sum was taken.
    Executed,
    /// By selection score, best first.
    ScoreDesc,
    /// By expert id.
    IdAsc,
    /// Nothing is known.
    Unknown,
}

/// The metadata of a trace. `None`: the key is absent.
#[derive(Debug, Clone, PartialEq)]
pub struct Meta {
    /// Name of the sequence.
    pub case: String,
    /// Name of the model, for people.
    pub model: Option<String>,
    /// Hash of the checkpoint's weights, by which two traces are known to be of one checkpoint.
    pub weights_sha256: Option<String>,
    /// Hash of the checkpoint's `config.json`.
    pub config_sha256: Option<String>,
    /// Routed experts per layer, E.
    pub num_experts: usize,
    /// Experts per token, K.
    pub k: usize,
    /// Decoder layers, with and without experts.
    pub num_hidden_layers: usize,
    /// Position of the first row.
    pub pos0: usize,
    /// What the order of the slots means.
    pub slot_order: SlotOrder,
    /// How the recorder orders equal scores.
    pub tie_rule: Option<String>,
    /// The router's form, JSON.
    pub router: Option<Value>,
    /// Shared experts, JSON; they are never among the ids.
    pub shared_experts: Option<Value>,
    /// Who computed, JSON.
    pub engine: Option<Value>,
    /// How the tokens were fed, JSON.
    pub calls: Option<Value>,
    /// Where an imported trace comes from, JSON.
    pub source: Option<Value>,
    /// The arithmetic of the run.
    pub precision: Option<Precision>,
    /// Sliding or full, one for each of the trace's layers.
    pub layer_kinds: Option<Vec<LayerKind>>,
}

impl Meta {
    /// The metadata of a trace of `config`'s router, slots in executed order from position 0; nothing is said
    /// of the checkpoint's hashes and of the run.
    pub fn of(case: &str, config: &ModelConfig) -> Self {
        Self {
            case: case.into(),
            model: None,
            weights_sha256: None,
            config_sha256: None,
            num_experts: config.num_experts,
            k: config.experts_per_token,
            num_hidden_layers: config.num_layers(),
            pos0: 0,
            slot_order: SlotOrder::Executed,
            tie_rule: Some(TIE_RULE.into()),
            router: Some(router(config)),
            shared_experts: Some(shared_experts(config)),
            engine: None,
            calls: None,
            source: None,
            precision: None,
            layer_kinds: Some(config.layers.clone()),
        }
    }

    /// Says who ran it, how it was fed, and the arithmetic.
    pub fn set_run(&mut self, side: &SideInfo, schedule: Schedule, precision: Precision) {
        let (name, version) = side.engine.split_once(' ').unwrap_or((&side.engine, ""));
        self.engine = Some(json!({
            "name": name, "version": version, "flags": side.notes,
            "side": side.side, "device": side.device, "precision": side.precision,
        }));
        self.calls = Some(json!(schedule));
        self.precision = Some(precision);
    }

    /// "reference" or "port", where the recorder said so.
    pub fn side(&self) -> Option<&str> {
        self.engine.as_ref()?.get("side")?.as_str()
    }

    /// How the tokens were fed, where the recorder said so in this program's words.
    pub fn schedule(&self) -> Option<Schedule> {
        serde_json::from_value(self.calls.clone()?).ok()
    }

    /// The header's strings, hashes of the tensors aside.
    pub(super) fn strings(&self) -> BTreeMap<String, String> {
        let mut strings = BTreeMap::new();
        let mut put = |key: &str, value: Option<String>| {
            strings.extend(value.map(|value| (key.to_owned(), value)));
        };
        put("schema", Some(SCHEMA.into()));
        put("decision", Some(DECISION.into()));
        put("id_space", Some(ID_SPACE.into()));
        put("case", Some(self.case.clone()));
        put("model", self.model.clone());
        put("weights_sha256", self.weights_sha256.clone());
        put("config_sha256", self.config_sha256.clone());
        put("num_experts", Some(self.num_experts.to_string()));
        put("k", Some(self.k.to_string()));
        put("num_hidden_layers", Some(self.num_hidden_layers.to_string()));
        put("pos0", Some(self.pos0.to_string()));
        put("slot_order", Some(plain(&json!(self.slot_order))));
        put("tie_rule", self.tie_rule.clone());
        put("router", self.router.as_ref().map(plain));
        put("shared_experts", self.shared_experts.as_ref().map(plain));
        put("engine", self.engine.as_ref().map(plain));
        put("calls", self.calls.as_ref().map(plain));
        put("source", self.source.as_ref().map(plain));
        put("precision", self.precision.map(|precision| plain(&json!(precision))));
        put("layer_kinds", self.layer_kinds.as_ref().map(|kinds| plain(&json!(kinds))));
        strings
    }

    /// Reads the header's strings. `pos0` is 0 and `slot_order` unknown where nothing is said; the case is
    /// then named by the file. Errors: [`crate::Error::Trace`] naming the key.
    pub(super) fn read(file: &TensorFile) -> Result<Self> {
        expect(file, "schema", SCHEMA)?;
        expect(file, "decision", DECISION)?;
        expect(file, "id_space", ID_SPACE)?;
        let text = |key: &str| file.metadata(key).map(str::to_owned);
        let nested = |key: &str| file.metadata(key).map(json_or_text);
        Ok(Self {
            case: text("case").unwrap_or_else(|| name_of(file)),
            model: text("model"),
            weights_sha256: text("weights_sha256"),
            config_sha256: text("config_sha256"),
            num_experts: count(file, "num_experts", None)?,
            k: count(file, "k", None)?,
            num_hidden_layers: count(file, "num_hidden_layers", None)?,
            pos0: count(file, "pos0", Some(0))?,
            slot_order: known(file, "slot_order")?.unwrap_or(SlotOrder::Unknown),
            tie_rule: text("tie_rule"),
            router: nested("router"),
            shared_experts: nested("shared_experts"),
            engine: nested("engine"),
            calls: nested("calls"),
            source: nested("source"),
            precision: known(file, "precision")?,
            layer_kinds: known(file, "layer_kinds")?,
        })
    }
}

fn router(config: &ModelConfig) -> Value {
    let score = match config.router_score {
        RouterScore::Sigmoid => "sigmoid",
    };
    let bias = match config.selection_bias {
        SelectionBias::OnLogit => "on_logit",
    };
    json!({
        "score": score, "selection_bias": bias, "groups": 1, "renormalise": config.renormalise_topk,
        "scale": config.route_scale, "dtype": "f32",
    })
}

fn shared_experts(config: &ModelConfig) -> Value {
    match config.shared_expert {
        SharedExpert::Ungated => json!({"count": 1, "in_ids": false}),
    }
}

/// A string as it is, anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

fn name_of(file: &TensorFile) -> String {
    let name = file.path().file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(super::SUFFIX).unwrap_or(&name).to_owned()
}

fn expect(file: &TensorFile, key: &str, wanted: &str) -> Result<()> {
    let found = file.metadata(key);
    if found == Some(wanted) {
        return Ok(());
    }
    Err(file.refuse(format!("metadata `{key}` \"{wanted}\""), said(found)))
}

fn count(file: &TensorFile, key: &str, absent: Option<usize>) -> Result<usize> {
    let found = file.metadata(key);
    let number = match found {
        None => absent,
        Some(text) => text.parse().ok().filter(|&number: &usize| i32::try_from(number).is_ok()),
    };
    number.ok_or_else(|| file.refuse(format!("metadata `{key}`, a whole number"), said(found)))
}

/// A key whose values are known, if it is there.
fn known<T: DeserializeOwned>(file: &TensorFile, key: &str) -> Result<Option<T>> {
    let Some(text) = file.metadata(key) else { return Ok(None) };
    serde_json::from_value(json_or_text(text)).map(Some).map_err(|error| {
        file.refuse(
            format!("metadata `{key}` of the format"),
            format!("{text:?}: {}", error.to_string().escape_debug()),
        )
    })
}

fn said(found: Option<&str>) -> String {
    found.map_or_else(|| "no such key".into(), |text| format!("{text:?}"))
}
