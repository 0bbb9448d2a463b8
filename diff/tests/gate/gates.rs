//! A gate of all checks with the limits of `trained.json`, bound to the planted bugs of tables, and how it is
//! run.

use crate::fake::{Bug, Fake, Port, Row};
use crate::tensors::no_such_tensor;
use diff::bench::PlantedIn;
use diff::compare::CaseInfo;
use diff::gate::checks::NLL_MUTANTS;
use diff::gate::limits::Gate;
use diff::gate::record::{
    Checkpoint, Environment, Finding, GateFile, Inputs, Program, Record, SCHEMA, SetInputs, Times,
};
use diff::gate::{Plan, Set, planted, run};
use serde_json::{Value, json};
use spec::{Case, Error, Result, Site, TokenId};
use std::path::Path;

pub const TRAINED: &str = include_str!("../../../fixtures/gates/trained.json");
pub const RANDOM: &str = include_str!("../../../fixtures/gates/random.json");

/// Two sequences of 4 and 5 tokens, and one of 6.
pub fn sets() -> Vec<Set> {
    let set = |name: &str, cases| Set { name: name.into(), cases };
    vec![set("short", vec![case("short-0", 4), case("short-1", 5)]), set("long", vec![case("long-0", 6)])]
}

pub fn case(name: &str, tokens: usize) -> Case {
    Case::new(name, vec![TokenId(0); tokens]).unwrap()
}

/// The bugs that [`gate`] binds, and one that it does not.
pub fn bugs() -> Vec<Bug> {
    let bug = |id, side, plant| Bug { id, side, plant };
    let mut bugs = vec![
        bug("everything", PlantedIn::Port, |port| {
            port.edits.push(break_everything);
            Ok(())
        }),
        bug("missing", PlantedIn::Checkpoint, |_| Err(no_such_tensor())),
        bug("zeroed", PlantedIn::Checkpoint, |port| {
            port.tensors.insert("lm_head.weight".into(), vec![0.0; 6]);
            Ok(())
        }),
        bug("tf32", PlantedIn::Reference, nothing),
        bug("crashes", PlantedIn::Port, |_| {
            Err(Error::Engine {
                engine: "table",
                doing: "load".into(),
                message: "the table is on fire".into(),
            })
        }),
        bug("harmless", PlantedIn::Port, nothing),
    ];
    bugs.extend(NLL_MUTANTS.map(|id| bug(id, PlantedIn::Reference, nothing)));
    bugs
}

fn nothing(_: &mut Port) -> Result<()> {
    Ok(())
}

/// Another value of everything that some leg looks at.
pub fn break_everything(row: &Row<'_>, values: &mut Vec<f32>) {
    match row.site {
        Site::Embedding | Site::AttnBranch | Site::MoeBranch | Site::RouterLogits | Site::TopkWeights => {
            values.iter_mut().for_each(|value| *value *= 2.0);
        }
        Site::ShadowChoice => *values = vec![0.0, 3.0],
        // bf16 holds them; another token leads; another schedule gives other ones, and several together
        // are much further off
        Site::Logits => *values = vec![0.0, 8.0 * (row.together * row.together) as f32, row.call as f32],
        _ => {}
    }
}

/// The gate as JSON; `anchor.golden` and `kernel.gather` do not apply.
pub fn json_gate() -> Value {
    let mut gate: Value = serde_json::from_str(TRAINED).unwrap();
    gate["chunk"] = 1.into();
    gate["checks"].as_object_mut().unwrap().remove("anchor.golden");
    gate["not_applicable"]["anchor.golden"] = "a table was recorded by nobody".into();
    // a second a measurement; `kernels.rs` has it
    gate["checks"].as_object_mut().unwrap().remove("kernel.gather");
    gate["not_applicable"]["kernel.gather"] = "a table has no kernels".into();
    let of_nll: Value = NLL_MUTANTS.map(|id| (id.to_owned(), json!([id]))).into_iter().collect();
    for (check, applied) in gate["checks"].as_object_mut().unwrap() {
        applied["controls"] = match check.as_str() {
            "static.census" => json!({"missing": ["problems"]}),
            "static.weights" => json!({"zeroed": ["tensors"]}),
            "harness.forcing_exact" => json!({"forcing_in_order_of_id": ["f32"]}),
            "harness.forcing_active" => json!({"forcing_off": ["kl"]}),
            "harness.reference_f64" => json!({"tf32": ["error"]}),
            "layer.branch" => json!({"everything": ["attn.median", "moe.max.past_window"]}),
            "layer.branch_bf16" => json!({"everything": ["attn.median", "moe.p99"]}),
            "site.bf16_ulp" => json!({"everything": ["norm"]}),
            "router.logits" => json!({"everything": ["sigma"]}),
            "router.selection" => json!({"everything": ["flips.f32", "sets", "flips.bf16"]}),
            "router.sigma" => json!({"everything": ["share"]}),
            "router.weights" => json!({"everything": ["median", "max"]}),
            "forced.kl" => json!({"everything": ["mean", "bucket", "position"]}),
            "nll.bits_per_byte" => of_nll.clone(),
            _ => {
                let legs: Vec<&String> = applied["legs"].as_object().unwrap().keys().collect();
                json!({"everything": legs})
            }
        };
    }
    gate
}

/// Reads a gate for the bugs of the fake. A leg that no bug is bound to is given a reason.
pub fn gate_of(json: &Value) -> Gate {
    let mut json = json.clone();
    for applied in json["checks"].as_object_mut().unwrap().values_mut() {
        let bound: Vec<Value> = applied["controls"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|legs| legs.as_array().unwrap().clone())
            .collect();
        for (leg, limit) in applied["legs"].as_object_mut().unwrap() {
            let limit = limit.as_object_mut().unwrap();
            limit.remove("no_control");
            if !bound.contains(&Value::from(leg.as_str())) {
                limit.insert("no_control".into(), "another leg of the check has one".into());
            }
        }
    }
    let known: Vec<String> = planted(&Fake::new()).into_iter().map(|planted| planted.id).collect();
    Gate::parse(&json.to_string(), Path::new("gates/table.json"), &known).unwrap()
}

/// A record that has been through nothing.
pub fn blank() -> Record {
    let info = |case: &Case| CaseInfo { name: case.name.clone(), tokens: case.len() };
    let set = |set: &Set| SetInputs {
        name: set.name.clone(),
        about: "zeros".into(),
        tokens_sha256: format!("tokens of {}", set.name),
        cases: set.cases.iter().map(info).collect(),
    };
    Record {
        schema: SCHEMA.into(),
        name: "table".into(),
        verdict: None,
        reasons: Vec::new(),
        inputs: Inputs {
            program: Program { version: "0".into(), commit: "unknown".into(), sha256: "program".into() },
            checkpoint: Checkpoint {
                name: "table".into(),
                config_sha256: "config".into(),
                weights_sha256: "weights".into(),
                bytes: 1000,
            },
            gate: GateFile { name: "table".into(), sha256: "limits".into() },
            sets: sets().iter().map(set).collect(),
            control_case: info(&case("control", 5)),
            golden_sha256: None,
            chunk: 1,
            reference: None,
            port_mutant: None,
            disabled_control: None,
            lock: None,
        },
        findings: Vec::new(),
        not_applicable: Vec::new(),
        sets: Vec::new(),
        controls: Vec::new(),
        bytes_read: Vec::new(),
        environment: Environment { sides: Vec::new() },
        times: Times { started: "2024-01-01T00:00:00Z".into(), phases: Vec::new() },
    }
}

/// Runs a gate from a record, and gives every record that was saved on the way.
pub fn run_from(
    fake: &Fake,
    gate: &Gate,
    disabled_control: Option<&str>,
    record: Record,
) -> (Record, Vec<Record>) {
    let (sets, control_case) = (sets(), case("control", 5));
    let plan =
        Plan { gate, sets: &sets, control_case: &control_case, decoded: 3, golden: None, disabled_control };
    let mut saved = Vec::new();
    let mut save = |record: &Record| {
        saved.push(record.clone());
        Ok(())
    };
    let record = run(fake, &plan, record, &mut save, &mut ()).unwrap();
    (record, saved)
}

/// Runs the gate of this file over a fake.
pub fn judged(fake: &Fake) -> Record {
    run_from(fake, &gate_of(&json_gate()), None, blank()).0
}

/// The finding of one leg on one set, or of what is measured once.
#[track_caller]
pub fn finding<'a>(record: &'a Record, set: Option<&str>, check: &str, leg: &str) -> &'a Finding {
    let is_it = |f: &&Finding| (f.check.as_str(), f.leg.as_str(), f.set.as_deref()) == (check, leg, set);
    let mut all = record.findings.iter().filter(is_it);
    let found = all.next().unwrap_or_else(|| panic!("no finding {check} {leg} {set:?}"));
    assert!(all.next().is_none(), "two findings {check} {leg} {set:?}");
    found
}
