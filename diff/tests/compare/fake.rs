//! A side whose rows are given in a table, for two layers, hidden size 2, 4 experts, 2 per token, 3 tokens in
//! the vocabulary. It computes nothing, so every metric can be worked out by hand.

#[path = "../support/config.rs"]
mod config;

use config::config;
use ndarray::{Array2, array, s};
use spec::{
    At, Case, Choices, Executed, ExpertId, LayerId, ModelConfig, Precision, Recorder, Result, Routing, Run,
    Side, SideInfo, Site, TokenId,
};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Rows of one site in one run.
pub type Key = (usize, Option<LayerId>, Site);

/// Turns rows that are about to be recorded into what is recorded instead.
pub type Fault = Box<dyn Fn(&At, &Array2<f32>) -> Vec<(At, Array2<f32>)>>;

/// What one call of `layer` was given.
pub struct LayerCall {
    pub layer: LayerId,
    pub h_in: Vec<Array2<f32>>,
    pub forced: Vec<Choices>,
}

pub struct Fake {
    pub name: &'static str,
    pub config: ModelConfig,
    pub rows: BTreeMap<Key, Array2<f32>>,
    /// Logits of free runs, where they are not those of forced ones.
    pub free_logits: BTreeMap<usize, Array2<f32>>,
    /// Rows per call of the recorder.
    pub chunk: usize,
    pub fault: Fault,
    /// Layers it says are done, after each layer.
    pub says_done: fn(LayerId) -> Vec<LayerId>,
    pub obeys_forcing: bool,
    pub layer_calls: RefCell<Vec<LayerCall>>,
}

pub fn cases(lengths: &[usize]) -> Vec<Case> {
    let case =
        |(run, &len): (usize, &usize)| Case::new(format!("case-{run}"), vec![TokenId(0); len]).unwrap();
    lengths.iter().enumerate().map(case).collect()
}

impl Fake {
    /// A side whose rows are the same for every token, but for what a layer is fed.
    pub fn new(name: &'static str, lengths: &[usize]) -> Self {
        let mut rows = BTreeMap::new();
        for (run, &len) in lengths.iter().enumerate() {
            let same = |row: &[f32]| Array2::from_shape_fn((len, row.len()), |(_, column)| row[column]);
            rows.insert((run, None, Site::Embedding), input(run, 0, len));
            rows.insert((run, None, Site::Logits), same(&[5.0, 0.0, 0.0]));
            for layer in 0..2 {
                let mut put = |site, values| rows.insert((run, Some(LayerId(layer)), site), values);
                put(Site::AttnBranch, same(&[3.0, 4.0]));
                put(Site::MoeBranch, same(&[1.0, 0.0]));
                put(Site::RouterLogits, same(&[3.0, -3.0, 3.0, -3.0]));
                put(Site::SelectionScores, same(&[4.0, 3.0, 1.0, 0.0]));
                put(Site::Choice, same(&[0.0, 1.0]));
                put(Site::ShadowChoice, same(&[0.0, 1.0]));
                put(Site::LayerOut, input(run, layer + 1, len));
            }
        }
        Self {
            name,
            config: config(),
            rows,
            free_logits: BTreeMap::new(),
            chunk: usize::MAX,
            fault: Box::new(|at, rows| vec![(at.clone(), rows.clone())]),
            says_done: |layer| vec![layer],
            obeys_forcing: true,
            layer_calls: RefCell::default(),
        }
    }

    /// Replaces the rows of one site of run 0 in one layer.
    pub fn set(&mut self, layer: usize, site: Site, rows: Array2<f32>) {
        self.rows.insert((0, Some(LayerId(layer)), site), rows);
    }

    fn emit(&self, key: Key, rows: &Array2<f32>, recorder: &mut dyn Recorder) -> Result<()> {
        let (run, layer, site) = key;
        if !recorder.wants(run, layer, site) {
            return Ok(());
        }
        let mut start = 0;
        while start < rows.nrows() {
            let end = start.saturating_add(self.chunk).min(rows.nrows());
            let at = At { run, layer, site, rows: start..end };
            for (at, rows) in (self.fault)(&at, &rows.slice(s![start..end, ..]).to_owned()) {
                recorder.record(&at, rows.view())?;
            }
            start = end;
        }
        Ok(())
    }

    fn emit_layer(&self, layer: LayerId, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<()> {
        for (run, given) in runs.iter().enumerate() {
            for site in Site::ALL {
                let key = (run, Some(layer), site);
                let executed = self.executed(run, layer, given.routing);
                match self.rows.get(&key) {
                    _ if site == Site::Choice => self.emit(key, &executed, recorder)?,
                    Some(rows) => self.emit(key, rows, recorder)?,
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn executed(&self, run: usize, layer: LayerId, routing: Routing<'_>) -> Array2<f32> {
        let shadow = &self.rows[&(run, Some(layer), Site::ShadowChoice)];
        match routing {
            Routing::Forced(choices) if self.obeys_forcing => {
                let id = |(token, slot): (usize, usize)| f32::from(choices.at(token, layer)[slot].0);
                Array2::from_shape_fn(shadow.dim(), id)
            }
            _ => shadow.clone(),
        }
    }

    fn choices(&self, run: usize, tokens: usize, routing: Routing<'_>) -> Choices {
        let mut choices = Choices::unset(tokens, 2, 2);
        for layer in [LayerId(0), LayerId(1)] {
            for (token, row) in self.executed(run, layer, routing).rows().into_iter().enumerate() {
                let ids: Vec<ExpertId> = row.iter().map(|&id| ExpertId(id as u16)).collect();
                choices.set(token, layer, &ids);
            }
        }
        choices
    }
}

impl Side for Fake {
    fn describe(&self) -> SideInfo {
        SideInfo {
            side: self.name.into(),
            engine: "table".into(),
            device: "paper".into(),
            precision: Precision::F32,
            notes: Vec::new(),
        }
    }

    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn forward(&self, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        for run in 0..runs.len() {
            let key = (run, None, Site::Embedding);
            self.emit(key, &self.rows[&key], recorder)?;
        }
        for layer in [LayerId(0), LayerId(1)] {
            self.emit_layer(layer, runs, recorder)?;
            (self.says_done)(layer).into_iter().try_for_each(|layer| recorder.layer_done(layer))?;
        }
        let mut executed = Vec::new();
        for (run, given) in runs.iter().enumerate() {
            let free = matches!(given.routing, Routing::Free);
            let key = (run, None, Site::Logits);
            let free_logits = self.free_logits.get(&run).filter(|_| free);
            self.emit(key, free_logits.unwrap_or(&self.rows[&key]), recorder)?;
            let tokens = given.case.len();
            executed.push(Executed {
                choices: self.choices(run, tokens, given.routing),
                shadow: self.choices(run, tokens, Routing::Free),
                forced_rows: if free { 0 } else { tokens * 2 },
                call: vec![0; tokens],
            });
        }
        Ok(executed)
    }

    fn layer(
        &self,
        layer: LayerId,
        runs: &[Run<'_>],
        h_in: &[Array2<f32>],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        let forced = |run: &Run<'_>| match run.routing {
            Routing::Forced(choices) => choices.clone(),
            Routing::Free => panic!("the table of layers is forced"),
        };
        let forced = runs.iter().map(forced).collect();
        self.layer_calls.borrow_mut().push(LayerCall { layer, h_in: h_in.to_vec(), forced });
        self.emit_layer(layer, runs, recorder)
    }

    fn head(&self, _runs: &[Run<'_>], _h_in: &[Array2<f32>], _recorder: &mut dyn Recorder) -> Result<()> {
        panic!("a comparison does not ask for the head alone")
    }

    fn tensors(&self, _: &mut dyn FnMut(&str, &[f32]) -> Result<()>) -> Result<()> {
        Ok(())
    }
}

/// What layer `layer` of run `run` is fed, `[len, 2]`: no two rows are alike.
pub fn input(run: usize, layer: usize, len: usize) -> Array2<f32> {
    let first = (100 * run + 10 * layer) as f32;
    Array2::from_shape_fn((len, 2), |(token, column)| first + token as f32 + 0.5 * column as f32)
}

/// The logits of a uniform distribution, `[1, 3]`.
pub fn uniform() -> Array2<f32> {
    array![[0.0, 0.0, 0.0]]
}
