//! Lanes that take their experts or their input from another lane of the same pass.

mod support;

use reference::{Correct, Lane, Options, Reference, Steps, steps};
use rstest::rstest;
use safetensors::Dtype;
use spec::side::Nothing;
use spec::{Case, Choices, Executed, ExpertId, LayerId, Precision, Routing, Run, Side, Site};
use std::collections::BTreeMap;
use support::{Keep, forced, free, held_out, open, random_case, tiny, trained};

/// A reference and a case: the trained checkpoint, or a random one of odd sizes.
fn model(which: &str) -> (Reference, Case) {
    match which {
        "trained" => (open(&trained()), held_out("text", 500, 90)),
        _ => (open(tiny(Dtype::BF16).path()), random_case(77, 19, 5)),
    }
}

/// Takes the experts of the smallest scores.
struct Smallest;

impl Steps for Smallest {
    fn select(&self, scores: &[f32], k: usize) -> Vec<ExpertId> {
        let negated: Vec<f32> = scores.iter().map(|score| -score).collect();
        Correct.select(&negated, k)
    }
}

fn run_lanes(reference: &Reference, lanes: &[Lane<'_>]) -> (Keep, Vec<Executed>) {
    let mut keep = Keep::all();
    let executed = reference.forward_lanes(lanes, &mut keep).unwrap();
    (keep, executed)
}

type Bits = BTreeMap<(Option<LayerId>, Site), Vec<u32>>;

/// What a lane recorded in one layer, or of no layer but for the embedding.
fn part(keep: &Keep, lane: usize, layer: Option<LayerId>) -> Bits {
    let wanted = |&(at, site): &(Option<LayerId>, Site)| at == layer && site != Site::Embedding;
    keep.bits(lane).into_iter().filter(|(key, _)| wanted(key)).collect()
}

#[rstest]
fn a_lane_with_the_ids_of_another_is_one_forced_onto_its_choices(
    #[values("trained", "random")] which: &str,
    #[values(Precision::F32, Precision::Bf16)] precision: Precision,
) {
    let (reference, case) = model(which);
    let first = Lane::new(free(&case, Precision::F32), &Correct);
    let follower = Lane { ids_of: Some(0), ..Lane::new(free(&case, precision), &Smallest) };
    let (keep, executed) = run_lanes(&reference, &[first, follower]);

    let run = forced(&case, &executed[0].choices, precision);
    let (alone, expected) = run_lanes(&reference, &[Lane::new(run, &Smallest)]);
    assert!(keep.bits(1) == alone.bits(0));
    assert_eq!(executed[1], expected[0]);
    assert_eq!(executed[1].forced_rows, case.len() * reference.config().num_layers());
    assert_eq!(executed[1].choices, executed[0].choices);
    assert_ne!(executed[1].shadow, executed[0].choices);
}

#[test]
fn the_ids_of_a_forced_lane_and_of_a_follower_are_what_they_execute() {
    let (reference, case) = model("random");
    // ids in an order that no router gives
    let mut choices = Choices::unset(case.len(), 3, 3);
    for token in 0..case.len() {
        for layer in reference.config().layer_ids() {
            choices.set(token, layer, &[6, token as u16 % 3, 4].map(ExpertId));
        }
    }
    let first = Lane::new(forced(&case, &choices, Precision::F32), &Correct);
    let next = |source| Lane { ids_of: Some(source), ..Lane::new(free(&case, Precision::Bf16), &Correct) };
    let (_, executed) = run_lanes(&reference, &[first, next(0), next(1)]);
    assert!(executed.iter().all(|executed| executed.choices == choices));
}

/// The last lane, fed by lane 1, records in each layer, and after the last, what a run of the same steps
/// would record fed the same rows.
fn check_input(reference: &Reference, lanes: &[Lane<'_>; 3], run: Run<'_>) {
    let (keep, _) = run_lanes(reference, lanes);
    let mutant = open(&trained()).with_steps(Box::new(Smallest));
    let layers = reference.config().num_layers();
    for layer in 0..layers {
        let h_in = match layer {
            0 => keep.get(1, None, Site::Embedding),
            _ => keep.get(1, Some(layer - 1), Site::LayerOut),
        };
        let mut alone = Keep::all();
        mutant.layer(LayerId(layer), &[run], &[h_in], &mut alone).unwrap();
        let layer = Some(LayerId(layer));
        assert!(part(&keep, 2, layer) == part(&alone, 0, layer), "layer {layer:?}");
        assert!(part(&keep, 2, layer) != part(&keep, 1, layer), "layer {layer:?}");
    }
    let mut alone = Keep::all();
    mutant.head(&[run], &[keep.get(1, Some(layers - 1), Site::LayerOut)], &mut alone).unwrap();
    assert!(part(&keep, 2, None) == part(&alone, 0, None));
}

#[rstest]
fn a_lane_with_the_input_of_another_passes_each_layer_as_if_fed_its_rows(
    #[values(Precision::F32, Precision::Bf16)] precision: Precision,
) {
    let (reference, case) = model("trained");
    let other = Lane::new(free(&case, Precision::Bf16), &Smallest);
    let source = Lane::new(free(&case, Precision::F32), &Correct);
    let run = free(&case, precision);
    let fed = Lane { input_of: Some(1), ..Lane::new(run, &Smallest) };
    check_input(&reference, &[other, source, fed], run);
    // and with its ids too
    let (_, executed) = run_lanes(&reference, &[source]);
    let both = Lane { ids_of: Some(1), ..fed };
    check_input(&reference, &[other, source, both], forced(&case, &executed[0].choices, precision));
}

#[test]
fn an_injected_input_is_stored_in_the_precision_of_its_run() {
    let (reference, case) = model("trained");
    let (keep, _) = run_lanes(&reference, &[Lane::new(free(&case, Precision::F32), &Correct)]);
    let given = keep.get(0, Some(2), Site::LayerOut);
    let stored = given.mapv(|value| half::bf16::from_f32(value).to_f32());
    assert_ne!(given, stored);
    let pass = |h, precision| {
        let mut keep = Keep::all();
        reference.layer(LayerId(3), &[free(&case, precision)], &[h], &mut keep).unwrap();
        keep.bits(0)
    };
    assert!(pass(given.clone(), Precision::Bf16) == pass(stored.clone(), Precision::Bf16));
    assert!(pass(given, Precision::F32) != pass(stored, Precision::F32));
}

#[rstest]
fn lanes_that_take_from_others_change_no_bit_of_them(#[values("trained", "random")] which: &str) {
    let (reference, case) = model(which);
    let own = |precision| Lane::new(free(&case, precision), &Correct);
    let alone = [own(Precision::F32), own(Precision::Bf16)];
    let extra = Lane::new(free(&case, Precision::F32), &Smallest);
    let lanes = [
        alone[0],
        Lane { ids_of: Some(0), input_of: Some(0), ..extra },
        Lane { input_of: Some(1), ..extra },
        alone[1],
        Lane { ids_of: Some(2), ..extra },
    ];
    let ((few, expected), (many, executed)) = (run_lanes(&reference, &alone), run_lanes(&reference, &lanes));
    for (before, after) in [(0, 0), (1, 3)] {
        assert!(few.bits(before) == many.bits(after), "lane {after}");
        assert_eq!(expected[before], executed[after]);
    }
}

#[test]
fn lanes_that_take_from_others_read_no_weight_again() {
    let dir = tiny(Dtype::BF16);
    let case = random_case(50, 19, 5);
    let first = Lane::new(free(&case, Precision::F32), &Correct);
    let read = |lanes: &[Lane<'_>]| {
        let reference = Reference::open(dir.path(), Options::default()).unwrap();
        run_lanes(&reference, lanes);
        reference.bytes_read()
    };
    let extra = Lane { ids_of: Some(0), input_of: Some(0), ..Lane::new(first.run, &Smallest) };
    assert_eq!(read(&[first, extra, extra]), read(&[first]));
}

#[rstest]
#[case::ids_of_itself(Some(1), None, false, "not an earlier one")]
#[case::input_of_a_later_lane(None, Some(2), false, "not an earlier one")]
#[case::ids_of_other_tokens(Some(0), None, true, "other tokens")]
#[case::input_of_other_tokens(None, Some(0), true, "other tokens")]
fn a_lane_that_cannot_take_from_its_source_is_a_panic(
    #[case] ids_of: Option<usize>,
    #[case] input_of: Option<usize>,
    #[case] other_tokens: bool,
    #[case] words: &str,
) {
    let (reference, case) = model("random");
    let other = Case::new("other", case.tokens[1..].into()).unwrap();
    let plain = Lane::new(free(&case, Precision::F32), &Correct);
    let run = if other_tokens { free(&other, Precision::F32) } else { plain.run };
    let lanes = [plain, Lane { run, ids_of, input_of, ..plain }, plain];
    panics_with(&reference, &lanes, words);
}

#[test]
fn a_lane_that_is_forced_twice_is_a_panic() {
    let (reference, case) = model("random");
    let plain = Lane::new(free(&case, Precision::F32), &Correct);
    let (_, executed) = run_lanes(&reference, &[plain]);
    let run = Run { routing: Routing::Forced(&executed[0].choices), ..plain.run };
    panics_with(&reference, &[plain, Lane { run, ids_of: Some(0), ..plain }], "forced");
}

fn panics_with(reference: &Reference, lanes: &[Lane<'_>], words: &str) {
    let attempt = || reference.forward_lanes(lanes, &mut Nothing);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt)).unwrap_err();
    let message = panic.downcast::<String>().unwrap();
    assert!(message.contains(words), "`{words}` in: {message}");
}

/// The norm on the attention branch and the one before the MoE take each other's weight.
struct NormsExchanged;

impl Steps for NormsExchanged {
    fn norm_weight(&self, which: steps::Norm) -> steps::Norm {
        match which {
            steps::Norm::AttnOutput => steps::Norm::MoeInput,
            steps::Norm::MoeInput => steps::Norm::AttnOutput,
            other => other,
        }
    }
}

#[test]
fn exchanged_norm_weights_are_a_checkpoint_whose_norms_are_exchanged() {
    let (sound, exchanged) = (tiny(Dtype::BF16), support::folder(support::TINY));
    let mut tensors = support::random_tensors(support::TINY, Dtype::BF16);
    let [branch, input] = [".post_attn_norm.weight", ".post_attention_layernorm.weight"];
    for tensor in &mut tensors {
        tensor.name = match &tensor.name {
            name if name.ends_with(branch) => name.replace(branch, input),
            name => name.replace(input, branch),
        };
    }
    support::write_shard(exchanged.path(), "model.safetensors", &tensors);
    let case = random_case(40, 19, 5);
    let run = free(&case, Precision::F32);
    let (reference, other) = (open(sound.path()), open(exchanged.path()));
    let lanes = [Lane::new(run, &Correct), Lane::new(run, &NormsExchanged)];
    let (keep, _) = run_lanes(&reference, &lanes);
    let (expected, _) = run_lanes(&other, &[Lane::new(run, &Correct)]);
    assert!(keep.bits(1) == expected.bits(0));
    assert!(keep.bits(0) != expected.bits(0));
    let alone = open(sound.path());
    run_lanes(&alone, &lanes[..1]);
    assert_eq!(alone.bytes_read(), reference.bytes_read(), "a weight is read once for all lanes");
}
