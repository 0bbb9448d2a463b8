//! Rows come back from disk as they went there.

use diff::spool::Spool;
use ndarray::{Array2, array};

#[test]
fn rows_of_interleaved_runs_come_back_bit_for_bit() {
    let mut spool = Spool::create([(0, 3, 2), (1, 2, 2)]).unwrap();
    spool.append(&0, array![[1.0, -0.0]].view()).unwrap();
    spool.append(&1, array![[7.0, f32::MIN_POSITIVE], [8.0, 9.0]].view()).unwrap();
    spool.append(&0, array![[3.0, f32::INFINITY], [5.0, f32::NAN]].view()).unwrap();
    assert_eq!(bits(&spool.read(&0, 0..2).unwrap()), bits(&array![[1.0, -0.0], [3.0, f32::INFINITY]]));
    assert_eq!(bits(&spool.read(&0, 2..3).unwrap()), bits(&array![[5.0, f32::NAN]]));
    assert_eq!(bits(&spool.read(&1, 0..2).unwrap()), bits(&array![[7.0, f32::MIN_POSITIVE], [8.0, 9.0]]));
}

fn bits(rows: &Array2<f32>) -> Vec<u32> {
    rows.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn rows_that_lie_apart_in_memory_are_written_in_order() {
    let mut spool = Spool::create([(0, 2, 2)]).unwrap();
    spool.append(&0, array![[1.0, 3.0], [2.0, 4.0]].t()).unwrap();
    assert_eq!(spool.read(&0, 0..2).unwrap(), array![[1.0, 2.0], [3.0, 4.0]]);
}

#[test]
fn rows_never_written_are_refused_even_if_later_ones_exist() {
    let mut spool = Spool::create([(0, 2, 1), (1, 1, 1)]).unwrap();
    spool.append(&0, array![[1.0]].view()).unwrap();
    spool.append(&1, array![[2.0]].view()).unwrap();
    let message = spool.read(&0, 1..2).unwrap_err().to_string();
    assert!(message.contains("expected rows 1..2 of 0 in the spool, found 1 rows"), "{message}");
}

#[test]
#[should_panic = "more rows than 0 was to have"]
fn one_run_cannot_write_into_the_next() {
    let mut spool = Spool::create([(0, 1, 1), (1, 1, 1)]).unwrap();
    spool.append(&0, array![[1.0], [2.0]].view()).unwrap();
}

#[test]
fn keys_may_have_rows_of_different_widths() {
    let mut spool = Spool::create([("wide", 1, 3), ("narrow", 2, 1)]).unwrap();
    spool.append(&"narrow", array![[7.0], [8.0]].view()).unwrap();
    spool.append(&"wide", array![[1.0, 2.0, 3.0]].view()).unwrap();
    assert_eq!(spool.all(&"wide").unwrap(), array![[1.0, 2.0, 3.0]]);
    assert_eq!(spool.all(&"narrow").unwrap(), array![[7.0], [8.0]]);
    assert!(spool.has(&"wide") && !spool.has(&"other"));
}
