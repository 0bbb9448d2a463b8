//! `assay make`: a tiny checkpoint from a seed.

use super::to_json;
use crate::cli::Make;
use crate::console::{self, Bar, say};
use fixtures::Preset;
use spec::{Error, Result};

/// Writes the checkpoint and says what it holds.
pub fn run(arguments: &Make, out: &mut String) -> Result<()> {
    let preset = Preset::from_name(&arguments.preset).ok_or_else(|| {
        let known: Vec<String> =
            Preset::ALL.iter().map(|p| format!("{} ({})", p.name(), p.about())).collect();
        Error::Argument {
            what: "the preset".into(),
            expected: format!("one of {}", known.join("; ")),
            found: format!("`{}`", arguments.preset),
            next: "name one of them".into(),
        }
    })?;
    let bar = Bar::bytes("writing weights", fixtures::bytes_expected(preset, arguments.layers)?);
    let write = |bytes| bar.add(bytes);
    let made = fixtures::make(preset, arguments.seed, arguments.layers, &arguments.output, &write)?;
    drop(bar);
    if arguments.json {
        out.push_str(&to_json(&made)?);
    } else {
        let [files, tensors] = [made.files, made.tensors].map(|number| console::count(number as u64));
        let [parameters, bytes] = [made.parameters, made.bytes].map(console::count);
        let folder = arguments.output.display();
        say!(
            out,
            "{folder}: {tensors} tensors, {parameters} parameters, {bytes} bytes; weight files: {files}"
        );
    }
    Ok(())
}
