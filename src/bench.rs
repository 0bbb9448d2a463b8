//! The two sides and the catalogue of planted bugs, as a gate works with them.
//!
//! A port is loaded once per precision; a bug in a step shares its weights, a bug in the checkpoint loads an
//! edited copy of its own.

use diff::gate::Bench;
use diff::gate::bench::{Idle, Lane, Planted, PlantedIn};
use mutants::{Facts, Mutant, PortPlant, edit};
use ndarray::{Array2, ArrayView2};
use port::Port;
use reference::{Correct, Reference, Steps};
use spec::{Error, Executed, ExpertId, LayerId, ModelConfig, Precision, Recorder, Result, Side};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Both sides over one checkpoint.
pub struct Workbench {
    checkpoint: PathBuf,
    reference: Reference,
    /// The bug in the port that is judged.
    judged: Option<&'static Mutant>,
    /// Loaded ports, by precision.
    ports: RefCell<Vec<(Precision, Port)>>,
    /// Edited checkpoints, kept as long as ports may read them.
    edited: RefCell<Vec<TempDir>>,
}

impl Workbench {
    /// Opens the reference. `judged` is the bug planted in the port that is judged, or none. Errors: those of
    /// [`Reference::open`]; [`Error::Argument`] on a bug that is not in the catalogue, or not of a port.
    pub fn open(checkpoint: &Path, threads: Option<usize>, judged: Option<&str>) -> Result<Self> {
        let judged = judged
            .map(|id| mutants::find(id).filter(|mutant| mutant.port.is_some()).ok_or_else(|| unknown(id)));
        Ok(Self {
            checkpoint: checkpoint.into(),
            reference: Reference::open(checkpoint, reference::Options { threads })?,
            judged: judged.transpose()?,
            ports: RefCell::default(),
            edited: RefCell::default(),
        })
    }

    fn with_steps(&self, precision: Precision, steps: Box<dyn port::Steps>) -> Result<Port> {
        let mut ports = self.ports.borrow_mut();
        if !ports.iter().any(|(loaded, _)| *loaded == precision) {
            ports.push((precision, Port::load(&self.checkpoint, precision)?));
        }
        let (_, port) = ports.iter().find(|(loaded, _)| *loaded == precision).expect("loaded above");
        Ok(port.with_steps(steps))
    }

    fn plant(&self, mutant: &Mutant, precision: Precision, idle: Idle) -> Result<Port> {
        match mutant.port {
            None => Err(unknown(mutant.id)),
            Some(PortPlant::Steps(steps)) => self.with_steps(precision, steps()),
            Some(PortPlant::Checkpoint(edits)) => {
                let next = "set TMPDIR to a folder with room";
                let folder =
                    TempDir::new().map_err(Error::io("create a folder in", std::env::temp_dir(), next))?;
                let facts = Facts { config: self.config(), idle };
                edit::apply(&self.checkpoint, &edits(&facts), folder.path())?;
                let port = Port::load(folder.path(), precision);
                self.edited.borrow_mut().push(folder);
                port
            }
        }
    }

    fn config(&self) -> &ModelConfig {
        Side::config(&self.reference)
    }
}

impl Bench for Workbench {
    fn reference(&self) -> &dyn Side {
        &self.reference
    }

    fn reference_lanes(&self, lanes: &[Lane<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        let steps: Vec<Box<dyn Steps>> = lanes.iter().map(|lane| steps_of(lane.mutant)).collect();
        let lanes: Vec<reference::Lane<'_>> = lanes
            .iter()
            .zip(&steps)
            .map(|(lane, steps)| reference::Lane {
                run: lane.run,
                steps: &**steps,
                ids_of: lane.ids_of,
                input_of: lane.input_of,
            })
            .collect();
        self.reference.forward_lanes(&lanes, recorder)
    }

    fn reference_bytes_read(&self) -> u64 {
        self.reference.bytes_read()
    }

    fn reference_product(
        &self,
        mutant: Option<&str>,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
    ) -> Array2<f32> {
        self.reference.product(&*steps_of(mutant), reference::steps::Matrix::Q, x, w)
    }

    fn port(&self, precision: Precision) -> Result<Box<dyn Side>> {
        match self.judged {
            None => Ok(Box::new(self.with_steps(precision, Box::new(port::Correct))?)),
            Some(mutant) => {
                // a demonstration; which expert is idle is a control's business
                let idle = (LayerId(self.config().num_layers() - 1), ExpertId(0));
                Ok(Box::new(self.plant(mutant, precision, idle)?))
            }
        }
    }

    fn mutated_port(&self, mutant: &str, precision: Precision, idle: Idle) -> Result<Box<dyn Side>> {
        let mutant = mutants::find(mutant).ok_or_else(|| unknown(mutant))?;
        Ok(Box::new(self.plant(mutant, precision, idle)?))
    }

    fn planted(&self) -> Vec<Planted> {
        mutants::catalogue().iter().map(planted).collect()
    }
}

fn planted(mutant: &Mutant) -> Planted {
    let port = mutant.port.map(|plant| match plant {
        PortPlant::Steps(_) => PlantedIn::Port,
        PortPlant::Checkpoint(_) => PlantedIn::Checkpoint,
    });
    Planted {
        id: mutant.id.into(),
        what: mutant.what.into(),
        seen_in: mutant.seen_in.iter().map(|&report| report.into()).collect(),
        sides: port.into_iter().chain(mutant.reference.map(|_| PlantedIn::Reference)).collect(),
    }
}

/// The reference's steps with a bug, or correct.
fn steps_of(mutant: Option<&str>) -> Box<dyn Steps> {
    let planted =
        |id| mutants::find(id).and_then(|mutant| mutant.reference).expect("the gate asks for what there is");
    mutant.map_or_else(|| Box::new(Correct) as Box<dyn Steps>, |id| planted(id)())
}

fn unknown(id: &str) -> Error {
    let ids: Vec<&str> =
        mutants::catalogue().iter().filter(|mutant| mutant.port.is_some()).map(|mutant| mutant.id).collect();
    Error::Argument {
        what: "the planted bug".into(),
        expected: format!("one of {}", ids.join(", ")),
        found: id.into(),
        next: "choose one of these".into(),
    }
}
