//! Planted bugs of what judges, not of the model.

use crate::mutant::{Mutant, Stage};

pub const ROWS: &[Mutant] =
    &[Mutant::new("reference_tf32", Stage::Checker, "the reference multiplies numbers of ten bits")
        .rows(&["H2"])
        .seen_in(&["mlx#3860", "mlxcel#1065", "ferrox#227"])];
