//! Parts of the reference on their own: its tensors, its product, and what its experts record.

mod support;

use half::{bf16, f16};
use ndarray::{Array2, s};
use reference::{Correct, steps::Matrix};
use rstest::rstest;
use safetensors::Dtype;
use spec::{Precision, Side, Site};
use std::collections::BTreeMap;
use support::{Keep, Lcg, Tensor, bits, free, open, random_case, random_tensors, relative_l2, tiny};

/// The values of a tensor as its file has them.
fn decoded(tensor: &Tensor) -> Vec<f32> {
    let two = |word: &[u8]| [word[0], word[1]];
    match tensor.dtype {
        Dtype::BF16 => tensor.bytes.chunks(2).map(|w| bf16::from_le_bytes(two(w)).to_f32()).collect(),
        Dtype::F16 => tensor.bytes.chunks(2).map(|w| f16::from_le_bytes(two(w)).to_f32()).collect(),
        _ => tensor.bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect(),
    }
}

#[rstest]
fn every_tensor_is_shown_once_as_the_file_has_it(
    #[values(Dtype::BF16, Dtype::F16, Dtype::F32)] dtype: Dtype,
) {
    let dir = tiny(dtype);
    let reference = open(dir.path());
    let mut shown = BTreeMap::new();
    let mut visit = |name: &str, values: &[f32]| {
        assert!(shown.insert(name.to_string(), bits(values)).is_none(), "{name} comes once");
        Ok(())
    };
    reference.tensors(&mut visit).unwrap();
    let tensors = random_tensors(support::TINY, dtype);
    let expected: BTreeMap<_, _> = tensors.iter().map(|t| (t.name.clone(), bits(&decoded(t)))).collect();
    assert_eq!(expected.len(), 3 + 3 * (15 + 3 * 7));
    assert_eq!(shown, expected);
    let bytes: usize = tensors.iter().map(|tensor| tensor.bytes.len()).sum();
    assert_eq!(reference.bytes_read(), bytes as u64);
}

#[test]
fn an_error_of_the_visitor_ends_the_visit() {
    let dir = tiny(Dtype::BF16);
    let mut seen = 0;
    let mut refuse = |_: &str, _: &[f32]| {
        seen += 1;
        Err(spec::Error::Engine { engine: "test", doing: "look".into(), message: "enough".into() })
    };
    let error = open(dir.path()).tensors(&mut refuse).unwrap_err();
    assert!(error.to_string().contains("enough"), "{error}");
    assert_eq!(seen, 1);
}

/// `x · wᵀ` in f64.
fn exact(x: &Array2<f64>, w: &Array2<f64>) -> Array2<f64> {
    Array2::from_shape_fn((x.nrows(), w.nrows()), |(i, j)| {
        x.row(i).iter().zip(w.row(j)).map(|(x, w)| x * w).sum()
    })
}

#[test]
fn a_product_of_several_tiles_is_close_to_f64() {
    let mut random = Lcg(3);
    let (x, w) = (random.matrix(270, 65), random.matrix(530, 65));
    let dir = tiny(Dtype::BF16);
    let ours = open(dir.path()).product(&Correct, Matrix::Q, x.view(), w.view());
    let distance = relative_l2(&ours, &exact(&x.mapv(f64::from), &w.mapv(f64::from)));
    assert!(distance <= 1e-6, "{distance:.2e}");
}

/// A run of the random checkpoint, and its matrices.
struct Recorded {
    keep: Keep,
    tensors: BTreeMap<String, Tensor>,
}

impl Recorded {
    fn new(precision: Precision) -> Self {
        let dir = tiny(Dtype::BF16);
        let mut keep = Keep::all();
        let case = random_case(100, 19, 5);
        open(dir.path()).forward(&[free(&case, precision)], &mut keep).unwrap();
        let tensors = random_tensors(support::TINY, Dtype::BF16);
        Self { keep, tensors: tensors.into_iter().map(|t| (t.name.clone(), t)).collect() }
    }

    fn at(&self, layer: usize, site: Site) -> Array2<f64> {
        self.keep.get(0, Some(layer), site).mapv(f64::from)
    }

    fn matrix(&self, name: &str) -> Array2<f64> {
        let tensor = &self.tensors[&format!("model.layers.{name}.weight")];
        let values = decoded(tensor).into_iter().map(f64::from).collect();
        Array2::from_shape_vec((tensor.shape[0], tensor.shape[1]), values).unwrap()
    }
}

/// `silu(gate) * up` in f64 (K17).
fn activated(gate: &Array2<f64>, up: &Array2<f64>) -> Array2<f64> {
    gate.mapv(|g| g / (1.0 + (-g).exp())) * up
}

fn close(ours: &Array2<f64>, exact: &Array2<f64>, relative_l2_max: f64, what: &str) {
    let distance = relative_l2(&ours.mapv(|x| x as f32), exact);
    assert!(distance <= relative_l2_max, "{what}: {distance:.2e}");
}

#[test]
fn a_product_is_the_one_that_the_forward_pass_makes() {
    let recorded = Recorded::new(Precision::F32);
    let x = recorded.keep.get(0, Some(1), Site::AttnNorm);
    let w = recorded.matrix("1.self_attn.q_proj").mapv(|w| w as f32);
    let dir = tiny(Dtype::BF16);
    let ours = open(dir.path()).product(&Correct, Matrix::Q, x.view(), w.view());
    assert_eq!(bits(&ours), bits(&recorded.keep.get(0, Some(1), Site::Q)));
}

#[rstest]
#[case::f32(Precision::F32, 1e-6)]
// only outputs are rounded: half an ulp is 2^-9
#[case::bf16(Precision::Bf16, 3e-3)]
fn expert_and_shared_sites_are_steps_of_one_formula(
    #[case] precision: Precision,
    #[case] output_error_max: f64,
) {
    let recorded = Recorded::new(precision);
    for layer in 0..3 {
        let (at, matrix) =
            (|site| recorded.at(layer, site), |name: &str| recorded.matrix(&format!("{layer}.mlp.{name}")));
        let x = at(Site::MoeNorm);
        let name = |part: &str| format!("shared_experts.{part}_proj");
        close(&at(Site::SharedGate), &exact(&x, &matrix(&name("gate"))), 1e-6, "shared gate");
        close(&at(Site::SharedUp), &exact(&x, &matrix(&name("up"))), 1e-6, "shared up");
        let act = activated(&at(Site::SharedGate), &at(Site::SharedUp));
        close(&at(Site::SharedAct), &act, 1e-6, "shared act");
        close(&at(Site::Shared), &exact(&act, &matrix(&name("down"))), output_error_max, "shared");

        let (outputs, choice, weights) = (at(Site::ExpertOut), at(Site::Choice), at(Site::TopkWeights));
        for token in 0..100 {
            let x = x.slice(s![token..=token, ..]).to_owned();
            let mut sum = vec![0.0_f32; 22];
            for slot in 0..3 {
                let name = |part: &str| format!("experts.{}.{part}_proj", choice[[token, slot]]);
                let [gate, up] = ["gate", "up"].map(|part| exact(&x, &matrix(&name(part))));
                let expected = exact(&activated(&gate, &up), &matrix(&name("down")));
                let ours = outputs.slice(s![token..=token, slot * 22..(slot + 1) * 22]).to_owned();
                close(&ours, &expected, output_error_max, &format!("token {token}, slot {slot}"));
                let weight = weights[[token, slot]] as f32;
                sum.iter_mut().zip(&ours).for_each(|(sum, value)| *sum += weight * *value as f32);
            }
            let routed = recorded.keep.get(0, Some(layer), Site::Routed);
            assert_eq!(bits(routed.row(token)), bits(&sum), "token {token}");
        }
    }
}
