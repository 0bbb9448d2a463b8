//! Correct rewrites of the reference's steps. Shapes as in [`::reference::Steps`].

mod orders;
mod wide;

use super::OURS;
use crate::mutant::{Mutant, Stage};
use crate::reference::{Plant, Step, plant_of, product};

pub const ROWS: &[Mutant] = &[
    Mutant::rewrite("reference_norm_divided", Stage::Norm, "norms divide by a root instead of multiplying")
        .seen_in(&[OURS]),
    Mutant::rewrite(
        "reference_products_reversed",
        Stage::Attention,
        "every product sums from the last term on",
    )
    .seen_in(&[OURS]),
    Mutant::rewrite(
        "reference_products_in_blocks",
        Stage::Attention,
        "every product sums 17 terms at a time",
    )
    .seen_in(&[OURS]),
    Mutant::rewrite(
        "reference_softmax_unshifted",
        Stage::Attention,
        "softmax does not subtract the largest score where all are small",
    )
    .seen_in(&[OURS]),
    Mutant::rewrite("reference_softmax_sum_in_f64", Stage::Attention, "softmax adds its exponentials in f64")
        .seen_in(&[OURS]),
    Mutant::rewrite(
        "reference_combine_last_first",
        Stage::Experts,
        "the k experts are summed from the last on",
    )
    .seen_in(&[OURS]),
    Mutant::rewrite(
        "steps_in_f64",
        Stage::Checker,
        "norms, products, rotation, softmax, weights and sums are made in f64 and rounded once",
    )
    .seen_in(&[OURS]),
];

/// How they get into a lane.
pub static PLANTS: &[Plant] = &[
    plant_of("reference_norm_divided", &[Step::RmsNorm, Step::QkNorm], || Box::new(orders::NormDivided)),
    plant_of("reference_products_reversed", product::ALL, || Box::new(orders::ProductsReversed)),
    plant_of("reference_products_in_blocks", product::ALL, || Box::new(orders::ProductsInBlocks)),
    plant_of("reference_softmax_unshifted", &[Step::Softmax], || Box::new(orders::SoftmaxUnshifted)),
    plant_of("reference_softmax_sum_in_f64", &[Step::Softmax], || Box::new(orders::SoftmaxSumInF64)),
    plant_of("reference_combine_last_first", &[Step::Combine], || Box::new(orders::LastFirst)),
    plant_of("steps_in_f64", wide::OF, || Box::new(wide::InF64)),
];
