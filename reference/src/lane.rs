//! A lane: one run on its way through the layers, side by side with others that share each decoded weight.

use crate::precision;
use crate::rope::RopeTable;
use crate::steps::Steps;
use crate::workers::Workers;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use spec::{At, Choices, Executed, LayerId, ModelConfig, Precision, Recorder, Result, Routing, Run, Site};

/// A run and the steps that compute it; lanes of one pass may have different steps.
#[derive(Clone, Copy)]
pub struct Lane<'a> {
    /// The run.
    pub run: Run<'a>,
    /// Its steps: [`crate::Correct`], or a planted bug.
    pub steps: &'a dyn Steps,
    /// The lane whose experts this one executes, in every layer, in the order in which that lane executes
    /// them in this pass; its own choice is still its shadow. An earlier lane of the same tokens; only with
    /// [`Routing::Free`].
    pub ids_of: Option<usize>,
    /// The lane from which this one takes its residual at the start of every layer and of the head, stored in
    /// its own precision: re-injection within one pass. An earlier lane of the same tokens.
    pub input_of: Option<usize>,
}

impl<'a> Lane<'a> {
    /// A lane that takes nothing from another.
    pub fn new(run: Run<'a>, steps: &'a dyn Steps) -> Self {
        Self { run, steps, ids_of: None, input_of: None }
    }
}

/// Panics if a lane takes something from a lane that it cannot take it from.
pub(crate) fn assert_sources(lanes: &[Lane<'_>]) {
    for (index, lane) in lanes.iter().enumerate() {
        for source in lane.ids_of.into_iter().chain(lane.input_of) {
            assert!(source < index, "lane {index} takes from lane {source}, which is not an earlier one");
            let same = lanes[source].run.case.tokens == lane.run.case.tokens;
            assert!(same, "lane {index} takes from lane {source}, which has other tokens");
        }
        let free = matches!(lane.run.routing, Routing::Free);
        assert!(free || lane.ids_of.is_none(), "lane {index} is forced and takes ids from another");
    }
}

/// What a lane carries from layer to layer.
pub(crate) struct LaneState<'a> {
    /// Index among the runs of the call.
    pub index: usize,
    pub run: Run<'a>,
    pub steps: &'a dyn Steps,
    pub ids_of: Option<usize>,
    pub input_of: Option<usize>,
    /// The residual, `[T, H]`.
    pub h: Array2<f32>,
    pub table: RopeTable,
    pub choices: Choices,
    pub shadow: Choices,
}

impl<'a> LaneState<'a> {
    /// A lane at the point where the residual is `h`.
    pub fn new(index: usize, lane: &Lane<'a>, h: Array2<f32>, config: &ModelConfig) -> Self {
        let tokens = lane.run.case.len();
        let unset = Choices::unset(tokens, config.num_layers(), config.experts_per_token);
        Self {
            index,
            run: lane.run,
            steps: lane.steps,
            ids_of: lane.ids_of,
            input_of: lane.input_of,
            h,
            table: RopeTable::new(tokens, &lane.steps.inv_freq(config)),
            choices: unset.clone(),
            shadow: unset,
        }
    }

    /// Calls `work` on blocks of rows, then stores them in the lane's precision.
    pub fn by_rows(
        &self,
        rows: &mut Array2<f32>,
        workers: &Workers,
        work: impl Fn(usize, ArrayViewMut2<'_, f32>) + Sync,
    ) {
        workers.by_rows(rows, |first, mut rows| {
            work(first, rows.view_mut());
            precision::store(self.precision(), rows);
        });
    }

    pub fn precision(&self) -> Precision {
        self.run.precision
    }

    /// What the lane executed, once it has passed every layer.
    pub fn executed(self) -> Executed {
        let tokens = self.run.case.len();
        let calls = self.run.schedule.calls(tokens);
        let call = (0_u32..).zip(calls).flat_map(|(call, positions)| positions.map(move |_| call)).collect();
        let forced_rows = match self.run.routing {
            Routing::Free if self.ids_of.is_none() => 0,
            _ => tokens * self.choices.layers(),
        };
        Executed { choices: self.choices, shadow: self.shadow, forced_rows, call }
    }
}

/// Gives every lane that has an `input_of` the residual of that lane.
pub(crate) fn reinject(lanes: &mut [LaneState<'_>], workers: &Workers) {
    for index in 0..lanes.len() {
        if let Some(source) = lanes[index].input_of {
            let mut h = lanes[source].h.clone();
            precision::store_all(lanes[index].precision(), &mut h, workers);
            lanes[index].h = h;
        }
    }
}

/// A recorder at one run and layer.
pub(crate) struct Tap<'a> {
    pub recorder: &'a mut dyn Recorder,
    pub run: usize,
    pub layer: Option<LayerId>,
}

impl Tap<'_> {
    pub fn wants(&self, site: Site) -> bool {
        self.recorder.wants(self.run, self.layer, site)
    }

    /// Records all rows of a site, if wanted.
    pub fn all(&mut self, site: Site, rows: &Array2<f32>) -> Result<()> {
        if self.wants(site) { self.block(site, 0, rows.view()) } else { Ok(()) }
    }

    /// Records a block of rows of a site that is wanted.
    pub fn block(&mut self, site: Site, first: usize, rows: ArrayView2<'_, f32>) -> Result<()> {
        let at = At { run: self.run, layer: self.layer, site, rows: first..first + rows.nrows() };
        self.recorder.record(&at, rows)
    }
}
