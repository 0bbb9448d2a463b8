//! What the gate, the matrix, bisection and explanation work with: both sides, and the planted bugs.
//! Implemented where reference and port are known.
//!
//! Absent on purpose: how a bug is planted; here it is a name, and several bugs are names with commas between
//! them.

use ndarray::{Array2, ArrayView2};
use spec::{Executed, ExpertId, Kernels, LayerId, Precision, Recorder, Result, Run, Side};

/// A run of the reference beside others in one pass, which reads each weight once.
#[derive(Debug, Clone, Copy)]
pub struct Lane<'a> {
    /// The run.
    pub run: Run<'a>,
    /// The bugs planted in this lane.
    pub mutant: Option<&'a str>,
    /// An earlier lane of the same tokens whose experts this lane executes.
    pub ids_of: Option<usize>,
    /// An earlier lane of the same tokens whose residual this lane is fed at each layer (re-injection).
    pub input_of: Option<usize>,
}

/// A bug, or a correct rewrite, that can be planted.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Planted {
    /// Its id.
    pub id: String,
    /// One sentence.
    pub what: String,
    /// Whether it is a correct rewrite, on which nothing may fire.
    pub rewrite: bool,
    /// The part of the model that it is in: "router".
    pub stage: String,
    /// Rows of the published catalogue that it is of: "R04".
    pub rows: Vec<String>,
    /// Public reports.
    pub seen_in: Vec<String>,
    /// What must be there for it to do anything, in words.
    pub needs: Vec<String>,
    /// The sides it can be planted in.
    pub sides: Vec<PlantedIn>,
}

/// Where a bug is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlantedIn {
    /// A step of the port.
    Port,
    /// The tensors or the configuration that the port loads.
    Checkpoint,
    /// A step of the reference.
    Reference,
    /// This program's own forcing.
    Harness,
}

impl PlantedIn {
    /// As a record has it.
    pub fn name(self) -> &'static str {
        match self {
            PlantedIn::Port => "port",
            PlantedIn::Checkpoint => "checkpoint",
            PlantedIn::Reference => "reference",
            PlantedIn::Harness => "harness",
        }
    }
}

/// An expert of a layer that the fewest tokens chose.
pub type Idle = (LayerId, ExpertId);

/// What a sequence offers planted bugs to show themselves on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occasion {
    /// Tokens of the sequence.
    pub tokens: usize,
    /// Tokens per prefill call.
    pub chunk: usize,
    /// Whether several sequences go through together.
    pub batch: bool,
    /// Whether some selection bias is not zero.
    pub nonzero_bias: bool,
    /// Whether some selection bias is not a bf16 number.
    pub wide_bias: bool,
}

/// Both sides over one checkpoint, and ways to break them.
pub trait Bench {
    /// The same over the checkpoint that a packed build was made of, whose choices are forced.
    fn source(&self) -> Option<&dyn Bench> {
        None
    }

    /// Bytes of all live arrays, as the port's engine counts them. Errors: the engine's.
    fn active_bytes(&self) -> Result<u64>;

    /// The reference.
    fn reference(&self) -> &dyn Side;

    /// One pass of the reference; [`spec::At::run`] is the index of the lane. Errors: as [`Side::forward`];
    /// [`spec::Error::Argument`] on bugs that the reference cannot have, or not together.
    fn reference_lanes(&self, lanes: &[Lane<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>>;

    /// Checkpoint bytes that the reference decoded so far.
    fn reference_bytes_read(&self) -> u64;

    /// The reference's matrix product, `x · wᵀ`: `x [n, in]`, `w [m, in]`, to `[n, m]`.
    fn reference_product(
        &self,
        mutant: Option<&str>,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
    ) -> Array2<f32>;

    /// The port that is judged. Errors: whatever loading it returns.
    fn port(&self, precision: Precision) -> Result<Box<dyn Side>>;

    /// The honest port with bugs planted. Errors: whatever loading it returns; [`spec::Error::Argument`] on
    /// bugs that the port cannot have, or not together.
    fn mutated_port(&self, mutant: &str, precision: Precision, idle: Idle) -> Result<Box<dyn Side>>;

    /// The kernels of the port that is judged; or of the honest one, with bugs planted in its steps. Errors:
    /// [`spec::Error::Argument`] on bugs that the port cannot have, or not together.
    fn kernels(&self, mutant: Option<&str>) -> Result<Box<dyn Kernels>>;

    /// Whether the reference can have these bugs at once, ids with commas between them.
    fn together(&self, ids: &str) -> bool;

    /// The bugs and rewrites that can be planted.
    fn planted(&self) -> Vec<Planted>;

    /// What a planted bug needs and this checkpoint and sequence have not, in words; empty: it can show
    /// itself.
    fn unmet(&self, id: &str, occasion: &Occasion) -> Vec<String>;
}
