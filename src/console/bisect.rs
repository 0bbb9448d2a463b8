//! Where the port leaves the reference: one sentence, the evidence, and how to see it again.

use super::{count, say, short, table};
use crate::text::Texts;
use diff::bisect::{CASE, EndToEnd, FACTOR, FINDING, FLOOR, Finding, LOG, Origin, Shrunk};
use spec::SideInfo;
use std::path::Path;

/// Tokens of text shown before a position.
const CONTEXT_TOKENS: usize = 24;

/// Prints a finding.
pub fn print_bisection(
    found: &Finding,
    checkpoint: &Path,
    sides: &[SideInfo; 2],
    texts: &Texts,
    folder: &Path,
    out: &mut String,
) {
    say!(out, "{}\n", found.sentence);
    for side in sides {
        say!(out, "{:10} {}, {}, {}", side.side, side.engine, side.device, side.precision.name());
    }
    say!(out, "text       {}", texts.about);
    super::print_planted(found.key.port_mutant.as_deref(), out);
    let case = &texts.cases[0];
    say!(out, "fed in     {}\n", diff::bisect::schedule_words(found.key.schedule, case.len()));
    print_parts(found, out);
    let place = match (&found.origin, &found.end_to_end) {
        (Some(origin), _) => {
            print_evidence(origin, out);
            Some(origin.position)
        }
        (None, Some(ends)) => {
            print_ends(ends, out);
            ends.schedules[0].position
        }
        (None, None) => None,
    };
    if let Some(position) = place {
        let text = texts.around(&case.name, position, CONTEXT_TOKENS);
        say!(out, "Text up to position {position}: `{text}`\n");
    }
    if let Some(shrunk) = &found.shrunk {
        print_shrunk(found, shrunk, checkpoint, folder, out);
    }
    if !found.is_wrong() && found.key.schedule.decode_from.is_none() {
        say!(out, "{}\n", super::PREFILL_ONLY);
    }
    let runs = &found.runs;
    say!(
        out,
        "Runs: all parts {}, end to end {}, probes {} of at most {}, to confirm {}; steps in {}, all in {}.",
        runs.sweeps,
        runs.schedules,
        runs.probes,
        runs.probes_max,
        runs.confirmations,
        folder.join(LOG).display(),
        folder.join(FINDING).display()
    );
}

fn print_parts(found: &Finding, out: &mut String) {
    say!(
        out,
        "Part by part, each fed the reference's input. Relative L2 error per row; a bound is {FACTOR} times"
    );
    say!(
        out,
        "the reference's own rounding error, its f32 steps against f64 steps on these rows, or {FLOOR:.1e}.\n"
    );
    let mut parts =
        table(&["part", "largest error", "closest to bound", "of bound", "sites out of bound"], 1);
    for row in &found.parts {
        let share = if row.share_of_bound.is_finite() && row.share_of_bound < 10.0 {
            format!("{:.0} %", 100.0 * row.share_of_bound)
        } else {
            format!("{} ×", short(row.share_of_bound))
        };
        parts.add_row([
            row.part.to_string(),
            short(row.error_max),
            row.site.to_string(),
            share,
            count(row.out.len() as u64),
        ]);
    }
    say!(out, "{parts}\n");
}

fn print_evidence(origin: &Origin, out: &mut String) {
    say!(out, "Sites of {}; `*`: nothing that it is made of is out of bound.\n", origin.part);
    let header = ["site", "", "largest error", "bound", "rows out", "first row"];
    let mut sites = table(&header, 2);
    for row in &origin.evidence {
        sites.add_row([
            row.site.to_string(),
            if row.origin { "*".into() } else { String::new() },
            short(row.error_max),
            short(row.bound),
            count(row.rows_out as u64),
            row.first.map_or_else(|| "-".into(), |first| first.to_string()),
        ]);
    }
    say!(out, "{sites}\n");
}

fn print_ends(ends: &EndToEnd, out: &mut String) {
    say!(
        out,
        "End to end, forced onto the reference's experts; bounds from the reference in f64 end to end.\n"
    );
    let header = ["fed in", "error of logits", "bound", "first position", "first layer"];
    let mut schedules = table(&header, 1);
    let or_none = |number: Option<usize>| number.map_or_else(|| "-".into(), |number| number.to_string());
    for row in &ends.schedules {
        schedules.add_row([
            row.name.clone(),
            short(row.logits_error_max),
            short(row.logits_bound),
            or_none(row.position),
            or_none(row.layer.map(|layer| layer.0)),
        ]);
    }
    say!(out, "{schedules}\n");
}

fn print_shrunk(found: &Finding, shrunk: &Shrunk, checkpoint: &Path, folder: &Path, out: &mut String) {
    let (tokens, case) = (shrunk.end - shrunk.start, folder.join(CASE));
    let what = if shrunk.confirmed { "a run of it shows the same" } else { "no shorter one shows it" };
    let plural = if tokens == 1 { "" } else { "s" };
    say!(
        out,
        "Shortest case: {} token{plural} from position {}, {what}: {}",
        count(tokens as u64),
        shrunk.start,
        case.display()
    );
    let mut fed = format!(" --chunk {}", shrunk.schedule.prefill_chunk);
    if let Some(decode) = shrunk.schedule.decode_from {
        fed += &format!(" --decode-from {decode}");
    }
    let planted =
        found.key.port_mutant.as_ref().map_or_else(String::new, |ids| format!(" --port-mutant {ids}"));
    let layers = match shrunk.layers {
        Some([from, to]) if from + 1 == to => format!(" --layers {from}"),
        Some([from, to]) => format!(" --layers {from}..{to}"),
        None => String::new(),
    };
    let (checkpoint, case) = (checkpoint.display(), case.display());
    say!(out, "    assay compare {checkpoint} --tokens {case}{layers}{fed}{planted}");
    say!(out, "    assay gate {checkpoint} --set short={case}{planted}");
    say!(out, "The gate takes it too; of a correct port it then passes what so few tokens suffice for: not");
    say!(out, "`nll.bits_per_byte`, nor what feeds the tokens otherwise than here.\n");
}
