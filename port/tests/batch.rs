//! Batches: each row is what its run is alone, whatever its neighbours, the padding, and who comes and goes.
mod support;

use mlx_rs::Array;
use ndarray::ArrayView2;
use port::Port;
use port::batch_cache::BatchCache;
use port::engine::{dim, values};
use port::mask::{Mask, batch_mask};
use rstest::rstest;
use spec::{
    At, Case, Choices, Error, Executed, LayerId, Padding, Precision, Recorder, Result, Routing, Run,
    Schedule, Side, Site, TokenId, config_file,
};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use support::{fixtures, kjv, kjv_text, relative_l2, wide};

/// First token and number of tokens in the text, and tokens of the prompt, of five runs: the window is 33.
///
/// The first goes through four windows. The second leaves first, from between two others; then the fourth
/// joins, then the fifth, which has no prompt.
const RUNS: [(usize, usize, usize); 5] =
    [(0, 140, 50), (211, 25, 7), (303, 90, 69), (100, 70, 34), (50, 41, 0)];
/// Three of them at a time.
const BATCH: usize = 3;
/// Other shapes mean other orders of summation, 1e-6 in each of ten layers. A key too many or too few in one
/// layer moves logits by 1e-3 or more.
const RELATIVE_L2_MAX: f64 = 1e-5;

fn port() -> Port {
    kjv(Precision::F32)
}

fn cases() -> Vec<Case> {
    let text = kjv_text(512);
    let cut = |(index, &(start, len, _)): (usize, &(usize, usize, usize))| {
        Case::new(format!("row-{index}"), text.tokens[start..start + len].to_vec()).unwrap()
    };
    RUNS.iter().enumerate().map(cut).collect()
}

/// The runs' schedules, each row alone or several together.
fn schedule(index: usize, batch: usize, padding: Padding) -> Schedule {
    Schedule::chunks_of(16).decoding_from(RUNS[index].2).batched(batch, padding)
}

/// Rows by run, layer and site; each comes once, in ascending order.
#[derive(Default)]
struct Kept {
    rows: BTreeMap<(usize, Option<LayerId>, Site), Vec<f32>>,
    next: BTreeMap<(usize, Option<LayerId>, Site), usize>,
}

impl Recorder for Kept {
    fn wants(&self, _run: usize, _layer: Option<LayerId>, _site: Site) -> bool {
        true
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        let key = (at.run, at.layer, at.site);
        let next = self.next.entry(key).or_insert(0);
        assert_eq!(*next, at.rows.start, "rows of {key:?} come in order, each once");
        assert_eq!(rows.nrows(), at.rows.len());
        *next = at.rows.end;
        self.rows.entry(key).or_default().extend(rows.iter());
        Ok(())
    }
}

/// All runs, `batch` at a time.
fn forward(
    port: &Port,
    cases: &[Case],
    (batch, padding): (usize, Padding),
    forced: &dyn Fn(usize) -> Option<&'static Choices>,
) -> (Vec<Executed>, Kept) {
    let precision = port.describe().precision;
    let run = |(index, case)| {
        let routing = forced(index).map_or(Routing::Free, Routing::Forced);
        Run { case, schedule: schedule(index, batch, padding), routing, precision }
    };
    let runs: Vec<Run<'_>> = cases.iter().enumerate().map(run).collect();
    let mut kept = Kept::default();
    (port.forward(&runs, &mut kept).unwrap(), kept)
}

/// What the runs are alone, choosing freely.
static ALONE: LazyLock<(Vec<Executed>, Kept)> =
    LazyLock::new(|| forward(&port(), &cases(), (1, Padding::Left), &|_| None));

fn own(index: usize) -> Option<&'static Choices> {
    Some(&ALONE.0[index].choices)
}

/// Every site of every row agrees with the run alone, up to the order of sums.
fn check_rows(found: &Kept, except: &[Site]) {
    let config = &config_file::read(&fixtures().join("kolibri-tiny-kjv")).unwrap();
    assert_eq!(found.rows.len(), ALONE.1.rows.len());
    assert_eq!(found.rows.len(), 5 * (26 * 10 + 3));
    for (key, expected) in ALONE.1.rows.iter().filter(|(key, _)| !except.contains(&key.2)) {
        let rows = &found.rows[key];
        let width = key.2.width(config);
        assert_eq!(rows.len(), RUNS[key.0].1 * width, "{key:?}");
        for (token, (found, expected)) in rows.chunks(width).zip(expected.chunks(width)).enumerate() {
            let error = relative_l2(found, &wide(expected));
            assert!(error <= RELATIVE_L2_MAX, "{key:?}, token {token}: {error:e}");
        }
    }
}

#[rstest]
fn forced_rows_are_what_their_runs_are_alone(
    #[values(Padding::Left, Padding::Right)] padding: Padding,
    #[values(BATCH, 5)] batch: usize,
) {
    let (executed, found) = forward(&port(), &cases(), (batch, padding), &own);
    // a shadow may choose otherwise where two scores differ by less than rounding
    check_rows(&found, &[Site::ShadowChoice]);
    for (index, executed) in executed.iter().enumerate() {
        assert_eq!(Some(&executed.choices), own(index));
        assert_eq!(executed.forced_rows, RUNS[index].1 * 10);
        assert_eq!(executed.call.len(), RUNS[index].1);
    }
}

/// Each alone has the same sums in another order; no two scores of these texts are as near as that.
#[rstest]
fn free_rows_choose_what_they_choose_alone(#[values(Padding::Left, Padding::Right)] padding: Padding) {
    let (executed, found) = forward(&port(), &cases(), (BATCH, padding), &|_| None);
    check_rows(&found, &[]);
    for (found, alone) in executed.iter().zip(&ALONE.0) {
        assert_eq!((&found.choices, &found.shadow), (&alone.choices, &alone.choices));
        assert_eq!(found.forced_rows, 0);
    }
}

#[test]
fn forced_and_free_rows_go_through_one_call() {
    let forced = |index: usize| if index.is_multiple_of(2) { own(index) } else { None };
    let (executed, found) = forward(&port(), &cases(), (BATCH, Padding::Left), &forced);
    check_rows(&found, &[]);
    let rows: Vec<usize> = executed.iter().map(|executed| executed.forced_rows).collect();
    assert_eq!(rows, [1400, 0, 900, 0, 410]);
}

#[test]
fn other_ids_than_a_rows_own_are_executed_where_they_are_forced() {
    static OTHER: LazyLock<Vec<Choices>> = LazyLock::new(|| {
        let rotated = |executed: &Executed| {
            let mut other = executed.choices.clone();
            for token in 0..other.tokens() {
                for layer in (0..10).map(LayerId) {
                    let mut row = executed.choices.at(token, layer).to_vec();
                    row[3] = (0..32).map(spec::ExpertId).find(|id| !row.contains(id)).unwrap();
                    row.rotate_left(1 + token % 3);
                    other.set(token, layer, &row);
                }
            }
            other
        };
        ALONE.0.iter().map(rotated).collect()
    });
    let (executed, _) = forward(&port(), &cases(), (BATCH, Padding::Right), &|index| Some(&OTHER[index]));
    for (executed, other) in executed.iter().zip(&*OTHER) {
        assert_eq!(executed.choices, *other);
        assert_ne!(executed.shadow, *other);
    }
}

/// The calls worked by hand: five of prefill (69 columns in sixteens), then one token each; the second run is
/// through after 18 of them, and the fourth, of 34 tokens of prompt, joins.
#[rstest]
// 19 columns of padding before the first token of 50, 62 before that of 7
#[case::left(Padding::Left, [(0, 1), (1, 3), (2, 0)])]
#[case::right(Padding::Right, [(0, 0), (1, 0), (2, 0)])]
fn calls_are_counted_over_the_whole_batch(#[case] padding: Padding, #[case] first: [(usize, u32); 3]) {
    let (executed, _) = forward(&port(), &cases(), (BATCH, padding), &|_| None);
    for (run, call) in first {
        assert_eq!(executed[run].call[0], call, "run {run}");
    }
    for run in 0..3 {
        assert_eq!(executed[run].call[RUNS[run].2], 5, "run {run}");
    }
    // run 1 is through with call 5 + 17; run 3 is prefilled in calls 23 to 25
    assert_eq!(executed[1].call[24], 22);
    assert_eq!(executed[3].call[..34], [vec![23; 16], vec![24; 16], vec![25; 2]].concat());
    assert_eq!((executed[0].call[50 + 17], executed[0].call[50 + 18]), (22, 26));
    assert_eq!(executed[3].call[34], 26);
    // run 2 has its 21st token of decode in call 5 + 17 + 3 + 3; run 4 has no prompt and decodes from then on
    assert_eq!(executed[2].call[89], 28);
    assert_eq!(executed[4].call[..2], [29, 30]);
}

#[test]
fn in_bf16_rows_are_near_their_runs_alone() {
    let port = kjv(Precision::Bf16);
    let (_, alone) = forward(&port, &cases(), (1, Padding::Left), &own);
    let (_, found) = forward(&port, &cases(), (BATCH, Padding::Left), &own);
    for run in 0..RUNS.len() {
        let logits = |kept: &Kept| kept.rows[&(run, None, Site::Logits)].clone();
        let error = relative_l2(&logits(&found), &wide(&logits(&alone)));
        // some thirty roundings to 2^-9 on the way, most of them alike in both
        assert!(error <= 2e-2, "run {run}: {error:e}");
    }
}

#[rstest]
#[case::prompts_alone(None)]
#[case::no_prompts(Some(0))]
fn rows_may_be_all_prompt_or_all_decode(#[case] decode_from: Option<usize>) {
    let cases = cases();
    let run = |(index, case)| Run {
        case,
        schedule: Schedule { decode_from, ..schedule(index, 2, Padding::Left) },
        routing: Routing::Forced(own(index).unwrap()),
        precision: Precision::F32,
    };
    let runs: Vec<Run<'_>> = cases.iter().enumerate().map(run).collect();
    let mut found = Kept::default();
    port().forward(&runs, &mut found).unwrap();
    check_rows(&found, &[Site::ShadowChoice]);
}

fn refused(change: impl Fn(usize, &mut Schedule)) -> Error {
    let cases = cases();
    let run = |(index, case)| {
        let mut schedule = schedule(index, BATCH, Padding::Left);
        change(index, &mut schedule);
        Run { case, schedule, routing: Routing::Free, precision: Precision::F32 }
    };
    let runs: Vec<Run<'_>> = cases.iter().enumerate().map(run).collect();
    port().forward(&runs, &mut Kept::default()).unwrap_err()
}

#[rstest]
#[case::batch(|schedule: &mut Schedule| schedule.batch = 2, "batch 2")]
#[case::one_alone(|schedule: &mut Schedule| schedule.batch = 1, "batch 1")]
#[case::padding(|schedule: &mut Schedule| schedule.padding = Padding::Right, "padding Right")]
#[case::chunk(|schedule: &mut Schedule| schedule.prefill_chunk = 7, "chunks of 7")]
fn runs_that_disagree_are_refused(#[case] change: fn(&mut Schedule), #[case] found: &str) {
    let error = refused(|index, schedule| {
        if index == 3 {
            change(schedule);
        }
    });
    assert!(matches!(error, Error::Argument { .. }), "{error}");
    let words = error.to_string();
    assert!(words.contains("batch 3, padding Left, chunks of 16") && words.contains(found), "{words}");
}

#[test]
fn a_batch_of_none_is_refused() {
    let error = refused(|_, schedule| schedule.batch = 0);
    assert!(error.to_string().contains("1 or more"), "{error}");
}

#[test]
fn a_layer_and_the_head_are_fed_one_sequence_at_a_time() {
    let case = Case::new("few", vec![TokenId(1); 3]).unwrap();
    let schedule = Schedule::chunks_of(3).batched(2, Padding::Left);
    let run = Run { case: &case, schedule, routing: Routing::Free, precision: Precision::F32 };
    let rows = [ndarray::Array2::zeros((3, 96))];
    let of_layer = port().layer(LayerId(0), &[run], &rows, &mut Kept::default()).unwrap_err();
    let of_head = port().head(&[run], &rows, &mut Kept::default()).unwrap_err();
    for error in [of_layer, of_head] {
        assert!(matches!(error, Error::Argument { .. }), "{error}");
        assert!(error.to_string().contains("one by one"), "{error}");
    }
}

/// One column for each position, `[B, 1, T, 1]`; the key of a position is a thousand times the row and
/// itself.
fn keys(positions: &[Vec<i32>]) -> Array {
    let key = |(row, positions): (usize, &Vec<i32>)| -> Vec<f32> {
        positions.iter().map(|&position| (row * 1000) as f32 + position as f32).collect()
    };
    let all: Vec<f32> = positions.iter().enumerate().flat_map(key).collect();
    Array::from_slice(&all, &[dim(positions.len()), 1, dim(positions[0].len()), 1])
}

/// The slots of each row that hold a token, as (position, key).
fn held(cache: &BatchCache, keys: &Array) -> Vec<Vec<(i32, f32)>> {
    let (positions, keys_) = (values::<i32>(&cache.positions()).unwrap(), values::<f32>(keys).unwrap());
    let slots = keys.dim(2) as usize;
    assert_eq!(positions.len(), keys_.len());
    let all: Vec<(i32, f32)> = positions.into_iter().zip(keys_).collect();
    all.chunks(slots)
        .map(|row| row.iter().copied().filter(|(position, _)| *position >= 0).collect())
        .collect()
}

#[test]
fn a_window_of_each_row_is_kept_and_no_more_than_two_windows_of_slots() {
    const WINDOW: usize = 5;
    let mut cache = BatchCache::new(Some(WINDOW), 2);
    // rows of 8 and 3 tokens, the second padded on the left, then on the right
    let prefill = vec![(0..8).collect(), [vec![-1; 5], vec![0, 1, 2]].concat()];
    let mixed = vec![(8..12).collect(), vec![3, 4, -1, -1]];
    let decode = (0..40).map(|step| vec![vec![12 + step], vec![5 + step]]);
    for call in [prefill, mixed].into_iter().chain(decode) {
        let (seen, _) = cache.update(&keys(&call), &keys(&call), &call).unwrap();
        assert!(seen.dim(2) as usize <= 2 * WINDOW, "{} slots", seen.dim(2));
        for (row, (held, call)) in held(&cache, &seen).iter().zip(&call).enumerate() {
            let last = *call.iter().max().unwrap();
            let first = (call.iter().filter(|&&position| position >= 0).min().unwrap() - 4).max(0);
            for position in first..=last {
                let expected = (position, (row * 1000) as f32 + position as f32);
                assert!(held.contains(&expected), "{expected:?} of row {row} in {held:?}");
            }
        }
    }
}

#[test]
fn rows_leave_and_join_with_their_own_keys() {
    let mut cache = BatchCache::new(None, 3);
    let call = vec![(0..4).collect(), vec![-1, -1, -1, 0], vec![0, 1, -1, -1]];
    cache.update(&keys(&call), &keys(&call), &call).unwrap();
    cache.keep(&[2, 1]).unwrap();
    let mut new = BatchCache::new(None, 1);
    let of_new = vec![(0..6).collect()];
    new.update(&keys(&of_new), &keys(&of_new), &of_new).unwrap();
    cache.append(new).unwrap();
    cache.append(BatchCache::new(None, 1)).unwrap();
    let next = vec![vec![2], vec![1], vec![6], vec![0]];
    let (seen, _) = cache.update(&keys(&next), &keys(&next), &next).unwrap();
    let held = held(&cache, &seen);
    assert_eq!(held[0], [(0, 2000.0), (1, 2001.0), (2, 2.0)]);
    assert_eq!(held[1], [(0, 1000.0), (1, 1001.0)]);
    assert_eq!(held[2], (0..6).map(|i| (i, i as f32)).chain([(6, 2006.0)]).collect::<Vec<_>>());
    assert_eq!(held[3], [(0, 3000.0)]);
    // the longest row is 6 + 1; what the first three had beyond is gone
    assert_eq!(seen.dim(2), 7);
}

#[rstest]
// rows at positions -2..2 and 1..5 over the same keys
#[case::all(None, ["1111 1111 1000 1100", "1100 1110 1111 1111"])]
#[case::two(Some(2), ["1111 1111 1000 1100", "1100 0110 0011 0001"])]
fn a_key_is_seen_by_its_tag(#[case] window: Option<usize>, #[case] expected: [&str; 2]) {
    let queries = Array::from_slice(&[-1, -1, 0, 1, 1, 2, 3, 4], &[2, 4]);
    let tags = Array::from_slice(&[0, 1, 2, -1, 0, 1, 2, 3], &[2, 4]);
    let Mask::Visible(mask) = batch_mask(window, &queries, &tags).unwrap() else {
        panic!("a mask of its own")
    };
    assert_eq!(mask.shape(), [2, 1, 4, 4]);
    let line = |row: &[bool]| row.iter().map(|&seen| if seen { '1' } else { '0' }).collect::<String>();
    let lines: Vec<String> = values::<bool>(&mask).unwrap().chunks(4).map(line).collect();
    assert_eq!([lines[..4].join(" "), lines[4..].join(" ")], expected);
}
