//! The `moe-trace/1` file: what it holds, what is refused, what it is good for.

mod file;
mod patterns;
mod refusals;
mod round_trip;
mod uses;
