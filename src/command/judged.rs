//! What `assay gate` judges and `assay freeze` freezes: checkpoint, gate, texts, golden outputs, program.

use super::checkpoint;
use crate::bench::Workbench;
use crate::{cli, text};
use diff::compare::CaseInfo;
use diff::gate::limits::{Gate, SetShape};
use diff::gate::record::{Checkpoint, GateFile, Inputs, Program, SetInputs};
use diff::gate::{Golden, Set, planted, refuse_empty};
use spec::{Case, Error, ModelConfig, Result, TokenId, hash};
use std::path::{Path, PathBuf};

/// Queries of the control sequence past the first full window, at least.
const PAST_WINDOW: usize = 64;

/// Everything a gate run is given.
pub struct Judged {
    pub bench: Workbench,
    pub gate: Gate,
    pub sets: Vec<Set>,
    pub control_case: Case,
    pub golden: Option<Golden>,
    pub inputs: Inputs,
}

/// What changes a run beside the texts and limits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Switches<'a> {
    pub threads: Option<usize>,
    pub port_mutant: Option<&'a str>,
    pub disabled_control: Option<&'a str>,
}

/// Reads and hashes all of it. Errors: whatever cannot be read or used; [`Error::Unpaired`] on an empty set.
pub fn read(arguments: &cli::Judged, switches: &Switches<'_>) -> Result<Judged> {
    let dir = &arguments.checkpoint;
    let mut bench = Workbench::open(dir, switches.threads, switches.port_mutant)?;
    if let Some(source) = &arguments.reference {
        bench = bench.built_from(source, switches.threads)?;
    }
    let config = diff::bench::Bench::reference(&bench).config().clone();
    let known: Vec<String> = planted(&bench).into_iter().map(|planted| planted.id).collect();
    let (gate, gate_text) = gate(dir, arguments.gate.as_deref(), &known)?;
    if let Some(id) = switches.disabled_control {
        refuse_unbound(&gate, id)?;
    }
    let (sets, abouts) = sets(arguments, &gate, &config)?;
    refuse_empty(&sets, &gate)?;
    let golden_of = arguments.reference.as_deref().unwrap_or(dir);
    let golden = golden(golden_of, arguments.golden.as_deref(), &gate, &config)?;
    let scan = checkpoint::examine(dir)?;
    let reference = match &arguments.reference {
        Some(source) => Some(of_scan(source, checkpoint::examine(source)?)),
        None => None,
    };
    let control_case = control_case(&sets, control_tokens(&gate, &config))?;
    let set_inputs = sets.iter().zip(abouts).map(|(set, about)| set_inputs(set, about)).collect();
    let inputs = Inputs {
        program: program()?,
        checkpoint: of_scan(dir, scan),
        reference,
        gate: GateFile { name: gate.name.clone(), sha256: hash::of_bytes(gate_text.as_bytes()) },
        sets: set_inputs,
        control_case: case_info(&control_case),
        golden_sha256: golden.as_ref().map(|golden| golden.sha256.clone()),
        chunk: gate.chunk,
        port_mutant: switches.port_mutant.map(str::to_owned),
        disabled_control: switches.disabled_control.map(str::to_owned),
        lock: None,
    };
    Ok(Judged { bench, gate, sets, control_case, golden, inputs })
}

/// The gate file of that path or name, or the one that fits the checkpoint; and its text.
pub fn gate(checkpoint: &Path, named: Option<&Path>, known: &[String]) -> Result<(Gate, String)> {
    let from_seed = fixtures::read_seed(checkpoint)?.is_some();
    let path = named.unwrap_or(Path::new(if from_seed { "random" } else { "trained" }));
    let text = match path.to_str() {
        Some("trained") => fixtures::gates::TRAINED.to_owned(),
        Some("random") => fixtures::gates::RANDOM.to_owned(),
        _ => {
            let next = "give the path of a gate file, or `trained` or `random`";
            std::fs::read_to_string(path).map_err(Error::io("read gate file", path, next))?
        }
    };
    Ok((Gate::parse(&text, path, known)?, text))
}

fn refuse_unbound(gate: &Gate, id: &str) -> Result<()> {
    if gate.controls().contains_key(id) {
        return Ok(());
    }
    Err(Error::Argument {
        what: "--disable-control".into(),
        expected: "a control of this gate".into(),
        found: id.into(),
        next: "name one that the gate file binds to a check".into(),
    })
}

/// The sets and a line about each. A set that the person named takes the person's texts; if none was named,
/// all take consecutive tokens of the default source.
fn sets(arguments: &cli::Judged, gate: &Gate, config: &ModelConfig) -> Result<(Vec<Set>, Vec<String>)> {
    let dir = &arguments.checkpoint;
    let is_shape = |name: &String| gate.sets.iter().any(|shape| shape.name == *name);
    if let Some((name, _)) = arguments.sets.iter().find(|(name, _)| !is_shape(name)) {
        let names: Vec<&str> = gate.sets.iter().map(|shape| shape.name.as_str()).collect();
        return Err(Error::Argument {
            what: format!("--set {name}=…"),
            expected: format!("a set of the gate: {}", names.join(", ")),
            found: format!("`{name}`"),
            next: "use one of these names, or a gate file with your own sets".into(),
        });
    }
    let (mut sets, mut abouts) = (Vec::new(), Vec::new());
    if arguments.sets.is_empty() {
        let wanted: usize = gate.sets.iter().map(|shape| shape.sequences * shape.length).sum();
        let (tokens, about) = default_tokens(dir, config, wanted)?;
        let mut rest = tokens.as_slice();
        for shape in &gate.sets {
            let cases = cut(shape, &[rest])?;
            let used: usize = cases.iter().map(Case::len).sum();
            rest = &rest[used..];
            abouts.push(words(&about, &cases));
            sets.push(Set { name: shape.name.clone(), cases });
        }
        return Ok((sets, abouts));
    }
    for shape in &gate.sets {
        let files: Vec<&PathBuf> =
            arguments.sets.iter().filter(|(name, _)| *name == shape.name).map(|(_, file)| file).collect();
        if files.is_empty() {
            continue;
        }
        let texts: Vec<(Vec<TokenId>, String)> =
            files.into_iter().map(|file| text::whole(dir, config, file)).collect::<Result<_>>()?;
        let streams: Vec<&[TokenId]> = texts.iter().map(|(tokens, _)| tokens.as_slice()).collect();
        let about: Vec<&str> = texts.iter().map(|(_, about)| about.as_str()).collect();
        let cases = cut(shape, &streams)?;
        abouts.push(words(&about.join("; "), &cases));
        sets.push(Set { name: shape.name.clone(), cases });
    }
    Ok((sets, abouts))
}

/// What is run where nobody names a text: `wanted` seeded tokens for a checkpoint from a seed, else the
/// built-in held-out text.
pub fn default_tokens(dir: &Path, config: &ModelConfig, wanted: usize) -> Result<(Vec<TokenId>, String)> {
    match fixtures::read_seed(dir)? {
        Some(_) => text::random(dir, config, wanted),
        None => text::held_out(dir, config),
    }
}

fn words(about: &str, cases: &[Case]) -> String {
    let tokens: usize = cases.iter().map(Case::len).sum();
    format!("{about}; {} sequences, {tokens} tokens", cases.len())
}

/// Sequences of a set, none across two texts. Texts that are too short for one whole sequence give a shorter
/// one; an empty text gives none.
fn cut(shape: &SetShape, streams: &[&[TokenId]]) -> Result<Vec<Case>> {
    let whole = streams.iter().flat_map(|stream| stream.chunks_exact(shape.length));
    let mut sequences: Vec<&[TokenId]> = whole.take(shape.sequences).collect();
    if sequences.is_empty() {
        sequences = streams.iter().copied().filter(|stream| !stream.is_empty()).take(1).collect();
    }
    let case =
        |(index, tokens): (usize, &[TokenId])| Case::new(format!("{}.{index}", shape.name), tokens.to_vec());
    sequences.into_iter().enumerate().map(case).collect()
}

/// Bugs of the window need queries that have a full one behind them.
fn control_tokens(gate: &Gate, config: &ModelConfig) -> usize {
    gate.control_tokens.max(config.sliding_window.map_or(0, |window| window + PAST_WINDOW))
}

/// The first sequence that is long enough, cut; or the longest there is.
fn control_case(sets: &[Set], tokens: usize) -> Result<Case> {
    let mut cases = sets.iter().flat_map(|set| &set.cases);
    let long_enough = cases.clone().find(|case| case.len() >= tokens);
    let case = long_enough.or_else(|| cases.by_ref().max_by_key(|case| case.len())).expect("no set is empty");
    Case::new("control", case.tokens.iter().copied().take(tokens).collect())
}

/// The recorded outputs of a checkpoint, where the gate needs them: those named, or those beside it.
pub fn golden(dir: &Path, named: Option<&Path>, gate: &Gate, config: &ModelConfig) -> Result<Option<Golden>> {
    if !gate.checks.contains_key("anchor.golden") {
        return Ok(None);
    }
    let beside = dir.join("..").join("golden").join(format!("{}.safetensors", name_of(dir)));
    if named.is_none() && !beside.is_file() && config.quantization.affine.is_some() {
        return Err(Error::Argument {
            what: format!("golden outputs for the build {}", dir.display()),
            expected: "outputs of the checkpoint it was made of, for `anchor.golden`".into(),
            found: format!("no {}", beside.display()),
            next: "name that checkpoint with --reference, or the file with --golden".into(),
        });
    }
    Golden::read(named.unwrap_or(&beside), config).map(Some)
}

/// A checkpoint as records name it.
pub fn of_scan(dir: &Path, scan: reference::Scan) -> Checkpoint {
    Checkpoint {
        name: name_of(dir),
        config_sha256: scan.config_sha256,
        weights_sha256: scan.weights_sha256,
        bytes: scan.bytes,
    }
}

fn set_inputs(set: &Set, about: String) -> SetInputs {
    let numbers = |case: &Case| -> Vec<u32> {
        let len = u32::try_from(case.len()).expect("a sequence of fewer than 2^32 tokens");
        [len].into_iter().chain(case.tokens.iter().map(|id| id.0)).collect()
    };
    let bytes: Vec<u8> = set.cases.iter().flat_map(numbers).flat_map(u32::to_le_bytes).collect();
    SetInputs {
        name: set.name.clone(),
        about,
        tokens_sha256: hash::of_bytes(&bytes),
        cases: set.cases.iter().map(case_info).collect(),
    }
}

fn case_info(case: &Case) -> CaseInfo {
    CaseInfo { name: case.name.clone(), tokens: case.len() }
}

/// The checkpoint's folder by its own name, also where it was given as `.`.
pub fn name_of(dir: &Path) -> String {
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}

fn program() -> Result<Program> {
    let next = "run assay from a file that can be read";
    let path = std::env::current_exe().map_err(Error::io("find the program", "assay", next))?;
    Ok(Program {
        version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("ASSAY_COMMIT").into(),
        sha256: hash::of_file(&path, &mut |_| {})?,
    })
}
