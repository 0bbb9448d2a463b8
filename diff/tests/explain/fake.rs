//! Both sides as seeded rows of two layers; a bug is an edit of the rows of one site. Nothing is computed of
//! anything: an edit of one site leaves every other as it is.

#[path = "../support/config.rs"]
mod config;

use diff::bench::{Bench, Idle, Lane, Occasion, Planted, PlantedIn};
use ndarray::{Array2, ArrayView2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spec::{
    At, Choices, Executed, ExpertId, Kernels, LayerId, ModelConfig, Precision, Recorder, Result, Run, Side,
    SideInfo, Site,
};

/// Changes the rows of one site in every layer.
#[derive(Clone)]
pub struct Edit {
    pub site: Site,
    pub change: fn(&mut Array2<f32>),
}

/// A side with these edits.
#[derive(Clone)]
pub struct Table {
    pub config: ModelConfig,
    pub edits: Vec<Edit>,
    /// Changes the logits of a whole forward pass alone.
    pub at_the_end: fn(&mut Array2<f32>),
}

impl Table {
    pub fn new(edits: Vec<Edit>) -> Self {
        Self { config: config::config(), edits, at_the_end: |_| () }
    }

    fn rows(&self, tokens: usize, layer: Option<LayerId>, site: Site) -> Array2<f32> {
        let mut rows = match site {
            Site::Choice | Site::ShadowChoice => {
                Array2::from_shape_fn((tokens, 2), |(row, item)| ((row + item) % 4) as f32)
            }
            // the chosen are a whole unit ahead
            Site::SelectionScores => Array2::from_shape_fn((tokens, 4), |(row, expert)| {
                f32::from(u8::from(expert == row % 4 || expert == (row + 1) % 4))
            }),
            _ => {
                let place = layer.map_or(9, |layer| layer.0 as u64) * 100 + site as u64;
                let mut random = ChaCha8Rng::seed_from_u64(place);
                let width = site.width(&self.config);
                Array2::from_shape_simple_fn((tokens, width), || random.random_range(0.5_f32..1.0))
            }
        };
        self.edits.iter().filter(|edit| edit.site == site).for_each(|edit| (edit.change)(&mut rows));
        rows
    }

    fn emit(
        &self,
        run: (usize, &Run<'_>),
        layer: Option<LayerId>,
        sites: &[Site],
        to: &mut dyn Recorder,
    ) -> Result<()> {
        let tokens = run.1.case.len();
        for &site in sites.iter().filter(|site| site.is_per_layer() == layer.is_some()) {
            if to.wants(run.0, layer, site) {
                let at = At { run: run.0, layer, site, rows: 0..tokens };
                to.record(&at, self.rows(tokens, layer, site).view())?;
            }
        }
        Ok(())
    }
}

fn executed(tokens: usize) -> Executed {
    let mut choices = Choices::unset(tokens, 2, 2);
    for (token, layer) in (0..tokens).flat_map(|token| [(token, 0), (token, 1)]) {
        let ids = [token, token + 1].map(|id| ExpertId((id % 4) as u16));
        choices.set(token, LayerId(layer), &ids);
    }
    Executed { shadow: choices.clone(), choices, forced_rows: 0, call: vec![0; tokens] }
}

impl Side for Table {
    fn describe(&self) -> SideInfo {
        let words = |word: &str| word.to_owned();
        SideInfo {
            side: words("port"),
            engine: words("table"),
            device: words("paper"),
            precision: Precision::F32,
            notes: Vec::new(),
        }
    }

    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn forward(&self, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        let mut whole = self.clone();
        whole.edits.push(Edit { site: Site::Logits, change: self.at_the_end });
        runs.iter().enumerate().try_for_each(|run| whole.emit(run, None, &Site::ALL, recorder))?;
        Ok(runs.iter().map(|run| executed(run.case.len())).collect())
    }

    fn layer(
        &self,
        layer: LayerId,
        runs: &[Run<'_>],
        _h_in: &[Array2<f32>],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        runs.iter().enumerate().try_for_each(|run| self.emit(run, Some(layer), &Site::ALL, recorder))
    }

    fn head(&self, runs: &[Run<'_>], _h_in: &[Array2<f32>], recorder: &mut dyn Recorder) -> Result<()> {
        let sites = [Site::FinalNorm, Site::Logits];
        runs.iter().enumerate().try_for_each(|run| self.emit(run, None, &sites, recorder))
    }

    fn tensors(&self, _visit: &mut dyn FnMut(&str, &[f32]) -> Result<()>) -> Result<()> {
        Ok(())
    }
}

/// A reference that can have these bugs, any of them together unless they edit one site.
pub struct Fake {
    reference: Table,
    pub bugs: Vec<(&'static str, Edit)>,
}

impl Fake {
    pub fn new(bugs: Vec<(&'static str, Edit)>) -> Self {
        Self { reference: Table::new(Vec::new()), bugs }
    }

    /// The edits of ids with commas between them.
    pub fn edits(&self, ids: &str) -> Vec<Edit> {
        let edit = |id: &str| self.bugs.iter().find(|(name, _)| *name == id).expect("a bug").1.clone();
        ids.split(',').map(edit).collect()
    }
}

impl Bench for Fake {
    fn active_bytes(&self) -> Result<u64> {
        Ok(0)
    }

    fn reference(&self) -> &dyn Side {
        &self.reference
    }

    fn reference_lanes(&self, lanes: &[Lane<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        let tables: Vec<Table> = lanes
            .iter()
            .map(|lane| Table::new(lane.mutant.map_or(Vec::new(), |ids| self.edits(ids))))
            .collect();
        let mut all = |layer: Option<LayerId>, sites: &[Site]| -> Result<()> {
            for (index, (table, lane)) in tables.iter().zip(lanes).enumerate() {
                table.emit((index, &lane.run), layer, sites, recorder)?;
            }
            layer.map_or(Ok(()), |layer| recorder.layer_done(layer))
        };
        all(None, &[Site::Embedding])?;
        all(Some(LayerId(0)), &Site::ALL)?;
        all(Some(LayerId(1)), &Site::ALL)?;
        all(None, &[Site::FinalNorm, Site::Logits])?;
        Ok(lanes.iter().map(|lane| executed(lane.run.case.len())).collect())
    }

    fn reference_bytes_read(&self) -> u64 {
        0
    }

    fn reference_product(
        &self,
        _mutant: Option<&str>,
        _x: ArrayView2<'_, f32>,
        _w: ArrayView2<'_, f32>,
    ) -> Array2<f32> {
        unreachable!("an explanation multiplies nothing by itself")
    }

    fn port(&self, _precision: Precision) -> Result<Box<dyn Side>> {
        Ok(Box::new(self.reference.clone()))
    }

    fn mutated_port(&self, mutant: &str, _precision: Precision, _idle: Idle) -> Result<Box<dyn Side>> {
        Ok(Box::new(Table::new(self.edits(mutant))))
    }

    fn kernels(&self, _mutant: Option<&str>) -> Result<Box<dyn Kernels>> {
        unreachable!("an explanation calls no kernel by itself")
    }

    fn together(&self, ids: &str) -> bool {
        let sites: Vec<Site> = self.edits(ids).iter().map(|edit| edit.site).collect();
        (1..sites.len()).all(|index| !sites[..index].contains(&sites[index]))
    }

    fn planted(&self) -> Vec<Planted> {
        let planted = |(id, _): &(&str, Edit)| Planted {
            id: (*id).into(),
            what: format!("there is {id}"),
            sides: vec![PlantedIn::Reference],
            ..Planted::default()
        };
        self.bugs.iter().map(planted).collect()
    }

    fn unmet(&self, _id: &str, _occasion: &Occasion) -> Vec<String> {
        Vec::new()
    }
}
