//! The log of a search: one JSON line a step, so that a search that was stopped goes on where it was.
//!
//! The first line is the key of the search; a log of another key is refused. A line that was cut off while it
//! was written is dropped. Absent on purpose: what a step does.

use super::finding::Key;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use spec::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The log's name in the folder of a search.
pub const LOG: &str = "replay.jsonl";

/// One line.
#[derive(Serialize, Deserialize)]
struct Line {
    step: String,
    seconds: f64,
    result: serde_json::Value,
}

/// The log of one search.
pub(crate) struct Replay {
    path: PathBuf,
    file: File,
    done: Vec<Line>,
}

impl Replay {
    /// Opens or begins the log of a folder, which is made if it is not there. Errors: [`Error::Io`];
    /// [`Error::Argument`] on the log of another search, or on a file that is none.
    pub(crate) fn open(folder: &Path, key: &Key) -> Result<Self> {
        let next = "name a folder that can be written to with --output";
        std::fs::create_dir_all(folder).map_err(Error::io("create folder", folder, next))?;
        let path = folder.join(LOG);
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .append(true)
            .read(true)
            .open(&path)
            .map_err(Error::io("open", &path, next))?;
        let text = std::fs::read(&path).map_err(Error::io("read", &path, next))?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        file.set_len(whole as u64).map_err(Error::io("write", &path, next))?;
        let lines = text[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let mut replay = Self { path, file, done: Vec::new() };
        let mut lines = lines.enumerate();
        match lines.next() {
            None => replay.append(key)?,
            Some((index, line)) => {
                let begun: Key = replay.parse(index, line)?;
                replay.hold(&begun, key)?;
            }
        }
        for (index, line) in lines {
            let line = replay.parse(index, line)?;
            replay.done.push(line);
        }
        Ok(replay)
    }

    /// What a step gave when it was done, or gives now. Errors: whatever it returns.
    pub(crate) fn step<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if let Some(index) = self.done.iter().position(|line| line.step == name) {
            let done = T::deserialize(&self.done[index].result);
            return done.map_err(|e| self.refuse("the result of each step", format!("step `{name}`: {e}")));
        }
        let start = Instant::now();
        let result = work()?;
        let seconds = start.elapsed().as_secs_f64();
        let value = serde_json::to_value(&result).expect("numbers and names");
        let line = Line { step: name.into(), seconds, result: value };
        self.append(&line)?;
        self.done.push(line);
        Ok(result)
    }

    fn append(&mut self, line: &impl Serialize) -> Result<()> {
        let next = "check that the disk has room";
        let text = serde_json::to_string(line).expect("numbers and names") + "\n";
        self.file.write_all(text.as_bytes()).map_err(Error::io("write", &self.path, next))
    }

    fn parse<T: DeserializeOwned>(&self, index: usize, line: &[u8]) -> Result<T> {
        let parsed = serde_json::from_slice(line);
        parsed.map_err(|e| self.refuse("the log of a search", format!("line {}: {e}", index + 1)))
    }

    fn hold(&self, begun: &Key, now: &Key) -> Result<()> {
        let changed = [
            ("version of assay", begun.assay_version != now.assay_version),
            ("weights", begun.weights_sha256 != now.weights_sha256),
            ("config.json", begun.config_sha256 != now.config_sha256),
            ("tokens", begun.tokens_sha256 != now.tokens_sha256),
            ("schedule", begun.schedule != now.schedule),
            ("precision", begun.precision != now.precision),
            ("planted bugs", begun.port_mutant != now.port_mutant),
        ];
        let changed: Vec<&str> =
            changed.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect();
        if changed.is_empty() {
            return Ok(());
        }
        Err(self.refuse("the log of this search", format!("one of another {}", changed.join(", "))))
    }

    fn refuse(&self, expected: &str, found: String) -> Error {
        Error::Argument {
            what: self.path.display().to_string(),
            expected: expected.into(),
            found,
            next: "search into another folder with --output, or remove this one".into(),
        }
    }
}
