//! The first place at which the port is wrong while all that goes into it is right, and maps of its rows.

use super::distance::Distance;
use super::maps::{self, Tried};
use super::place::Place;
use super::trials::Trials;
use crate::compare::Progress;
use ndarray::Array2;
use spec::{Result, Site};

/// Maps at one place.
pub(crate) struct Maps {
    pub(crate) place: Place,
    /// How far the port is from the reference there.
    pub(crate) base: Distance,
    pub(crate) tried: Vec<Tried>,
}

/// Sites that are no step on a row's way, or that say nothing of their own.
const LEFT_OUT: [Site; 4] = [Site::Choice, Site::ExpertOut, Site::AttnResidual, Site::LayerOut];

/// Looks at every site: sites come in the order in which a token passes them, so that nothing that goes into
/// the first wrong one is wrong. `None` if none is wrong, which rows beyond a mean can leave.
pub(crate) fn maps(trials: &mut Trials<'_>, progress: &mut dyn Progress) -> Result<Option<Maps>> {
    let sites: Vec<Site> =
        Site::ALL.into_iter().filter(|site| site.is_per_layer() && !LEFT_OUT.contains(site)).collect();
    let mut first: Option<(Place, Distance, [Array2<f32>; 2])> = None;
    progress.section("maps");
    trials.pass(
        &[],
        &sites,
        &mut |place, distance, ours, theirs| {
            let earlier = first.as_ref().is_none_or(|(so_far, ..)| place < *so_far);
            if !distance.is_honest() && earlier {
                first = Some((place, *distance, [ours[&place.site].clone(), theirs[&place.site].clone()]));
            }
        },
        progress,
    )?;
    let config = trials.of.port.config();
    Ok(first.map(|(place, base, [ours, theirs])| {
        let tried = maps::all(place.site, config, ours.view(), theirs.view());
        Maps { place, base, tried }
    }))
}
