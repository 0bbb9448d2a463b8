//! A side that says what is in its tables: two layers, hidden size 2, 5 experts, 2 per token, 3 tokens in the
//! vocabulary. Every run has three tokens and the same rows.

use diff::trace::{Checkpoint, DEFAULT_SITES, Recorded, Request};
use ndarray::{Array2, array, s};
use spec::{
    At, Case, Choices, Error, Executed, ExpertId, LayerId, ModelConfig, Precision, Recorder, Result, Routing,
    Run, Schedule, Side, SideInfo, Site, TokenId, config_file,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

const CONFIG: &str = r#"{
    "model_type": "kolibri1", "hidden_act": "silu", "hidden_size": 2, "num_hidden_layers": 2,
    "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2, "vocab_size": 3, "rms_norm_eps": 1e-6,
    "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"], "num_experts": 5,
    "num_experts_per_tok": 2, "moe_intermediate_size": 2, "shared_expert_intermediate_size": 2,
    "rope_theta": 10000.0
}"#;

pub struct Fake {
    pub config: ModelConfig,
    pub rows: BTreeMap<(Option<LayerId>, Site), Array2<f32>>,
    /// The ids its own router chooses, by layer.
    pub own: [[[u16; 2]; 3]; 2],
    /// Rows per call of the recorder.
    pub chunk: usize,
    /// In which order the sites of a layer are recorded.
    pub order: Vec<Site>,
    /// Whether it runs what it is forced onto.
    pub obeys_forcing: bool,
    /// Fails after this many calls of the recorder.
    pub fails_after: usize,
    /// A site it does not record although it is wanted.
    pub forgets: Option<Site>,
    pub forwards: Cell<usize>,
}

/// Cases of three tokens each.
pub fn cases(names: &[&str]) -> Vec<Case> {
    let tokens = [2, 0, 1].map(TokenId);
    names.iter().map(|&name| Case::new(name, tokens.into()).unwrap()).collect()
}

pub fn checkpoint() -> Checkpoint {
    Checkpoint {
        model: "five experts".into(),
        weights_sha256: "aa".repeat(32),
        config_sha256: "bb".repeat(32),
    }
}

impl Fake {
    /// Layer 0: selection scores with gaps 1, 0 and 0.5. Layer 1: the same row three times.
    pub fn reference() -> Self {
        let even = array![[5.0, 4.0, 3.0, 2.0, 1.0], [5.0, 4.0, 3.0, 2.0, 1.0], [5.0, 4.0, 3.0, 2.0, 1.0]];
        let scores = array![[5.0, 4.0, 3.0, 2.0, 1.0], [5.0, 4.0, 4.0, 2.0, 1.0], [5.0, 3.5, 3.0, 2.0, 1.0]];
        let mut rows = BTreeMap::new();
        let two = 2.0_f32.ln();
        rows.insert((None, Site::Logits), array![[two, 0.0, 0.0], [two, 0.0, 0.0], [two, 0.0, 0.0]]);
        for (layer, scores) in [scores, even].into_iter().enumerate() {
            let mut put = |site, values| rows.insert((Some(LayerId(layer)), site), values);
            put(Site::AttnBranch, array![[3.0, 4.0], [3.0, 4.0], [3.0, 4.0]]);
            put(Site::MoeBranch, array![[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]);
            put(Site::TopkWeights, array![[0.5, 0.25], [0.75, 0.125], [1.0, 0.5]] + layer as f32);
            put(Site::RouterLogits, &scores - 1.0);
            put(Site::SelectionScores, scores);
        }
        Self {
            config: config_file::parse(Path::new("config.json"), CONFIG).unwrap(),
            rows,
            own: [[[0, 1]; 3]; 2],
            chunk: 3,
            order: Site::ALL.into(),
            obeys_forcing: true,
            fails_after: usize::MAX,
            forgets: None,
            forwards: Cell::default(),
        }
    }

    /// Differs from the reference in layer 0: router logits by 0.25; sets of token 1 (a tie) and token 2 (a
    /// gap of 0.5); attention branch of token 1 by 0.1; MoE branch of token 2 by 0.5. And in the logits of
    /// token 1. In layer 1 its slots are in another order.
    pub fn port() -> Self {
        let mut port = Self::reference();
        port.own = [[[0, 1], [0, 2], [2, 0]], [[1, 0]; 3]];
        *port.at(0, Site::RouterLogits) += 0.25;
        port.at(0, Site::AttnBranch)[[1, 1]] = 4.5;
        port.at(0, Site::MoeBranch)[[2, 1]] = 0.5;
        port.rows.get_mut(&(None, Site::Logits)).unwrap()[[1, 0]] = 0.0;
        port
    }

    pub fn at(&mut self, layer: usize, site: Site) -> &mut Array2<f32> {
        self.rows.get_mut(&(Some(LayerId(layer)), site)).unwrap()
    }

    pub fn choices(&self) -> Choices {
        let mut choices = Choices::unset(3, 2, 2);
        for (layer, rows) in self.own.iter().enumerate() {
            for (token, row) in rows.iter().enumerate() {
                choices.set(token, LayerId(layer), &row.map(ExpertId));
            }
        }
        choices
    }

    /// Records the default sites of `cases` into `out`.
    pub fn record(&self, cases: &[Case], routing: Routing<'_>, out: &Path) -> Result<Recorded> {
        self.record_sites(cases, routing, &DEFAULT_SITES, out)
    }

    pub fn record_sites(
        &self,
        cases: &[Case],
        routing: Routing<'_>,
        sites: &[Site],
        out: &Path,
    ) -> Result<Recorded> {
        self.record_of(&checkpoint(), cases, routing, sites, out)
    }

    pub fn record_of(
        &self,
        checkpoint: &Checkpoint,
        cases: &[Case],
        routing: Routing<'_>,
        sites: &[Site],
        out: &Path,
    ) -> Result<Recorded> {
        let request = Request {
            cases,
            routing: &vec![routing; cases.len()],
            schedule: Schedule::chunks_of(2),
            precision: Precision::F32,
            sites,
            checkpoint,
            out,
        };
        diff::trace::record(self, &request, &mut ())
    }
}

impl Side for Fake {
    fn describe(&self) -> SideInfo {
        SideInfo {
            side: "reference".into(),
            engine: "table 1.0".into(),
            device: "paper".into(),
            precision: Precision::F32,
            notes: Vec::new(),
        }
    }

    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn forward(&self, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        self.forwards.set(self.forwards.get() + 1);
        let mut calls = 0;
        for layer in [Some(LayerId(0)), Some(LayerId(1)), None] {
            for ((run, &site), start) in (0..runs.len())
                .flat_map(|run| self.order.iter().map(move |site| (run, site)))
                .flat_map(|place| (0..3).step_by(self.chunk).map(move |start| (place, start)))
            {
                let Some(rows) = self.rows.get(&(layer, site)) else { continue };
                if !recorder.wants(run, layer, site) || self.forgets == Some(site) {
                    continue;
                }
                if calls == self.fails_after {
                    let doing = "turn the page".into();
                    return Err(Error::Engine { engine: "table", doing, message: "torn".into() });
                }
                calls += 1;
                let range = start..(start + self.chunk).min(3);
                recorder.record(&At { run, layer, site, rows: range.clone() }, rows.slice(s![range, ..]))?;
            }
        }
        let own = self.choices();
        let executed = |run: &Run<'_>| {
            let (choices, forced_rows) = match run.routing {
                Routing::Forced(given) if self.obeys_forcing => (given.clone(), 6),
                Routing::Forced(_) => (own.clone(), 6),
                Routing::Free => (own.clone(), 0),
            };
            Executed { choices, shadow: own.clone(), forced_rows, call: vec![0, 0, 1] }
        };
        Ok(runs.iter().map(executed).collect())
    }

    fn layer(&self, _: LayerId, _: &[Run<'_>], _: &[Array2<f32>], _: &mut dyn Recorder) -> Result<()> {
        panic!("a recording does not ask for one layer")
    }

    fn head(&self, _: &[Run<'_>], _: &[Array2<f32>], _: &mut dyn Recorder) -> Result<()> {
        panic!("a recording does not ask for the head alone")
    }

    fn tensors(&self, _: &mut dyn FnMut(&str, &[f32]) -> Result<()>) -> Result<()> {
        Ok(())
    }
}
