//! Made-up records: no run has them; every kind of outcome, number and name is in them.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod matrix;

use diff::compare::{CaseInfo, Place};
use diff::gate::record::*;
use diff::stats::{Rate, Spread};
use spec::{LayerId, LayerKind, Precision, SideInfo};

/// A name that tries to leave a table, a paragraph, an attribute and an element.
pub const HOSTILE: &str = "a|b\n# c<script>alert(1)</script>\"'&<img src=x>";

/// The checks of the small record, in order, with a leg and a limit each.
const CHECKS: [(&str, &str, f64); 24] = [
    ("static.census", "problems", 0.0),
    ("static.weights", "tensors", 0.0),
    ("harness.forcing_exact", "f32", 0.0),
    ("harness.forcing_active", "kl", 1e-3),
    ("harness.reference_f64", "error", 1e-6),
    ("layer.embedding", "f32", 0.0),
    ("layer.head", "error", 5e-6),
    ("layer.branch", "attn.median", 5e-6),
    ("layer.branch", "attn.max", 1e-4),
    ("layer.branch", "moe.median", 5e-6),
    ("layer.branch", "moe.max", 1e-4),
    ("layer.branch_bf16", "attn.median", 1.1e-2),
    ("layer.branch_bf16", "moe.median", 1.3e-2),
    ("site.bf16_ulp", "norm", 0.01),
    ("router.logits", "sigma", 5e-6),
    ("router.selection", "flips.f32", 0.0),
    ("router.sigma", "share", 0.002),
    ("router.sigma", "largest_z", 30.0),
    ("router.weights", "max", 3e-5),
    ("forced.kl", "mean", 1e-8),
    ("forced.bf16", "mean", 4e-4),
    ("free.kl", "mean", 1e-3),
    ("free.top1", "shortfall", 0.01),
    ("schedule.decode", "mean", 1e-8),
];

/// Bugs of the small record; the large one numbers more of them.
const BUGS: [&str; 10] = [
    "sigmoid_bias_select",
    "renorm_topk",
    "eps_times_ten",
    "rope_traditional",
    "one_plus_w_norm",
    "swap_sandwich_norms",
    "rope_on_full",
    "qknorm_after_rope",
    "shared_expert_half",
    "window_off_by_one",
];

/// Numbers that look measured: a fixed sequence in [0, 1).
fn noise(seed: usize) -> f64 {
    let mixed = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
    mixed as f64 / (1u64 << 53) as f64
}

fn spread(median: f64) -> Spread {
    Spread { count: 1024, mean: median * 1.1, p50: median, p99: median * 3.0, max: median * 8.0 }
}

fn branches(median: f64, seed: usize) -> Branches {
    let of = |seed| spread(median * (0.7 + 0.8 * noise(seed)));
    Branches { attn: of(seed), moe: of(seed + 1000) }
}

fn router(sigma: f64, differing: usize, z: f64) -> Router {
    Router { sigma, logits_rms: 1.7, differing: Rate::new(differing, 1024), largest_z: z }
}

fn layer(layer: usize) -> LayerRecord {
    let few = |seed: usize| (noise(layer * 7 + seed) * 5.0) as usize;
    let z = |seed: usize, most: f64| most * noise(layer * 11 + seed);
    LayerRecord {
        layer: LayerId(layer),
        kind: if layer % 5 == 4 { LayerKind::Full } else { LayerKind::Sliding },
        rows: 1024,
        f32: branches(9e-7, layer),
        bf16: branches(5e-3, layer + 100),
        emulation: branches(3.7e-3, layer + 100),
        router_f32: router(4e-7, 0, 0.0),
        router_bf16: router(3e-3, few(1) + 1, z(1, 9.0)),
        router_emulation: router(2.6e-3, few(2), z(2, 8.0)),
        router_bf16_free: router(2e-2, few(3) * 4 + 2, z(3, 18.9)),
        router_emulation_free: router(1.9e-2, few(4) * 4, z(4, 17.9)),
    }
}

fn run(run: RunName, kl: f64, buckets: usize, cases: &[String]) -> RunRecord {
    let along = (0..buckets).map(|index| {
        let mean = kl * (0.6 + noise(index * 3 + run as usize));
        Bucket { from: index * 64, to: (index + 1) * 64, positions: 576, mean, max: mean * 60.0 }
    });
    let rate = |index: usize| Rate::new(400 - (kl * 5e4 * noise(index)).min(9.0) as usize, 400);
    let by_sequence = cases.iter().enumerate();
    RunRecord {
        run,
        kl_nats: spread(kl),
        kl_worst: Place { case: cases[0].clone(), position: 77 },
        buckets: along.collect(),
        confident_top1: Rate::new(99_999, 100_000),
        by_sequence: by_sequence
            .map(|(index, case)| SequenceRate { case: case.clone(), rate: rate(index + run as usize) })
            .collect(),
    }
}

fn nll() -> NllRecord {
    let damages = [2.9, 1.1e-3, 0.02, 0.8, 1.9, 0.6, 0.11, 0.04, 0.3, -2e-4];
    let damage = BUGS.iter().zip(damages).enumerate().map(|(index, (mutant, nats))| Damage {
        mutant: (*mutant).into(),
        nats_per_token: nats,
        p1: nats * 0.8 - 3e-3,
        p99: nats * (1.1 + 0.1 * noise(index)) + 4e-3,
    });
    NllRecord {
        tokens: 9207,
        nats_per_token: 1.204_5,
        bits_per_token: 1.737_7,
        blocks: 54,
        damage: damage.collect(),
    }
}

fn set(name: &str, layers: usize, buckets: usize, cases: &[String]) -> SetRecord {
    let runs = [
        (RunName::F32Forced, 2e-13),
        (RunName::SortedFloor, 1.4e-13),
        (RunName::Bf16Forced, 1.1e-4),
        (RunName::EmulationForced, 7e-5),
        (RunName::Bf16Free, 3e-4),
        (RunName::EmulationFree, 1.8e-4),
    ];
    SetRecord {
        name: name.into(),
        layers: (0..layers).map(layer).collect(),
        runs: runs.into_iter().map(|(name, kl)| run(name, kl, buckets, cases)).collect(),
        top1: Some(PairedTop1 { blocks: 54, shortfall: 8e-4, low: -1e-3, high: 2.4e-3 }),
        nll: Some(nll()),
        build: None,
    }
}

fn finding(check: usize, set: &str, seed: usize) -> Finding {
    let (name, leg, limit) = CHECKS[check];
    let value = if limit == 0.0 { 0.0 } else { limit * (0.05 + 0.6 * noise(seed)) };
    Finding {
        check: name.into(),
        leg: leg.into(),
        set: (!name.starts_with("static")).then(|| set.into()),
        rows: 1024 + seed,
        value,
        limit,
        bound: if name == "harness.forcing_active" { Bound::AtLeast } else { Bound::AtMost },
        calibrator: name.contains("bf16").then_some(limit / 3.0),
        excess: if limit == 0.0 { 0.0 } else { value / limit },
        outcome: Outcome::Pass,
        place: format!("layer {}, psalms-{seed}:{}", seed % 10, seed * 13),
    }
}

fn control(index: usize) -> Control {
    let name = BUGS[index % BUGS.len()];
    let leg = |offset: usize| {
        let (check, leg, limit) = CHECKS[(index * 5 / 9 + offset * 4) % CHECKS.len()];
        let margin = 10f64.powf(1.1 + 5.0 * noise(index * 3 + offset));
        let (value, place) = (limit * margin, format!("layer {}", index % 10));
        let (check, leg) = (check.into(), leg.into());
        let unmutated = limit * 0.1;
        ControlLeg { check, leg, value, unmutated, limit, margin, caught: true, weak: false, place }
    };
    Control {
        mutant: if index < BUGS.len() { name.into() } else { format!("{name}.{index}") },
        side: ["port", "reference", "checkpoint", "harness"][index % 4].into(),
        what: format!("does {name} in place of what the model does, number {index}"),
        seen_in: if index.is_multiple_of(3) { vec![format!("report {index}")] } else { Vec::new() },
        caught: true,
        legs: (0..1 + index % 3).map(leg).collect(),
    }
}

fn inputs(cases: &[String], sets: &[&str]) -> Inputs {
    let cases = |tokens| -> Vec<CaseInfo> {
        cases.iter().map(|name| CaseInfo { name: name.clone(), tokens }).collect()
    };
    let set = |name: &&str| SetInputs {
        name: (*name).into(),
        about: "held-out text".into(),
        tokens_sha256: format!("{:064x}", 0xabcd),
        cases: cases(1024),
    };
    Inputs {
        program: Program { version: "0.1.0".into(), commit: "unknown".into(), sha256: "1f".repeat(32) },
        checkpoint: Checkpoint {
            name: "kolibri-tiny-kjv".into(),
            config_sha256: "2a".repeat(32),
            weights_sha256: "3b".repeat(32),
            bytes: 12_345_678,
        },
        gate: GateFile { name: "trained".into(), sha256: "4c".repeat(32) },
        sets: sets.iter().map(set).collect(),
        control_case: CaseInfo { name: "control-0".into(), tokens: 640 },
        golden_sha256: Some("6e".repeat(32)),
        chunk: 128,
        reference: None,
        port_mutant: None,
        disabled_control: None,
        lock: Some(LockRecord {
            sha256: "5d".repeat(32),
            amendments: vec![Amendment {
                date: "2024-02-29".into(),
                reason: "a longer text".into(),
                changed: vec!["tokens.long".into()],
            }],
        }),
    }
}

fn sides() -> Vec<SideInfo> {
    let side = |side: &str, engine: &str, precision, notes: &[(&str, &str)]| SideInfo {
        side: side.into(),
        engine: engine.into(),
        device: "cpu".into(),
        precision,
        notes: notes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
    };
    vec![
        side("reference", "ndarray 0.17.2", Precision::F32, &[("blas", "openblas 0.3.21"), ("threads", "2")]),
        side("port", "MLX 0.32.2 (mlx-rs 0.33.0)", Precision::Bf16, &[("MLX_ENABLE_TF32", "0")]),
    ]
}

/// A record in which everything passed.
pub fn record(layers: usize, controls: usize, sequences: usize) -> Record {
    let cases: Vec<String> = (0..sequences).map(|index| format!("psalms-{index}")).collect();
    let sets = ["short", "long"];
    let findings = sets.iter().enumerate().flat_map(|(at, set)| {
        let legs = 0..CHECKS.len();
        legs.filter(move |leg| at == 0 || !CHECKS[*leg].0.starts_with("static"))
            .map(move |leg| finding(leg, set, leg + at * 40))
    });
    Record {
        schema: SCHEMA.into(),
        name: "kolibri-tiny-kjv-trained".into(),
        verdict: Some(Verdict::Pass),
        reasons: Vec::new(),
        inputs: inputs(&cases, &sets),
        findings: findings.collect(),
        not_applicable: vec![NotApplicable {
            check: "kernel.gather".into(),
            reason: "the CPU backend has one gather".into(),
        }],
        sets: vec![set("short", layers, 8, &cases), set("long", layers, 40, &cases)],
        controls: (0..controls).map(control).collect(),
        bytes_read: vec![BytesRead { pass: "short, f32".into(), lanes: 9, bytes: 12_345_678 }],
        environment: Environment { sides: sides() },
        times: Times {
            started: "2024-02-29T12:00:00Z".into(),
            phases: vec![
                Phase { name: "reference".into(), seconds: 95.2 },
                Phase { name: "controls".into(), seconds: 301.0 },
            ],
        },
    }
}

/// A record with one of everything that goes wrong, hostile names included.
pub fn troubled(layers: usize, controls: usize, sequences: usize) -> Record {
    let mut record = record(layers, controls, sequences);
    record.verdict = Some(Verdict::Fail);
    record.reasons = vec!["layer.branch attn.median failed on set short".into(), HOSTILE.into()];
    let failing = &mut record.findings[7];
    (failing.value, failing.excess, failing.outcome) = (6.1e-6, 1.22, Outcome::Fail);
    let nan = &mut record.findings[19];
    (nan.value, nan.excess, nan.outcome, nan.place) = (f64::NAN, f64::NAN, Outcome::Fail, HOSTILE.into());
    let void = &mut record.findings[22];
    (void.rows, void.value, void.excess, void.outcome) = (0, f64::NAN, f64::INFINITY, Outcome::Void);
    let layers = &mut record.sets[0].layers;
    layers[2].f32.attn = Spread { count: 1024, mean: f64::NAN, p50: f64::NAN, p99: f64::NAN, max: f64::NAN };
    layers[3].f32.moe = Spread { count: 1024, mean: 0.0, p50: 0.0, p99: 0.0, max: 0.0 };
    layers[4].bf16.moe.max = f64::INFINITY;
    layers[5].router_bf16.largest_z = 64.0;
    layers[6].router_emulation.largest_z = f64::INFINITY;
    let runs = &mut record.sets[0].runs;
    runs[1].buckets[1].mean = 0.0;
    runs[0].buckets[3].max = f64::NAN;
    runs[4].by_sequence[0].case = HOSTILE.into();
    let damage = &mut record.sets[0].nll.as_mut().expect("it was made").damage[2];
    (damage.nats_per_token, damage.p1, damage.p99) = (f64::NAN, f64::NAN, f64::NAN);
    let missed = &mut record.controls[1];
    missed.caught = false;
    let leg = &mut missed.legs[0];
    (leg.caught, leg.margin, leg.place) = (false, 0.31, "within the limit".into());
    let weak = &mut record.controls[2].legs[0];
    (weak.weak, weak.margin) = (true, 9.96);
    record.controls[3].legs[0].margin = f64::INFINITY;
    record.controls[4].legs[0].margin = f64::NAN;
    record.controls[5].legs.clear();
    record.controls[6].mutant = HOSTILE.into();
    record
}
