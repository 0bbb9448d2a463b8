//! The harness against itself: forcing is exact, forcing is active, and the reference's products are f32.
//!
//! Also the ways to break forcing and recording, as sides around a port, that checks must notice.

use super::end_to_end::{PortRunOf, floor, in_order_of_id, logits_spool};
use super::finding::Measurement;
use super::rows::Rows;
use crate::bench::Bench;
use crate::compare::Progress;
use crate::stats::first_worst;
use ndarray::{Array1, Array2, ArrayView2, s};
use rand::seq::index;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spec::{
    At, Choices, Executed, ExpertId, LayerId, ModelConfig, Precision, Recorder, Result, Routing, Run,
    Schedule, Side, SideInfo, Site,
};
use std::collections::BTreeMap;

const SEED: u64 = 20;
/// Rows of each operand of a product.
const PRODUCT_ROWS: [usize; 2] = [16, 48];

/// How forcing is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The ids are forced in order of id, not as executed.
    InOrderOfId,
    /// The ids are not forced at all.
    Off,
    /// Every recorded row is that of the token before.
    RowsLate,
}

impl Broken {
    /// All, with their ids and what they do.
    pub(crate) const ALL: [(Broken, &str, &str); 3] = [
        (Broken::InOrderOfId, "forcing_in_order_of_id", "forced ids run in order of id, not as executed"),
        (Broken::Off, "forcing_off", "forced ids are dropped without a word"),
        (Broken::RowsLate, "rows_late_by_one", "every recorded row is that of the token before"),
    ];

    /// The one of that id.
    pub(crate) fn find(id: &str) -> Option<Broken> {
        Broken::ALL.into_iter().find(|(_, name, _)| *name == id).map(|(broken, ..)| broken)
    }
}

/// A port whose forcing, or what is recorded of it, is broken.
pub(crate) struct Forcing {
    pub(crate) port: Box<dyn Side>,
    pub(crate) broken: Broken,
}

impl Side for Forcing {
    fn describe(&self) -> SideInfo {
        self.port.describe()
    }

    fn config(&self) -> &ModelConfig {
        self.port.config()
    }

    fn forward(&self, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        let sorted: Vec<Option<Choices>> = runs
            .iter()
            .map(|run| match (run.routing, self.broken) {
                (Routing::Forced(choices), Broken::InOrderOfId) => Some(in_order_of_id(choices)),
                _ => None,
            })
            .collect();
        let runs: Vec<Run<'_>> = runs
            .iter()
            .zip(&sorted)
            .map(|(run, sorted)| match (self.broken, sorted) {
                (_, Some(sorted)) => Run { routing: Routing::Forced(sorted), ..*run },
                (Broken::Off, None) => Run { routing: Routing::Free, ..*run },
                _ => *run,
            })
            .collect();
        self.record(recorder, &mut |recorder| self.port.forward(&runs, recorder))
    }

    fn layer(
        &self,
        layer: LayerId,
        runs: &[Run<'_>],
        h_in: &[Array2<f32>],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        self.record(recorder, &mut |recorder| self.port.layer(layer, runs, h_in, recorder))
    }

    fn head(&self, runs: &[Run<'_>], h_in: &[Array2<f32>], recorder: &mut dyn Recorder) -> Result<()> {
        self.record(recorder, &mut |recorder| self.port.head(runs, h_in, recorder))
    }

    fn tensors(&self, visit: &mut dyn FnMut(&str, &[f32]) -> Result<()>) -> Result<()> {
        self.port.tensors(visit)
    }
}

impl Forcing {
    fn record<T>(
        &self,
        recorder: &mut dyn Recorder,
        work: &mut dyn FnMut(&mut dyn Recorder) -> Result<T>,
    ) -> Result<T> {
        match self.broken {
            Broken::RowsLate => work(&mut Late { recorder, last: BTreeMap::new() }),
            _ => work(recorder),
        }
    }
}

/// Hands on every row but the first a token late.
struct Late<'a> {
    recorder: &'a mut dyn Recorder,
    last: BTreeMap<(usize, Option<LayerId>, Site), Array1<f32>>,
}

impl Recorder for Late<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.recorder.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        let key = (at.run, at.layer, at.site);
        let before = self.last.get(&key).map_or_else(|| rows.row(0), |row| row.view());
        let mut late = rows.to_owned();
        late.row_mut(0).assign(&before);
        late.slice_mut(s![1.., ..]).assign(&rows.slice(s![..-1, ..]));
        self.last.insert(key, rows.row(rows.nrows() - 1).to_owned());
        self.recorder.record(at, late.view())
    }

    fn layer_done(&mut self, layer: LayerId) -> Result<()> {
        self.recorder.layer_done(layer)
    }
}

/// Forced onto its own choices in executed order the port must repeat its free run bit for bit.
pub(crate) fn forcing_exact(
    port: &dyn Side,
    arm: Precision,
    rows: &Rows<'_>,
    chunk: usize,
    progress: &mut dyn Progress,
) -> Result<Measurement> {
    let floor = floor(port, rows, chunk, Choices::clone, progress)?;
    let differing = floor.differing as f64;
    Ok(Measurement::new("harness.forcing_exact", arm.name(), floor.values, differing))
}

/// Forced onto the choices of the position before, the port must say something else than free, and about as
/// much as forced onto random ones. Its own free run is what it would repeat if forcing were off.
pub(crate) fn forcing_active(
    port: &dyn Side,
    rows: &Rows<'_>,
    chunk: usize,
    progress: &mut dyn Progress,
) -> Result<Vec<Measurement>> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let shifted: Vec<Choices> = rows.choices.iter().map(of_the_position_before).collect();
    let drawn: Vec<Choices> =
        rows.choices.iter().map(|choices| at_random(choices, rows.config.num_experts, &mut random)).collect();
    let schedule = Schedule::chunks_of(chunk);
    let mut free_logits = logits_spool(rows.config, rows.cases)?;
    let mut free = PortRunOf::new("forcing is active", port, rows);
    free.keep = Some(&mut free_logits);
    free.run(&rows.runs(port, schedule, |_| Routing::Free), progress)?;
    let mut mean_kl = |choices: &[Choices]| -> Result<f64> {
        let runs = rows.runs(port, schedule, |case| Routing::Forced(&choices[case]));
        let mut forced = PortRunOf::new("forcing is active", port, rows);
        forced.stored = Some(&free_logits);
        Ok(forced.run(&runs, progress)?.logits.mean())
    };
    let (shifted, drawn) = (mean_kl(&shifted)?, mean_kl(&drawn)?);
    let leg = |name, value| Measurement::new("harness.forcing_active", name, rows.positions(), value);
    let words = format!("{drawn:.2e} nats of random choices");
    Ok(vec![leg("kl", shifted), leg("of_random", shifted / drawn).at(words)])
}

fn of_the_position_before(choices: &Choices) -> Choices {
    let mut shifted = choices.clone();
    for token in 1..choices.tokens() {
        (0..choices.layers()).map(LayerId).for_each(|l| shifted.set(token, l, choices.at(token - 1, l)));
    }
    shifted
}

fn at_random(choices: &Choices, experts: usize, random: &mut ChaCha8Rng) -> Choices {
    let mut drawn = choices.clone();
    for token in 0..choices.tokens() {
        for layer in (0..choices.layers()).map(LayerId) {
            let ids = index::sample(random, experts, choices.k()).into_iter();
            let ids: Vec<ExpertId> =
                ids.map(|id| ExpertId(u16::try_from(id).expect("config bounds the expert count"))).collect();
            drawn.set(token, layer, &ids);
        }
    }
    drawn
}

/// The reference's products against f64, relative L2 per product, at every inner length of the model.
pub(crate) fn reference_f64(bench: &dyn Bench, mutant: Option<&str>) -> Measurement {
    let config = bench.reference().config();
    let inner =
        [config.hidden_size, config.num_heads * config.head_dim, config.expert_width, config.shared_width];
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut draw = |rows: usize, k: usize| {
        Array2::from_shape_simple_fn((rows, k), || random.random_range(-1.0_f32..1.0))
    };
    let product = |k: usize| {
        let (x, w) = (draw(PRODUCT_ROWS[0], k), draw(PRODUCT_ROWS[1], k));
        let found = bench.reference_product(mutant, x.view(), w.view());
        (relative_l2(x.view(), w.view(), found.view()), k)
    };
    let (error, terms) =
        first_worst(inner.into_iter().map(product), |(error, _)| *error).expect("inner lengths");
    let values = inner.len() * PRODUCT_ROWS[0] * PRODUCT_ROWS[1];
    let leg = Measurement::new("harness.reference_f64", "error", values, error);
    leg.at(format!("sums of {terms} terms"))
}

fn relative_l2(x: ArrayView2<'_, f32>, w: ArrayView2<'_, f32>, found: ArrayView2<'_, f32>) -> f64 {
    let exact = x.mapv(f64::from).dot(&w.mapv(f64::from).t());
    let (mut difference, mut norm) = (0.0, 0.0);
    ndarray::Zip::from(&exact).and(found).for_each(|&exact, &found| {
        difference += (f64::from(found) - exact).powi(2);
        norm += exact * exact;
    });
    (difference / norm).sqrt()
}
