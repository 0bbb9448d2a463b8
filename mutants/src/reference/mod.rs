//! Steps of the reference with one of them wrong, by stage. Shapes as in [`::reference::Steps`].
//!
//! Absent on purpose: what the seven of bits per byte and the check of the reference itself do not need.

pub mod norm;
pub mod product;
pub mod rope;
pub mod router;
