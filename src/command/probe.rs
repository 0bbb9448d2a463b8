//! `assay probe`: the port's kernels by themselves.

use super::to_json;
use crate::bench;
use crate::cli::Probe;
use crate::console::{self, Phases};
use crate::exit;
use diff::probe::{Extent, Finding};
use fixtures::Preset;
use spec::{Result, SideInfo, config_file};

/// The JSON form.
#[derive(serde::Serialize)]
struct Report<'a> {
    assay_version: &'static str,
    shapes: &'a str,
    port: &'a SideInfo,
    system: String,
    port_mutant: Option<&'a str>,
    findings: &'a [Finding],
}

/// Calls every kernel and prints what came of it; gives the exit code.
pub fn run(arguments: &Probe, out: &mut String) -> Result<u8> {
    let (config, shapes) = match &arguments.checkpoint {
        Some(dir) => (config_file::read(dir)?, dir.display().to_string()),
        // its widths; no tensor is made
        None => (Preset::Wide.config(0, Some(1))?, "the released model".into()),
    };
    let mutant = arguments.port_mutant.as_deref();
    let kernels = bench::kernels(&config, mutant)?;
    let port = kernels.describe();
    console::warn_of_tf32(&port);
    let mut progress = if arguments.quiet { Phases::quiet() } else { Phases::new() };
    let findings = diff::probe::run(&*kernels, &config, Extent::Whole, &mut progress)?;
    drop(progress);
    let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    if arguments.json {
        let report = Report {
            assay_version: env!("CARGO_PKG_VERSION"),
            shapes: &shapes,
            port: &port,
            system,
            port_mutant: mutant,
            findings: &findings,
        };
        out.push_str(&to_json(&report)?);
    } else {
        if !arguments.quiet {
            console::print_probed(&port, &system, &shapes, &config, out);
            console::print_planted(mutant, out);
        }
        console::print_kernels(&findings, arguments.quiet, out);
    }
    Ok(if findings.iter().all(Finding::is_fine) { 0 } else { exit::FAIL })
}
