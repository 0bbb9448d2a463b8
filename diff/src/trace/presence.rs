//! Whether one side kept a site everywhere or nowhere: what is missing here and there would be left out of a
//! comparison unseen.

use super::layer::SITES;
use super::pairs::Recording;
use super::sites::SitesFile;
use spec::{Error, LayerId, Result, Site};
use std::collections::BTreeMap;

/// What one side kept in the recordings seen so far.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Of every site that is compared, the first place looked at.
    first: BTreeMap<Site, Place>,
}

/// A site of one layer of one case, and whether it was kept.
#[derive(Debug, Clone)]
struct Place {
    kept: bool,
    /// "layer 3 of case `a`".
    of: String,
    /// Where it is, or should be.
    file: String,
}

impl Presence {
    /// Takes the next recording of the side. Errors: [`Error::Unpaired`] if a site was kept for some layers
    /// or cases only.
    pub(super) fn check(&mut self, recording: &Recording) -> Result<()> {
        let trace = &recording.trace;
        let beside = || match &recording.sites {
            Some(sites) => sites.path().display().to_string(),
            None => format!("a sites file beside {}", trace.path.display()),
        };
        let place = |site: Site, layer: Option<LayerId>| {
            let layer_of = layer.map_or_else(String::new, |layer| format!("layer {layer} of "));
            let width = |sites: &SitesFile| sites.width(site, layer);
            let kept = recording.sites.as_ref().and_then(width).is_some();
            (site, Place { kept, of: format!("{layer_of}case `{}`", trace.meta.case), file: beside() })
        };
        let of_layer = |&layer: &LayerId| SITES.map(|site| place(site, Some(layer)));
        // routing weights are in the trace itself
        let (kept, file) = (trace.weights.is_some(), trace.path.display().to_string());
        let weights = Place { kept, of: format!("case `{}`", trace.meta.case), file };
        let whole = [place(Site::Logits, None), (Site::TopkWeights, weights)];
        for (site, place) in trace.layers.iter().flat_map(of_layer).chain(whole) {
            let first = self.first.entry(site).or_insert_with(|| place.clone());
            if first.kept != place.kept {
                let (kept, missing) = if place.kept { (&place, &*first) } else { (&*first, &place) };
                return Err(Error::Unpaired {
                    expected: format!("`{site}` of {}, as of {}", missing.of, kept.of),
                    found: format!("none in {}", missing.file),
                    next: "record that side again with one list of sites for all cases".into(),
                });
            }
        }
        Ok(())
    }
}
