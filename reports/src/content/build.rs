//! What packing costs: a build against the checkpoint it was made of.

use super::{Section, Table};
use crate::number::{count, interval, number, rate};
use diff::gate::record::Record;

/// The table; `None` where no checkpoint was named that this one is a build of.
pub fn build(record: &Record) -> Option<Section> {
    let source = record.inputs.reference.as_ref()?;
    let names = [
        "set",
        "#positions",
        "#KL mean (nats)",
        "#KL p99 (nats)",
        "#KL max (nats)",
        "KL max at",
        "#confident top-1",
        "#95 % interval",
        "#other sets",
        "#nats per token before",
        "#after",
    ];
    let mut table = Table::new("", &names);
    for set in &record.sets {
        let Some(build) = &set.build else { continue };
        let kl = &build.kl_nats;
        table.push(vec![
            set.name.as_str().into(),
            count(kl.count as u64).into(),
            number(kl.mean).into(),
            number(kl.p99).into(),
            number(kl.max).into(),
            format!("{}:{}", build.kl_worst.case, build.kl_worst.position).into(),
            rate(&build.confident_top1).into(),
            interval(&build.confident_top1).into(),
            rate(&build.differing_sets).into(),
            format!("{:.4}", build.checkpoint_nats).into(),
            format!("{:.4}", build.build_nats).into(),
        ]);
    }
    let intro = format!(
        "The reference on the build, forced onto the choices of the reference on {}, against the latter; \
         both in f32, so that nothing of the port is in these numbers. Other sets: tokens and layers where \
         the build would choose other experts. Reported, not judged.",
        source.name
    );
    (!table.rows.is_empty()).then(|| Section {
        id: "build",
        title: "What the packing costs".into(),
        intro: vec![intro],
        tables: vec![table],
    })
}
