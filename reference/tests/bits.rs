//! What must not change a bit: the schedule, the other lanes of a pass, threads, forcing a run onto its own
//! choices, re-injection, what is recorded, and how much text follows.

mod support;

use ndarray::{Array2, s};
use reference::{Correct, Lane, Options, Reference};
use rstest::rstest;
use spec::{Case, LayerId, Precision, Run, Schedule, Side, Site};
use support::{Keep, bits, forced, free, held_out, open, random_case, tiny, trained};

/// A reference and a case: the trained checkpoint, or a random one of odd sizes.
fn model(which: &str, threads: Option<usize>) -> (Reference, Case) {
    match which {
        "trained" => (Reference::open(&trained(), Options { threads }).unwrap(), held_out("text", 500, 150)),
        _ => {
            let dir = tiny(safetensors::Dtype::BF16);
            (Reference::open(dir.path(), Options { threads }).unwrap(), random_case(77, 19, 5))
        }
    }
}

fn run_all(reference: &Reference, runs: &[Run<'_>]) -> (Keep, Vec<spec::Executed>) {
    let mut keep = Keep::all();
    let executed = reference.forward(runs, &mut keep).unwrap();
    (keep, executed)
}

#[rstest]
fn threads_change_no_bit(#[values("trained", "random")] which: &str) {
    let ((one, case), (two, _), (five, _)) =
        (model(which, Some(1)), model(which, Some(2)), model(which, Some(5)));
    for precision in [Precision::F32, Precision::Bf16] {
        let run = free(&case, precision);
        let expected = run_all(&one, &[run]);
        for reference in [&two, &five] {
            let (keep, executed) = run_all(reference, &[run]);
            assert!(keep.bits(0) == expected.0.bits(0), "{precision:?}");
            assert_eq!(executed, expected.1);
        }
    }
}

#[rstest]
fn the_other_lanes_of_a_pass_change_no_bit(#[values("trained", "random")] which: &str) {
    let (reference, case) = model(which, None);
    let other = Case::new("other", case.tokens[3..].iter().rev().copied().collect()).unwrap();
    let (_, first) = run_all(&reference, &[free(&other, Precision::F32)]);
    let runs = [
        free(&case, Precision::F32),
        forced(&other, &first[0].choices, Precision::Bf16),
        free(&case, Precision::Bf16),
        free(&other, Precision::F32),
    ];
    let (together, executed) = run_all(&reference, &runs);
    for (index, run) in runs.iter().enumerate() {
        let (alone, executed_alone) = run_all(&reference, &[*run]);
        assert!(together.bits(index) == alone.bits(0), "lane {index}");
        assert_eq!(executed[index], executed_alone[0]);
    }
    assert!(together.bits(0) != together.bits(2), "the emulation rounds");
}

#[rstest]
fn a_schedule_changes_nothing_but_the_call_numbers(#[values("trained", "random")] which: &str) {
    let (reference, case) = model(which, None);
    let whole = run_all(&reference, &[free(&case, Precision::F32)]);
    let schedules =
        [Schedule::chunks_of(1), Schedule::chunks_of(13), Schedule::chunks_of(32).decoding_from(40)];
    for schedule in schedules {
        let run = Run { schedule, ..free(&case, Precision::F32) };
        let (keep, executed) = run_all(&reference, &[run]);
        assert!(keep.bits(0) == whole.0.bits(0), "{schedule:?}");
        assert_eq!(executed[0].choices, whole.1[0].choices);
    }
}

#[test]
fn call_numbers_follow_the_schedule() {
    let (reference, case) = model("random", None);
    let case = Case::new("seven", case.tokens[..7].to_vec()).unwrap();
    let schedule = Schedule::chunks_of(3).decoding_from(5);
    let run = Run { schedule, ..free(&case, Precision::F32) };
    let executed = reference.forward(&[run], &mut spec::side::Nothing).unwrap();
    assert_eq!(executed[0].call, [0, 0, 0, 1, 1, 2, 3]);
}

/// The rows of the first tokens of a text are the rows of those tokens alone.
fn check_prefix(reference: &Reference, case: &Case, len: usize) {
    let head = Case::new("head", case.tokens[..len].to_vec()).unwrap();
    for precision in [Precision::F32, Precision::Bf16] {
        let (keep, _) = run_all(reference, &[free(case, precision), free(&head, precision)]);
        for (_, layer, site) in keep.keys().into_iter().filter(|key| key.0 == 1) {
            let layer = layer.map(|layer| layer.0);
            let (whole, head) = (keep.get(0, layer, site), keep.get(1, layer, site));
            let first = whole.slice(s![..len, ..]);
            assert!(bits(first) == bits(&head), "{precision:?}, layer {layer:?}, {site}");
        }
    }
}

#[rstest]
fn text_that_follows_changes_no_bit(
    #[values("trained", "random")] which: &str,
    #[values(1, 2, 31, 64, 65)] len: usize,
) {
    let (reference, case) = model(which, None);
    check_prefix(&reference, &case, len);
}

/// A sum over keys is made of blocks of 256, so more than that is needed to see one move.
#[rstest]
fn text_that_follows_changes_no_bit_of_sums_over_many_keys(#[values(257, 300, 513)] len: usize) {
    check_prefix(&open(&trained()), &held_out("long", 0, 700), len);
}

#[rstest]
fn a_run_forced_onto_its_own_choices_is_the_free_run(
    #[values("trained", "random")] which: &str,
    #[values(Precision::F32, Precision::Bf16)] precision: Precision,
) {
    let (reference, case) = model(which, None);
    let (free_rows, free_run) = run_all(&reference, &[free(&case, precision)]);
    assert_eq!(free_run[0].forced_rows, 0);
    assert_eq!(free_run[0].choices, free_run[0].shadow);
    let (rows, executed) = run_all(&reference, &[forced(&case, &free_run[0].choices, precision)]);
    assert!(rows.bits(0) == free_rows.bits(0));
    assert_eq!(executed[0].choices, free_run[0].choices);
    assert_eq!(executed[0].forced_rows, case.len() * reference.config().num_layers());
}

#[test]
fn forcing_executes_other_experts_in_their_order_and_keeps_a_shadow() {
    let (reference, case) = model("random", None);
    let (_, mut free_run) = run_all(&reference, &[free(&case, Precision::F32)]);
    let mut choices = free_run.remove(0).choices;
    // one token in the first layer: its own experts rotated, and one exchanged
    let own = choices.at(9, LayerId(0)).to_vec();
    let absent = (0..7).map(spec::ExpertId).find(|id| !own.contains(id)).unwrap();
    choices.set(9, LayerId(0), &[own[1], own[2], absent]);
    let (keep, executed) = run_all(&reference, &[forced(&case, &choices, Precision::F32)]);
    assert_eq!(executed[0].choices.at(9, LayerId(0)), [own[1], own[2], absent]);
    assert_eq!(executed[0].shadow.at(9, LayerId(0)), own);
    let row = keep.get(0, Some(0), Site::Choice).row(9).to_vec();
    assert_eq!(row, [own[1], own[2], absent].map(|id| f32::from(id.0)));
    // the weights are the sigmoids of its own logits, in forced order (K16)
    let logits = keep.get(0, Some(0), Site::RouterLogits);
    let weights = keep.get(0, Some(0), Site::TopkWeights);
    for (slot, id) in [own[1], own[2], absent].into_iter().enumerate() {
        let sigmoid = 1.0 / (1.0 + (-f64::from(logits[[9, id.index()]])).exp());
        let distance = (f64::from(weights[[9, slot]]) - sigmoid).abs();
        assert!(distance <= 1e-6, "slot {slot}: {distance:e}");
    }
}

#[rstest]
fn a_layer_fed_its_own_input_gives_the_forward_pass(
    #[values("trained", "random")] which: &str,
    #[values(Precision::F32, Precision::Bf16)] precision: Precision,
) {
    let (reference, case) = model(which, None);
    let run = free(&case, precision);
    let (whole, _) = run_all(&reference, &[run]);
    let layers = reference.config().num_layers();
    for layer in 0..layers {
        let h_in = match layer {
            0 => whole.get(0, None, Site::Embedding),
            _ => whole.get(0, Some(layer - 1), Site::LayerOut),
        };
        let mut keep = Keep::all();
        // in column order, to show that the layout of the input does not matter
        let mut columns = Array2::zeros(ndarray::ShapeBuilder::f(h_in.dim()));
        columns.assign(&h_in);
        reference.layer(LayerId(layer), &[run], &[columns], &mut keep).unwrap();
        let expected: Vec<_> =
            whole.bits(0).into_iter().filter(|((l, _), _)| *l == Some(LayerId(layer))).collect();
        assert_eq!(expected.len(), 26, "sites of a layer");
        assert!(keep.bits(0).into_iter().eq(expected), "layer {layer}");
    }
    let mut keep = Keep::all();
    let last = whole.get(0, Some(layers - 1), Site::LayerOut);
    reference.head(&[run], &[last], &mut keep).unwrap();
    assert_eq!(keep.keys().len(), 2, "final norm and logits");
    assert!(keep.bits(0).into_iter().all(|(key, rows)| whole.bits(0)[&key] == rows));
}

#[test]
fn recording_less_changes_no_bit_and_each_row_comes_once() {
    let (reference, case) = model("random", None);
    let runs = [free(&case, Precision::F32), free(&case, Precision::Bf16)];
    let (all, executed) = run_all(&reference, &runs);
    assert_eq!(all.keys().len(), 2 * (3 + 3 * 26));
    assert_eq!(all.layers_done, [LayerId(0), LayerId(1), LayerId(2)]);
    for key in all.keys() {
        assert_eq!(all.row_count(key), case.len(), "{key:?}");
        let width = key.2.width(reference.config());
        assert_eq!(all.get(key.0, key.1.map(|l| l.0), key.2).ncols(), width, "{key:?}");
    }
    for site in Site::ALL {
        let mut keep = Keep::only(&[site]);
        assert_eq!(reference.forward(&runs, &mut keep).unwrap(), executed);
        for (run, layer, site) in keep.keys() {
            let layer = layer.map(|l| l.0);
            assert!(bits(&keep.get(run, layer, site)) == bits(&all.get(run, layer, site)), "{site}");
        }
        assert_eq!(keep.keys().len(), if site.is_per_layer() { 6 } else { 2 }, "{site}");
    }
}

#[test]
fn the_emulation_stores_bf16_at_the_listed_places_only() {
    let (reference, case) = model("random", None);
    let (keep, _) = run_all(&reference, &[free(&case, Precision::Bf16)]);
    let routing = [Site::RouterLogits, Site::SelectionScores, Site::TopkWeights, Site::Routed];
    let in_f32 = [&routing[..], &[Site::SharedGate, Site::SharedUp, Site::SharedAct, Site::Logits]].concat();
    for (run, layer, site) in keep.keys() {
        let rows = keep.get(run, layer.map(|l| l.0), site);
        let is_bf16 = rows.iter().all(|value| value.to_bits() & 0xffff == 0);
        assert_eq!(is_bf16, !in_f32.contains(&site), "layer {layer:?}, {site}");
    }
}

#[test]
fn four_lanes_read_what_one_lane_reads() {
    let dir = tiny(safetensors::Dtype::BF16);
    let case = random_case(50, 19, 5);
    let read = |lanes: usize| {
        let reference = open(dir.path());
        let runs = vec![free(&case, Precision::F32); lanes];
        reference.forward(&runs, &mut Keep::only(&[Site::Logits])).unwrap();
        reference.bytes_read()
    };
    assert_eq!(read(4), read(1));
}

#[test]
fn only_what_is_used_is_read() {
    let dir = tiny(safetensors::Dtype::BF16);
    let reference = open(dir.path());
    let case = Case::new("one", random_case(1, 19, 5).tokens).unwrap();
    let bytes = |shapes: &[usize]| 2 * shapes.iter().sum::<usize>() as u64;
    let (h, q, kv) = (22, 24, 12);
    let attention = [h, h, q * h, kv * h, kv * h, h * q, 6, 6];
    let moe = [h, h, 7 * h, 7, 3 * h * 13, 3 * (3 * h * 10)];
    let layers = 3 * (bytes(&attention) + bytes(&moe));
    reference.forward(&[free(&case, Precision::F32)], &mut spec::side::Nothing).unwrap();
    assert_eq!(reference.bytes_read(), bytes(&[h]) + layers, "no norm, no head, one row, three experts");
    let before = reference.bytes_read();
    reference.forward(&[free(&case, Precision::F32)], &mut Keep::only(&[Site::Logits])).unwrap();
    assert_eq!(reference.bytes_read() - before, bytes(&[h]) + layers + bytes(&[h, 19 * h]));
}

#[test]
fn logits_come_in_blocks_that_change_no_bit() {
    // at most 2^24 logits are made at a time: 239 rows of 70,000
    let config = support::TINY.replace("\"vocab_size\": 19", "\"vocab_size\": 70000");
    let dir = support::folder(&config);
    let tensors = support::random_tensors(&config, safetensors::Dtype::BF16);
    support::write_shard(dir.path(), "model.safetensors", &tensors);
    let reference = open(dir.path());
    let case = random_case(300, 70_000, 3);
    let mut keep = Keep::only(&[Site::LayerOut, Site::Logits]);
    reference.forward(&[free(&case, Precision::F32)], &mut keep).unwrap();
    let (h, logits) = (keep.get(0, Some(2), Site::LayerOut), keep.get(0, None, Site::Logits));
    for rows in [0..200, 200..300, 299..300] {
        let part = Case::new("part", case.tokens[rows.clone()].to_vec()).unwrap();
        let mut keep = Keep::only(&[Site::Logits]);
        let h = h.slice(s![rows.clone(), ..]).to_owned();
        reference.head(&[free(&part, Precision::F32)], &[h], &mut keep).unwrap();
        assert!(bits(&keep.get(0, None, Site::Logits)) == bits(logits.slice(s![rows, ..])));
    }
}

/// Steps whose window is one key short.
struct ShortWindow;

impl reference::Steps for ShortWindow {
    fn visible(&self, config: &spec::ModelConfig, layer: LayerId, query: usize) -> std::ops::Range<usize> {
        let range = Correct.visible(config, layer, query);
        let short = config.window(layer).is_some_and(|window| query + 1 >= window);
        range.start + usize::from(short)..range.end
    }
}

#[test]
fn a_lane_with_a_planted_bug_differs_from_its_neighbour_and_only_there() {
    use reference::Steps;
    let (reference, case) = model("trained", None);
    let run = free(&case, Precision::F32);
    let lanes = [Lane::new(run, &Correct), Lane::new(run, &ShortWindow)];
    let mut keep = Keep::all();
    reference.forward_lanes(&lanes, &mut keep).unwrap();
    let (alone, _) = run_all(&reference, &[run]);
    assert!(keep.bits(0) == alone.bits(0));
    // up to the attention of the first layer all is equal; its output from position W - 1 on is not
    let layer = Some(0);
    assert!(bits(&keep.get(0, layer, Site::KRope)) == bits(&keep.get(1, layer, Site::KRope)));
    let (right, wrong) = (keep.get(0, layer, Site::AttnOut), keep.get(1, layer, Site::AttnOut));
    for position in 0..case.len() {
        assert_eq!(right.row(position) == wrong.row(position), position < 32, "position {position}");
    }
    let mutant = open(&trained()).with_steps(Box::new(ShortWindow));
    assert!(run_all(&mutant, &[run]).0.bits(0) == keep.bits(1));
    assert_eq!(ShortWindow.visible(reference.config(), LayerId(0), 40), 9..41);
}
