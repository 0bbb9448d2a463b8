//! Where the numbers come from: program, checkpoint, limits, texts, sides, lock; and what they cost.

use super::{Cell, Section, Table};
use crate::number::{count, seconds};
use diff::gate::record::Record;

/// What was judged, by what, computed by whom.
pub fn origin(record: &Record) -> Section {
    let mut tables = vec![inputs(record), texts(record), sides(record)];
    if !record.bytes_read.is_empty() {
        tables.push(bytes_read(record));
    }
    let lock = match &record.inputs.lock {
        None => "The run was not held to a lock.".to_owned(),
        Some(lock) if lock.amendments.is_empty() => {
            format!("The run was held to the lock {}, which was never amended.", lock.sha256)
        }
        Some(lock) => {
            tables.push(amendments(record));
            format!("The run was held to the lock {}, amended {} times.", lock.sha256, lock.amendments.len())
        }
    };
    Section { id: "environment", title: "Environment".into(), intro: vec![lock], tables }
}

fn inputs(record: &Record) -> Table {
    let inputs = &record.inputs;
    let (program, checkpoint) = (&inputs.program, &inputs.checkpoint);
    let mut table = Table::new("Inputs", &["what", "value"]);
    let rows: [(&str, String); 15] = [
        ("record", record.schema.clone()),
        ("program version", program.version.clone()),
        ("program commit", program.commit.clone()),
        ("program sha256", program.sha256.clone()),
        ("checkpoint", checkpoint.name.clone()),
        ("checkpoint bytes", count(checkpoint.bytes)),
        ("config.json sha256", checkpoint.config_sha256.clone()),
        ("weights sha256", checkpoint.weights_sha256.clone()),
        ("gate", inputs.gate.name.clone()),
        ("gate sha256", inputs.gate.sha256.clone()),
        ("golden outputs sha256", inputs.golden_sha256.clone().unwrap_or_else(|| "not applied".into())),
        ("control sequence", format!("{}, {} tokens", inputs.control_case.name, inputs.control_case.tokens)),
        ("tokens per prefill call", count(inputs.chunk as u64)),
        ("bug planted in the port", inputs.port_mutant.clone().unwrap_or_else(|| "none".into())),
        ("control switched off", inputs.disabled_control.clone().unwrap_or_else(|| "none".into())),
    ];
    for (what, value) in rows {
        table.push(vec![what.into(), value.into()]);
    }
    table
}

fn texts(record: &Record) -> Table {
    let mut table = Table::new("Texts", &["set", "text", "sequences: tokens", "tokens sha256"]);
    for set in &record.inputs.sets {
        let cases: Vec<String> =
            set.cases.iter().map(|case| format!("{}: {}", case.name, case.tokens)).collect();
        let cells = [set.name.clone(), set.about.clone(), cases.join(", "), set.tokens_sha256.clone()];
        table.push(cells.map(Cell::from).into());
    }
    table
}

fn sides(record: &Record) -> Table {
    let mut table = Table::new("Sides", &["side", "engine", "device", "weights", "notes"]);
    for side in &record.environment.sides {
        let notes: Vec<String> = side.notes.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let (name, engine, device) = (side.side.clone(), side.engine.clone(), side.device.clone());
        table.push(
            [name, engine, device, side.precision.name().into(), notes.join("; ")].map(Cell::from).into(),
        );
    }
    table
}

fn bytes_read(record: &Record) -> Table {
    let mut table = Table::new("Read by the reference", &["pass", "#lanes", "#checkpoint bytes"]);
    for read in &record.bytes_read {
        table.push(vec![
            read.pass.as_str().into(),
            count(read.lanes as u64).into(),
            count(read.bytes).into(),
        ]);
    }
    table
}

fn amendments(record: &Record) -> Table {
    let mut table = Table::new("Amendments of the lock", &["date", "reason", "changed"]);
    for amendment in record.inputs.lock.iter().flat_map(|lock| &lock.amendments) {
        let cells = [amendment.date.clone(), amendment.reason.clone(), amendment.changed.join(", ")];
        table.push(cells.map(Cell::from).into());
    }
    table
}

/// Wall times by phase.
pub fn times(record: &Record) -> Section {
    let mut table = Table::new("", &["phase", "#time"]);
    for phase in &record.times.phases {
        table.push(vec![phase.name.as_str().into(), seconds(phase.seconds).into()]);
    }
    let total: f64 = record.times.phases.iter().map(|phase| phase.seconds).sum();
    table.push(vec!["all".into(), seconds(total).into()]);
    let intro = vec![format!("Started {}.", record.times.started)];
    Section { id: "times", title: "Times".into(), intro, tables: vec![table] }
}
