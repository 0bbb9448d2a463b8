//! One set of text: the reference's pass, then the port in f32 and in bf16, layer by layer and end to end.

use super::Context;
use super::checks::{NLL_MUTANTS, NLL_RECORDED};
use super::end_to_end::{PortRun, PortRunOf, floor, in_order_of_id, measure_forced, measure_free};
use super::finding::Measurement;
use super::logits::LogitsRows;
use super::pass::{self, Emulation, Passed};
use super::record::{Branches, BytesRead, LayerRecord, Router, RunName, RunRecord, SetRecord};
use super::reinjected::{self, PortLayer, measure_bf16, measure_f32};
use super::rows::Rows;
use super::{Set, nll, top1};
use crate::compare::Progress;
use spec::{LayerId, Precision, Result, Routing, Schedule, Side};

/// What a set gave.
pub(crate) struct SetFound {
    pub(crate) measured: Vec<Measurement>,
    pub(crate) record: SetRecord,
    pub(crate) bytes: BytesRead,
}

/// Measures everything that is measured on a set. Errors: whatever a side returns.
pub(crate) fn measure(context: &Context<'_>, set: &Set, progress: &mut dyn Progress) -> Result<SetFound> {
    let with_nll = context.plan.gate.checks.contains_key("nll.bits_per_byte");
    let mutants: Vec<&str> = NLL_MUTANTS.into_iter().chain([NLL_RECORDED]).filter(|_| with_nll).collect();
    let passed = pass::run(context.bench, &set.cases, &context.held.vectors, &mutants, progress)?;
    let f32 = F32Arm::run(context, &passed.rows, progress)?;
    let bf16 = Bf16Arm::run(context, &passed.rows, progress)?;
    let (rows, emulation, chunk) = (&passed.rows, &passed.emulation, context.plan.gate.chunk);
    let mut measured = measure_f32(rows, &f32.layers);
    measured.extend(measure_bf16(rows, &bf16.layers, &emulation.reinjected));
    measured.extend(measure_forced(Precision::F32, rows, &f32.forced, &f32.floor, emulation, chunk));
    measured.extend(measure_forced(Precision::Bf16, rows, &bf16.forced, &f32.floor, emulation, chunk));
    measured.extend(measure_free(rows, &bf16.free, emulation));
    let nll = with_nll.then(|| nll::record(&passed.nll, &mutants));
    if let Some(found) = &nll {
        for name in NLL_MUTANTS {
            let damage = found.damage.iter().find(|damage| damage.mutant == name).expect("one per mutant");
            measured.push(nll::leg(name, found.tokens, damage));
        }
    }
    let record = SetRecord {
        name: set.name.clone(),
        layers: layer_records(rows, &f32, &bf16, emulation),
        runs: run_records(rows, &f32, &bf16, emulation, chunk),
        top1: Some(top1::paired(&bf16.free.logits, &emulation.free)),
        nll,
        build: passed.source.as_ref().map(|source| source.cost(rows)).transpose()?,
    };
    let bytes = bytes_read(&set.name, &passed);
    Ok(SetFound { measured, record, bytes })
}

pub(crate) fn bytes_read(pass: &str, passed: &Passed<'_>) -> BytesRead {
    BytesRead { pass: pass.into(), lanes: passed.lanes, bytes: passed.bytes }
}

struct F32Arm {
    layers: Vec<PortLayer>,
    floor: LogitsRows,
    forced: PortRun,
}

impl F32Arm {
    fn run(context: &Context<'_>, rows: &Rows<'_>, progress: &mut dyn Progress) -> Result<Self> {
        let port = context.bench.port(Precision::F32)?;
        Ok(Self {
            layers: reinjected::run(&*port, Precision::F32, rows, context.plan.gate.chunk, progress)?,
            floor: floor(&*port, rows, context.plan.gate.chunk, in_order_of_id, progress)?,
            forced: forced(&*port, Precision::F32, rows, context.plan.gate.chunk, progress)?,
        })
    }
}

struct Bf16Arm {
    layers: Vec<PortLayer>,
    forced: PortRun,
    free: PortRun,
}

impl Bf16Arm {
    fn run(context: &Context<'_>, rows: &Rows<'_>, progress: &mut dyn Progress) -> Result<Self> {
        let port = context.bench.port(Precision::Bf16)?;
        Ok(Self {
            layers: reinjected::run(&*port, Precision::Bf16, rows, context.plan.gate.chunk, progress)?,
            forced: forced(&*port, Precision::Bf16, rows, context.plan.gate.chunk, progress)?,
            free: free(&*port, rows, context.plan.gate.chunk, progress)?,
        })
    }
}

/// The port end to end, forced onto the reference's choices.
pub(crate) fn forced(
    port: &dyn Side,
    arm: Precision,
    rows: &Rows<'_>,
    chunk: usize,
    progress: &mut dyn Progress,
) -> Result<PortRun> {
    let name = match arm {
        Precision::F32 => "port f32, forced",
        Precision::Bf16 => "port bf16, forced",
    };
    let mut run = PortRunOf::new(name, port, rows);
    run.embedding = true;
    run.run(&rows.forced(port, chunk), progress)
}

/// The bf16 port end to end, choosing freely.
pub(crate) fn free(
    port: &dyn Side,
    rows: &Rows<'_>,
    chunk: usize,
    progress: &mut dyn Progress,
) -> Result<PortRun> {
    let mut run = PortRunOf::new("port bf16, free", port, rows);
    run.routers = true;
    run.run(&rows.runs(port, Schedule::chunks_of(chunk), |_| Routing::Free), progress)
}

fn layer_records(rows: &Rows<'_>, f32: &F32Arm, bf16: &Bf16Arm, emulation: &Emulation) -> Vec<LayerRecord> {
    let of_layer = |layer: LayerId| {
        let index = layer.0;
        let branches = |layers: &[PortLayer]| -> Branches { layers[index].tally.branches() };
        let router = |layers: &[PortLayer]| -> Router { layers[index].tally.router.record() };
        LayerRecord {
            layer,
            kind: rows.config.kind(layer),
            rows: rows.positions(),
            f32: branches(&f32.layers),
            bf16: branches(&bf16.layers),
            emulation: emulation.reinjected[index].branches(),
            router_f32: router(&f32.layers),
            router_bf16: router(&bf16.layers),
            router_emulation: emulation.reinjected[index].router.record(),
            router_bf16_free: bf16.free.routers[index].record(),
            router_emulation_free: emulation.free_routers[index].record(),
        }
    };
    rows.config.layer_ids().map(of_layer).collect()
}

fn run_records(
    rows: &Rows<'_>,
    f32: &F32Arm,
    bf16: &Bf16Arm,
    emulation: &Emulation,
    chunk: usize,
) -> Vec<RunRecord> {
    let runs = [
        (RunName::F32Forced, &f32.forced.logits),
        (RunName::SortedFloor, &f32.floor),
        (RunName::Bf16Forced, &bf16.forced.logits),
        (RunName::EmulationForced, &emulation.forced),
        (RunName::Bf16Free, &bf16.free.logits),
        (RunName::EmulationFree, &emulation.free),
    ];
    runs.into_iter().map(|(name, logits)| logits.record(name, rows.cases, chunk)).collect()
}
