//! The values at chosen sites, kept beside a trace: `<case>.sites.safetensors`, schema `assay-sites/1`.
//!
//! One F32 tensor `[T, width]` per site and layer. Rows are written where they belong as they are made and
//! read back a range at a time, so that neither writing nor comparing holds a tensor.

use ndarray::{Array2, ArrayView2};
use spec::trace::Trace;
use spec::trace::tensors::{Dtype, Slot, TensorFile, Writer};
use spec::{At, Case, LayerId, ModelConfig, Result, SideInfo, Site};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// Schema of the file.
const SCHEMA: &str = "assay-sites/1";
/// What follows the case's name in the name of the file.
pub(super) const SUFFIX: &str = ".sites.safetensors";
/// As long as a hash that is not known yet.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What a comparison of two recordings needs. Choices and routing weights are in the trace itself.
pub const DEFAULT_SITES: [Site; 5] =
    [Site::AttnBranch, Site::RouterLogits, Site::SelectionScores, Site::MoeBranch, Site::Logits];

/// Name of a site's tensor: `attn_branch.3`, `logits`.
pub fn tensor_name(site: Site, layer: Option<LayerId>) -> String {
    layer.map_or_else(|| site.to_string(), |layer| format!("{site}.{layer}"))
}

/// Every (layer, site) that `sites` names.
pub(super) fn places(sites: &[Site], config: &ModelConfig) -> impl Iterator<Item = (Option<LayerId>, Site)> {
    let layers = |site: Site| match site.is_per_layer() {
        true => config.layer_ids().map(Some).collect(),
        false => vec![None],
    };
    sites.iter().flat_map(move |&site| layers(site).into_iter().map(move |layer| (layer, site)))
}

/// A sites file that is being filled.
#[derive(Debug)]
pub(super) struct SitesWriter {
    writer: Writer,
    metadata: BTreeMap<String, String>,
}

impl SitesWriter {
    /// Makes the file of one case. Errors: [`spec::Error::Io`].
    pub(super) fn create(
        path: &Path,
        case: &Case,
        sites: &[Site],
        config: &ModelConfig,
        side: &SideInfo,
    ) -> Result<Self> {
        let slot = |(layer, site): (Option<LayerId>, Site)| {
            Slot::new(tensor_name(site, layer), Dtype::F32, &[case.len(), site.width(config)])
        };
        let strings = [
            ("schema", SCHEMA),
            ("case", &case.name),
            ("side", &side.side),
            ("engine", &side.engine),
            ("ids_sha256", NO_HASH),
        ];
        let metadata = strings.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let writer = Writer::create(path, places(sites, config).map(slot).collect(), &metadata)?;
        Ok(Self { writer, metadata })
    }

    /// Puts rows of one of the file's sites where they belong. Errors: [`spec::Error::Io`].
    pub(super) fn write(&self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        let rows = rows.as_standard_layout();
        let values = rows.as_slice().expect("standard layout is contiguous");
        self.writer.write_f32(&tensor_name(at.site, at.layer), at.rows.start * rows.ncols(), values)
    }

    /// Ties the file to its trace and makes it readable. Errors: [`spec::Error::Io`].
    pub(super) fn finish(mut self, trace: &Trace) -> Result<()> {
        self.metadata.insert("ids_sha256".into(), trace.ids_sha256());
        self.writer.finish(&self.metadata)
    }
}

/// The sites recorded beside a trace.
#[derive(Debug)]
pub struct SitesFile {
    file: TensorFile,
}

impl SitesFile {
    /// Opens the file and checks that it belongs to `trace`. Errors: [`spec::Error::Io`];
    /// [`spec::Error::Trace`] for a file of another schema, another trace's, or with tensors that are no site
    /// of one of the trace's layers, have another width than the trace says, or not a row for each of its
    /// rows.
    pub fn open(path: &Path, trace: &Trace) -> Result<Self> {
        let file = TensorFile::open(path)?;
        for (key, wanted) in [("schema", SCHEMA), ("ids_sha256", &trace.ids_sha256())] {
            let found = file.metadata(key);
            if found != Some(wanted) {
                let expected = format!("metadata `{key}` {wanted}, the sites of {}", trace.path.display());
                return Err(file.refuse(expected, found.unwrap_or("no such key").escape_debug().to_string()));
            }
        }
        for name in file.names() {
            let Some(site) = site_of(&name, trace) else {
                let expected = format!("sites of {} layers", trace.meta.num_hidden_layers);
                return Err(file.refuse(expected, format!("a tensor `{}`", name.escape_debug())));
            };
            let shape = file.shape(&name).unwrap_or_default();
            let width = width_of(site, trace);
            let sound = |found: usize| found > 0 && width.is_none_or(|width| found == width);
            if shape.len() != 2 || shape[0] != trace.rows() || !sound(shape[1]) {
                let width = width.map_or_else(|| "width".into(), |width| width.to_string());
                let expected = format!("`{name}` of shape [{}, {width}]", trace.rows());
                return Err(file.refuse(expected, format!("{shape:?}")));
            }
        }
        Ok(Self { file })
    }

    /// The file's path.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Values per row of a site, `None` if it was not recorded.
    pub fn width(&self, site: Site, layer: Option<LayerId>) -> Option<usize> {
        self.file.shape(&tensor_name(site, layer)).map(|shape| shape[1])
    }

    /// Rows of a site, `[rows.len(), width]`. Errors: [`spec::Error::Trace`] if it was not recorded,
    /// [`spec::Error::Io`].
    pub fn rows(&self, site: Site, layer: Option<LayerId>, rows: Range<usize>) -> Result<Array2<f32>> {
        self.file.f32_rows(&tensor_name(site, layer), rows)
    }
}

/// The site that a tensor's name stands for, if `trace` can have it.
fn site_of(name: &str, trace: &Trace) -> Option<Site> {
    let (site, layer) = match name.split_once('.') {
        Some((site, layer)) => (site, Some(LayerId(layer.parse().ok()?))),
        None => (name, None),
    };
    let site = Site::from_name(site)?;
    let inside = layer.is_none_or(|layer| layer.0 < trace.meta.num_hidden_layers);
    let sound = site.is_per_layer() == layer.is_some() && inside && tensor_name(site, layer) == name;
    sound.then_some(site)
}

/// Values per row of a site, where the trace says so.
fn width_of(site: Site, trace: &Trace) -> Option<usize> {
    match site {
        Site::RouterLogits | Site::SelectionScores => Some(trace.meta.num_experts),
        Site::Choice | Site::ShadowChoice | Site::TopkWeights => Some(trace.meta.k),
        _ => None,
    }
}
