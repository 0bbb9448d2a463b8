//! The reference against recorded outputs of an independent third implementation.
//!
//! Input: a safetensors file with `tokens` `[T]`, and per layer `l` `attn_branch.l`, `moe_branch.l` `[T, H]`
//! and
//! `choice.l` `[T, k]`, and `logits` `[T, V]` (fixtures/README.md). Absent on purpose: making such a file.

use super::finding::Measurement;
use crate::bench::{Bench, Lane};
use crate::compare::ledger::Ledger;
use crate::metrics::{logits, router};
use ndarray::{Array2, ArrayView2, s};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use spec::{
    At, Case, Error, LayerId, ModelConfig, Precision, Recorder, Result, Routing, Run, Schedule, Site,
    TokenId, hash,
};
use std::path::Path;

/// Recorded outputs.
#[derive(Debug)]
pub struct Golden {
    case: Case,
    /// `[T, V]`.
    logits: Array2<f32>,
    /// SHA-256 of the file.
    pub sha256: String,
    /// By layer: attention branch, MoE branch, choices.
    layers: Vec<[Array2<f32>; 3]>,
}

const SITES: [(Site, &str); 3] =
    [(Site::AttnBranch, "attn_branch"), (Site::MoeBranch, "moe_branch"), (Site::Choice, "choice")];

impl Golden {
    /// Reads a file for a model. Errors: [`Error::Io`], [`Error::Tensor`], [`Error::Checkpoint`].
    pub fn read(path: &Path, config: &ModelConfig) -> Result<Self> {
        let next = "give the recorded outputs of this checkpoint with --golden";
        let bytes = std::fs::read(path).map_err(Error::io("read golden outputs", path, next))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|e| Error::Checkpoint {
            path: path.into(),
            expected: "a safetensors file of golden outputs".into(),
            found: e.to_string(),
            next: next.into(),
        })?;
        let refuse = |name: &str, expected: String, found: String| Error::Tensor {
            path: path.into(),
            name: name.into(),
            expected,
            found,
            next: next.into(),
        };
        let find = |name: &str| file.tensor(name).map_err(|e| refuse(name, "a tensor".into(), e.to_string()));
        let tokens = numbers(&find("tokens")?).ok_or_else(|| {
            refuse(
                "tokens",
                "I64, I32, U32 or F32".into(),
                format!("{:?}", find("tokens").map(|t| t.dtype())),
            )
        })?;
        let tokens: Vec<TokenId> = tokens.into_iter().map(|id| TokenId(id as u32)).collect();
        let case = Case::new("golden", tokens)?;
        case.check_vocabulary(config)?;
        let rows = |name: String, site: Site| -> Result<Array2<f32>> {
            let tensor = find(&name)?;
            let shape = (case.len(), site.width(config));
            let values = numbers(&tensor).filter(|_| tensor.shape() == [shape.0, shape.1]);
            let values = values.ok_or_else(|| {
                refuse(&name, format!("numbers of shape {shape:?}"), format!("{:?}", tensor.shape()))
            })?;
            Ok(Array2::from_shape_vec(shape, values).expect("the shape was checked"))
        };
        let mut layers = Vec::new();
        for layer in config.layer_ids() {
            let of = |(site, prefix)| rows(format!("{prefix}.{layer}"), site);
            let of_layer = SITES.into_iter().map(of).collect::<Result<Vec<_>>>()?;
            layers.push(<[_; 3]>::try_from(of_layer).expect("three sites"));
        }
        let logits = rows("logits".into(), Site::Logits)?;
        Ok(Self { logits, case, sha256: hash::of_bytes(&bytes), layers })
    }

    /// How many tokens were recorded.
    pub(crate) fn tokens(&self) -> usize {
        self.case.len()
    }

    /// Runs the reference, with a planted bug or none, on the recorded tokens. Errors: the reference's.
    pub(crate) fn measure(&self, bench: &dyn Bench, mutant: Option<&str>) -> Result<Vec<Measurement>> {
        Ok(self.lanes(bench, &[mutant])?.remove(0).measured)
    }

    /// The same for several bugs, in one pass. Errors: the reference's.
    pub(crate) fn lanes(&self, bench: &dyn Bench, mutants: &[Option<&str>]) -> Result<Vec<GoldenLane>> {
        let config = bench.reference().config();
        let cases = vec![self.case.clone(); mutants.len()];
        let mut ledger = Ledger::new("reference", &cases, config);
        for layer in config.layer_ids() {
            SITES.iter().for_each(|(site, _)| ledger.expect(Some(layer), *site));
        }
        ledger.expect(None, Site::Logits);
        let lane = LaneSums {
            sums: vec![[(0.0, 0.0); 2]; config.num_layers()],
            logits: (0.0, 0.0),
            sets: 0,
            nll: Vec::new(),
        };
        let mut recorder = GoldenRecorder { ledger, golden: self, lanes: vec![lane; mutants.len()] };
        let run = Run {
            case: &self.case,
            schedule: Schedule::chunks_of(self.case.len()),
            routing: Routing::Free,
            precision: Precision::F32,
        };
        let lane = |&mutant: &Option<_>| Lane { run, mutant, ids_of: None, input_of: None };
        bench.reference_lanes(&mutants.iter().map(lane).collect::<Vec<_>>(), &mut recorder)?;
        recorder.ledger.finish()?;
        Ok(recorder.lanes.into_iter().map(|lane| lane.finish(self.case.len())).collect())
    }
}

/// One run of the reference on the recorded tokens.
pub(crate) struct GoldenLane {
    /// Against what was recorded.
    pub(crate) measured: Vec<Measurement>,
    /// Of each next token, nats.
    pub(crate) nll: Vec<f64>,
}

/// A tensor's values as f32, whatever numbers it holds.
fn numbers(tensor: &TensorView<'_>) -> Option<Vec<f32>> {
    let data = tensor.data();
    let chunks = |bytes: usize| data.chunks_exact(bytes);
    Some(match tensor.dtype() {
        Dtype::F32 => chunks(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect(),
        Dtype::I32 => chunks(4).map(|b| i32::from_le_bytes(b.try_into().expect("4 bytes")) as f32).collect(),
        Dtype::U32 => chunks(4).map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes")) as f32).collect(),
        Dtype::I64 => chunks(8).map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes")) as f32).collect(),
        _ => return None,
    })
}

struct GoldenRecorder<'a> {
    ledger: Ledger<'a>,
    golden: &'a Golden,
    lanes: Vec<LaneSums>,
}

#[derive(Clone)]
struct LaneSums {
    /// By layer and branch: squared difference and squared norm.
    sums: Vec<[(f64, f64); 2]>,
    /// The same of the logits.
    logits: (f64, f64),
    /// Rows whose sets differ.
    sets: usize,
    nll: Vec<f64>,
}

impl Recorder for GoldenRecorder<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, found: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, found)?;
        let lane = &mut self.lanes[at.run];
        let Some(LayerId(layer)) = at.layer else {
            lane.nll.extend(logits::next_token_nll(&self.golden.case.tokens, at.rows.start, found));
            add(&mut lane.logits, self.golden.logits.slice(s![at.rows.clone(), ..]), found);
            return Ok(());
        };
        let index = SITES.iter().position(|(site, _)| *site == at.site).expect("the ledger refuses others");
        let expected = self.golden.layers[layer][index].slice(s![at.rows.clone(), ..]);
        if at.site == Site::Choice {
            let rows = expected.rows().into_iter().zip(found.rows());
            lane.sets += rows.filter(|(expected, found)| !router::same_set(*expected, *found)).count();
            return Ok(());
        }
        add(&mut lane.sums[layer][index], expected, found);
        Ok(())
    }
}

/// Adds rows to a squared difference and a squared norm.
fn add((difference, norm): &mut (f64, f64), expected: ArrayView2<'_, f32>, found: ArrayView2<'_, f32>) {
    ndarray::Zip::from(expected).and(found).for_each(|&expected, &found| {
        *difference += (f64::from(found) - f64::from(expected)).powi(2);
        *norm += f64::from(expected).powi(2);
    });
}

impl LaneSums {
    fn finish(self, tokens: usize) -> GoldenLane {
        let mut measured = Vec::new();
        for (index, name) in ["attn", "moe"].into_iter().enumerate() {
            for (layer, sums) in self.sums.iter().enumerate() {
                let (difference, norm) = sums[index];
                let leg = Measurement::new("anchor.golden", name, tokens, (difference / norm).sqrt());
                measured.push(leg.at(format!("layer {layer}")));
            }
        }
        let rows = tokens * self.sums.len();
        measured.push(Measurement::new("anchor.golden", "sets", rows, self.sets as f64));
        let (difference, norm) = self.logits;
        measured.push(Measurement::new("anchor.golden", "logits", tokens, (difference / norm).sqrt()));
        GoldenLane { measured, nll: self.nll }
    }
}
