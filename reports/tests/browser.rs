//! The HTML report in a browser: themes, plots that show something, labels that do not collide, a phone.
//!
//! Drives headless Chromium; `./setup` installs it. No network is used.

mod support;

use diff::gate::record::Record;
use reports::{Format, matrix, render};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const CHROMIUM: &str = "/usr/bin/chromium";
/// A desktop's width, and a phone's, CSS pixels.
const DESKTOP: u32 = 1080;
const PHONE: u32 = 390;

/// Measures a report in an iframe of a width: sizes of the page, rectangles of the plots, labels that overlap
/// or that leave their plot. Slanted labels are parallel, so that their rectangles overlap where they do not.
const MEASURE: &str = r#"
addEventListener("load", () => {
  const page = document.querySelector("iframe").contentDocument, root = page.documentElement;
  const overlaps = [], outside = [];
  for (const svg of page.querySelectorAll(".plots svg")) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(text => [text, text.getBoundingClientRect()]);
    for (const [text, box] of texts)
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
          box.bottom > frame.bottom + 1) outside.push(text.textContent);
    const level = texts.filter(([text]) => !text.matches(".slanted"));
    level.forEach(([text, a], index) => level.slice(index + 1).forEach(([other, b]) => {
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2.5)
        overlaps.push(text.textContent + " / " + other.textContent);
    }));
  }
  const plots = [...page.querySelectorAll(".plots")].map(plot => {
    const box = plot.getBoundingClientRect();
    return [box.left, box.top, box.width, box.height].map(Math.round);
  });
  const scripts = page.querySelectorAll("script, img, link").length;
  const texts = page.querySelectorAll(".plots text").length;
  document.querySelector("pre").textContent = JSON.stringify({ width: root.scrollWidth,
    view: root.clientWidth,
    height: root.scrollHeight, plots, overlaps, outside, scripts, texts });
});"#;

/// Runs Chromium on a page with a profile of its own; gives back what it printed.
fn chromium(folder: &Path, page: &str, arguments: &[String]) -> String {
    assert!(Path::new(CHROMIUM).exists(), "{CHROMIUM} is missing: run ./setup, which installs Chromium");
    let file = folder.join("page.html");
    std::fs::write(&file, page).expect("writing the page");
    let profile = folder.join("profile");
    let run = Command::new(CHROMIUM)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("starting Chromium");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "Chromium ended with {}: {said}", run.status);
    String::from_utf8(run.stdout).expect("UTF-8")
}

/// What [`MEASURE`] finds at a width.
fn measure(html: &str, width: u32) -> Value {
    let folder = TempDir::new().expect("a folder");
    let source = html.replace('&', "&amp;").replace('"', "&quot;");
    let page = format!(
        "<!doctype html><meta charset=utf-8><pre></pre><script>{MEASURE}</script>\
         <iframe width={width} height=900 style=\"border:0\" srcdoc=\"{source}\"></iframe>"
    );
    let dom = chromium(folder.path(), &page, &["--dump-dom".into(), "--window-size=1400,1000".into()]);
    let found =
        dom.split("<pre>").nth(1).and_then(|rest| rest.split("</pre>").next()).expect("what it measured");
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&found).unwrap_or_else(|e| panic!("{e}: {found}"))
}

/// A picture, 8 bits each of red, green and blue.
struct Picture {
    width: usize,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    fn at(&self, x: usize, y: usize) -> [u8; 3] {
        self.pixels[y * self.width + x]
    }
}

/// The page as it looks in a theme.
fn screenshot(html: &str, is_dark: bool, height: u64) -> Picture {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("shot.png");
    let arguments = [
        // Blink's own numbers: 0 is dark, 1 is light
        format!("--blink-settings=preferredColorScheme={}", u8::from(!is_dark)),
        format!("--window-size={DESKTOP},{height}"),
        format!("--screenshot={}", file.display()),
    ];
    chromium(folder.path(), html, &arguments);
    let picture = std::io::BufReader::new(std::fs::File::open(file).expect("the picture"));
    let mut reader = png::Decoder::new(picture).read_info().expect("a PNG");
    let mut bytes = vec![0; reader.output_buffer_size().expect("a size that fits")];
    let info = reader.next_frame(&mut bytes).expect("one frame");
    let channels = info.color_type.samples();
    assert_eq!(info.width, DESKTOP);
    let pixels = bytes[..info.buffer_size()].chunks_exact(channels).map(|p| [p[0], p[1], p[2]]);
    Picture { width: info.width as usize, pixels: pixels.collect() }
}

/// The small record with everything that goes wrong, and a large one.
fn records() -> [Record; 2] {
    [support::troubled(10, 10, 9), support::record(50, 45, 48)]
}

fn list(found: &Value, name: &str) -> Vec<String> {
    found[name].as_array().expect("a list").iter().map(Value::to_string).collect()
}

#[test]
fn the_page_follows_the_theme_and_its_plots_are_not_blank() {
    let html = render(&support::troubled(10, 10, 9), Format::Html);
    let found = measure(&html, DESKTOP);
    let plots: Vec<Vec<u64>> = serde_json::from_value(found["plots"].clone()).expect("rectangles");
    assert_eq!(plots.len(), 11);
    // the colours of the port's marks in either theme (style.css)
    let themes =
        [(false, [0xff, 0xff, 0xff], [0xc2, 0x4e, 0x00]), (true, [0x14, 0x18, 0x1d], [0xf5, 0x9a, 0x3c])];
    // the last plot's lower edge: no more of the page is needed
    let height = plots.iter().map(|plot| plot[1] + plot[3]).max().expect("plots") + 20;
    for (is_dark, paper, port) in themes {
        let picture = screenshot(&html, is_dark, height);
        assert_eq!(picture.at(3, 3), paper, "dark: {is_dark}");
        for (index, plot) in plots.iter().enumerate() {
            let [left, top, width, height] = [plot[0], plot[1], plot[2], plot[3]].map(|side| side as usize);
            let inside = (top..top + height).flat_map(|y| (left..left + width).map(move |x| (x, y)));
            let drawn = inside.clone().filter(|(x, y)| picture.at(*x, *y) != paper).count();
            assert!(drawn * 100 > width * height, "figure {}: {drawn} pixels are drawn", index + 1);
            let marks = inside.filter(|(x, y)| picture.at(*x, *y) == port).count();
            let has_port = index < 8;
            assert_eq!(marks > 50, has_port, "figure {}: {marks} pixels of the port's colour", index + 1);
        }
    }
}

#[test]
fn no_label_of_a_plot_covers_another_or_is_cut_off() {
    for record in records() {
        let found = measure(&render(&record, Format::Html), DESKTOP);
        assert!(found["texts"].as_u64().is_some_and(|texts| texts > 200), "{}", found["texts"]);
        assert_eq!(list(&found, "overlaps"), Vec::<String>::new());
        assert_eq!(list(&found, "outside"), Vec::<String>::new());
        assert_eq!(found["scripts"], 0);
    }
}

#[test]
fn nothing_is_wider_than_a_phone() {
    for record in records() {
        let found = measure(&render(&record, Format::Html), PHONE);
        assert_eq!(found["view"], PHONE);
        assert!(found["width"].as_u64() <= Some(u64::from(PHONE)), "the page is {} wide", found["width"]);
        assert_eq!(list(&found, "overlaps"), Vec::<String>::new());
    }
}

#[test]
fn the_matrix_of_planted_bugs_fits_a_phone_and_shades_its_cells_in_both_themes() {
    let html = matrix(&support::matrix::made_up(), Format::Html);
    let found = measure(&html, PHONE);
    assert!(found["width"].as_u64() <= Some(u64::from(PHONE)), "the page is {} wide", found["width"]);
    assert_eq!(found["scripts"], 0);
    // the third shade in either theme (style.css)
    for (is_dark, shade) in [(false, [0x4a, 0x90, 0xc4]), (true, [0x5a, 0x9f, 0xd0])] {
        let picture = screenshot(&html, is_dark, 1600);
        let shaded = picture.pixels.iter().filter(|pixel| **pixel == shade).count();
        assert!(shaded > 100, "dark: {is_dark}: {shaded} pixels");
    }
}

#[test]
fn the_measurement_finds_a_wide_page_and_colliding_labels() {
    let page = "<!doctype html><div style='width:800px'>wide</div><div class=plots><svg width=100 height=50>\
                <text x=10 y=20>one</text><text x=14 y=22>two</text>\
                <text x=90 y=20>outside</text></svg></div>";
    let found = measure(page, PHONE);
    assert!(found["width"].as_u64() > Some(u64::from(PHONE)));
    assert_eq!(list(&found, "overlaps"), ["\"one / two\""]);
    assert_eq!(list(&found, "outside"), ["\"outside\""]);
}
