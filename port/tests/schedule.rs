//! The same text fed in other pieces, and one layer fed what a whole run recorded.
mod support;

use rstest::rstest;
use spec::{LayerId, Precision, Routing, Schedule, Side, Site};
use support::{Rows, forward, kjv, kjv_text, layers, relative_l2, run, wide};

/// Five windows and a bit, not a multiple of any chunk below but 1.
const TOKENS: usize = 173;
/// Other numbers of rows mean other orders of summation: 1e-6 in each of ten layers. A key too many or too
/// few in one layer moves logits by 1e-3 or more.
const RELATIVE_L2_MAX: f64 = 1e-5;

#[rstest]
#[case::one_by_one(1, None)]
#[case::sevens(7, None)]
#[case::below_the_window(32, None)]
#[case::the_window(33, None)]
#[case::above_the_window(34, None)]
#[case::three_windows(100, None)]
#[case::chunk_then_decode(100, Some(120))]
#[case::sevens_then_decode(7, Some(20))]
#[case::decode_from_the_start(1, Some(0))]
fn any_schedule_gives_what_one_chunk_gives(#[case] prefill_chunk: usize, #[case] decode_from: Option<usize>) {
    let (port, text) = (kjv(Precision::F32), kjv_text(TOKENS));
    let whole = run(&text, Schedule::chunks_of(TOKENS), Routing::Free, Precision::F32);
    let mut expected = Rows::of(&[Site::Logits, Site::LayerOut]);
    let free = port.forward(&[whole], &mut expected).unwrap().remove(0);
    let schedule = Schedule { decode_from, ..Schedule::chunks_of(prefill_chunk) };
    let pieces = run(&text, schedule, Routing::Forced(&free.choices), Precision::F32);
    let mut found = Rows::of(&[Site::Logits, Site::LayerOut]);
    port.forward(&[pieces], &mut found).unwrap();

    for layer in layers(port.config()) {
        let (found, expected) = (found.at(layer, Site::LayerOut), wide(expected.at(layer, Site::LayerOut)));
        // row by row, so that the few rows behind a window cannot hide among the others
        for (token, (found, expected)) in found.chunks_exact(96).zip(expected.chunks_exact(96)).enumerate() {
            let error = relative_l2(found, expected);
            assert!(error <= RELATIVE_L2_MAX, "layer {layer}, token {token}: {error:e}");
        }
    }
    let error = relative_l2(found.outer(Site::Logits), &wide(expected.outer(Site::Logits)));
    assert!(error <= RELATIVE_L2_MAX, "logits: {error:e}");
}

#[rstest]
fn a_layer_fed_its_recorded_input_gives_its_recorded_rows_bit_for_bit(
    #[values(Precision::F32, Precision::Bf16)] precision: Precision,
) {
    let (port, text) = (kjv(precision), kjv_text(TOKENS));
    let schedule = Schedule::chunks_of(50).decoding_from(160);
    let one = run(&text, schedule, Routing::Free, precision);
    let (_, whole) = forward(&port, one);
    for layer in layers(port.config()) {
        let input = match layer {
            0 => whole.matrix(None, Site::Embedding, 96),
            _ => whole.matrix(Some(layer - 1), Site::LayerOut, 96),
        };
        let mut alone = Rows::of(&Site::ALL);
        port.layer(LayerId(layer), &[one], &[input], &mut alone).unwrap();
        assert_eq!(alone.rows.len(), 26);
        for ((id, site), rows) in &alone.rows {
            assert_eq!(*id, Some(LayerId(layer)));
            assert_eq!(rows, whole.at(layer, *site), "layer {layer}, {site}");
        }
    }
    let mut alone = Rows::of(&Site::ALL);
    port.head(&[one], &[whole.matrix(Some(9), Site::LayerOut, 96)], &mut alone).unwrap();
    assert_eq!(alone.rows.len(), 2);
    assert_eq!(alone.outer(Site::FinalNorm), whole.outer(Site::FinalNorm));
    assert_eq!(alone.outer(Site::Logits), whole.outer(Site::Logits));
}
