//! Planted bugs: the catalogue, and how to build each side with one in it.
//!
//! Empty so far. Both sides are ready for it: every step of `reference::Steps` and of `port::Steps` is a
//! method with the correct body as its default, and `tests/planted.rs` overrides a few of the port's.
