//! The two sides and the catalogue of planted bugs, as gate, matrix, bisection and explanation work with
//! them.
//!
//! A port is loaded once per precision; a bug in a step shares its weights, a bug in the checkpoint loads an
//! edited copy of its own.

use diff::bench::{Bench, Idle, Lane, Occasion, Planted, PlantedIn};
use mutants::{Facts, Kind, Mutant, PortPlant, edit};
use ndarray::{Array2, ArrayView2};
use port::Port;
use port::engine::{Doing, active_bytes};
use port::kernels::PortKernels;
use reference::{Correct, Reference, Steps};
use spec::{Error, Executed, ExpertId, Kernels, LayerId, ModelConfig, Precision, Recorder, Result, Side};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Both sides over one checkpoint.
pub struct Workbench {
    checkpoint: PathBuf,
    reference: Reference,
    /// Over the checkpoint that this one is a build of.
    source: Option<Box<Workbench>>,
    /// The bugs in the port that is judged.
    judged: Vec<&'static Mutant>,
    /// Loaded ports, by precision.
    ports: RefCell<Vec<(Precision, Port)>>,
    /// Edited checkpoints, kept as long as ports may read them.
    edited: RefCell<Vec<TempDir>>,
}

impl Workbench {
    /// Opens the reference. `judged` names the bugs planted in the port that is judged, with commas between
    /// them, or none. Errors: those of [`Reference::open`]; [`Error::Argument`] on bugs that are not in the
    /// catalogue, not of a port, or not to be planted together.
    pub fn open(checkpoint: &Path, threads: Option<usize>, judged: Option<&str>) -> Result<Self> {
        let judged = judged.map(mutants::find_all).transpose()?.unwrap_or_default();
        mutants::port_steps(&judged)?;
        Ok(Self {
            checkpoint: checkpoint.into(),
            reference: Reference::open(checkpoint, reference::Options { threads })?,
            source: None,
            judged,
            ports: RefCell::default(),
            edited: RefCell::default(),
        })
    }

    /// The same, as a build of the checkpoint in `source`. Errors: those of [`Reference::open`];
    /// [`Error::Argument`] if that is another model.
    pub fn built_from(self, source: &Path, threads: Option<usize>) -> Result<Self> {
        let source = Self::open(source, threads, None)?;
        let plain = |config: &ModelConfig| ModelConfig {
            quantization: spec::Quantization::default(),
            declared_dtype: None,
            ..config.clone()
        };
        if plain(source.config()) != plain(self.config()) {
            return Err(Error::Argument {
                what: format!("--reference {}", source.checkpoint.display()),
                expected: format!("the checkpoint that {} is a build of", self.checkpoint.display()),
                found: "one whose config.json is another model's".into(),
                next: "name the folder that the build was converted from".into(),
            });
        }
        Ok(Self { source: Some(Box::new(source)), ..self })
    }

    fn with_steps(&self, precision: Precision, steps: Box<dyn port::Steps>) -> Result<Port> {
        let mut ports = self.ports.borrow_mut();
        if !ports.iter().any(|(loaded, _)| *loaded == precision) {
            ports.push((precision, Port::load(&self.checkpoint, precision)?));
        }
        let (_, port) = ports.iter().find(|(loaded, _)| *loaded == precision).expect("loaded above");
        Ok(port.with_steps(steps))
    }

    fn plant(&self, bugs: &[&'static Mutant], precision: Precision, idle: Idle) -> Result<Port> {
        let steps = mutants::port_steps(bugs)?;
        let edits = mutants::edits(bugs, &Facts { config: self.config(), idle });
        if edits.is_empty() {
            return self.with_steps(precision, steps);
        }
        let next = "set TMPDIR to a folder with room";
        let folder = TempDir::new().map_err(Error::io("create a folder in", std::env::temp_dir(), next))?;
        edit::apply(&self.checkpoint, &edits, folder.path())?;
        let port = Port::load(folder.path(), precision)?.with_steps(steps);
        self.edited.borrow_mut().push(folder);
        Ok(port)
    }

    fn config(&self) -> &ModelConfig {
        Side::config(&self.reference)
    }
}

impl Bench for Workbench {
    fn source(&self) -> Option<&dyn Bench> {
        self.source.as_deref().map(|source| source as &dyn Bench)
    }

    fn active_bytes(&self) -> Result<u64> {
        Ok(active_bytes().doing("ask for its memory")? as u64)
    }

    fn reference(&self) -> &dyn Side {
        &self.reference
    }

    fn reference_lanes(&self, lanes: &[Lane<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        let steps: Vec<Box<dyn Steps>> =
            lanes.iter().map(|lane| steps_of(lane.mutant)).collect::<Result<_>>()?;
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
        let steps = steps_of(mutant).expect("the gate asks for what there is");
        self.reference.product(&*steps, reference::steps::Matrix::Q, x, w)
    }

    fn port(&self, precision: Precision) -> Result<Box<dyn Side>> {
        // a demonstration; which expert is idle is a control's business
        let idle = (LayerId(self.config().num_layers() - 1), ExpertId(0));
        Ok(Box::new(self.plant(&self.judged, precision, idle)?))
    }

    fn mutated_port(&self, mutant: &str, precision: Precision, idle: Idle) -> Result<Box<dyn Side>> {
        Ok(Box::new(self.plant(&mutants::find_all(mutant)?, precision, idle)?))
    }

    fn kernels(&self, mutant: Option<&str>) -> Result<Box<dyn Kernels>> {
        let steps = match mutant {
            None => mutants::port_steps(&self.judged)?,
            Some(ids) => mutants::port_steps(&mutants::find_all(ids)?)?,
        };
        Ok(Box::new(PortKernels::new(steps, self.config())))
    }

    fn together(&self, ids: &str) -> bool {
        steps_of(Some(ids)).is_ok()
    }

    fn planted(&self) -> Vec<Planted> {
        catalogue()
    }

    fn unmet(&self, id: &str, occasion: &Occasion) -> Vec<String> {
        let Occasion { tokens, chunk, batch, nonzero_bias, wide_bias } = *occasion;
        let occasion =
            mutants::Occasion { config: self.config(), tokens, chunk, batch, nonzero_bias, wide_bias };
        let needs = mutants::find(id).map_or(&[][..], |mutant| mutant.needs);
        needs.iter().filter(|need| !need.is_met(&occasion)).map(|need| need.words().into()).collect()
    }
}

/// The port's kernels for a model of that shape, with bugs planted in its steps. Errors: [`Error::Argument`]
/// on bugs that are not of a step, or not to be planted together.
pub fn kernels(config: &ModelConfig, mutants: Option<&str>) -> Result<Box<dyn Kernels>> {
    let bugs = mutants.map(mutants::find_all).transpose()?.unwrap_or_default();
    if let Some(bug) = bugs.iter().find(|bug| matches!(bug.port, Some(PortPlant::Checkpoint(_)))) {
        return Err(Error::Argument {
            what: format!("planted bug {}", bug.id),
            expected: "a bug in a step of the port; no checkpoint is loaded".into(),
            found: "a bug in a checkpoint".into(),
            next: "see `assay mutants list`".into(),
        });
    }
    Ok(Box::new(PortKernels::new(mutants::port_steps(&bugs)?, config)))
}

/// Every bug and rewrite of the two sides.
pub fn catalogue() -> Vec<Planted> {
    mutants::catalogue().chain(mutants::variants()).map(planted).collect()
}

fn planted(mutant: &Mutant) -> Planted {
    let port = mutant.port.map(|plant| match plant {
        PortPlant::Steps { .. } => PlantedIn::Port,
        PortPlant::Checkpoint(_) => PlantedIn::Checkpoint,
    });
    let words = |list: &[&str]| list.iter().map(|&word| word.into()).collect();
    Planted {
        id: mutant.id.into(),
        what: mutant.what.into(),
        rewrite: mutant.kind == Kind::Rewrite,
        stage: mutant.stage.name().into(),
        rows: words(mutant.rows),
        seen_in: words(mutant.seen_in),
        needs: mutant.needs.iter().map(|need| need.words().into()).collect(),
        sides: port.into_iter().chain(mutant.reference().map(|_| PlantedIn::Reference)).collect(),
    }
}

/// The reference's steps with bugs, or correct.
fn steps_of(mutants: Option<&str>) -> Result<Box<dyn Steps>> {
    match mutants {
        None => Ok(Box::new(Correct)),
        Some(ids) => mutants::reference_steps(&mutants::find_all(ids)?),
    }
}
