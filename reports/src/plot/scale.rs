//! Numbers to positions along an axis, and its ticks.

use crate::number::{count, power_of_ten};

/// How an axis maps numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum Scale {
    /// Evenly.
    Linear {
        /// The number at the beginning.
        low: f64,
        /// The number at the end.
        high: f64,
    },
    /// By the logarithm, over whole decades.
    Log {
        /// The power of ten at the beginning.
        low: i32,
        /// The power of ten at the end.
        high: i32,
    },
    /// By `asinh(value / unit)`: even around 0, by the logarithm far from it, for both signs.
    Signed {
        /// Where the one goes over into the other; a power of ten.
        unit: i32,
        /// The number at the beginning.
        low: f64,
        /// The number at the end.
        high: f64,
    },
}

/// Where a number is on an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spot {
    /// At this share of its length.
    At(f64),
    /// Zero or negative, on a logarithmic axis.
    Zero,
    /// Nowhere.
    Nan,
    /// Beyond every end.
    Infinite,
}

/// Most ticks on an axis.
const TICKS_MAX: i32 = 7;
/// Most ticks on a logarithmic axis or on one of both signs, whose labels are short.
const DECADES_SIGNED: i32 = 3;

impl Scale {
    /// An even axis from 0 (or below) over all of the numbers that are finite.
    pub fn linear_from_zero(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extent(values.chain([0.0]));
        Self::linear_over(low, high)
    }

    /// An even axis over a range, widened to whole ticks.
    pub fn linear_over(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let step = step(low, high);
        Self::Linear { low: (low / step).floor() * step, high: (high / step).ceil() * step }
    }

    /// A logarithmic axis over all of the numbers that are finite and above 0.
    pub fn log(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extent(values.filter(|value| *value > 0.0));
        if high <= 0.0 {
            return Self::Log { low: 0, high: 1 };
        }
        let (low, high) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        Self::Log { low, high: high.max(low + 1) }
    }

    /// An axis of both signs, with 0 on it, over all of the numbers that are finite.
    pub fn signed(values: impl Iterator<Item = f64> + Clone) -> Self {
        let sizes = values.clone().filter(|value| value.is_finite()).map(f64::abs);
        let largest = sizes.fold(0.0, f64::max);
        if largest == 0.0 {
            return Self::linear_over(-1.0, 1.0);
        }
        let unit = largest.log10().ceil() as i32 - DECADES_SIGNED;
        let (low, high) = extent(values.chain([0.0]));
        let margin = 10f64.powi(unit);
        Self::Signed { unit, low: low * 1.2 - margin, high: high * 1.2 + margin }
    }

    /// Where a number is; finite ones outside the axis come out below 0 or above 1.
    pub fn spot(&self, value: f64) -> Spot {
        if value.is_nan() {
            return Spot::Nan;
        }
        if value.is_infinite() {
            return Spot::Infinite;
        }
        match *self {
            Self::Linear { low, high } => Spot::At((value - low) / (high - low)),
            Self::Log { .. } if value <= 0.0 => Spot::Zero,
            Self::Log { low, high } => Spot::At((value.log10() - f64::from(low)) / f64::from(high - low)),
            Self::Signed { unit, low, high } => {
                let bend = |value: f64| (value / 10f64.powi(unit)).asinh();
                Spot::At((bend(value) - bend(low)) / (bend(high) - bend(low)))
            }
        }
    }

    /// Positions, as shares of the length, and labels.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let place = |(value, label): (f64, String)| match self.spot(value) {
            Spot::At(share) if (-1e-9..=1.0 + 1e-9).contains(&share) => Some((share, label)),
            _ => None,
        };
        let candidates: Vec<(f64, String)> = match *self {
            Self::Linear { low, high } => even_ticks(low, high),
            Self::Log { low, high } => {
                let step = (high - low + TICKS_MAX - 1) / TICKS_MAX;
                let exponents = (low..=high).filter(|exponent| exponent.rem_euclid(step) == 0);
                exponents.map(|exponent| (10f64.powi(exponent), power_of_ten(exponent))).collect()
            }
            Self::Signed { unit, .. } => {
                let sizes = (unit..=unit + DECADES_SIGNED).collect::<Vec<_>>();
                let of = |sign: f64, word: &str, exponent: i32| {
                    (sign * 10f64.powi(exponent), format!("{word}{}", power_of_ten(exponent)))
                };
                let below = sizes.iter().map(|exponent| of(-1.0, "−", *exponent));
                let above = sizes.iter().map(|exponent| of(1.0, "", *exponent));
                below.chain([(0.0, "0".into())]).chain(above).collect()
            }
        };
        candidates.into_iter().filter_map(place).collect()
    }
}

/// The smallest and the largest finite number; `(0, 0)` of none.
fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let ends = finite.fold(None, |ends: Option<(f64, f64)>, value| {
        Some(ends.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    });
    ends.unwrap_or((0.0, 0.0))
}

/// The step between ticks: 1, 2 or 5 times a power of ten.
fn step(low: f64, high: f64) -> f64 {
    let rough = (high - low) / f64::from(TICKS_MAX - 1);
    let decade = 10f64.powf(rough.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|nice| nice * decade >= rough * (1.0 - 1e-9));
    nice.unwrap_or(10.0) * decade
}

fn even_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let step = step(low, high);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    let tick = |index: i64| {
        let value = index as f64 * step;
        let plain = decimals == 0 && value >= 0.0;
        (value, if plain { count(value.round() as u64) } else { format!("{value:.decimals$}") })
    };
    (first..=last).map(tick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_axis_puts_decades_at_even_distances() {
        let scale = Scale::log([2e-7, 5e-3].into_iter());
        assert_eq!(scale, Scale::Log { low: -7, high: -2 });
        assert_eq!(scale.spot(1e-7), Spot::At(0.0));
        // log10(1e-4) = -4, three of the five decades up
        let Spot::At(share) = scale.spot(1e-4) else { panic!("on the axis") };
        assert!((share - 0.6).abs() < 1e-12);
        // log10(5e-3) = -2.30103
        let Spot::At(share) = scale.spot(5e-3) else { panic!("on the axis") };
        assert!((share - 0.939_794).abs() < 1e-6);
    }

    #[test]
    fn what_a_log_axis_cannot_show_has_a_place_of_its_own() {
        let scale = Scale::log([1.0, 10.0].into_iter());
        let spots = [0.0, -1.0, f64::NAN, f64::INFINITY].map(|value| scale.spot(value));
        assert_eq!(spots, [Spot::Zero, Spot::Zero, Spot::Nan, Spot::Infinite]);
    }

    #[test]
    fn an_axis_of_nothing_finite_still_has_two_ends() {
        let scale = Scale::log([0.0, f64::NAN, f64::INFINITY].into_iter());
        assert_eq!(scale, Scale::Log { low: 0, high: 1 });
        assert_eq!(Scale::linear_from_zero([f64::NAN].into_iter()), Scale::Linear { low: 0.0, high: 1.0 });
    }

    #[test]
    fn even_ticks_are_round_numbers() {
        let labels = |scale: Scale| scale.ticks().into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(Scale::linear_over(0.0, 31.0)), ["0", "10", "20", "30", "40"]);
        assert_eq!(labels(Scale::linear_over(0.95, 1.0)), ["0.95", "0.96", "0.97", "0.98", "0.99", "1.00"]);
        assert_eq!(labels(Scale::Log { low: -14, high: 0 }).len(), 8);
    }

    #[test]
    fn a_signed_axis_mirrors_and_keeps_zero() {
        let scale = Scale::Signed { unit: -2, low: -1.0, high: 1.0 };
        assert_eq!(scale.spot(0.0), Spot::At(0.5));
        let [Spot::At(below), Spot::At(above)] = [scale.spot(-0.1), scale.spot(0.1)] else { panic!() };
        assert!((below + above - 1.0).abs() < 1e-12);
        // asinh(10) / asinh(100) = 2.99822 / 5.29834
        assert!((above - (0.5 + 0.5 * 2.998_222_95 / 5.298_342_37)).abs() < 1e-8);
    }
}
