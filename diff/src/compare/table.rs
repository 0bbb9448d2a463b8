//! The per-layer table as CSV: one row per layer, units in the header.

use super::comparison::{Comparison, LayerRow};

/// Column names: relative L2 errors and sigma have no unit; the logits' RMS and gaps are in units of logits.
const HEADER: [&str; 23] = [
    "layer",
    "kind",
    "rows",
    "attn_branch_rel_l2_mean",
    "attn_branch_rel_l2_p50",
    "attn_branch_rel_l2_p99",
    "attn_branch_rel_l2_max",
    "moe_branch_rel_l2_mean",
    "moe_branch_rel_l2_p50",
    "moe_branch_rel_l2_p99",
    "moe_branch_rel_l2_max",
    "worst_branch",
    "worst_case",
    "worst_position",
    "router_sigma_logits",
    "router_rms_logits",
    "set_disagreements_rows",
    "set_disagreements_beyond_tie_rows",
    "largest_gap_logits",
    "largest_z",
    "largest_gap_case",
    "largest_gap_position",
    "unforced_rows",
];

impl Comparison {
    /// The per-layer table. Numbers in scientific notation, NaN and infinities as `NaN`, `inf`; the four
    /// `largest_` fields of a layer without a disagreement are empty.
    pub fn layers_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let in_memory = "writing to memory";
        writer.write_record(HEADER).expect(in_memory);
        for row in &self.layers {
            writer.write_record(fields(row)).expect(in_memory);
        }
        String::from_utf8(writer.into_inner().expect(in_memory)).expect("every field is a string")
    }
}

fn fields(row: &LayerRow) -> [String; 23] {
    let number = |value: f64| format!("{value:e}");
    let (attn, moe, sets) = (&row.attn_branch, &row.moe_branch, &row.disagreements);
    let largest = sets.largest.as_ref();
    [
        row.layer.to_string(),
        row.kind.to_string(),
        row.rows.to_string(),
        number(attn.mean),
        number(attn.p50),
        number(attn.p99),
        number(attn.max),
        number(moe.mean),
        number(moe.p50),
        number(moe.p99),
        number(moe.max),
        row.worst.branch.to_string(),
        row.worst.place.case.clone(),
        row.worst.place.position.to_string(),
        number(row.router_sigma),
        number(row.router_logits_rms),
        sets.count.to_string(),
        sets.beyond_tie.to_string(),
        largest.map_or_else(String::new, |largest| number(largest.gap)),
        largest.map_or_else(String::new, |largest| number(largest.z)),
        largest.map_or_else(String::new, |largest| largest.place.case.clone()),
        largest.map_or_else(String::new, |largest| largest.place.position.to_string()),
        row.unforced_rows.to_string(),
    ]
}
