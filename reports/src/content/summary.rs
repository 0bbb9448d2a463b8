//! The head of the report: the verdict, what it means, and what the gate cannot see.

use diff::gate::record::{Record, Verdict};

/// The head of the report.
pub struct Summary {
    /// The run's name.
    pub name: String,
    /// `PASS`, `FAIL`, `VOID`, `INCOMPLETE` or `unfinished`.
    pub verdict: String,
    /// What that word means.
    pub meaning: String,
    /// What a reader must know before the verdict: demonstrations.
    pub notices: Vec<String>,
    /// What was judged, by what.
    pub facts: Vec<(&'static str, String)>,
    /// What keeps the verdict from PASS.
    pub reasons: Vec<String>,
    /// What the gate cannot see.
    pub blind: Vec<String>,
}

/// Makes it.
pub fn summary(record: &Record) -> Summary {
    Summary {
        name: record.name.clone(),
        verdict: record.verdict.map_or_else(|| "unfinished".into(), |verdict| verdict.to_string()),
        meaning: meaning(record.verdict).into(),
        notices: notices(record),
        facts: facts(record),
        reasons: record.reasons.clone(),
        blind: blind(record),
    }
}

fn meaning(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Pass) => "this port passed this gate. That is no more than what the gate can see.",
        Some(Verdict::Fail) => "a check of this gate failed. PASS would mean: this port passed this gate.",
        Some(Verdict::Void) => {
            "an applicable check compared nothing, so nothing is shown. PASS would mean: this port passed \
             this gate."
        }
        Some(Verdict::Incomplete) => {
            "no check failed, but a planted bug was not caught: the power of this gate is not shown. PASS \
             would mean: this port passed this gate."
        }
        None => "the run has not finished. PASS would mean: this port passed this gate.",
    }
}

fn notices(record: &Record) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(mutant) = &record.inputs.port_mutant {
        notices.push(format!(
            "Demonstration: the bug “{mutant}” was planted in the port that was judged. This is not a \
             judgement of the port."
        ));
    }
    if let Some(control) = &record.inputs.disabled_control {
        notices.push(format!(
            "Demonstration: the control “{control}” was switched off. This is not a judgement of the port."
        ));
    }
    notices
}

fn facts(record: &Record) -> Vec<(&'static str, String)> {
    let inputs = &record.inputs;
    let sets = inputs.sets.iter().map(|set| {
        let tokens: usize = set.cases.iter().map(|case| case.tokens).sum();
        let (cases, tokens) = (set.cases.len(), crate::number::count(tokens as u64));
        format!("{} ({cases} sequences, {tokens} tokens)", set.name)
    });
    let sets: Vec<String> = sets.collect();
    let mut devices: Vec<String> =
        record.environment.sides.iter().map(|side| format!("{} on {}", side.side, side.device)).collect();
    devices.dedup();
    let metal = if ran_on_metal(record) { "run" } else { "not run" };
    let mut facts = vec![("Checkpoint", inputs.checkpoint.name.clone())];
    facts.extend(inputs.reference.as_ref().map(|source| ("A build of", source.name.clone())));
    facts.extend([
        ("Gate", inputs.gate.name.clone()),
        ("Text", sets.join(", ")),
        ("Devices", devices.join(", ")),
        ("Metal", metal.into()),
    ]);
    facts
}

fn ran_on_metal(record: &Record) -> bool {
    record.environment.sides.iter().any(|side| side.device == "metal")
}

fn blind(record: &Record) -> Vec<String> {
    let mut blind = vec![
        "A misreading of the model that the port, the reference and the golden outputs share.".to_owned(),
        "Bugs that no fixture exercises: shapes, lengths and texts that were not run.".to_owned(),
    ];
    if !ran_on_metal(record) {
        blind.push("Metal: not run. No side computed on a GPU, so its kernels are not judged.".into());
    }
    for not in &record.not_applicable {
        blind.push(format!("{}: not applicable: {}", not.check, not.reason));
    }
    blind
}
