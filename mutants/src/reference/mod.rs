//! Steps of the reference with one of them wrong, by stage. Shapes as in [`::reference::Steps`].

pub mod attention;
mod both;
pub mod embedding;
pub mod experts;
pub mod mask;
pub mod norm;
mod plants;
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

/// How the row of that id, a bug or a correct rewrite, gets into the reference, if it can.
pub fn plant(id: &str) -> Option<&'static Plant> {
    plants::ALL.iter().chain(crate::variants::reference::PLANTS).find(|plant| plant.id == id)
}

pub(crate) const fn plant_of(id: &'static str, of: &'static [Step], make: fn() -> Box<dyn Steps>) -> Plant {
    Plant { id, of, make }
}
