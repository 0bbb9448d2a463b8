//! What explains a divergence, as text: hypotheses by rank, and maps where they were tried.

use super::{count, say, short, table};
use diff::explain::Finding;
use diff::explain::finding::{Hypothesis, MapsAt};

/// Hypotheses that are listed; JSON has all.
const LISTED: usize = 12;

/// Prints the tables under the sentence.
pub fn print_explanation(found: &Finding, out: &mut String) {
    let (passes, lanes) = (found.passes, found.lanes);
    say!(out, "runs       {lanes} lanes of the reference (passes: {passes}); the port's layers beside each");
    say!(out, "end to end {} is the port's logits' error, forced\n", short(found.end_to_end));
    say!(
        out,
        "Each layer on the reference's own input, forced onto its experts. Residual: RMS over rows of the"
    );
    say!(
        out,
        "relative L2 error, the largest of all parts and sites. Mean orders: by how many orders of ten a"
    );
    say!(out, "row is beyond the honest level, on average; it ranks.\n");
    let header = ["rank", "hypothesis", "what", "most is left at", "residual", "rows beyond", "mean orders"];
    let mut ranking = table(&header, 4);
    ranking.add_row(row("-".into(), &found.base));
    for (index, hypothesis) in found.hypotheses.iter().take(LISTED).enumerate() {
        ranking.add_row(row((index + 1).to_string(), hypothesis));
    }
    say!(out, "{ranking}\n");
    if found.hypotheses.len() > LISTED {
        say!(out, "{} more, with --json.", count((found.hypotheses.len() - LISTED) as u64));
    }
    if !found.without_effect.is_empty() {
        say!(out, "Without effect on this text: {}.", found.without_effect.join(", "));
    }
    if let Some(maps) = &found.maps_at {
        print_maps(maps, out);
    }
}

fn row(rank: String, hypothesis: &Hypothesis) -> [String; 7] {
    let name = |bugs: &[String]| if bugs.is_empty() { "correct".into() } else { bugs.join(" + ") };
    let names: Vec<String> =
        [name(&hypothesis.bugs)].into_iter().chain(hypothesis.same_as.iter().cloned()).collect();
    [
        rank,
        names.join(" = "),
        hypothesis.what.join("; "),
        hypothesis.at.clone(),
        short(hypothesis.residual),
        format!("{} of {}", count(hypothesis.rows_beyond as u64), count(hypothesis.rows as u64)),
        format!("{:.2}", hypothesis.orders),
    ]
}

fn print_maps(maps: &MapsAt, out: &mut String) {
    say!(
        out,
        "\nMaps of rows at {}, the first place that is wrong where nothing before it is: {} away.",
        maps.at,
        short(maps.residual)
    );
    say!(out, "Fitted on every other row; what each leaves on the rows between.\n");
    let mut list = table(&["map", "the port's rows are the reference's", "leaves"], 2);
    for tried in &maps.tried {
        let left = tried.residual.map_or_else(|| "not tried".into(), short);
        list.add_row([tried.map.clone(), tried.what.clone(), left]);
    }
    say!(out, "{list}");
}
