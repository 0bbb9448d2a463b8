//! Batches: several runs in one call, as an engine serves them.
//!
//! Inputs: the runs of one [`spec::Side::forward`] whose schedules ask for more than one sequence per call.
//! Outputs: what each would give by itself, to rounding. The first runs begin together: their prompts are
//! prefilled side by side, the shorter ones padded; then each row takes one token per call. A row whose
//! tokens are used up leaves; the next run is prefilled by itself and joins. Absent on purpose: who sees
//! whom ([`crate::mask::batch_mask`]), and any order of runs but that in which they were given.

use crate::attention::Past;
use crate::batch_cache::BatchCache;
use crate::engine::{Doing, dim};
use crate::record::Span;
use crate::side::{Log, Port};
use crate::steps::Steps;
use mlx_rs::Array;
use spec::{Error, Padding, Recorder, Result, Run};
use std::ops::Range;

/// One run in a batch, between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Which run.
    pub run: usize,
    /// Tokens taken so far.
    pub taken: usize,
    /// Tokens that prefill takes.
    pub prompt: usize,
    /// Columns of padding that are still to come before the first token.
    pub lead: usize,
    /// Columns that the row has been through, padding counted.
    pub columns: usize,
}

impl Row {
    /// The position of the next column; below 0 where that is padding before the first token.
    pub fn position(&self) -> i32 {
        dim(self.taken) - dim(self.lead)
    }
}

/// One call of a batch: as many columns for each row, of which some may be padding.
#[derive(Debug)]
pub struct Call {
    rows: Vec<Row>,
    width: usize,
    /// By row: the columns that hold tokens.
    tokens: Vec<Range<usize>>,
    /// By row and column; -1 in padding.
    positions: Vec<Vec<i32>>,
}

impl Call {
    /// The next `width` columns of these rows; in prefill no row goes beyond its prompt.
    pub fn new(rows: &[Row], width: usize, in_prefill: bool) -> Self {
        let tokens_of = |row: &Row| {
            let start = row.lead.min(width);
            let left = if in_prefill { row.prompt - row.taken } else { width };
            start..(start + left).min(width)
        };
        let tokens: Vec<Range<usize>> = rows.iter().map(tokens_of).collect();
        let positions_of = |(row, tokens): (&Row, &Range<usize>)| {
            let position = |column| if tokens.contains(&column) { row.position() + dim(column) } else { -1 };
            (0..width).map(position).collect()
        };
        let positions = rows.iter().zip(&tokens).map(positions_of).collect();
        Self { rows: rows.to_vec(), width, tokens, positions }
    }

    /// By row and column: the token's position, -1 in padding.
    pub fn positions(&self) -> &[Vec<i32>] {
        &self.positions
    }

    /// The same, `[B, T]` i32.
    pub fn queries(&self) -> Array {
        Array::from_slice(&self.positions.concat(), &[dim(self.rows.len()), dim(self.width)])
    }

    /// Where each row's columns begin to turn, `[B]` i32 (K10).
    pub fn offsets(&self, steps: &dyn Steps) -> Array {
        Array::from_slice(&steps.batch_offsets(&self.rows), &[dim(self.rows.len())])
    }

    /// The token ids, `[B, T]` u32; 0 in padding.
    fn ids(&self, runs: &[Run<'_>]) -> Array {
        let id = |(row, &position): (&Row, &i32)| {
            usize::try_from(position).map_or(0, |position| runs[row.run].case.tokens[position].0)
        };
        let of_row = |(row, positions)| std::iter::repeat(row).zip(positions).map(id);
        let ids: Vec<u32> = self.rows.iter().zip(&self.positions).flat_map(of_row).collect();
        Array::from_slice(&ids, &[dim(self.rows.len()), dim(self.width)])
    }

    /// Which columns hold whose tokens; none of a row that is all padding.
    fn spans(&self) -> Vec<Span> {
        let span = |(index, (row, tokens)): (usize, (&Row, &Range<usize>))| Span {
            run: row.run,
            row: index,
            column: tokens.start,
            positions: row.taken..row.taken + tokens.len(),
        };
        let spans = self.rows.iter().zip(&self.tokens).enumerate().map(span);
        spans.filter(|span| !span.positions.is_empty()).collect()
    }

    /// The rows after it.
    fn after(&self) -> Vec<Row> {
        let after = |(row, tokens): (&Row, &Range<usize>)| Row {
            taken: row.taken + tokens.len(),
            lead: row.lead - row.lead.min(self.width),
            columns: row.columns + self.width,
            ..*row
        };
        self.rows.iter().zip(&self.tokens).map(after).collect()
    }
}

/// Rows that go through together, and a cache for each layer.
struct Batch {
    rows: Vec<Row>,
    caches: Vec<BatchCache>,
}

/// The runs of one forward pass on their way.
struct Service<'a, 'r> {
    port: &'a Port,
    runs: &'a [Run<'a>],
    logs: Vec<Log<'a>>,
    /// Calls made so far.
    calls: u32,
    recorder: &'r mut dyn Recorder,
}

/// Runs all, in the order given. `runs` agree in batch, padding and prefill chunk ([`refuse_unlike`]).
pub(crate) fn forward(
    port: &Port,
    runs: &[Run<'_>],
    recorder: &mut dyn Recorder,
) -> Result<Vec<spec::Executed>> {
    let logs = runs.iter().map(|run| port.log(run)).collect();
    let mut service = Service { port, runs, logs, calls: 0, recorder };
    let size = runs[0].schedule.batch.min(runs.len());
    let mut waiting = size..runs.len();
    let mut batch = service.prefill(0..size)?;
    loop {
        service.leave(&mut batch)?;
        while batch.rows.len() < size
            && let Some(run) = waiting.next()
        {
            let new = service.prefill(run..run + 1)?;
            service.join(&mut batch, new)?;
            service.leave(&mut batch)?;
        }
        if batch.rows.is_empty() {
            return Ok(service.logs.into_iter().map(Log::finish).collect());
        }
        service.call(&mut batch, 1, false)?;
    }
}

impl Service<'_, '_> {
    /// The prompts of these runs, side by side, in calls of the schedule's chunk.
    fn prefill(&mut self, runs: Range<usize>) -> Result<Batch> {
        let schedule = self.runs[runs.start].schedule;
        let prompt = |run: usize| {
            let tokens = self.runs[run].case.len();
            self.runs[run].schedule.decode_from.map_or(tokens, |from| from.min(tokens))
        };
        let longest = runs.clone().map(prompt).max().unwrap_or(0);
        let row = |run: usize| {
            let prompt = prompt(run);
            let lead = if schedule.padding == Padding::Left { longest - prompt } else { 0 };
            Row { run, taken: 0, prompt, lead, columns: 0 }
        };
        let mut batch = Batch { caches: self.port.batch_caches(runs.len()), rows: runs.map(row).collect() };
        for start in (0..longest).step_by(schedule.prefill_chunk) {
            self.call(&mut batch, schedule.prefill_chunk.min(longest - start), true)?;
        }
        Ok(batch)
    }

    /// One call through the whole model.
    fn call(&mut self, batch: &mut Batch, width: usize, in_prefill: bool) -> Result<()> {
        let call = Call::new(&batch.rows, width, in_prefill);
        let (ids, spans) = (call.ids(self.runs), call.spans());
        spans.iter().for_each(|span| self.logs[span.run].took(&span.positions, self.calls));
        self.calls += 1;
        let pasts = batch.caches.iter_mut().map(|cache| Past::Batch(cache, &call)).collect();
        self.port.call(&ids, pasts, &spans, &mut self.logs, self.recorder)?;
        batch.rows = call.after();
        Ok(())
    }

    /// Lets go of the rows whose tokens are used up.
    fn leave(&self, batch: &mut Batch) -> Result<()> {
        let goes_on = |&index: &usize| {
            let row = &batch.rows[index];
            row.taken < self.runs[row.run].case.len()
        };
        let stay: Vec<usize> = (0..batch.rows.len()).filter(goes_on).collect();
        if stay.len() == batch.rows.len() {
            return Ok(());
        }
        batch.rows = stay.iter().map(|&index| batch.rows[index]).collect();
        if stay.is_empty() {
            batch.caches = self.port.batch_caches(0);
            return Ok(());
        }
        let steps = self.port.steps();
        batch
            .caches
            .iter_mut()
            .try_for_each(|cache| steps.leave(cache, &stay))
            .doing("let rows of a batch leave")
    }

    /// Takes in rows that were prefilled by themselves.
    fn join(&self, batch: &mut Batch, new: Batch) -> Result<()> {
        if batch.rows.is_empty() {
            *batch = new;
            return Ok(());
        }
        batch.rows.extend(new.rows);
        let pairs = batch.caches.iter_mut().zip(new.caches);
        let steps = self.port.steps();
        pairs.into_iter().try_for_each(|(cache, new)| steps.join(cache, new)).doing("let a row join a batch")
    }
}

/// Refuses runs that cannot go through together. Errors: [`Error::Argument`].
pub(crate) fn refuse_unlike(runs: &[Run<'_>]) -> Result<()> {
    let alike = |run: &Run<'_>| (run.schedule.batch, run.schedule.padding, run.schedule.prefill_chunk);
    let Some((first, other)) = runs.iter().zip(&runs[1..]).find(|(a, b)| alike(a) != alike(b)) else {
        return Ok(());
    };
    let words = |run: &Run<'_>| {
        let (batch, padding, chunk) = alike(run);
        format!("batch {batch}, padding {padding:?}, chunks of {chunk}")
    };
    Err(Error::Argument {
        what: "runs that are given together".into(),
        expected: format!("one batch, padding and chunk for all ({})", words(first)),
        found: words(other),
        next: "give runs of another schedule in a call of their own".into(),
    })
}
