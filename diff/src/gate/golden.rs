//! The reference against recorded outputs of an independent third implementation.
//!
//! Input: a safetensors file with `tokens` `[T]`, and per layer `l` `attn_branch.l`, `moe_branch.l` `[T, H]`
//! and
//! `choice.l` `[T, k]` (fixtures/README.md). Absent on purpose: making such a file.

use super::finding::Measurement;
use crate::bench::{Bench, Lane};
use crate::compare::ledger::Ledger;
use crate::metrics::router;
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
        let mut layers = Vec::new();
        for layer in config.layer_ids() {
            let mut of_layer = Vec::new();
            for (site, prefix) in SITES {
                let name = format!("{prefix}.{layer}");
                let tensor = find(&name)?;
                let shape = (case.len(), site.width(config));
                let values = numbers(&tensor).filter(|_| tensor.shape() == [shape.0, shape.1]);
                let values = values.ok_or_else(|| {
                    refuse(&name, format!("numbers of shape {shape:?}"), format!("{:?}", tensor.shape()))
                })?;
                of_layer.push(Array2::from_shape_vec(shape, values).expect("the shape was checked"));
            }
            layers.push(<[_; 3]>::try_from(of_layer).expect("three sites"));
        }
        Ok(Self { case, sha256: hash::of_bytes(&bytes), layers })
    }

    /// Runs the reference, with a planted bug or none, on the recorded tokens. Errors: the reference's.
    pub(crate) fn measure(&self, bench: &dyn Bench, mutant: Option<&str>) -> Result<Vec<Measurement>> {
        let config = bench.reference().config();
        let cases = [self.case.clone()];
        let mut ledger = Ledger::new("reference", &cases, config);
        for layer in config.layer_ids() {
            SITES.iter().for_each(|(site, _)| ledger.expect(Some(layer), *site));
        }
        let empty = vec![[(0.0, 0.0); 2]; config.num_layers()];
        let mut recorder = GoldenRecorder { ledger, golden: self, sums: empty, sets: 0 };
        let run = Run {
            case: &self.case,
            schedule: Schedule::chunks_of(self.case.len()),
            routing: Routing::Free,
            precision: Precision::F32,
        };
        bench.reference_lanes(&[Lane { run, mutant, ids_of: None, input_of: None }], &mut recorder)?;
        recorder.ledger.finish()?;
        Ok(recorder.finish())
    }
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
    /// By layer and branch: squared difference and squared norm.
    sums: Vec<[(f64, f64); 2]>,
    /// Rows whose sets differ.
    sets: usize,
}

impl Recorder for GoldenRecorder<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, found: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, found)?;
        let layer = at.layer.expect("golden sites are of layers").0;
        let index = SITES.iter().position(|(site, _)| *site == at.site).expect("the ledger refuses others");
        let expected = self.golden.layers[layer][index].slice(s![at.rows.clone(), ..]);
        if at.site == Site::Choice {
            let rows = expected.rows().into_iter().zip(found.rows());
            self.sets += rows.filter(|(expected, found)| !router::same_set(*expected, *found)).count();
            return Ok(());
        }
        let (difference, norm) = &mut self.sums[layer][index];
        ndarray::Zip::from(expected).and(found).for_each(|&expected, &found| {
            *difference += (f64::from(found) - f64::from(expected)).powi(2);
            *norm += f64::from(expected).powi(2);
        });
        Ok(())
    }
}

impl GoldenRecorder<'_> {
    fn finish(self) -> Vec<Measurement> {
        let tokens = self.golden.case.len();
        let mut legs = Vec::new();
        for (index, name) in ["attn", "moe"].into_iter().enumerate() {
            for (layer, sums) in self.sums.iter().enumerate() {
                let (difference, norm) = sums[index];
                let leg = Measurement::new("anchor.golden", name, tokens, (difference / norm).sqrt());
                legs.push(leg.at(format!("layer {layer}")));
            }
        }
        let rows = tokens * self.sums.len();
        legs.push(Measurement::new("anchor.golden", "sets", rows, self.sets as f64));
        legs
    }
}
