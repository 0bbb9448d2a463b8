//! Where two sides are compared: a part of the model and a site of it.

use crate::beside::Part;
use spec::Site;

/// Sites of a layer by which hypotheses are judged: what a layer hands on, so that a port may come by it in
/// its own way.
pub(crate) const JUDGED: [Site; 5] =
    [Site::AttnBranch, Site::RouterLogits, Site::ShadowChoice, Site::TopkWeights, Site::MoeBranch];

/// Sites of a layer on the way there. A bug that mends one of these is worth trying together with others,
/// even where a second bug keeps what is judged as wrong as it was.
pub(crate) const HINTS: [Site; 8] = [
    Site::AttnNorm,
    Site::V,
    Site::QRope,
    Site::KRope,
    Site::AttnOut,
    Site::MoeNorm,
    Site::Routed,
    Site::Shared,
];

/// A part of the model and a site of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) part: Part,
    pub(crate) site: Site,
}

impl Place {
    /// Whether hypotheses are judged by it.
    pub(crate) fn is_judged(self) -> bool {
        match self.part {
            Part::Layer(_) => JUDGED.contains(&self.site),
            Part::Embedding => true,
            Part::Head => self.site == Site::Logits,
            Part::EndToEnd => false,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.part {
            Part::Layer(layer) => write!(f, "layer {layer}, {}", self.site),
            Part::EndToEnd => write!(f, "{} end to end", self.site),
            Part::Embedding | Part::Head => write!(f, "{}", self.site),
        }
    }
}
