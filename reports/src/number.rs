//! Numbers as a reader sees them: two or three digits, NaN and infinities spelled out.
//!
//! Absent on purpose: rounding anything that is not 1 (or 100 %) up to it.

use diff::stats::Rate;

/// A measured number: `0`, `0.123`, `28.4`, `1,024`, `1.3e-6`, `NaN`, `inf`. Only 1 is shown as 1.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return value.to_string();
    }
    if value == 0.0 {
        return "0".into();
    }
    if value.fract() == 0.0 && size < 1e9 {
        return if value < 0.0 { format!("-{}", count(size as u64)) } else { count(size as u64) };
    }
    if !(0.01..1e4).contains(&size) {
        return format!("{value:.1e}");
    }
    if size >= 999.5 {
        return format!("{}{}", if value < 0.0 { "-" } else { "" }, count(size.round() as u64));
    }
    let decimals = (2 - size.log10().floor() as i32).max(0) as usize;
    let shown = (decimals..=15).map(|decimals| format!("{value:.decimals$}"));
    shown.into_iter().find(|shown| shown.parse() != Ok(1.0)).unwrap_or_else(|| format!("{value:e}"))
}

/// A limit: as it was written where three digits suffice, so `5e-6` rather than `5.0e-6`.
pub fn limit(value: f64) -> String {
    let size = value.abs();
    if (0.01..1e4).contains(&size) || !value.is_finite() || value == 0.0 {
        let shown = number(value);
        return if shown.contains('.') { shown.trim_end_matches('0').into() } else { shown };
    }
    let shown = format!("{value:.2e}");
    let (digits, exponent) = shown.split_once('e').expect("scientific notation");
    format!("{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// A whole number with thousands separated: `16,384`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A share in percent, cut rather than rounded so that only all of them is 100: `99.66 %`.
pub fn share(part: usize, all: usize) -> String {
    match (part as u128 * 10_000).checked_div(all as u128) {
        None => "-".into(),
        Some(hundredths) => format!("{} %", hundredths as f64 / 100.0),
    }
}

/// A count, out of how many, and the share: `3 of 1,024 (0.29 %)`.
pub fn rate(rate: &Rate) -> String {
    let (part, all) = (count(rate.count as u64), count(rate.of as u64));
    format!("{part} of {all} ({})", share(rate.count, rate.of))
}

/// The nominal interval of a rate, widened to hundredths of a percent.
pub fn interval(rate: &Rate) -> String {
    if rate.of == 0 {
        return "-".into();
    }
    format!("{} … {} %", (rate.low * 1e4).floor() / 100.0, (rate.high * 1e4).ceil() / 100.0)
}

/// Wall time: `0.42 s`, `95 s`, `12 min 5 s`.
pub fn seconds(seconds: f64) -> String {
    if seconds < 120.0 || !seconds.is_finite() {
        let decimals = if seconds < 10.0 { 2 } else { 0 };
        return format!("{seconds:.decimals$} s");
    }
    let whole = seconds.round() as u64;
    format!("{} min {} s", whole / 60, whole % 60)
}

/// Powers of ten as an axis shows them: `10⁻⁶`, `1`, `10`.
pub fn power_of_ten(exponent: i32) -> String {
    match exponent {
        0 => "1".into(),
        1 => "10".into(),
        _ => format!("10{}", exponent.to_string().chars().map(superscript).collect::<String>()),
    }
}

fn superscript(character: char) -> char {
    match character {
        '-' => '⁻',
        digit => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize - '0' as usize],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0.0, "0")]
    #[case(f64::NAN, "NaN")]
    #[case(f64::INFINITY, "inf")]
    #[case(1.24e-6, "1.2e-6")]
    #[case(0.070_71, "0.0707")]
    #[case(1.224, "1.22")]
    #[case(28.44, "28.4")]
    #[case(1024.0, "1,024")]
    #[case(8157.3, "8,157")]
    #[case(-0.5, "-0.500")]
    #[case(0.9996, "0.9996")]
    #[case(1.000_04, "1.00004")]
    fn a_number_has_three_digits_and_none_but_one_is_shown_as_one(#[case] value: f64, #[case] shown: &str) {
        assert_eq!(number(value), shown);
    }

    #[rstest]
    #[case(5e-6, "5e-6")]
    #[case(1.25e-4, "1.25e-4")]
    #[case(30.0, "30")]
    #[case(0.011, "0.011")]
    #[case(0.0, "0")]
    #[case(f64::NAN, "NaN")]
    fn a_limit_is_shown_as_it_was_written(#[case] value: f64, #[case] shown: &str) {
        assert_eq!(limit(value), shown);
    }

    #[test]
    fn a_share_short_of_all_is_never_shown_as_all() {
        assert_eq!(rate(&Rate::new(999_999, 1_000_000)), "999,999 of 1,000,000 (99.99 %)");
        assert_eq!(rate(&Rate::new(7, 7)), "7 of 7 (100 %)");
        assert_eq!(share(0, 0), "-");
    }

    #[test]
    fn powers_of_ten_have_superscripts() {
        assert_eq!([-12, 0, 1, 3].map(power_of_ten), ["10⁻¹²", "1", "10", "10³"]);
    }

    #[test]
    fn times_have_minutes_where_they_are_long() {
        assert_eq!([0.42, 95.2, 725.0].map(seconds), ["0.42 s", "95 s", "12 min 5 s"]);
    }
}
