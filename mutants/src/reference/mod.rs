//! Steps of the reference with one of them wrong, by stage. Shapes as in [`::reference::Steps`].

mod both;
pub mod norm;
pub mod product;
pub mod rope;
pub mod router;

pub use both::{Both, Step, are_apart};

use ::reference::Steps;

/// How a row of the catalogue gets into a lane of the reference.
#[derive(Debug, Clone, Copy)]
pub struct Plant {
    /// The row's id.
    pub id: &'static str,
    /// The steps that are other.
    pub of: &'static [Step],
    /// Makes them.
    pub make: fn() -> Box<dyn Steps>,
}

/// How the row of that id gets into the reference, if it can.
pub fn plant(id: &str) -> Option<&'static Plant> {
    PLANTS.iter().find(|plant| plant.id == id)
}

const fn plant_of(id: &'static str, of: &'static [Step], make: fn() -> Box<dyn Steps>) -> Plant {
    Plant { id, of, make }
}

static PLANTS: &[Plant] = &[
    plant_of("one_plus_w_norm", &[Step::RmsNorm, Step::QkNorm], || Box::new(norm::OnePlusWeight)),
    plant_of("swap_sandwich_norms", &[Step::NormWeight], || Box::new(norm::SandwichSwapped)),
    plant_of("qknorm_after_rope", &[Step::QkNorm, Step::QkRope], || Box::new(norm::HeadNormAfterRope)),
    plant_of("rope_on_full", &[Step::QkRope], || Box::new(rope::OnEveryLayer)),
    plant_of("rope_traditional", &[Step::QkRope], || Box::new(rope::AdjacentPairs)),
    plant_of("sigmoid_bias_select", &[Step::SelectionScores], || Box::new(router::SigmoidPlusBias)),
    plant_of("renorm_topk", &[Step::TopkWeights], || Box::new(router::Renormalised)),
    plant_of("reference_tf32", product::ALL, || Box::new(product::Tf32)),
];
