//! The trained checkpoint, its text, and what moves when a bug is planted.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod edited;

use mutants::{Mutant, PortPlant};
use ndarray::{Array2, ArrayView2, Axis, concatenate};
use port::Port;
use reference::Reference;
use spec::{
    At, Case, Choices, ExpertId, LayerId, LayerKind, ModelConfig, Precision, Recorder, Result, Routing, Run,
    Schedule, Side, Site, TokenId, config_file,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub const TOKENS: usize = 64;
pub const CHUNK: usize = 36;
pub const DECODE_FROM: usize = 61;
/// The checkpoint's window.
pub const WINDOW: usize = 33;

pub fn checkpoint() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/kolibri-tiny-kjv")).into()
}

pub fn config() -> ModelConfig {
    config_file::read(&checkpoint()).unwrap()
}

pub fn text(tokens: usize) -> Case {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/texts/kjv-heldout.txt");
    let bytes = std::fs::read(path).unwrap();
    Case::new("text", bytes[..tokens].iter().map(|&byte| TokenId(byte.into())).collect()).unwrap()
}

pub fn port(precision: Precision) -> Port {
    Port::load(&checkpoint(), precision).unwrap()
}

pub fn reference() -> Reference {
    Reference::open(&checkpoint(), reference::Options::default()).unwrap()
}

pub fn port_steps(mutant: &Mutant) -> Option<Box<dyn port::Steps>> {
    match mutant.port {
        Some(PortPlant::Steps { make, .. }) => Some(make()),
        _ => None,
    }
}

/// Rows by layer and site, `[T, width]`.
pub type Rows = BTreeMap<(Option<LayerId>, Site), Array2<f32>>;

/// First positions by layer and site.
pub type Moved = BTreeMap<(Option<LayerId>, Site), usize>;

/// Which layers a bug acts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layers {
    Every,
    Sliding,
    Full,
    /// These.
    Only(&'static [usize]),
}

/// Where a bug must be, and the first position at which it shows.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub id: &'static str,
    pub layers: Layers,
    pub sites: &'static [Site],
    pub first: usize,
}

pub const fn place(id: &'static str, layers: Layers, sites: &'static [Site], first: usize) -> Place {
    Place { id, layers, sites, first }
}

impl Place {
    /// All origins that the bug can have among the recorded layers.
    pub fn keys(&self, rows: &Rows) -> BTreeSet<(Option<LayerId>, Site)> {
        let config = config();
        let acts = |layer: Option<LayerId>| match (layer, self.layers) {
            (None, _) | (_, Layers::Every) => true,
            (Some(layer), Layers::Sliding) => config.kind(layer) == LayerKind::Sliding,
            (Some(layer), Layers::Full) => config.kind(layer) == LayerKind::Full,
            (Some(layer), Layers::Only(layers)) => layers.contains(&layer.0),
        };
        let here = |&&(layer, site): &&(Option<LayerId>, Site)| acts(layer) && self.sites.contains(&site);
        rows.keys().filter(here).copied().collect()
    }

    /// Exactly these origins, from this position on.
    pub fn check(&self, right: &Rows, wrong: &Rows) {
        let origins = origins(&moved(right, wrong));
        let found: BTreeSet<_> = origins.keys().copied().collect();
        assert_eq!(found, self.keys(right), "{}", self.id);
        assert_eq!(origins.values().min(), Some(&self.first), "{}", self.id);
    }
}

/// Keeps every site.
#[derive(Default)]
struct Keep(Rows);

impl Recorder for Keep {
    fn wants(&self, _run: usize, _layer: Option<LayerId>, _site: Site) -> bool {
        true
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        let key = (at.layer, at.site);
        let so_far = self.0.remove(&key).unwrap_or_else(|| Array2::zeros((0, rows.ncols())));
        assert_eq!(so_far.nrows(), at.rows.start, "rows of {} come in order, each once", at.site);
        self.0.insert(key, concatenate(Axis(0), &[so_far.view(), rows]).unwrap());
        Ok(())
    }
}

/// What both of two sides are fed: a text in calls, the ids to force, and inputs of some layers.
pub struct Feed {
    case: Case,
    schedule: Schedule,
    precision: Precision,
    choices: Choices,
    layers: Vec<(LayerId, Array2<f32>)>,
    head: Array2<f32>,
}

impl Feed {
    /// The free run of a side without a bug, in prefill and decode.
    pub fn of(side: &dyn Side, precision: Precision, layers: &[usize]) -> Self {
        let case = text(TOKENS);
        let schedule = Schedule { decode_from: Some(DECODE_FROM), ..Schedule::chunks_of(CHUNK) };
        let mut kept = Keep::default();
        let run = Run { case: &case, schedule, routing: Routing::Free, precision };
        let choices = side.forward(&[run], &mut kept).unwrap().remove(0).choices;
        let output = |layer: usize| kept.0[&(Some(LayerId(layer)), Site::LayerOut)].clone();
        let input = |&layer: &usize| match layer {
            0 => (LayerId(0), kept.0[&(None, Site::Embedding)].clone()),
            _ => (LayerId(layer), output(layer - 1)),
        };
        let layers = layers.iter().map(input).collect();
        let head = output(side.config().num_layers() - 1);
        Self { case, schedule, precision, choices, layers, head }
    }

    /// Every site of the layers, and of the head, each on its own input with ids forced, and of the embedding
    /// of three tokens. All are finite.
    pub fn rows(&self, side: &dyn Side) -> Rows {
        let mut kept = Keep::default();
        let (few, precision) = (text(3), self.precision);
        let few = Run { case: &few, schedule: Schedule::chunks_of(3), routing: Routing::Free, precision };
        side.forward(&[few], &mut kept).unwrap();
        let embedding = kept.0.remove(&(None, Site::Embedding)).unwrap();

        let routing = Routing::Forced(&self.choices);
        let run = Run { case: &self.case, schedule: self.schedule, routing, precision };
        let mut kept = Keep::default();
        for (layer, input) in &self.layers {
            side.layer(*layer, &[run], std::slice::from_ref(input), &mut kept).unwrap();
        }
        side.head(&[run], std::slice::from_ref(&self.head), &mut kept).unwrap();
        kept.0.insert((None, Site::Embedding), embedding);
        for ((layer, site), rows) in &kept.0 {
            assert!(rows.iter().all(|x| x.is_finite()), "{site} of layer {layer:?}");
        }
        kept.0
    }

    /// An expert that no token went to.
    pub fn idle(&self) -> (LayerId, ExpertId) {
        let config = config();
        let chose = |layer, expert| (0..TOKENS).any(|t| self.choices.at(t, layer).contains(&expert));
        let experts = || (0..config.num_experts).map(|e| ExpertId(e.try_into().unwrap()));
        let all = config.layer_ids().flat_map(|layer| experts().map(move |expert| (layer, expert)));
        all.into_iter().find(|&(layer, expert)| !chose(layer, expert)).expect("an expert without tokens")
    }
}

/// The sites whose bits differ, with the first position of each.
pub fn moved(right: &Rows, wrong: &Rows) -> Moved {
    assert!(right.keys().eq(wrong.keys()) && right.len() > 25, "{} and {}", right.len(), wrong.len());
    let mut moved = BTreeMap::new();
    for (key, right) in right {
        let wrong = &wrong[key];
        assert_eq!(right.dim(), wrong.dim(), "{key:?}");
        let differs = |row: &usize| {
            right.row(*row).iter().zip(wrong.row(*row)).any(|(a, b)| a.to_bits() != b.to_bits())
        };
        if let Some(first) = (0..right.nrows()).find(differs) {
            moved.insert(*key, first);
        }
    }
    moved
}

/// The moved sites of which no input moved: where the bug is.
pub fn origins(moved: &Moved) -> Moved {
    let fed = |&(layer, site): &(Option<LayerId>, Site)| {
        inputs(site).iter().any(|&input| moved.contains_key(&(layer, input)))
    };
    moved.iter().filter(|(key, _)| !fed(key)).map(|(key, first)| (*key, *first)).collect()
}

/// The sites of the same layer that a site is made of when ids are forced (K6 to K18).
fn inputs(site: Site) -> &'static [Site] {
    match site {
        Site::Embedding | Site::FinalNorm | Site::AttnNorm | Site::Choice => &[],
        Site::Q | Site::K | Site::V => &[Site::AttnNorm],
        Site::QNorm => &[Site::Q],
        Site::KNorm => &[Site::K],
        Site::QRope => &[Site::QNorm],
        Site::KRope => &[Site::KNorm],
        Site::AttnOut => &[Site::QRope, Site::KRope, Site::V],
        Site::OProj => &[Site::AttnOut],
        Site::AttnBranch => &[Site::OProj],
        Site::AttnResidual => &[Site::AttnBranch],
        Site::MoeNorm => &[Site::AttnResidual],
        Site::RouterLogits => &[Site::MoeNorm],
        Site::SelectionScores => &[Site::RouterLogits],
        Site::ShadowChoice => &[Site::SelectionScores],
        Site::TopkWeights => &[Site::RouterLogits],
        Site::ExpertOut | Site::SharedGate | Site::SharedUp => &[Site::MoeNorm],
        Site::Routed => &[Site::ExpertOut, Site::TopkWeights],
        Site::SharedAct => &[Site::SharedGate, Site::SharedUp],
        Site::Shared => &[Site::SharedAct],
        Site::MoeBranch => &[Site::Routed, Site::Shared],
        Site::LayerOut => &[Site::AttnResidual, Site::MoeBranch],
        Site::Logits => &[Site::FinalNorm],
    }
}

/// `|a - b| / |b|`, in f64.
pub fn relative_l2(a: &Array2<f32>, b: &Array2<f32>) -> f64 {
    assert_eq!(a.dim(), b.dim());
    let error: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    let size: f64 = b.iter().map(|b| f64::from(*b).powi(2)).sum();
    (error / size).sqrt()
}
