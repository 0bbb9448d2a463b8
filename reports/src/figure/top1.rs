//! Confident top-1 of the free runs, sequence by sequence, with nominal intervals.

use super::{EMULATION, Figure, PORT_BF16};
use crate::content::ends;
use crate::plot::intervals::{Interval, Row, intervals};
use crate::plot::mark::{Look, legend};
use crate::plot::panel::Axis;
use crate::plot::scale::Scale;
use diff::gate::record::{RunName, RunRecord, SequenceRate, SetRecord};

/// `None` where no free run has sequences.
pub fn figure(set: &SetRecord) -> Option<Figure> {
    let of = |name: RunName| set.runs.iter().find(|run| run.run == name && !run.by_sequence.is_empty());
    let runs: Vec<(&RunRecord, Look)> = [(RunName::Bf16Free, PORT_BF16), (RunName::EmulationFree, EMULATION)]
        .into_iter()
        .filter_map(|(name, look)| Some((of(name)?, look)))
        .collect();
    let mut cases: Vec<&str> = Vec::new();
    for sequence in runs.iter().flat_map(|(run, _)| &run.by_sequence) {
        if !cases.contains(&sequence.case.as_str()) {
            cases.push(&sequence.case);
        }
    }
    let (first, _) = runs.first()?;
    let rows: Vec<Row> = cases.iter().map(|case| row(case, &runs)).collect();
    let lows = runs.iter().flat_map(|(run, _)| &run.by_sequence).map(|sequence| sequence.rate.low * 100.0);
    let low = lows.filter(|low| low.is_finite()).fold(99.0, f64::min);
    let label = "confident positions with the reference's top token (%)".to_owned();
    let title = format!("Confident top-1 by sequence, set {}", set.name);
    let axis = Axis { label, scale: Scale::linear_over(low, 100.0) };
    let entries: Vec<(Look, &str)> = runs.iter().map(|(run, look)| (*look, run.run.words())).collect();
    let shown: Vec<&RunRecord> = runs.iter().map(|(run, _)| *run).collect();
    Some(Figure {
        legend: legend(&entries, false),
        plots: vec![intervals(&title, &axis, &rows, false)],
        title,
        caption: format!(
            "Free runs in bf16, {} sequences; whiskers are 95 % Clopper–Pearson intervals, nominal, as \
             positions are not independent. The port should reach the emulation's rate sequence by \
             sequence. This rate is blind to renormalised top-k weights.",
            first.by_sequence.len()
        ),
        tables: vec![ends::sequences(&set.name, &shown)],
    })
}

fn row(case: &str, runs: &[(&RunRecord, Look)]) -> Row {
    let value = |sequence: &SequenceRate, name: &str, look: Look| {
        let rate = &sequence.rate;
        Interval {
            name: name.into(),
            look,
            low_value_high: [rate.low, rate.rate, rate.high].map(|r| r * 100.0),
        }
    };
    let values = runs.iter().flat_map(|(run, look)| {
        let here = run.by_sequence.iter().filter(|sequence| sequence.case == case);
        here.map(|sequence| value(sequence, run.run.words(), *look))
    });
    Row { label: case.into(), values: values.collect() }
}
