//! The probe on kernels in plain loops: honest ones are fine everywhere, each fault is bad where it is.

#[path = "../support/config.rs"]
mod config;
#[path = "../support/kernels.rs"]
mod kernels;

use config::config;
use diff::probe::{Extent, Finding, Kind, run};
use kernels::{Fault, Plain};
use ndarray::{Array2, s};
use rstest::rstest;
use spec::ModelConfig;
use spec::kernel::{Gather, RowLayout, StackLayout};

/// A model whose rows groups of 32 divide.
fn model() -> ModelConfig {
    ModelConfig {
        hidden_size: 32,
        expert_width: 64,
        num_heads: 4,
        num_kv_heads: 2,
        head_dim: 8,
        num_experts: 8,
        ..config()
    }
}

fn probed(kernels: &Plain) -> Vec<Finding> {
    run(kernels, &model(), Extent::Short, &mut ()).unwrap()
}

fn bad(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|found| !found.is_fine()).collect()
}

#[test]
fn honest_kernels_are_fine_at_every_shape() {
    let findings = probed(&Plain::new());
    assert!(bad(&findings).is_empty(), "{:#?}", bad(&findings));
    assert!(findings.len() > 25, "{}", findings.len());
    let named = |words: &str| findings.iter().any(|found| format!("{found:?}").contains(words));
    for words in ["gather_qmm 8 bits", "bf16", "every second expert", "R 33001", "S 2049", "R 2,"] {
        assert!(named(words), "{words}");
    }
    let masked = findings.iter().find(|found| !found.note.is_empty()).unwrap();
    assert_eq!(masked.note, "the query that sees nothing gets zeros");
}

#[test]
fn a_shape_is_the_same_in_every_run() {
    let numbers = |findings: Vec<Finding>| findings.iter().map(|f| f.worst.to_bits()).collect::<Vec<_>>();
    assert_eq!(numbers(probed(&Plain::new())), numbers(probed(&Plain::new())));
}

/// What each fault is called with, and how many rows it spoils in the first shape that shows it.
#[rstest]
#[case::rows_beyond_32768(
    |call: &Gather<'_>, out: &mut Array2<f32>| {
        if call.sorted && out.nrows() > 32_768 {
            out.slice_mut(s![32_768.., ..]).fill(f32::NAN);
        }
    },
    "R 33001", 33_001 - 32_768)]
#[case::every_second_expert(
    |call: &Gather<'_>, out: &mut Array2<f32>| {
        if call.stack_layout == StackLayout::EverySecond {
            out.slice_mut(s![..3, ..]).fill(0.0);
        }
    },
    "R 200", 3)]
#[case::rows_that_are_one(
    |call: &Gather<'_>, out: &mut Array2<f32>| {
        if call.sorted && call.row_layout == RowLayout::OneForAll {
            out[(7, 1)] += 0.5;
        }
    },
    "R 200", 1)]
#[case::unsorted_only(
    |call: &Gather<'_>, out: &mut Array2<f32>| {
        if !call.sorted && call.ids.len() == 333 {
            out[(5, 0)] = f32::INFINITY;
        }
    },
    "R 333", 1)]
#[case::both_ways(
    |call: &Gather<'_>, out: &mut Array2<f32>| {
        if call.ids.len() == 333 {
            *out *= 1.01;
        }
    },
    "R 333", 333)]
fn a_fault_is_bad_where_it_is(#[case] gather: Fault, #[case] shape: &str, #[case] rows: usize) {
    let findings = probed(&Plain { gather, ..Plain::new() });
    let bad = bad(&findings);
    assert!(!bad.is_empty() && bad.iter().all(|found| found.shape.starts_with(shape)), "{bad:#?}");
    assert_eq!(bad[0].bad_rows, rows, "{:#?}", bad[0]);
}

#[test]
fn a_kernel_that_is_a_little_worse_everywhere_is_seen_by_the_ratio() {
    let gather: Fault = |call, out| {
        if call.sorted && call.ids.len() == 640 {
            *out *= 1.000_001
        }
    };
    let findings = probed(&Plain { gather, ..Plain::new() });
    let [found] = bad(&findings)[..] else { panic!("{findings:#?}") };
    assert!(found.ratio > 3.0 && found.shape.starts_with("R 640"), "{found:#?}");
}

#[test]
fn a_rotation_that_turns_the_first_sequence_only_is_bad_in_all_others() {
    let findings = probed(&Plain { turning: 1, ..Plain::new() });
    let bad = bad(&findings);
    assert!(bad.iter().all(|found| found.kind == Kind::Rotation));
    // five sequences of four heads; in the last shape one of the others is at position 0
    let rows: Vec<_> = bad.iter().map(|found| (found.bad_rows, found.first_bad)).collect();
    assert_eq!(rows, [(16, Some(4)), (16, Some(4)), (12, Some(8))]);
}

#[test]
fn one_query_that_sees_1024_keys_is_bad_beyond() {
    let findings = probed(&Plain { seen: 1024, ..Plain::new() });
    let shapes: Vec<&str> = bad(&findings).iter().map(|found| found.shape.as_str()).collect();
    let beyond = |keys| format!("heads 4:2, D 8, T 1, S {keys}");
    assert_eq!(shapes, [1025, 2048, 2049].map(beyond));
}

#[rstest]
#[case(f32::NAN, "NaN or infinity", false)]
#[case(0.25, "something else", true)]
fn a_query_that_sees_nothing_may_get_anything_finite(
    #[case] masked: f32,
    #[case] words: &str,
    #[case] fine: bool,
) {
    let findings = probed(&Plain { masked, ..Plain::new() });
    let found = findings.iter().find(|found| !found.note.is_empty()).unwrap();
    assert!(found.note.ends_with(words), "{}", found.note);
    assert_eq!(found.is_fine(), fine);
    // the row of each of four heads
    assert_eq!(found.bad_rows, if fine { 0 } else { 4 });
}

#[test]
fn other_bits_in_another_call_are_counted() {
    let findings = probed(&Plain { drift: 1e-3, ..Plain::new() });
    let unlike = findings.iter().filter(|found| found.differing > 0).count();
    assert!(unlike * 2 > findings.len(), "{unlike} of {}", findings.len());
}
