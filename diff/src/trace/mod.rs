//! Recorded traces: what one side did on a text, kept in files, and two such recordings compared.
//!
//! Job: run a side once and keep its routes, margins and chosen sites ([`record`]); later, elsewhere, hold
//! two recordings against each other ([`compare`]). Inputs: a [`spec::Side`], or folders of traces. Outputs:
//! a folder with `<case>.trace.safetensors` (`docs/trace-format.md`) and `<case>.sites.safetensors` per case;
//! a [`TraceComparison`].
//!
//! Absent on purpose: re-injection. What a recording shows of a layer includes the errors of the layers
//! before; only the live comparison ([`crate::compare`]) can take them apart.

mod candidates;
mod compare;
mod comparison;
mod layer;
mod pairs;
mod presence;
mod record;
mod recorder;
mod sites;

pub use compare::compare;
pub use comparison::{LargestGap, SCHEMA, Source, TraceComparison, TraceLayer};
pub use record::{Checkpoint, Recorded, RecordedCase, Request, record, trace_name};
pub use sites::{DEFAULT_SITES, SitesFile, tensor_name};
