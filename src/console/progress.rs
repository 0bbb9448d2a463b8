//! Progress bars on stderr, on a terminal only (indicatif hides them elsewhere).

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over bytes, for a pass over files; may be told from several threads.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// Starts a bar of `total` bytes.
    pub fn bytes(name: &'static str, total: u64) -> Self {
        let style = ProgressStyle::with_template("{msg:24} {wide_bar} {bytes}/{total_bytes} {eta}");
        Self(ProgressBar::new(total).with_style(style.expect("a fixed template")).with_message(name))
    }

    /// `bytes` more are done.
    pub fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// One bar a phase, for a comparison, a recording or a gate run.
#[derive(Debug)]
pub struct Phases {
    bar: ProgressBar,
    section: String,
    quiet: bool,
}

impl Phases {
    /// No phase yet.
    pub fn new() -> Self {
        Self { bar: ProgressBar::hidden(), section: String::new(), quiet: false }
    }

    /// Never shown.
    pub fn quiet() -> Self {
        Self { bar: ProgressBar::hidden(), section: String::new(), quiet: true }
    }
}

impl diff::compare::Progress for Phases {
    fn phase(&mut self, name: &'static str, total: usize) {
        self.bar.finish_and_clear();
        if self.quiet {
            return;
        }
        let style = ProgressStyle::with_template("{prefix}{msg:24} {wide_bar} {pos}/{len} {elapsed}");
        let bar = ProgressBar::new(total as u64).with_style(style.expect("a fixed template"));
        self.bar = bar.with_prefix(self.section.clone()).with_message(name);
    }

    fn step(&mut self, steps: usize) {
        self.bar.inc(steps as u64);
    }

    fn section(&mut self, name: &str) {
        self.section = format!("{name}: ");
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
