//! `kernel.gather` on kernels in plain f32, and on a bug that drops keys.

use crate::fake::Fake;
use crate::gates::{TRAINED, blank, finding, gate_of, json_gate, run_from};
use diff::gate::record::{Outcome, Record};
use ndarray::Array2;
use serde_json::{Value, json};
use spec::kernel::Gather;

/// [`json_gate`] with this check, bound to a bug that drops keys.
fn record(fake: &Fake) -> Record {
    let (mut gate, trained) = (json_gate(), serde_json::from_str::<Value>(TRAINED).unwrap());
    gate["not_applicable"].as_object_mut().unwrap().remove("kernel.gather");
    gate["checks"]["kernel.gather"] = trained["checks"]["kernel.gather"].clone();
    gate["checks"]["kernel.gather"]["controls"] = json!({"everything": ["attention"]});
    run_from(fake, &gate_of(&gate), None, blank()).0
}

const LEGS: [&str; 5] = ["ratio", "bad_rows", "rotation", "attention", "repeats"];

fn outcomes(record: &Record) -> [Outcome; 5] {
    LEGS.map(|leg| finding(record, None, "kernel.gather", leg).outcome)
}

#[test]
fn honest_kernels_pass_and_a_bug_of_one_fires_on_its_leg() {
    let record = record(&Fake::new());
    assert_eq!(outcomes(&record), [Outcome::Pass; 5]);
    let rows = |leg| finding(&record, None, "kernel.gather", leg).rows;
    // three shapes of five sequences, two heads each; one query at five lengths, then five of one head
    assert_eq!((rows("rotation"), rows("attention")), (30, 10));
    assert_eq!(rows("ratio"), rows("bad_rows"));
    assert!(rows("ratio") > 66_000 && rows("repeats") == rows("ratio") + 40);
    let control = record.controls.iter().find(|control| control.mutant == "everything").unwrap();
    let leg = control.legs.iter().find(|leg| leg.check == "kernel.gather").unwrap();
    // of one head at each of three lengths beyond 1,024
    assert!(leg.caught && leg.value == 3.0 && leg.unmutated == 0.0, "{leg:?}");
    assert!(leg.place.contains("S 1025"), "{}", leg.place);
}

#[test]
fn a_fault_in_few_rows_is_in_their_leg_alone() {
    let gather = |call: &Gather<'_>, out: &mut Array2<f32>| {
        if call.sorted && call.ids.len() == 333 {
            out[(17, 3)] = f32::NAN;
        }
    };
    let mut fake = Fake::new();
    fake.gather = gather;
    let record = record(&fake);
    let [pass, fail] = [Outcome::Pass, Outcome::Fail];
    assert_eq!(outcomes(&record), [pass, fail, pass, pass, pass]);
    let found = finding(&record, None, "kernel.gather", "bad_rows");
    // dense and packed
    assert_eq!((found.value, found.excess), (2.0, 2.0));
    assert!(found.place.contains("all rows to one expert"), "{}", found.place);
}

#[test]
fn other_bits_in_another_call_and_a_worse_kernel_fire() {
    let mut fake = Fake::new();
    fake.drift = 1e-3;
    assert_eq!(outcomes(&record(&fake))[4], Outcome::Fail);
    let mut fake = Fake::new();
    fake.gather = |call: &Gather<'_>, out: &mut Array2<f32>| {
        if call.sorted && call.ids.len() == 640 {
            *out *= 1.000_001;
        }
    };
    assert_eq!(outcomes(&record(&fake))[0], Outcome::Fail);
}
