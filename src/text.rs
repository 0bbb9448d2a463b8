//! From a file to cases: tokens by the checkpoint's tokenizer or by bytes, cut into sequences; and back, so
//! that a position can be shown as text.

use crate::cli::Tokens;
use spec::{Case, Error, ModelConfig, Result, TokenId};
use std::path::Path;
use tokenizers::Tokenizer;

/// Sequences used where the person named no number.
const SEQUENCES_DEFAULT: usize = 2;
/// Tokens per sequence where the person named no number.
const LENGTH_DEFAULT: usize = 1024;
/// Random tokens are drawn into memory; nobody runs more than this.
const RANDOM_TOKENS_MAX: usize = 1 << 26;
/// A vocabulary of bytes: every token is one byte of the text.
const BYTE_VOCABULARY: usize = 256;

/// The cases of a run, and how their tokens read.
#[derive(Debug)]
pub struct Texts {
    /// At least one case.
    pub cases: Vec<Case>,
    /// One line for the reader: where the tokens came from and how many were used.
    pub about: String,
    alphabet: Alphabet,
}

/// What a token id means.
#[derive(Debug)]
enum Alphabet {
    Bytes,
    Tokenizer(Box<Tokenizer>),
    Numbers,
}

/// Tokens before they are cut.
struct Source {
    name: String,
    sequences: Sequences,
    alphabet: Alphabet,
    about: String,
}

enum Sequences {
    /// One stream, to be cut.
    Stream(Vec<TokenId>),
    /// Sequences as the person cut them.
    Given(Vec<Vec<TokenId>>),
}

/// Reads, tokenises and cuts. Errors: no source named, an unreadable file, a text that the checkpoint cannot
/// tokenise, an empty text, an id outside the vocabulary, fewer tokens than were asked for.
pub fn read(checkpoint: &Path, config: &ModelConfig, wanted: &Tokens) -> Result<Texts> {
    let source = if let Some(path) = &wanted.text {
        from_text(checkpoint, config, path)?
    } else if let Some(path) = &wanted.tokens {
        from_json(checkpoint, config, path)?
    } else if let Some(count) = wanted.random_tokens {
        from_seed(checkpoint, config, count.get())?
    } else {
        return Err(Error::Argument {
            what: "the tokens".into(),
            expected: "one of --text FILE, --tokens FILE, --random-tokens N".into(),
            found: "none of them".into(),
            next: "name a text to run".into(),
        });
    };
    let (sequences, used) = match source.sequences {
        Sequences::Stream(tokens) => cut(&source.name, &tokens, wanted)?,
        Sequences::Given(lists) => take(lists, wanted)?,
    };
    let name = |index| format!("{}.{index}", source.name);
    let cases = sequences.into_iter().enumerate().map(|(index, tokens)| Case::new(name(index), tokens));
    let cases = cases.collect::<Result<Vec<_>>>()?;
    cases.iter().try_for_each(|case| case.check_vocabulary(config))?;
    warn_if_long(&cases, config);
    Ok(Texts { cases, about: format!("{}; {used}", source.about), alphabet: source.alphabet })
}

fn from_text(checkpoint: &Path, config: &ModelConfig, path: &Path) -> Result<Source> {
    let bytes = std::fs::read(path).map_err(Error::io("read", path, "name a text file"))?;
    from_bytes(checkpoint, config, case_name(path), &path.display().to_string(), bytes)
}

/// The bytes of a text; `called` is what a reader knows it by.
fn from_bytes(
    checkpoint: &Path,
    config: &ModelConfig,
    name: String,
    called: &str,
    bytes: Vec<u8>,
) -> Result<Source> {
    let (tokens, alphabet, how) = match tokenizer(checkpoint)? {
        Some(tokenizer) => {
            let text = String::from_utf8(bytes).map_err(|e| Error::Case {
                case: name.clone(),
                expected: "UTF-8 text".into(),
                found: format!("other bytes at offset {}", e.utf8_error().valid_up_to()),
                next: "convert the file to UTF-8".into(),
            })?;
            let encoding =
                tokenizer.encode(text, false).map_err(|e| bad_tokenizer(checkpoint, &e.to_string()))?;
            let tokens = encoding.get_ids().iter().copied().map(TokenId).collect();
            (tokens, Alphabet::Tokenizer(Box::new(tokenizer)), "by tokenizer.json, no special tokens added")
        }
        None if config.vocab_size == BYTE_VOCABULARY => {
            (bytes.into_iter().map(|byte| TokenId(byte.into())).collect(), Alphabet::Bytes, "one a byte")
        }
        None => {
            return Err(Error::Checkpoint {
                path: checkpoint.join("tokenizer.json"),
                expected: format!("a tokenizer for the vocabulary of {}", config.vocab_size),
                found: "no such file".into(),
                next: "add it, or give ids with --tokens or --random-tokens".into(),
            });
        }
    };
    Ok(Source {
        name,
        about: format!("{called}: tokens {how}"),
        sequences: Sequences::Stream(tokens),
        alphabet,
    })
}

/// All tokens of a text file, or of a `.json` file of token ids, uncut, and a line about them. Errors: as
/// [`read`], but an empty text has none.
pub fn whole(checkpoint: &Path, config: &ModelConfig, path: &Path) -> Result<(Vec<TokenId>, String)> {
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    stream(if is_json { from_json(checkpoint, config, path)? } else { from_text(checkpoint, config, path)? })
}

/// All tokens of the built-in held-out text. Errors: as [`read`].
pub fn held_out(checkpoint: &Path, config: &ModelConfig) -> Result<(Vec<TokenId>, String)> {
    let (name, bytes) = ("held-out".into(), fixtures::gates::HELD_OUT.into());
    stream(from_bytes(checkpoint, config, name, "the built-in held-out text", bytes)?)
}

/// `count` seeded random tokens, as [`read`] draws them. Errors: as [`read`].
pub fn random(checkpoint: &Path, config: &ModelConfig, count: usize) -> Result<(Vec<TokenId>, String)> {
    stream(from_seed(checkpoint, config, count)?)
}

fn stream(source: Source) -> Result<(Vec<TokenId>, String)> {
    match source.sequences {
        Sequences::Stream(tokens) => Ok((tokens, source.about)),
        Sequences::Given(lists) => Ok((lists.concat(), source.about)),
    }
}

fn from_json(checkpoint: &Path, config: &ModelConfig, path: &Path) -> Result<Source> {
    let text = std::fs::read_to_string(path).map_err(Error::io("read", path, "name a JSON file"))?;
    let refuse = |e: serde_json::Error| {
        let expected = "a JSON list of token ids, or a list of such lists".into();
        Error::Case { case: case_name(path), expected, found: e.to_string(), next: "correct the file".into() }
    };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(refuse)?;
    let sequences = match value.get(0) {
        Some(serde_json::Value::Array(_)) => serde_json::from_value(value).map(Sequences::Given),
        _ => serde_json::from_value(value).map(Sequences::Stream),
    };
    let sequences = sequences.map_err(refuse)?;
    let alphabet = match tokenizer(checkpoint)? {
        Some(tokenizer) => Alphabet::Tokenizer(Box::new(tokenizer)),
        None if config.vocab_size == BYTE_VOCABULARY => Alphabet::Bytes,
        None => Alphabet::Numbers,
    };
    let about = format!("{}: token ids as written", path.display());
    Ok(Source { name: case_name(path), sequences, alphabet, about })
}

fn from_seed(checkpoint: &Path, config: &ModelConfig, count: usize) -> Result<Source> {
    if count > RANDOM_TOKENS_MAX {
        return Err(Error::Argument {
            what: "--random-tokens".into(),
            expected: format!("at most {RANDOM_TOKENS_MAX}"),
            found: count.to_string(),
            next: "ask for fewer".into(),
        });
    }
    let seed = fixtures::read_seed(checkpoint)?.map_or(0, |note| note.seed);
    let tokens = fixtures::random_tokens(seed, config.vocab_size, count);
    Ok(Source {
        name: format!("random-{seed}"),
        sequences: Sequences::Stream(tokens),
        alphabet: Alphabet::Numbers,
        about: format!("random tokens, seed {seed}"),
    })
}

/// Cuts a stream into sequences of equal length; a default that the stream cannot fill shrinks, a number that
/// the person typed does not.
fn cut(name: &str, tokens: &[TokenId], wanted: &Tokens) -> Result<(Vec<Vec<TokenId>>, String)> {
    let length = wanted.length.map_or(LENGTH_DEFAULT.min(tokens.len()).max(1), std::num::NonZero::get);
    let whole = tokens.len() / length;
    let count = wanted.sequences.map_or(SEQUENCES_DEFAULT.min(whole).max(1), std::num::NonZero::get);
    if !tokens.is_empty() && count > whole {
        return Err(Error::Case {
            case: name.into(),
            expected: format!(
                "{} tokens for --sequences {count} of --length {length}",
                count.saturating_mul(length)
            ),
            found: format!("{} tokens", tokens.len()),
            next: "ask for fewer or shorter sequences, or give a longer text".into(),
        });
    }
    let sequences: Vec<Vec<TokenId>> = match tokens {
        [] => vec![vec![]], // `Case::new` refuses it in its own words
        _ => tokens.chunks_exact(length).take(count).map(<[TokenId]>::to_vec).collect(),
    };
    let plural = if sequences.len() == 1 { "" } else { "s" };
    let used = format!("{} sequence{plural} of {length}, of {} tokens", sequences.len(), tokens.len());
    Ok((sequences, used))
}

/// Takes sequences as given; `--sequences` limits their number, `--length` does not apply.
fn take(mut lists: Vec<Vec<TokenId>>, wanted: &Tokens) -> Result<(Vec<Vec<TokenId>>, String)> {
    let given = lists.len();
    let count = wanted.sequences.map_or(given, std::num::NonZero::get);
    if given == 0 || count > given || wanted.length.is_some() {
        return Err(Error::Argument {
            what: "--tokens with a list of lists".into(),
            expected: "at least as many lists as --sequences, and no --length".into(),
            found: format!("{given} lists"),
            next: "give a flat list to have it cut".into(),
        });
    }
    lists.truncate(count);
    Ok((lists, format!("{count} of {given} sequences")))
}

fn tokenizer(checkpoint: &Path) -> Result<Option<Tokenizer>> {
    let path = checkpoint.join("tokenizer.json");
    if !path.exists() {
        return Ok(None);
    }
    Tokenizer::from_file(&path).map(Some).map_err(|e| bad_tokenizer(checkpoint, &e.to_string()))
}

fn bad_tokenizer(checkpoint: &Path, found: &str) -> Error {
    Error::Checkpoint {
        path: checkpoint.join("tokenizer.json"),
        expected: "a tokenizer as the tokenizers library writes it".into(),
        found: found.into(),
        next: "restore the file that came with the checkpoint".into(),
    }
}

/// A case name from a file name: characters that cannot be in one become `-`.
fn case_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name: String =
        stem.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    if name.is_empty() { "text".into() } else { name }
}

fn warn_if_long(cases: &[Case], config: &ModelConfig) {
    let Some(max) = config.max_positions else { return };
    for case in cases.iter().filter(|case| case.len() > max) {
        eprintln!("assay: warning: `{}` has {} tokens, the model was made for {max}", case.name, case.len());
    }
}

impl Texts {
    /// The tokens up to and including `position`, at most `count` of them, as a person would read them; a
    /// token that cannot be shown as text is shown as its id.
    pub fn around(&self, case: &str, position: usize, count: usize) -> String {
        let Some(case) = self.cases.iter().find(|c| c.name == case) else { return String::new() };
        let end = (position + 1).min(case.len());
        // an id says less than a piece of text, and is longer
        let count = if matches!(self.alphabet, Alphabet::Numbers) { count.div_ceil(4) } else { count };
        self.alphabet.read(&case.tokens[end.saturating_sub(count)..end])
    }

    /// One token as a person would read it.
    pub fn token(&self, id: TokenId) -> String {
        self.alphabet.read(&[id])
    }
}

impl Alphabet {
    fn read(&self, tokens: &[TokenId]) -> String {
        let numbers = || tokens.iter().map(TokenId::to_string).collect::<Vec<_>>().join(" ");
        match self {
            Alphabet::Bytes => {
                let bytes: Vec<u8> = tokens.iter().filter_map(|id| u8::try_from(id.0).ok()).collect();
                String::from_utf8_lossy(&bytes).escape_debug().to_string()
            }
            Alphabet::Tokenizer(tokenizer) => {
                let ids: Vec<u32> = tokens.iter().map(|id| id.0).collect();
                tokenizer
                    .decode(&ids, false)
                    .map_or_else(|_| numbers(), |text| text.escape_debug().to_string())
            }
            Alphabet::Numbers => numbers(),
        }
    }
}
