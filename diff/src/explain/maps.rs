//! Simple maps from the reference's rows of one site to the port's: fitted on every other row, judged on the
//! rows between.
//!
//! A map with more freedom than there are rows to fit it on would fit anything, and is not tried.

use crate::metrics::router::same_set;
use crate::stats::RootMeanSquare;
use ndarray::{Array1, Array2, ArrayView2, Axis, Slice, s};
use ndarray_linalg::SVD;
use spec::{ModelConfig, Site};

/// Items of a permutation that are written out.
const ITEMS_SHOWN: usize = 16;

/// One map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tried {
    /// "a factor".
    pub(crate) map: &'static str,
    /// What the port's rows are under it, and the residual that it leaves; or why it is not tried.
    pub(crate) found: Result<(String, f64), String>,
}

/// Rows of both sides in f64: those to fit on, those to judge by.
struct Halves {
    fit: [Array2<f64>; 2],
    test: [Array2<f64>; 2],
}

/// All maps that make sense at a site: rows of the correct lane and of the port, `[T, width]` each.
pub(crate) fn all(
    site: Site,
    config: &ModelConfig,
    ours: ArrayView2<'_, f32>,
    theirs: ArrayView2<'_, f32>,
) -> Vec<Tried> {
    assert_eq!(ours.dim(), theirs.dim(), "rows of one site of one case");
    let tried = |map, found| Tried { map, found };
    let [few, nan] = [ours.nrows() < 2, ours.iter().chain(theirs).any(|value| !value.is_finite())];
    if few || nan {
        let why = if few { "one row is too few to fit and judge" } else { "a row is not finite" };
        return vec![tried("any map", Err(why.into()))];
    }
    let halves = Halves::new(ours, theirs);
    if site == Site::ShadowChoice {
        return vec![tried("a permutation of expert ids", halves.ids(config.num_experts))];
    }
    let mut all = vec![tried("a factor", halves.factor()), tried("a factor per channel", halves.channels())];
    let heads = is_by_heads(site);
    if heads {
        all.push(tried("a permutation of heads", halves.blocks(config.head_dim)));
        all.push(tried("an orthogonal map of each head", halves.orthogonal(config.head_dim)));
    } else {
        if matches!(site, Site::RouterLogits | Site::SelectionScores) {
            all.push(tried("a permutation of experts", halves.blocks(1)));
        }
        all.push(tried("an orthogonal map", halves.orthogonal(ours.ncols())));
    }
    all
}

/// Whether a row is heads, side by side.
fn is_by_heads(site: Site) -> bool {
    matches!(
        site,
        Site::Q | Site::K | Site::V | Site::QNorm | Site::KNorm | Site::QRope | Site::KRope | Site::AttnOut
    )
}

impl Halves {
    fn new(ours: ArrayView2<'_, f32>, theirs: ArrayView2<'_, f32>) -> Self {
        let half = |rows: ArrayView2<'_, f32>, first: isize| {
            rows.slice_axis(Axis(0), Slice::new(first, None, 2)).mapv(f64::from)
        };
        let both = |first| [half(ours, first), half(theirs, first)];
        Self { fit: both(0), test: both(1) }
    }

    /// The residual that a map leaves: the RMS over rows of `||map(reference) - port|| / ||port||`.
    fn residual(&self, map: impl Fn(&Array2<f64>) -> Array2<f64>) -> f64 {
        let [ours, theirs] = &self.test;
        let mapped = map(ours);
        let mut all = RootMeanSquare::default();
        for (mapped, port) in mapped.rows().into_iter().zip(theirs.rows()) {
            let left = (&mapped - &port).mapv(|x| x * x).sum().sqrt();
            let norm = port.dot(&port).sqrt();
            all.add(if left == 0.0 { 0.0 } else { left / norm });
        }
        all.value()
    }

    /// One number for all values, by least squares.
    fn factor(&self) -> Result<(String, f64), String> {
        let [ours, theirs] = &self.fit;
        let square = ours.mapv(|x| x * x).sum();
        if square == 0.0 {
            return Err("the reference's rows are zero".into());
        }
        let factor = (ours * theirs).sum() / square;
        let near = |value: f64| (factor - value).abs() < 1e-3;
        let words = if near(-1.0) { "with the sign flipped".into() } else { format!("times {factor:.6}") };
        Ok((words, self.residual(|rows| rows * factor)))
    }

    /// One number for each channel, by least squares.
    fn channels(&self) -> Result<(String, f64), String> {
        let [ours, theirs] = &self.fit;
        let factor = |(a, b): (ndarray::ArrayView1<'_, f64>, ndarray::ArrayView1<'_, f64>)| {
            let square = a.dot(&a);
            if square == 0.0 { 0.0 } else { a.dot(&b) / square }
        };
        let factors: Array1<f64> = ours.columns().into_iter().zip(theirs.columns()).map(factor).collect();
        let range = factors
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)));
        let words = format!("each channel times a number of its own, {:.4} to {:.4}", range.0, range.1);
        Ok((words, self.residual(|rows| rows * &factors)))
    }

    /// Blocks of `width` channels in another order: each of the port's is taken from the nearest of the
    /// reference's.
    fn blocks(&self, width: usize) -> Result<(String, f64), String> {
        let [ours, theirs] = &self.fit;
        let count = ours.ncols() / width;
        let block = |rows: &'_ Array2<f64>, index: usize| {
            rows.slice(s![.., index * width..(index + 1) * width]).to_owned()
        };
        let nearest = |port: usize| {
            let port = block(theirs, port);
            let far = |own: usize| (&block(ours, own) - &port).mapv(|x| x * x).sum();
            (0..count).map(|own| (far(own), own)).min_by(|a, b| a.0.total_cmp(&b.0)).expect("a block").1
        };
        let from: Vec<usize> = (0..count).map(nearest).collect();
        is_permutation(&from)?;
        let channels: Vec<usize> = from.iter().flat_map(|own| own * width..(own + 1) * width).collect();
        let words = format!("in the order {}", listed(&from));
        Ok((words, self.residual(|rows| rows.select(Axis(1), &channels))))
    }

    /// An orthogonal map of `width` channels, one for all blocks of them: the one that brings the rows
    /// nearest (Procrustes), `U Vᵀ` of the singular value decomposition of `oursᵀ theirs`.
    fn orthogonal(&self, width: usize) -> Result<(String, f64), String> {
        let cut = |rows: &Array2<f64>| {
            let samples = rows.len() / width;
            rows.to_shape((samples, width)).expect("whole blocks").to_owned()
        };
        let [ours, theirs] = [cut(&self.fit[0]), cut(&self.fit[1])];
        if ours.nrows() < width {
            return Err(format!("{} rows to fit it on, and it needs {width}", ours.nrows()));
        }
        let (u, _, vt) = ours.t().dot(&theirs).svd(true, true).map_err(|e| e.to_string())?;
        let map = u.expect("asked for").dot(&vt.expect("asked for"));
        let shape = self.test[0].dim();
        let apply =
            |rows: &Array2<f64>| cut(rows).dot(&map).to_shape(shape).expect("the same values").to_owned();
        Ok((format!("turned by an orthogonal map of {width} channels"), self.residual(apply)))
    }

    /// Expert ids under other names: each of the reference's is the one of the port's that is most often
    /// chosen where it is. The residual is the share of rows with another set.
    fn ids(&self, experts: usize) -> Result<(String, f64), String> {
        let mut together = Array2::<usize>::zeros((experts, experts));
        for (ours, theirs) in self.fit[0].rows().into_iter().zip(self.fit[1].rows()) {
            for (&own, &port) in ours.iter().flat_map(|own| theirs.iter().map(move |port| (own, port))) {
                together[[own as usize, port as usize]] += 1;
            }
        }
        let seen: Vec<usize> = (0..experts).filter(|&own| together.row(own).sum() > 0).collect();
        let name = |own: usize| {
            let row = together.row(own);
            // the own name is taken where it is as good as any other
            (0..experts).max_by_key(|&port| (row[port], port == own)).expect("experts")
        };
        let names: Vec<usize> = seen.iter().map(|&own| name(own)).collect();
        let mut taken = names.clone();
        taken.sort_unstable();
        taken.dedup();
        if taken.len() < names.len() {
            return Err("two experts would have one name".into());
        }
        if names == seen {
            return Err("every expert has its own name".into());
        }
        let differs = |row: usize| {
            let mapped = self.test[0].row(row).mapv(|own| name(own as usize) as f64);
            !same_set(mapped.view(), self.test[1].row(row))
        };
        let rows = self.test[0].nrows();
        let differing = (0..rows).filter(|&row| differs(row)).count();
        let pairs: Vec<String> = seen
            .iter()
            .zip(&names)
            .filter(|(own, port)| own != port)
            .map(|(own, port)| format!("{own} as {port}"))
            .take(ITEMS_SHOWN)
            .collect();
        Ok((format!("with expert {}", pairs.join(", ")), differing as f64 / rows as f64))
    }
}

fn is_permutation(from: &[usize]) -> Result<(), String> {
    if from.iter().enumerate().all(|(to, from)| to == *from) {
        return Err("each is nearest to itself".into());
    }
    match (0..from.len()).find(|item| !from.contains(item)) {
        Some(item) => Err(format!("none of the port's is nearest to the reference's {item}")),
        None => Ok(()),
    }
}

fn listed(items: &[usize]) -> String {
    let shown: Vec<String> = items.iter().take(ITEMS_SHOWN).map(usize::to_string).collect();
    shown.join(", ") + if items.len() > ITEMS_SHOWN { ", …" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rstest::rstest;

    /// Two heads of 4, 3 experts.
    fn config() -> ModelConfig {
        let text = r#"{"model_type": "kolibri1", "hidden_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 5,
            "rms_norm_eps": 1e-6, "hidden_act": "silu", "sliding_window": 3, "rope_theta": 10000.0,
            "layer_types": ["sliding_attention"], "num_experts": 3, "num_experts_per_tok": 2,
            "moe_intermediate_size": 2, "shared_expert_intermediate_size": 2}"#;
        spec::config_file::parse(std::path::Path::new("config.json"), text).expect("a config")
    }

    fn rows(count: usize, width: usize) -> Array2<f32> {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        Array2::from_shape_simple_fn((count, width), || random.random_range(-1.0_f32..1.0))
    }

    /// What one map found of the port's rows, which are made of the reference's by `port`.
    fn found(
        map: &str,
        site: Site,
        ours: &Array2<f32>,
        port: impl Fn(&Array2<f32>) -> Array2<f32>,
    ) -> Result<(String, f64), String> {
        let theirs = port(ours);
        let mut all = all(site, &config(), ours.view(), theirs.view()).into_iter();
        all.find(|tried| tried.map == map).expect("it makes sense at this site").found
    }

    /// The planes of each head's first two and last two channels turned by an angle of their own.
    fn turned(rows: &Array2<f32>) -> Array2<f32> {
        let mut out = rows.clone();
        for (from, mut to) in rows.rows().into_iter().zip(out.rows_mut()) {
            for plane in 0..4 {
                let (sin, cos) = (1.0 + (plane % 2) as f32).sin_cos();
                let (a, b) = (from[2 * plane], from[2 * plane + 1]);
                to[2 * plane] = a * cos - b * sin;
                to[2 * plane + 1] = a * sin + b * cos;
            }
        }
        out
    }

    #[rstest]
    #[case::factor("a factor", Site::Q, |x: &Array2<f32>| x * 0.25, "times 0.250000")]
    #[case::sign("a factor", Site::MoeNorm, |x: &Array2<f32>| -x, "with the sign flipped")]
    #[case::heads("a permutation of heads", Site::Q,
        |x: &Array2<f32>| x.select(Axis(1), &[4, 5, 6, 7, 0, 1, 2, 3]), "in the order 1, 0")]
    #[case::each_head(
        "an orthogonal map of each head",
        Site::V,
        turned,
        "turned by an orthogonal map of 4 channels"
    )]
    #[case::whole("an orthogonal map", Site::MoeNorm, turned, "turned by an orthogonal map of 8 channels")]
    #[case::channels("a factor per channel", Site::MoeNorm,
        |x: &Array2<f32>| x * &Array1::from_iter((0..8_u8).map(f32::from)),
        "each channel times a number of its own, 0.0000 to 7.0000")]
    fn a_map_that_was_applied_is_recovered(
        #[case] map: &str,
        #[case] site: Site,
        #[case] port: fn(&Array2<f32>) -> Array2<f32>,
        #[case] words: &str,
    ) {
        let (said, left) = found(map, site, &rows(40, 8), port).expect("tried");
        assert_eq!(said, words);
        assert!(left < 1e-6, "{left}");
        // what was not applied does not fit
        let (_, left) = found("a factor", site, &rows(40, 8), |_| rows(41, 8).slice(s![1.., ..]).to_owned())
            .expect("tried");
        assert!(left > 0.5, "{left}");
    }

    #[test]
    fn a_permutation_of_experts_is_recovered_from_their_logits() {
        let exchanged = |x: &Array2<f32>| x.select(Axis(1), &[2, 0, 1]);
        let (said, left) =
            found("a permutation of experts", Site::RouterLogits, &rows(8, 3), exchanged).unwrap();
        assert_eq!((said.as_str(), left), ("in the order 2, 0, 1", 0.0));
    }

    #[test]
    fn expert_ids_under_other_names_are_recovered() {
        let sets = [[0.0, 1.0], [1.0, 2.0], [2.0, 0.0]];
        let ours = Array2::from_shape_fn((12, 2), |(row, item)| sets[row / 2 % 3][item]);
        let renamed = |x: &Array2<f32>| x.mapv(|id| (id + 1.0) % 3.0);
        let (said, left) = found("a permutation of expert ids", Site::ShadowChoice, &ours, renamed).unwrap();
        assert_eq!((said.as_str(), left), ("with expert 0 as 1, 1 as 2, 2 as 0", 0.0));
    }

    #[test]
    fn an_orthogonal_map_of_more_channels_than_rows_is_not_tried() {
        // 14 rows, of which 7 are fitted on
        let refused = found("an orthogonal map", Site::MoeNorm, &rows(14, 8), turned).unwrap_err();
        assert_eq!(refused, "7 rows to fit it on, and it needs 8");
    }

    #[rstest]
    #[case::nan(40, "a row is not finite")]
    #[case::one_row(1, "one row is too few to fit and judge")]
    fn nothing_is_fitted_to_what_cannot_be_judged(#[case] count: usize, #[case] why: &str) {
        let refused = found("any map", Site::Q, &rows(count, 8), |x| x * f32::NAN).unwrap_err();
        assert_eq!(refused, why);
    }

    #[test]
    fn heads_that_are_nearest_to_themselves_are_no_permutation() {
        let refused = found("a permutation of heads", Site::Q, &rows(40, 8), |x| x * 1.1).unwrap_err();
        assert_eq!(refused, "each is nearest to itself");
    }
}
