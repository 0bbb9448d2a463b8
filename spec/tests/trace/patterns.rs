//! Wrapped ids and stale rows: refused where they are certain, never in an honest trace.

use ndarray::Array3;
use spec::TokenId;
use spec::trace::{Meta, SlotOrder, Trace};
use std::path::PathBuf;

/// One layer, `k` of `experts`; ids given by row.
fn trace(experts: usize, layers: usize, rows: &[Vec<i32>], tokens: &[u32]) -> Trace {
    let k = rows[0].len() / layers;
    let meta = Meta {
        case: "hand".into(),
        model: None,
        weights_sha256: None,
        config_sha256: None,
        num_experts: experts,
        k,
        num_hidden_layers: layers,
        pos0: 0,
        slot_order: SlotOrder::Unknown,
        tie_rule: None,
        router: None,
        shared_experts: None,
        engine: None,
        calls: None,
        source: None,
        precision: None,
        layer_kinds: None,
    };
    Trace {
        path: PathBuf::from("hand"),
        meta,
        ids: Array3::from_shape_vec((rows.len(), layers, k), rows.concat()).unwrap(),
        layers: (0..layers).map(spec::LayerId).collect(),
        tokens: tokens.iter().copied().map(TokenId).collect(),
        weights: None,
        candidates: None,
        origin: None,
        call: None,
        shadow: None,
    }
}

/// `count` rows of one layer, k = 1, the ids going round below `below`.
fn going_round(experts: usize, below: i32, count: usize) -> Trace {
    let rows: Vec<Vec<i32>> = (0..below).cycle().take(count).map(|id| vec![id]).collect();
    trace(experts, 1, &rows, &(0..).take(count).collect::<Vec<u32>>())
}

/// Of 384 experts a third are beyond one byte: 3,000 ids are expected to hold 1,000 of them.
#[test]
fn a_long_trace_without_ids_beyond_one_byte_is_refused() {
    let refusal = going_round(384, 256, 3_000).check().unwrap_err().to_string();
    assert!(refusal.contains("no id of 256 or more among 3000"), "{refusal}");
}

#[test]
fn a_short_trace_without_ids_beyond_one_byte_is_sound() {
    going_round(384, 256, 2_999).check().unwrap();
}

#[test]
fn one_id_beyond_one_byte_shows_that_ids_do_not_wrap() {
    going_round(384, 257, 3_000).check().unwrap();
}

#[test]
fn a_model_of_256_experts_has_no_ids_that_wrap() {
    going_round(256, 256, 100_000).check().unwrap();
}

/// 100 rows of two layers that all differ, tokens that all differ; then `change`.
fn varied(change: impl FnOnce(&mut Vec<Vec<i32>>, &mut Vec<u32>)) -> Trace {
    let mut rows: Vec<Vec<i32>> = (0..100).map(|row| vec![row % 31, row % 29]).collect();
    let mut tokens: Vec<u32> = (0..100).collect();
    change(&mut rows, &mut tokens);
    trace(32, 2, &rows, &tokens)
}

#[test]
fn a_row_repeated_under_different_tokens_is_refused_with_its_place() {
    let stale = varied(|rows, _| (41..56).for_each(|row| rows[row] = rows[40].clone()));
    let refusal = stale.check().unwrap_err().to_string();
    assert!(
        refusal.contains("16 rows equal in every layer from token 40 on, over 16 different tokens"),
        "{refusal}"
    );
}

#[test]
fn fewer_rows_are_no_evidence() {
    varied(|rows, _| (41..55).for_each(|row| rows[row] = rows[40].clone())).check().unwrap();
}

#[test]
fn the_same_token_over_and_over_may_route_alike() {
    let honest = varied(|rows, tokens| {
        (41..80).for_each(|row| {
            rows[row] = rows[40].clone();
            tokens[row] = 40;
        });
    });
    honest.check().unwrap();
}

#[test]
fn a_collapsed_router_routes_everything_alike() {
    varied(|rows, _| rows.iter_mut().for_each(|row| *row = vec![3, 4])).check().unwrap();
}

#[test]
fn rows_that_agree_in_one_layer_only_are_sound() {
    varied(|rows, _| rows.iter_mut().for_each(|row| row[0] = 3)).check().unwrap();
}

#[test]
fn rows_with_weights_of_their_own_are_not_stale() {
    let mut honest = varied(|rows, _| (41..56).for_each(|row| rows[row] = rows[40].clone()));
    let weight = |(row, layer, _): (usize, usize, usize)| (row * 2 + layer) as f32;
    honest.weights = Some(Array3::from_shape_fn((100, 2, 1), weight));
    honest.check().unwrap();
}

#[test]
fn missing_rows_are_not_stale() {
    varied(|rows, _| (40..60).for_each(|row| rows[row] = vec![-1, -1])).check().unwrap();
}
