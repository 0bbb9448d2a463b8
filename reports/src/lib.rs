//! A record as Markdown, CSV, JSON or HTML.
//!
//! Empty so far: there is no record yet. The tables of `assay compare` are printed by the command line.
