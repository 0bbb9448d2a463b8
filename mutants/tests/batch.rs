//! Bugs of batches: in which rows each is, and from which position on; a run alone does not know of them.
//!
//! Four runs, three at a time, in calls of 16 columns of prefill. The longest prompt has 40 tokens, so that
//! the second run has 30 columns of padding and the third 10. The second leaves after four calls of decode,
//! from between two others, and the fourth joins; after six more the first leaves.
mod support;

use mlx_rs::Array;
use mutants::{Kind, Need, catalogue, find, variants};
use ndarray::ArrayView2;
use port::batch::Row;
use port::engine::values;
use port::mask::Mask;
use port::{Correct, Port, Steps};
use rstest::rstest;
use spec::{
    At, Case, Choices, LayerId, Padding, Precision, Recorder, Result, Routing, Run, Schedule, Side, Site,
};
use std::collections::{BTreeMap, BTreeSet};
use support::{config, port, port_steps, text};

/// Tokens of each run, and of its prompt.
const RUNS: [(usize, usize); 4] = [(50, 40), (14, 10), (46, 30), (20, 12)];

fn steps(id: &str) -> Box<dyn Steps> {
    port_steps(find(id).unwrap()).unwrap()
}

/// Bits of what layers 0 and 1 recorded, by run, layer and site.
#[derive(Default)]
struct Kept(BTreeMap<(usize, usize, Site), Vec<Vec<u32>>>);

impl Recorder for Kept {
    fn wants(&self, _run: usize, layer: Option<LayerId>, site: Site) -> bool {
        layer.is_some_and(|layer| layer.0 < 2) && [Site::QRope, Site::AttnOut].contains(&site)
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        let rows = rows.rows().into_iter().map(|row| row.iter().map(|value| value.to_bits()).collect());
        self.0.entry((at.run, at.layer.unwrap().0, at.site)).or_default().extend(rows);
        Ok(())
    }
}

fn recorded(port: &Port, batch: usize, padding: Padding) -> Kept {
    let text = text(120);
    let case = |(index, (tokens, _)): (usize, (usize, usize))| {
        Case::new(format!("row-{index}"), text.tokens[20 * index..20 * index + tokens].to_vec()).unwrap()
    };
    let cases: Vec<Case> = RUNS.into_iter().enumerate().map(case).collect();
    let run = |(case, (_, prompt))| {
        let schedule = Schedule::chunks_of(16).decoding_from(prompt).batched(batch, padding);
        Run { case, schedule, routing: Routing::Free, precision: Precision::F32 }
    };
    let runs: Vec<Run<'_>> = cases.iter().zip(RUNS).map(run).collect();
    let mut kept = Kept::default();
    port.forward(&runs, &mut kept).unwrap();
    kept
}

/// By run, the first position whose bits differ at a layer's site.
fn moved(right: &Kept, wrong: &Kept, layer: usize, site: Site) -> [Option<usize>; 4] {
    std::array::from_fn(|run| {
        let (right, wrong) = (&right.0[&(run, layer, site)], &wrong.0[&(run, layer, site)]);
        assert_eq!((right.len(), wrong.len()), (RUNS[run].0, RUNS[run].0));
        (0..right.len()).find(|&position| right[position] != wrong[position])
    })
}

const ALL: [Padding; 2] = [Padding::Left, Padding::Right];

#[rstest]
// the longest run has no padding, the last is prefilled by itself
#[case("batched_rope_positions_in_padded_frame", &[Padding::Left], Site::QRope,
    [None, Some(0), Some(0), None])]
#[case("batched_rope_positions_in_padded_frame", &[Padding::Right], Site::QRope,
    [None, Some(10), Some(30), None])]
// the first call of one token has the right position still
#[case("batch_decode_pos_frozen", &ALL, Site::QRope, [Some(41), Some(11), Some(31), Some(13)])]
#[case("rope_one_token_first_row", &ALL, Site::QRope, [None, Some(10), Some(30), Some(12)])]
// the last has the slots that the others had before it
#[case("batch_decode_pad_keys_visible", &ALL, Site::AttnOut, [None, Some(10), Some(30), Some(12)])]
#[case("left_padding_visible", &[Padding::Left], Site::AttnOut, [None, Some(0), Some(0), None])]
#[case("left_padding_visible", &[Padding::Right], Site::AttnOut, [None; 4])]
// the third then has the keys of the second, and, six calls later, the fourth those of the third
#[case("rows_misaligned_after_leave", &ALL, Site::AttnOut, [None, None, Some(34), Some(18)])]
#[case("rows_misaligned_after_join", &ALL, Site::AttnOut, [Some(44), None, Some(34), Some(12)])]
fn each_row_is_wrong_from_its_position_on(
    #[case] id: &str,
    #[case] paddings: &[Padding],
    #[case] site: Site,
    #[case] expected: [Option<usize>; 4],
) {
    let right = port(Precision::F32);
    let wrong = right.with_steps(steps(id));
    for &padding in paddings {
        let (right, wrong) = (recorded(&right, 3, padding), recorded(&wrong, 3, padding));
        assert_eq!(moved(&right, &wrong, 0, site), expected, "{padding:?}");
        if site == Site::AttnOut {
            assert_eq!(moved(&right, &wrong, 0, Site::QRope), [None; 4], "{padding:?}");
        }
    }
}

/// Weight 0 of a value that is NaN: padding of the first layer is in keys and values of the second.
#[rstest]
#[case(Padding::Left, [None, Some(0), Some(0), None])]
// in the second call the third run has 14 tokens and 2 columns of padding
#[case(Padding::Right, [None, Some(0), Some(16), None])]
fn a_softmax_over_nothing_spreads_from_the_second_layer_on(
    #[case] padding: Padding,
    #[case] expected: [Option<usize>; 4],
) {
    let right = port(Precision::F32);
    let wrong = recorded(&right.with_steps(steps("masked_row_nan")), 3, padding);
    let right = recorded(&right, 3, padding);
    assert_eq!(moved(&right, &wrong, 0, Site::AttnOut), [None; 4]);
    assert_eq!(moved(&right, &wrong, 1, Site::AttnOut), expected);
    let of_run = &wrong.0[&(1, 1, Site::AttnOut)];
    assert!(of_run.iter().flatten().all(|&bits| f32::from_bits(bits).is_nan()));
}

#[test]
fn a_run_alone_knows_nothing_of_these_bugs() {
    let right = port(Precision::F32);
    let expected = recorded(&right, 1, Padding::Left);
    let of_batches: Vec<_> = catalogue().filter(|mutant| mutant.needs.contains(&Need::Batch)).collect();
    assert_eq!(of_batches.len(), 8);
    for bug in of_batches {
        let found = recorded(&right.with_steps(port_steps(bug).unwrap()), 1, Padding::Left);
        assert_eq!(found.0, expected.0, "{}", bug.id);
    }
}

/// Logits of three short runs, two at a time, forced onto the choices of a port without a bug; and those.
fn logits(port: &Port, forced: Option<&[Choices]>) -> (Vec<f32>, Vec<Choices>) {
    /// All logits, in the order of calls.
    struct Logits(Vec<f32>);
    impl Recorder for Logits {
        fn wants(&self, _run: usize, _layer: Option<LayerId>, site: Site) -> bool {
            site == Site::Logits
        }
        fn record(&mut self, _at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
            self.0.extend(rows);
            Ok(())
        }
    }
    let text = text(40);
    let cases: Vec<Case> = [(0, 7), (9, 3), (20, 5)]
        .into_iter()
        .map(|(start, tokens)| {
            Case::new(format!("row-{start}"), text.tokens[start..start + tokens].to_vec()).unwrap()
        })
        .collect();
    let run = |(index, case): (usize, _)| {
        let schedule = Schedule::chunks_of(3).decoding_from([5, 2, 1][index]).batched(2, Padding::Left);
        let routing = forced.map_or(Routing::Free, |forced| Routing::Forced(&forced[index]));
        Run { case, schedule, routing, precision: Precision::F32 }
    };
    let runs: Vec<Run<'_>> = cases.iter().enumerate().map(run).collect();
    let mut found = Logits(Vec::new());
    let executed = port.forward(&runs, &mut found).unwrap();
    (found.0, executed.into_iter().map(|executed| executed.choices).collect())
}

#[test]
fn every_bug_of_a_step_goes_through_a_batch_and_every_rewrite_changes_nothing_there() {
    let right = port(Precision::F32);
    let (_, choices) = logits(&right, None);
    let (expected, _) = logits(&right, Some(&choices));
    assert_eq!(expected.len(), 15 * 256);
    let size = expected.iter().map(|x| x * x).sum::<f32>().sqrt();
    for mutant in catalogue().chain(variants()).filter(|mutant| port_steps(mutant).is_some()) {
        let (found, _) = logits(&right.with_steps(port_steps(mutant).unwrap()), Some(&choices));
        assert_eq!(found.len(), expected.len(), "{}", mutant.id);
        let error = found.iter().zip(&expected).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt() / size;
        // sums in other orders, in each of ten layers
        assert!(mutant.kind == Kind::Bug || error <= 1e-5, "{}: {error:e}", mutant.id);
    }
}

const ROWS: [Row; 3] = [
    // in its padding, 3 columns before its first token
    Row { run: 0, taken: 0, prompt: 9, lead: 3, columns: 16 },
    Row { run: 1, taken: 7, prompt: 9, lead: 0, columns: 16 },
    // in decode
    Row { run: 2, taken: 12, prompt: 9, lead: 0, columns: 40 },
];

#[rstest]
#[case("batched_rope_positions_in_padded_frame", [16, 16, 40])]
#[case("batch_decode_pos_frozen", [-3, 7, 9])]
fn rows_turn_from(#[case] id: &str, #[case] expected: [i32; 3]) {
    assert_eq!(steps(id).batch_offsets(&ROWS), expected);
    assert_eq!(Correct.batch_offsets(&ROWS), [-3, 7, 12]);
}

/// Two rows, three slots, the first without a token.
#[rstest]
#[case::decode("batch_decode_pad_keys_visible", 1, "111 111")]
#[case::prefill("batch_decode_pad_keys_visible", 2, "010 011 010 011")]
#[case::decode("left_padding_visible", 1, "011 011")]
#[case::prefill("left_padding_visible", 2, "110 111 110 111")]
fn padding_is_seen(#[case] id: &str, #[case] tokens: i32, #[case] expected: &str) {
    let keys = Array::from_slice(&[-1, 4, 5, -1, 0, 1], &[2, 3]);
    let queries: &[i32] = if tokens == 1 { &[5, 1] } else { &[4, 5, 0, 1] };
    let queries = Array::from_slice(queries, &[2, tokens]);
    let Mask::Visible(mask) = steps(id).batch_mask(Some(9), &queries, &keys).unwrap() else {
        panic!("a mask")
    };
    assert_eq!(mask.shape(), [2, 1, tokens, 3]);
    let line = |row: &[bool]| row.iter().map(|&seen| if seen { '1' } else { '0' }).collect::<String>();
    let lines: Vec<String> = values::<bool>(&mask).unwrap().chunks(3).map(line).collect();
    assert_eq!(lines.join(" "), expected);
}

#[test]
fn padding_after_a_query_is_not_before_it() {
    let keys = Array::from_slice(&[0, 1, -1], &[1, 3]);
    let queries = Array::from_slice(&[0, 1, -1], &[1, 3]);
    let Mask::Visible(mask) = steps("left_padding_visible").batch_mask(None, &queries, &keys).unwrap() else {
        panic!("a mask")
    };
    let seen = [true, false, false, true, true, false, true, true, true];
    assert_eq!(values::<bool>(&mask).unwrap(), seen);
}

#[test]
fn every_bug_of_a_batch_is_named_here() {
    let here = include_str!("batch.rs");
    let of_batches = catalogue().filter(|mutant| mutant.needs.contains(&Need::Batch));
    let missing: BTreeSet<_> = of_batches.map(|mutant| mutant.id).filter(|id| !here.contains(id)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(config().sliding_window, Some(33));
}
