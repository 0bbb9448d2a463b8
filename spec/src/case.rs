//! What is fed to a side: the tokens, and how they are cut into calls.
//!
//! Absent on purpose: tokenising and reading text files; the command line does both.

use crate::{Error, ModelConfig, Result, TokenId};

/// One sequence of tokens with a name that appears in every table and file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Unique within a run; letters, digits, `-`, `_` and `.` only, so that it can name a file.
    pub name: String,
    /// The token ids, `[T]`, `T >= 1`.
    pub tokens: Vec<TokenId>,
}

impl Case {
    /// A named sequence. Errors: [`Error::Case`] on an empty sequence or a name that cannot name a file.
    pub fn new(name: impl Into<String>, tokens: Vec<TokenId>) -> Result<Self> {
        let name = name.into();
        let fail = |expected: &str, found: String, next: &str| {
            Err(Error::Case { case: name.clone(), expected: expected.into(), found, next: next.into() })
        };
        if tokens.is_empty() {
            return fail("at least one token", "an empty text".into(), "give a text that is not empty");
        }
        let sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(sound) {
            return fail("a name of letters, digits, `-`, `_`, `.`", format!("`{name}`"), "rename the case");
        }
        Ok(Self { name, tokens })
    }

    /// Number of tokens, `T`.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Never true of a case made by [`Case::new`].
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Refuses a token id outside the vocabulary (K1 `vocab_size`). Errors: [`Error::Case`].
    pub fn check_vocabulary(&self, config: &ModelConfig) -> Result<()> {
        let Some((position, id)) =
            self.tokens.iter().enumerate().find(|(_, id)| id.index() >= config.vocab_size)
        else {
            return Ok(());
        };
        Err(Error::Case {
            case: self.name.clone(),
            expected: format!("token ids below the vocabulary's {}", config.vocab_size),
            found: format!("id {id} at position {position}"),
            next: "tokenise the text with this checkpoint's own tokenizer".into(),
        })
    }
}

/// How a case's tokens are cut into calls of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Schedule {
    /// Tokens per prefill call, `>= 1`; the last call takes what is left.
    pub prefill_chunk: usize,
    /// From this position on, one token per call; `None`: prefill only.
    pub decode_from: Option<usize>,
    /// Sequences per call; 1 unless a batch is being tested. Of the runs given together, the first `batch`
    /// begin together; when one has taken its last token it leaves, and the next one joins.
    pub batch: usize,
    /// Where a batch's shorter sequences are padded in prefill.
    #[serde(default, skip_serializing_if = "Padding::is_left")]
    pub padding: Padding,
}

/// On which side of its tokens a shorter sequence of a batch is padded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// Before its first token.
    #[default]
    Left,
    /// After its last prefilled token.
    Right,
}

impl Padding {
    fn is_left(&self) -> bool {
        *self == Padding::Left
    }
}

impl Schedule {
    /// Prefill in calls of `prefill_chunk` tokens, no decode, one sequence per call.
    pub fn chunks_of(prefill_chunk: usize) -> Self {
        Self { prefill_chunk, decode_from: None, batch: 1, padding: Padding::Left }
    }

    /// The same, but one token per call from this position on.
    pub fn decoding_from(self, position: usize) -> Self {
        Self { decode_from: Some(position), ..self }
    }

    /// The same, but `batch` sequences per call.
    pub fn batched(self, batch: usize, padding: Padding) -> Self {
        Self { batch, padding, ..self }
    }

    /// The calls for a case of `len` tokens: position ranges in order, disjoint, covering `0..len`.
    ///
    /// Panics if `prefill_chunk` is 0: a schedule is made by code, which checks what a person typed.
    pub fn calls(&self, len: usize) -> Vec<std::ops::Range<usize>> {
        assert!(self.prefill_chunk > 0, "a prefill chunk holds at least one token");
        let decode_from = self.decode_from.unwrap_or(len).min(len);
        let prefill = (0..decode_from).step_by(self.prefill_chunk);
        let prefill = prefill.map(|start| start..(start + self.prefill_chunk).min(decode_from));
        prefill.chain((decode_from..len).map(|position| position..position + 1)).collect()
    }
}
