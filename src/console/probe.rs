//! Kernels by themselves, as text: who computed, one line a shape, what is bad.

use super::{count, say, short, table};
use diff::probe::Finding;
use spec::{ModelConfig, SideInfo};

/// Prints who computed, and at whose shapes.
pub fn print_probed(port: &SideInfo, system: &str, shapes: &str, config: &ModelConfig, out: &mut String) {
    say!(out, "assay      {}", env!("CARGO_PKG_VERSION"));
    say!(out, "port       {}, {}, {system}", port.engine, port.device);
    if port.device == "cpu" {
        say!(out, "           These are MLX's CPU kernels. Metal was not run: its kernels are other code.");
    }
    let ModelConfig { hidden_size, expert_width, num_experts, experts_per_token, .. } = config;
    let ModelConfig { num_heads, num_kv_heads, head_dim, .. } = config;
    say!(
        out,
        "shapes     {shapes}: H {hidden_size}, I {expert_width}, E {num_experts}, k {experts_per_token}, \
         heads {num_heads}:{num_kv_heads}, D {head_dim}"
    );
}

/// Prints every shape, or only those that are bad, and how many are.
pub fn print_kernels(findings: &[Finding], only_bad: bool, out: &mut String) {
    let shown: Vec<&Finding> = findings.iter().filter(|found| !(only_bad && found.is_fine())).collect();
    if !shown.is_empty() {
        if !only_bad {
            say!(
                out,
                "\nRelative L2 error per row against f64, median; ratio: the one way over the other.\n"
            );
        }
        let header = [
            "kernel",
            "what",
            "shape",
            "one way / the other",
            "error",
            "other",
            "ratio",
            "bad rows",
            "unlike",
            "verdict",
        ];
        let mut rows = table(&header, 4);
        for found in shown {
            rows.add_row(row(found));
        }
        say!(out, "{rows}\n");
    }
    let notes = findings.iter().filter(|found| !found.note.is_empty() && !only_bad);
    notes.for_each(|found| say!(out, "{}, {}: {}.", found.kernel, found.shape, found.note));
    let bad = findings.iter().filter(|found| !found.is_fine()).count();
    match bad {
        0 => say!(out, "{} shapes, none bad.", findings.len()),
        bad => say!(out, "{bad} of {} shapes BAD.", findings.len()),
    }
}

fn row(found: &Finding) -> [String; 10] {
    let bad = match found.first_bad {
        None => "0".into(),
        Some(first) => format!("{} from {}", count(found.bad_rows as u64), count(first as u64)),
    };
    [
        found.kernel.clone(),
        found.what.clone(),
        found.shape.clone(),
        found.path.into(),
        short(found.error),
        short(found.beside),
        if found.ratio < 100.0 { format!("{:.2}", found.ratio) } else { short(found.ratio) },
        bad,
        count(found.differing as u64),
        if found.is_fine() { "fine" } else { "BAD" }.into(),
    ]
}
