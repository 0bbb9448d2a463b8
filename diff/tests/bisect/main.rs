//! Bisection: its patterns, its search on sides that are tables, and its log.

mod fake;
mod patterns;
mod replay;
mod search;
mod shrink;
