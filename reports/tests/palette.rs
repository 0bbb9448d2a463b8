//! The colours of the HTML report have the contrast that WCAG 2.2 asks for, in both themes.

use std::collections::HashMap;

const STYLE: &str = include_str!("../src/style.css");

/// The colours of the `index`-th `:root`; 0 is light, 1 is dark.
fn palette(index: usize) -> HashMap<String, [f64; 3]> {
    let block = STYLE.split(":root {").nth(index + 1).expect("a palette").split('}').next().expect("it ends");
    let colour = |entry: &str| {
        let (name, hex) = entry.trim().strip_prefix("--")?.split_once(": #")?;
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two hex digits");
        Some((name.to_owned(), [0, 2, 4].map(|at| f64::from(byte(at)) / 255.0)))
    };
    block.split(';').filter_map(colour).collect()
}

/// Relative luminance, as WCAG 2.2 defines it.
fn luminance(colour: [f64; 3]) -> f64 {
    let linear = |c: f64| if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
    let [red, green, blue] = colour.map(linear);
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn black_on_white_is_21_to_1() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
}

#[test]
fn text_has_4_5_to_1_and_marks_3_to_1_in_both_themes() {
    let text = [
        ("ink", "paper"),
        ("muted", "paper"),
        ("muted", "band"),
        ("ink", "faint"),
        ("blue", "paper"),
        ("limit", "paper"),
        ("good", "paper"),
        ("warn", "paper"),
        ("bad", "paper"),
        ("ink", "heat1"),
        ("heat2-ink", "heat2"),
        ("heat3-ink", "heat3"),
        ("heat4-ink", "heat4"),
    ];
    let marks =
        [("blue", "band"), ("orange", "band"), ("green", "band"), ("grey", "paper"), ("limit", "band")];
    for theme in [0, 1] {
        let palette = palette(theme);
        let pairs = text.iter().map(|pair| (pair, 4.5)).chain(marks.iter().map(|pair| (pair, 3.0)));
        for ((above, below), least) in pairs {
            let found = contrast(palette[*above], palette[*below]);
            assert!(found >= least, "theme {theme}: {above} on {below} has {found:.2}");
        }
    }
}

#[test]
fn both_themes_define_the_same_colours() {
    let names = |index| {
        let mut names: Vec<String> = palette(index).into_keys().collect();
        names.sort();
        names
    };
    assert_eq!(names(0), names(1));
}
