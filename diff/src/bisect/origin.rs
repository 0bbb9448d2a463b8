//! Where a difference comes from: sites that are out of bound although nothing that they are made of is.

use spec::Site;
use std::collections::BTreeSet;

/// The sites of the same part that a site is made of when ids are forced (K6 to K18).
pub(crate) fn inputs(site: Site) -> &'static [Site] {
    match site {
        Site::Embedding | Site::FinalNorm | Site::AttnNorm | Site::Choice => &[],
        Site::Q | Site::K | Site::V => &[Site::AttnNorm],
        Site::QNorm => &[Site::Q],
        Site::KNorm => &[Site::K],
        Site::QRope => &[Site::QNorm],
        Site::KRope => &[Site::KNorm],
        Site::AttnOut => &[Site::QRope, Site::KRope, Site::V],
        Site::OProj => &[Site::AttnOut],
        Site::AttnBranch => &[Site::OProj],
        Site::AttnResidual => &[Site::AttnBranch],
        Site::MoeNorm => &[Site::AttnResidual],
        Site::RouterLogits => &[Site::MoeNorm],
        Site::SelectionScores => &[Site::RouterLogits],
        Site::ShadowChoice => &[Site::SelectionScores],
        Site::TopkWeights => &[Site::RouterLogits, Site::Choice],
        Site::ExpertOut => &[Site::MoeNorm, Site::Choice],
        Site::SharedGate | Site::SharedUp => &[Site::MoeNorm],
        Site::Routed => &[Site::ExpertOut, Site::TopkWeights],
        Site::SharedAct => &[Site::SharedGate, Site::SharedUp],
        Site::Shared => &[Site::SharedAct],
        Site::MoeBranch => &[Site::Routed, Site::Shared],
        Site::LayerOut => &[Site::AttnResidual, Site::MoeBranch],
        Site::Logits => &[Site::FinalNorm],
    }
}

/// Of the sites that are out of bound, those of which nothing upstream is, in the order of the forward pass.
///
/// Everything upstream counts, not the inputs alone: a norm takes away a scale that was wrong before it, and
/// what comes after must not be blamed for the rest.
pub fn origins(out: &BTreeSet<Site>) -> Vec<Site> {
    out.iter().copied().filter(|&site| !upstream(site).iter().any(|before| out.contains(before))).collect()
}

/// Everything of the same part that a site is made of, directly or not.
fn upstream(site: Site) -> BTreeSet<Site> {
    let mut all = BTreeSet::new();
    let mut open = inputs(site).to_vec();
    while let Some(site) = open.pop() {
        if all.insert(site) {
            open.extend_from_slice(inputs(site));
        }
    }
    all
}
