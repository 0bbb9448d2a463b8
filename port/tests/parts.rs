//! Parts of the port on their own: the weights it holds, ports that share them, what its experts record.
mod support;

use half::bf16;
use mlx_rs::Array;
use ndarray::{Array2, s};
use port::engine::Op;
use port::{Correct, Port, Steps};
use rstest::rstest;
use safetensors::tensor::Dtype;
use spec::{Case, Precision, Routing, Schedule, Side, Site, TokenId};
use std::collections::BTreeMap;
use support::{Checkpoint, Stored, forward, layers, relative_l2, run, tiny, write, write_shards};

/// The values of a tensor as its file has them.
fn decoded(tensor: &Stored) -> Vec<f32> {
    match tensor.dtype {
        Dtype::BF16 => {
            let words = tensor.bytes.as_chunks().0.iter();
            words.map(|word| bf16::from_le_bytes(*word).to_f32()).collect()
        }
        Dtype::F32 => tensor.bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect(),
        other => panic!("no test writes {other:?}"),
    }
}

/// Loads a random checkpoint whose files are gone by the time this returns.
fn load(checkpoint: &Checkpoint, precision: Precision) -> Port {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), checkpoint);
    Port::load(dir.path(), precision).unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[rstest]
#[case::one_file(write)]
#[case::two_shards(write_shards)]
fn every_tensor_is_shown_once_as_the_checkpoint_has_it(
    #[case] write: fn(&std::path::Path, &Checkpoint),
    #[values(Precision::F32, Precision::Bf16)] precision: Precision,
) {
    let checkpoint = tiny();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &checkpoint);
    let port = Port::load(dir.path(), precision).unwrap();
    let mut shown = BTreeMap::new();
    let mut visit = |name: &str, values: &[f32]| {
        assert!(shown.insert(name.to_string(), bits(values)).is_none(), "{name} comes once");
        Ok(())
    };
    port.tensors(&mut visit).unwrap();
    let expected: BTreeMap<_, _> =
        checkpoint.iter().map(|(name, tensor)| (name.clone(), bits(&decoded(tensor)))).collect();
    assert_eq!(expected.len(), 3 + 2 * (15 + 3 * 12));
    assert_eq!(shown, expected);
}

#[test]
fn an_error_of_the_visitor_ends_the_visit() {
    let mut seen = 0;
    let mut refuse = |_: &str, _: &[f32]| {
        seen += 1;
        Err(spec::Error::Engine { engine: "test", doing: "look".into(), message: "enough".into() })
    };
    let error = load(&tiny(), Precision::F32).tensors(&mut refuse).unwrap_err();
    assert!(error.to_string().contains("enough"), "{error}");
    assert_eq!(seen, 1);
}

/// No shared expert.
struct NotShared;

impl Steps for NotShared {
    fn moe_sum(&self, routed: &Array, _shared: &Array) -> Op {
        Ok(routed.clone())
    }
}

fn case() -> Case {
    Case::new("counting", (0..20).map(|i| TokenId(i * 7 % 11)).collect()).unwrap()
}

#[test]
fn ports_of_other_steps_share_weights_and_nothing_else() {
    let port = load(&tiny(), Precision::F32);
    let case = case();
    let one = run(&case, Schedule::chunks_of(20), Routing::Free, Precision::F32);
    let (_, before) = forward(&port, one);
    let wrong = port.with_steps(Box::new(NotShared));
    let right = wrong.with_steps(Box::new(Correct));
    let (_, other) = forward(&wrong, one);
    assert_eq!(before.differing(&forward(&port, one).1), []);
    drop(port);
    assert_eq!(before.differing(&forward(&right, one).1), []);
    assert_eq!(other.differing(&forward(&wrong, one).1), []);
    let differing = before.differing(&other);
    assert!(differing.contains(&(Some(spec::LayerId(0)), Site::MoeBranch)), "{differing:?}");
    assert!(!differing.contains(&(Some(spec::LayerId(0)), Site::Shared)), "{differing:?}");
}

/// Periods ten times as long.
struct SlowRope;

impl Steps for SlowRope {
    fn rope_periods(&self, config: &spec::ModelConfig) -> Array {
        port::rope::periods(config.rope_theta * 10.0, config.head_dim)
    }
}

#[test]
fn a_port_of_other_steps_has_their_periods() {
    let (port, case) = (load(&tiny(), Precision::F32), case());
    let one = run(&case, Schedule::chunks_of(20), Routing::Free, Precision::F32);
    let (right, wrong) = (forward(&port, one).1, forward(&port.with_steps(Box::new(SlowRope)), one).1);
    assert_eq!(bits(right.at(0, Site::QNorm)), bits(wrong.at(0, Site::QNorm)));
    assert_ne!(bits(right.at(0, Site::QRope)), bits(wrong.at(0, Site::QRope)));
}

/// `x · wᵀ` in f64.
fn product(x: &Array2<f64>, w: &Array2<f64>) -> Array2<f64> {
    Array2::from_shape_fn((x.nrows(), w.nrows()), |(i, j)| {
        x.row(i).iter().zip(w.row(j)).map(|(x, w)| x * w).sum()
    })
}

/// `silu(gate) * up` in f64 (K17).
fn activated(gate: &Array2<f64>, up: &Array2<f64>) -> Array2<f64> {
    gate.mapv(|g| g / (1.0 + (-g).exp())) * up
}

fn close(ours: &Array2<f64>, exact: &Array2<f64>, relative_l2_max: f64, what: &str) {
    let ours: Vec<f32> = ours.iter().map(|&x| x as f32).collect();
    let error = relative_l2(&ours, exact.as_standard_layout().as_slice().unwrap());
    assert!(error <= relative_l2_max, "{what}: {error:.1e}");
}

#[rstest]
#[case::f32(Precision::F32, 1e-6)]
// up to four roundings to bf16, 2^-9 each
#[case::bf16(Precision::Bf16, 1e-2)]
fn expert_and_shared_sites_are_steps_of_one_formula(
    #[case] precision: Precision,
    #[case] relative_l2_max: f64,
    #[values(1, 8)] prefill_chunk: usize,
) {
    let (checkpoint, case) = (tiny(), case());
    let port = load(&checkpoint, precision);
    let one = run(&case, Schedule::chunks_of(prefill_chunk), Routing::Free, precision);
    let (_, rows) = forward(&port, one);
    for layer in layers(port.config()) {
        let at = |site: Site| rows.matrix(Some(layer), site, site.width(port.config())).mapv(f64::from);
        let matrix = |name: &str| {
            let tensor = &checkpoint[&format!("model.layers.{layer}.mlp.{name}_proj.weight")];
            let values = decoded(tensor).into_iter().map(f64::from).collect();
            Array2::from_shape_vec((tensor.shape[0], tensor.shape[1]), values).unwrap()
        };
        let close = |ours: &Array2<f64>, exact: &Array2<f64>, what: &str| {
            close(ours, exact, relative_l2_max, &format!("layer {layer}, {what}"));
        };
        let x = at(Site::MoeNorm);
        close(&at(Site::SharedGate), &product(&x, &matrix("shared_experts.gate")), "shared gate");
        close(&at(Site::SharedUp), &product(&x, &matrix("shared_experts.up")), "shared up");
        close(&at(Site::SharedAct), &activated(&at(Site::SharedGate), &at(Site::SharedUp)), "shared act");
        close(&at(Site::Shared), &product(&at(Site::SharedAct), &matrix("shared_experts.down")), "shared");

        let (outputs, choice, weights) = (at(Site::ExpertOut), at(Site::Choice), at(Site::TopkWeights));
        let (mut expected, mut sums) = (Array2::zeros(outputs.dim()), Array2::<f64>::zeros(x.dim()));
        for token in 0..case.len() {
            let x = x.slice(s![token..=token, ..]).to_owned();
            for slot in 0..3 {
                let name = |part: &str| format!("experts.{}.{part}", choice[[token, slot]]);
                let [gate, up] = ["gate", "up"].map(|part| product(&x, &matrix(&name(part))));
                let output = product(&activated(&gate, &up), &matrix(&name("down")));
                let columns = slot * 12..(slot + 1) * 12;
                expected.slice_mut(s![token, columns.clone()]).assign(&output.row(0));
                sums.row_mut(token).scaled_add(weights[[token, slot]], &outputs.slice(s![token, columns]));
            }
        }
        close(&outputs, &expected, "expert outputs");
        close(&at(Site::Routed), &sums, "routed");
    }
}
