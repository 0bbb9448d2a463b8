//! End to end: the runs of every set, and how well the reference predicts the text.

use super::{Cell, Section, Table};
use crate::number::{count, interval, number, rate};
use diff::gate::record::{NllRecord, Record, RunRecord, SetRecord};

/// The runs; `None` where no set has one.
pub fn end_to_end(record: &Record) -> Option<Section> {
    let mut tables = Vec::new();
    for set in record.sets.iter().filter(|set| !set.runs.is_empty()) {
        tables.push(runs(set));
        tables.push(buckets(set));
        if set.runs.iter().any(|run| !run.by_sequence.is_empty()) {
            tables.push(sequences(&set.name, &set.runs.iter().collect::<Vec<_>>()));
        }
    }
    let mut intro = vec![
        "KL of the reference to the run, in nats per position, from f32 logits by f64 log-softmax over the \
         whole vocabulary. Confident: the reference's top token leads by at least 2 nats. Intervals are \
         Clopper–Pearson, 95 %, nominal: they take positions as independent."
            .to_owned(),
        "Confident top-1 is blind to some bugs, renormalised top-k weights among them.".to_owned(),
    ];
    intro.extend(record.sets.iter().filter_map(paired));
    (!tables.is_empty()).then(|| Section { id: "runs", title: "End to end".into(), intro, tables })
}

fn paired(set: &SetRecord) -> Option<String> {
    let top1 = set.top1.as_ref()?;
    let points = |rate: f64| number(rate * 100.0);
    let (shortfall, low, high) = (points(top1.shortfall), points(top1.low), points(top1.high));
    Some(format!(
        "Set {}: in confident top-1 the free port falls short of the free emulation by {shortfall} \
         percentage points (95 % bootstrap interval {low} … {high}, {} blocks).",
        set.name, top1.blocks
    ))
}

fn runs(set: &SetRecord) -> Table {
    let names = [
        "run",
        "#positions",
        "#KL mean (nats)",
        "#KL median (nats)",
        "#KL p99 (nats)",
        "#KL max (nats)",
        "KL max at",
        "#confident top-1",
        "#95 % interval",
    ];
    let mut table = Table::new(format!("Runs, set {}", set.name), &names);
    for run in &set.runs {
        let kl = &run.kl_nats;
        table.push(vec![
            run.run.words().into(),
            count(kl.count as u64).into(),
            number(kl.mean).into(),
            number(kl.p50).into(),
            number(kl.p99).into(),
            number(kl.max).into(),
            format!("{}:{}", run.kl_worst.case, run.kl_worst.position).into(),
            rate(&run.confident_top1).into(),
            interval(&run.confident_top1).into(),
        ]);
    }
    table
}

/// KL along the position.
pub fn buckets(set: &SetRecord) -> Table {
    let names =
        ["run", "#from position", "#to (excluded)", "#positions", "#KL mean (nats)", "#KL max (nats)"];
    let mut table = Table::new(format!("KL along the position, set {}", set.name), &names);
    for run in &set.runs {
        for bucket in &run.buckets {
            table.push(vec![
                run.run.words().into(),
                count(bucket.from as u64).into(),
                count(bucket.to as u64).into(),
                count(bucket.positions as u64).into(),
                number(bucket.mean).into(),
                number(bucket.max).into(),
            ]);
        }
    }
    table
}

/// Confident top-1 by sequence.
pub fn sequences(set: &str, runs: &[&RunRecord]) -> Table {
    let names = ["sequence", "run", "#confident top-1", "#95 % interval"];
    let mut table = Table::new(format!("Confident top-1 by sequence, set {set}"), &names);
    for run in runs {
        for sequence in &run.by_sequence {
            let words: [Cell; 2] = [sequence.case.as_str().into(), run.run.words().into()];
            let numbers = [rate(&sequence.rate), interval(&sequence.rate)].map(Cell::from);
            table.push(words.into_iter().chain(numbers).collect());
        }
    }
    table
}

/// Likelihood of the text under the reference and its planted bugs; `None` where it was not measured.
pub fn text(record: &Record) -> Option<Section> {
    let sets = || record.sets.iter().filter_map(|set| Some((set.name.as_str(), set.nll.as_ref()?)));
    let mut likelihood =
        Table::new("", &["set", "#next tokens", "#bits per token", "#nats per token", "#blocks"]);
    for (set, nll) in sets() {
        likelihood.push(vec![
            set.into(),
            count(nll.tokens as u64).into(),
            format!("{:.4}", nll.bits_per_token).into(),
            format!("{:.4}", nll.nats_per_token).into(),
            count(nll.blocks as u64).into(),
        ]);
    }
    let damages = sets().filter(|(_, nll)| !nll.damage.is_empty()).map(|(set, nll)| damage(set, nll));
    let tables: Vec<Table> = std::iter::once(likelihood).chain(damages).collect();
    sets().next()?;
    Some(Section {
        id: "text",
        title: "Likelihood of the text".into(),
        intro: vec![
            "How well the reference predicts real text, and how much worse each bug planted in the \
             reference predicts it. With a vocabulary of bytes, bits per token are bits per byte. A bug \
             whose 1st percentile is above 0 is separated from the text's own noise."
                .into(),
        ],
        tables,
    })
}

/// What each planted bug of the reference costs.
pub fn damage(set: &str, nll: &NllRecord) -> Table {
    let names = ["bug", "#damage (nats per token)", "#1st percentile", "#99th percentile"];
    let mut table = Table::new(format!("Damage by planted bug, set {set}"), &names);
    for damage in &nll.damage {
        let numbers = [damage.nats_per_token, damage.p1, damage.p99].map(number).map(Cell::from);
        table.push(std::iter::once(damage.mutant.as_str().into()).chain(numbers).collect());
    }
    table
}
