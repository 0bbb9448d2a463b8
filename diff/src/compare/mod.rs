//! Compares a port with the reference: layer by layer, then end to end.
//!
//! Inputs: two [`Side`]s and cases. Output: a [`Comparison`]. One pass of the reference, choosing freely,
//! gives its choices, every layer's input and its logits. At the end of each of its layers the port's layer
//! is run on the same input, forced onto the same choices, so that no error comes from an earlier layer;
//! then that layer's rows are dropped. The logits are spooled to disk, and the port's end-to-end runs meet
//! them there.
//!
//! A forced pass of the reference is not needed: forced onto its own choices it gives the same bits.
//!
//! Architecture invariants: rows meet by run, layer, site and position, and a missing, doubled or left-over
//! row is an error. What is held is bounded by one layer. No limit and no verdict is known here.

mod comparison;
mod end_to_end;
#[cfg(test)]
#[allow(dead_code, reason = "shared with the integration tests, which use all of it")]
#[path = "../../tests/compare/fake.rs"]
mod fake;
mod layer;
pub(crate) mod ledger;
mod logits_tally;
mod options;
pub(crate) mod reference_pass;
mod table;

pub use comparison::{
    CaseInfo, Comparison, Disagreement, Disagreements, EndToEnd, LayerRow, Nll, Place, RoutingDifference,
    SCHEMA, TopChange, WorstRow,
};
pub use logits_tally::CHANGES_LISTED;
pub(crate) use logits_tally::LogitsTally;
pub use options::{Options, PortRuns, Progress};

use crate::spool::Spool;
use end_to_end::LogitsReducer;
use reference_pass::ReferencePass;
use spec::{Case, Error, Executed, ModelConfig, Result, Routing, Run, Side};
use std::ops::Range;

/// Compares `port` with `reference` on `cases`.
///
/// The reference must be layer-major: it says when a layer is done (`Recorder::layer_done`), in order.
/// Errors: [`Error::Unpaired`] if there is nothing to compare or rows do not pair, [`Error::Argument`] on
/// layers the model does not have, [`Error::Case`], [`Error::Io`] if the disk has no room for the
/// reference's logits, and whatever a side returns.
pub fn sides(
    reference: &dyn Side,
    port: &dyn Side,
    cases: &[Case],
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<Comparison> {
    check_shapes(reference.config(), port.config())?;
    check_cases(cases, reference.config())?;
    let layers = table_layers(options, reference.config())?;
    let mut pass = ReferencePass::new(reference, port, cases, options, layers, progress)?;
    let free = |case| Run {
        case,
        schedule: options.schedule,
        routing: Routing::Free,
        precision: options.reference_precision,
    };
    let executed = reference.forward(&cases.iter().map(free).collect::<Vec<_>>(), &mut pass)?;
    let result = pass.finish()?;
    check_executed(&executed, cases, reference.config())?;
    let mut port_run = |name, routings: &[Routing<'_>]| {
        progress.phase(name, cases.iter().map(Case::len).sum());
        end_to_end(port, cases, options, routings, &executed, &result.logits, progress)
    };
    let forced: Vec<Routing<'_>> =
        executed.iter().map(|executed| Routing::Forced(&executed.choices)).collect();
    let free = vec![Routing::Free; cases.len()];
    let forced = options.routing.forced().then(|| port_run("port, forced", &forced)).transpose()?;
    let free = options.routing.free().then(|| port_run("port, free", &free)).transpose()?;
    let case_info = |case: &Case| CaseInfo { name: case.name.clone(), tokens: case.len() };
    Ok(Comparison {
        schema: SCHEMA,
        reference: reference.describe(),
        port: port.describe(),
        cases: cases.iter().map(case_info).collect(),
        options: options.clone(),
        layers: result.table,
        reference_nll: result.nll,
        forced,
        free,
    })
}

/// One end-to-end run of the port, `routings[i]` for `cases[i]`.
fn end_to_end(
    port: &dyn Side,
    cases: &[Case],
    options: &Options,
    routings: &[Routing<'_>],
    reference: &[Executed],
    logits: &Spool<usize>,
    progress: &mut dyn Progress,
) -> Result<EndToEnd> {
    let run = |index: usize| Run {
        case: &cases[index],
        schedule: options.schedule,
        routing: routings[index],
        precision: options.port_precision,
    };
    let runs: Vec<Run<'_>> = (0..cases.len()).map(run).collect();
    let mut reducer = LogitsReducer::new(port.config(), cases, logits, progress);
    let executed = port.forward(&runs, &mut reducer)?;
    reducer.finish(reference, &executed)
}

/// Both sides must have rows of the same shape; values such as epsilon may differ, and then rows will.
fn check_shapes(reference: &ModelConfig, port: &ModelConfig) -> Result<()> {
    let shape = |config: &ModelConfig| {
        format!(
            "{} layers, hidden size {}, {} experts, {} per token, a vocabulary of {}",
            config.num_layers(),
            config.hidden_size,
            config.num_experts,
            config.experts_per_token,
            config.vocab_size
        )
    };
    let (expected, found) = (shape(reference), shape(port));
    if expected == found {
        return Ok(());
    }
    let next = "load the same checkpoint into both sides".into();
    Err(Error::Unpaired { expected: format!("a port with {expected}"), found, next })
}

/// Refuses no cases, empty ones, two of one name and tokens outside the vocabulary.
pub(crate) fn check_cases(cases: &[Case], config: &ModelConfig) -> Result<()> {
    if cases.is_empty() {
        let next = "give a text to compare on".into();
        return Err(Error::Unpaired { expected: "at least one case".into(), found: "none".into(), next });
    }
    for (index, case) in cases.iter().enumerate() {
        let fail = |expected: &str, found: &str, next: &str| {
            Err(Error::Case {
                case: case.name.clone(),
                expected: expected.into(),
                found: found.into(),
                next: next.into(),
            })
        };
        if case.is_empty() {
            return fail("at least one token", "none", "give a text that is not empty");
        }
        if cases[..index].iter().any(|other| other.name == case.name) {
            return fail("a name of its own", "another case of that name", "rename one of them");
        }
        case.check_vocabulary(config)?;
    }
    Ok(())
}

/// The layers of the table. Errors: [`Error::Argument`] on none, or on ones the model does not have.
fn table_layers(options: &Options, config: &ModelConfig) -> Result<Range<usize>> {
    let layers = options.layers.clone().unwrap_or(0..config.num_layers());
    if !layers.is_empty() && layers.end <= config.num_layers() {
        return Ok(layers);
    }
    Err(Error::Argument {
        what: "the range of layers".into(),
        expected: format!("at least one of 0..{}", config.num_layers()),
        found: format!("{layers:?}"),
        next: "count layers from 0; the end is not included".into(),
    })
}

/// The reference's choices must be routes, one per case: they are what the port is forced onto.
fn check_executed(executed: &[Executed], cases: &[Case], config: &ModelConfig) -> Result<()> {
    if executed.len() != cases.len() {
        return Err(Error::Unpaired {
            expected: format!("what the reference executed in {} runs", cases.len()),
            found: format!("{}", executed.len()),
            next: "a side must return what each run executed".into(),
        });
    }
    cases
        .iter()
        .enumerate()
        .try_for_each(|(run, case)| executed[run].choices.check(&case.name, case.len(), config))
}
