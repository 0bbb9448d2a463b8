//! The words both sides of a comparison speak.
//!
//! Job: name what a Kolibri-1 checkpoint, a text, a schedule, a routing, a site of the forward pass and a
//! recorded trace are, and refuse what is none of these. Inputs: `config.json`, trace files. Outputs: types.
//!
//! Architecture invariant: no arithmetic of the model and no weight loader lives here, and nothing of
//! this workspace is depended on. The reference and the port share these words and `docs/kolibri-1.md`,
//! and nothing else.

pub mod case;
pub mod census;
pub mod config;
pub mod config_file;
pub mod error;
pub mod hash;
pub mod ids;
pub mod kernel;
mod keys;
pub mod output;
pub mod quantization;
pub mod routing;
pub mod side;
pub mod site;
pub mod trace;
pub mod unique_json;

pub use case::{Case, Padding, Schedule};
pub use config::{LayerKind, ModelConfig};
pub use error::{Error, Result};
pub use ids::{ExpertId, LayerId, TokenId};
pub use kernel::Kernels;
pub use quantization::{Affine, Quantization};
pub use routing::{Choices, Routing};
pub use side::{At, Executed, Precision, Recorder, Run, Side, SideInfo};
pub use site::Site;
