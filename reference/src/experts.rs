//! The experts (K17): each is decoded once per pass, only if some token of some lane chose it, run on all
//! of its tokens, and dropped.
//!
//! Inputs: the MoE's input and the chosen ids of every lane. Outputs: one row per (token, slot), which stay
//! where the expert wrote them until the weighted sum reads them in executed order: `T * k * H` values per
//! lane are held at a time, and one expert's weights per thread.

use crate::lane::LaneState;
use crate::precision;
use crate::steps::{Matrix, Steps};
use crate::weights::Weights;
use crate::workers::Workers;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, Zip};
use rayon::prelude::*;
use spec::{ExpertId, LayerId, Precision, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// Gate, up and down matrices of a routed or the shared expert.
pub(crate) struct Expert {
    pub gate: Array2<f32>,
    pub up: Array2<f32>,
    pub down: Array2<f32>,
}

impl Expert {
    /// A routed expert of a layer.
    pub fn routed(weights: &Weights, layer: LayerId, expert: ExpertId) -> Result<Self> {
        Self::read(weights, &format!("model.layers.{layer}.mlp.experts.{expert}"))
    }

    /// The shared expert of a layer.
    pub fn shared(weights: &Weights, layer: LayerId) -> Result<Self> {
        Self::read(weights, &format!("model.layers.{layer}.mlp.shared_experts"))
    }

    fn read(weights: &Weights, prefix: &str) -> Result<Self> {
        Ok(Self {
            gate: weights.matrix(&format!("{prefix}.gate_proj.weight"))?,
            up: weights.matrix(&format!("{prefix}.up_proj.weight"))?,
            down: weights.matrix(&format!("{prefix}.down_proj.weight"))?,
        })
    }

    /// A routed expert's `down(silu(gate(x)) * up(x))`, `x [n, H]` to `[n, H]`, stored in that precision; by
    /// the calling thread.
    pub fn run(&self, steps: &dyn Steps, precision: Precision, x: ArrayView2<'_, f32>) -> Array2<f32> {
        let product = |which, x: ArrayView2<'_, f32>, w: &Array2<f32>| {
            let mut out = Array2::zeros((x.nrows(), w.nrows()));
            steps.product(which, x, w.view(), out.view_mut());
            out
        };
        let mut active = product(Matrix::ExpertGate, x, &self.gate);
        steps.activate(active.view_mut(), product(Matrix::ExpertUp, x, &self.up).view());
        let mut out = product(Matrix::ExpertDown, active.view(), &self.down);
        precision::store(precision, out.view_mut());
        out
    }
}

/// Which expert runs which tokens of which lane.
pub(crate) struct Dispatch {
    k: usize,
    jobs: Vec<Job>,
    /// Per lane, per (token, slot): the job, and the row of its output.
    places: Vec<Vec<(usize, usize)>>,
}

struct Job {
    expert: ExpertId,
    /// Per lane: token positions, ascending.
    tokens: Vec<Vec<usize>>,
}

/// Per job, per lane: `[tokens, H]`.
pub(crate) struct Outputs(Vec<Vec<Array2<f32>>>);

impl Dispatch {
    /// `ids[lane]` is `[T * k]`, each token's experts in executed order.
    pub fn new(ids: &[Vec<ExpertId>], k: usize) -> Self {
        let mut jobs: Vec<Job> = Vec::new();
        let mut job_of = BTreeMap::new();
        let mut places = vec![Vec::new(); ids.len()];
        for (lane, lane_ids) in ids.iter().enumerate() {
            for (slot, &expert) in lane_ids.iter().enumerate() {
                let job = *job_of.entry(expert).or_insert_with(|| {
                    jobs.push(Job { expert, tokens: vec![Vec::new(); ids.len()] });
                    jobs.len() - 1
                });
                let tokens = &mut jobs[job].tokens[lane];
                places[lane].push((job, tokens.len()));
                tokens.push(slot / k);
            }
        }
        Self { k, jobs, places }
    }

    /// Runs every job. `inputs[lane]` is `[T, H]`. Errors: a tensor that cannot be used, of the first job
    /// that meets one.
    pub fn run(
        &self,
        weights: &Weights,
        layer: LayerId,
        lanes: &[LaneState<'_>],
        inputs: &[Array2<f32>],
        workers: &Workers,
    ) -> Result<Outputs> {
        let run = |job: &Job| -> Result<Vec<Array2<f32>>> {
            let expert = Expert::routed(weights, layer, job.expert)?;
            let outputs = job.tokens.iter().zip(lanes).zip(inputs).map(|((tokens, lane), x)| {
                expert.run(lane.steps, lane.precision(), x.select(Axis(0), tokens).view())
            });
            Ok(outputs.collect())
        };
        let outputs: Vec<_> = workers.run(|| self.jobs.par_iter().map(run).collect());
        Ok(Outputs(outputs.into_iter().collect::<Result<_>>()?))
    }

    /// The experts whose outputs [`Dispatch::combine`] sums for one token, in that order.
    pub fn executed(&self, lane: usize, token: usize) -> Vec<ExpertId> {
        self.of_token(lane, token).iter().map(|&(job, _)| self.jobs[job].expert).collect()
    }

    /// The outputs that [`Dispatch::combine`] sums for some tokens of a lane, in that order: `[n, k * H]`.
    pub fn outputs_of(&self, outputs: &Outputs, lane: usize, tokens: Range<usize>) -> Array2<f32> {
        let row = |&(job, row): &(usize, usize)| outputs.0[job][lane].row(row);
        let rows: Vec<_> = tokens.clone().flat_map(|token| self.of_token(lane, token)).map(row).collect();
        let values: Vec<f32> = rows.iter().flat_map(|row| row.iter().copied()).collect();
        Array2::from_shape_vec((tokens.len(), values.len() / tokens.len()), values).expect("k outputs each")
    }

    /// The weighted sums of one lane: `weights [T, k]` to `[T, H]` (K17).
    pub fn combine(
        &self,
        outputs: &Outputs,
        lane: &LaneState<'_>,
        weights: &Array2<f32>,
        workers: &Workers,
    ) -> Array2<f32> {
        let mut sums = Array2::zeros(lane.h.dim());
        workers.by_rows(&mut sums, |first, mut rows| {
            for (token, mut sum) in (first..).zip(rows.rows_mut()) {
                let row = |&(job, row): &(usize, usize)| outputs.0[job][lane.index].row(row).to_slice();
                let rows: Option<Vec<&[f32]>> = self.of_token(lane.index, token).iter().map(row).collect();
                let weights = weights.row(token).to_slice().expect("rows are contiguous");
                let sum = sum.as_slice_mut().expect("rows are contiguous");
                lane.steps.combine(&rows.expect("rows are contiguous"), weights, sum);
            }
        });
        sums
    }

    fn of_token(&self, lane: usize, token: usize) -> &[(usize, usize)] {
        &self.places[lane][token * self.k..(token + 1) * self.k]
    }
}

/// `gate = silu(gate) * up`, where `silu(x) = x / (1 + e^-x)` (K17).
pub(crate) fn silu_times(gate: ArrayViewMut2<'_, f32>, up: ArrayView2<'_, f32>) {
    Zip::from(gate).and(up).for_each(|gate, up| *gate = *gate / (1.0 + (-*gate).exp()) * up);
}

/// `sum += weight * output` for each output in order (K17).
pub(crate) fn weighted_sum(outputs: &[&[f32]], weights: &[f32], sum: &mut [f32]) {
    assert_eq!(outputs.len(), weights.len(), "one weight per expert");
    for (output, weight) in outputs.iter().zip(weights) {
        for (sum, value) in sum.iter_mut().zip(*output) {
            *sum += weight * value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::arr2;

    #[test]
    fn silu_of_the_gate_times_up_is_close_to_f64() {
        let values = [-100.0_f32, -3.5, -0.1, 0.0, 0.7, 20.0];
        let mut gate = Array2::from_shape_vec((2, 3), values.into()).unwrap();
        let up = arr2(&[[2.0, -1.0, 0.5], [3.0, 1.5, -0.25]]);
        silu_times(gate.view_mut(), up.view());
        for ((&ours, x), &up) in gate.iter().zip(values).zip(&up) {
            let exact = f64::from(x) / (1.0 + (-f64::from(x)).exp()) * f64::from(up);
            assert!((f64::from(ours) - exact).abs() <= 3e-7 * exact.abs() + 1e-35, "{x}: {ours} and {exact}");
        }
    }

    #[test]
    fn the_weighted_sum_is_in_executed_order() {
        // (2^24 + 1) - 2^24 loses the 1 in f32; (2^24 - 2^24) + 1 does not
        let big = 16_777_216.0;
        let rows: [&[f32]; 3] = [&[big], &[1.0], &[-big]];
        let mut sum = [0.0];
        weighted_sum(&rows, &[1.0, 1.0, 1.0], &mut sum);
        assert_eq!(sum, [0.0]);
        let mut sum = [0.0];
        weighted_sum(&[rows[0], rows[2], rows[1]], &[1.0, 1.0, 3.0], &mut sum);
        assert_eq!(sum, [3.0]);
    }

    #[test]
    fn each_chosen_expert_is_one_job_with_the_tokens_of_all_lanes() {
        let ids = |ids: &[u16]| ids.iter().map(|&id| ExpertId(id)).collect::<Vec<_>>();
        let dispatch = Dispatch::new(&[ids(&[5, 2, 2, 9]), ids(&[2, 5])], 2);
        let jobs: Vec<_> = dispatch.jobs.iter().map(|job| (job.expert.0, job.tokens.clone())).collect();
        let expected =
            [(5, vec![vec![0], vec![0]]), (2, vec![vec![0, 1], vec![0]]), (9, vec![vec![1], vec![]])];
        assert_eq!(jobs, expected);
        assert_eq!(dispatch.executed(0, 1), ids(&[2, 9]));
        assert_eq!(dispatch.executed(1, 0), ids(&[2, 5]));
    }
}
