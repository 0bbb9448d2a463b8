//! `assay convert`.

use clap::Args;
use std::path::PathBuf;

/// `assay convert`.
#[derive(Debug, Args)]
pub struct Convert {
    /// Folder of the checkpoint
    pub checkpoint: PathBuf,
    /// Bits of a code: 2, 3, 4, 5, 6 or 8
    #[arg(long)]
    pub bits: u32,
    /// Values that share a scale and a bias: 32, 64 or 128 [default: 64, or 32 where 64 does not divide the
    /// row; rows that neither divides are kept]
    #[arg(long)]
    pub group: Option<usize>,
    /// Bits of the embedding, or `keep` [default: --bits]
    #[arg(long, value_name = "BITS|keep", value_parser = bits_or_keep)]
    pub embedding: Option<BitsOrKeep>,
    /// Bits of the head, or `keep` [default: --bits]
    #[arg(long, value_name = "BITS|keep", value_parser = bits_or_keep)]
    pub head: Option<BitsOrKeep>,
    /// Folder to write; must not exist
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Print what became of each kind of module as JSON
    #[arg(long)]
    pub json: bool,
}

/// What becomes of one matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitsOrKeep {
    /// Packed with codes of so many bits.
    Bits(u32),
    /// As it is.
    Keep,
}

fn bits_or_keep(typed: &str) -> Result<BitsOrKeep, String> {
    match typed {
        "keep" => Ok(BitsOrKeep::Keep),
        _ => typed
            .parse()
            .map(BitsOrKeep::Bits)
            .map_err(|_| format!("`{typed}` is neither a number of bits nor `keep`")),
    }
}
