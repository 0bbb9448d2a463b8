//! Inputs of a run that are refused before any work, in words.

mod support;

use ndarray::Array2;
use reference::{Options, Reference};
use safetensors::Dtype;
use spec::side::Nothing;
use spec::{Case, Choices, Error, LayerId, Precision, Side, TokenId};
use support::{forced, free, open, random_case, random_tensors, tiny, write_shard};

#[test]
fn zero_threads_are_refused() {
    let dir = tiny(Dtype::BF16);
    let error = Reference::open(dir.path(), Options { threads: Some(0) }).err().unwrap();
    assert!(matches!(error, Error::Argument { .. }), "{error}");
}

#[test]
fn a_token_outside_the_vocabulary_is_refused() {
    let dir = tiny(Dtype::BF16);
    let case = Case::new("outside", vec![TokenId(18), TokenId(19)]).unwrap();
    let error = open(dir.path()).forward(&[free(&case, Precision::F32)], &mut Nothing).unwrap_err();
    assert!(matches!(&error, Error::Case { found, .. } if found == "id 19 at position 1"), "{error}");
}

#[test]
fn choices_that_are_no_route_are_refused() {
    let dir = tiny(Dtype::BF16);
    let case = random_case(4, 19, 1);
    let unset = Choices::unset(4, 3, 3);
    let reference = open(dir.path());
    let run = forced(&case, &unset, Precision::F32);
    let h_in = [Array2::zeros((4, 22))];
    let errors = [
        reference.forward(&[run], &mut Nothing).unwrap_err(),
        reference.layer(LayerId(0), &[run], &h_in, &mut Nothing).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(&error, Error::Routing { found, .. } if found.contains("0 twice")), "{error}");
    }
}

#[test]
fn an_input_of_another_shape_is_refused() {
    let dir = tiny(Dtype::BF16);
    let case = random_case(4, 19, 1);
    let h_in = [Array2::zeros((5, 22))];
    let reference = open(dir.path());
    let run = free(&case, Precision::F32);
    let errors = [
        reference.layer(LayerId(0), &[run], &h_in, &mut Nothing).unwrap_err(),
        reference.head(&[run], &h_in, &mut Nothing).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(&error, Error::Case { found, .. } if found == "(5, 22)"), "{error}");
    }
}

#[test]
fn the_emulation_is_refused_on_weights_that_are_not_bf16() {
    let dir = tiny(Dtype::F32);
    let case = random_case(4, 19, 1);
    let error = open(dir.path()).forward(&[free(&case, Precision::Bf16)], &mut Nothing).unwrap_err();
    assert!(matches!(&error, Error::Case { found, .. } if found.contains("in F32")), "{error}");
}

#[test]
fn the_emulation_takes_a_selection_bias_in_f32() {
    let dir = tiny(Dtype::BF16);
    let wide = random_tensors(support::TINY, Dtype::F32);
    let mut tensors = random_tensors(support::TINY, Dtype::BF16);
    for (tensor, wide) in tensors.iter_mut().zip(wide) {
        if tensor.name.ends_with("expert_bias") {
            *tensor = wide;
        }
    }
    write_shard(dir.path(), "model.safetensors", &tensors);
    let case = random_case(4, 19, 1);
    open(dir.path()).forward(&[free(&case, Precision::Bf16)], &mut Nothing).unwrap();
}

#[test]
fn a_recorder_that_fails_stops_the_run() {
    struct Full;
    impl spec::Recorder for Full {
        fn wants(&self, _run: usize, _layer: Option<LayerId>, site: spec::Site) -> bool {
            site == spec::Site::MoeNorm
        }
        fn record(&mut self, at: &spec::At, _rows: ndarray::ArrayView2<'_, f32>) -> spec::Result<()> {
            assert_eq!(at.layer, Some(LayerId(0)), "the first failure ends it");
            Err(Error::io("write", "trace", "make room")(std::io::ErrorKind::StorageFull.into()))
        }
    }
    let dir = tiny(Dtype::BF16);
    let case = random_case(4, 19, 1);
    let error = open(dir.path()).forward(&[free(&case, Precision::F32)], &mut Full).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}
