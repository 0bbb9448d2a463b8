//! What must be in every document, whatever its form.

mod support;

use diff::gate::record::Record;
use reports::{Format, layers_csv, render, terminal};
use support::{HOSTILE, record, troubled};

/// Text as it stands in an HTML element.
fn in_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Text as it stands in a Markdown table.
fn in_markdown(text: &str) -> String {
    let text = text.replace('\n', " ").replace('&', "&amp;").replace('<', "&lt;");
    text.replace('|', "\\|").replace('[', "\\[").replace(']', "\\]")
}

/// The rows of a table of Markdown that start with these cells.
fn rows<'a>(document: &'a str, cells: &[&str]) -> Vec<&'a str> {
    let starts = |line: &&str| {
        let mut found = line.split(" | ").map(|cell| cell.trim_matches(['|', ' ']));
        line.starts_with('|') && cells.iter().all(|cell| found.next() == Some(cell))
    };
    document.lines().filter(starts).collect()
}

#[test]
fn every_finding_is_in_every_document() {
    for record in [troubled(10, 10, 9), record(50, 45, 48)] {
        let [markdown, html] = [Format::Md, Format::Html].map(|format| render(&record, format));
        let console = terminal(&record);
        for found in &record.findings {
            let set = found.set.as_deref().unwrap_or("-");
            for text in [&markdown, &console] {
                let found = [found.check.as_str(), &found.leg, set];
                assert_eq!(rows(text, &found).len(), 1, "{found:?} is in one row");
            }
            let row = format!(">{}</th><td>{}</td><td>{set}</td>", found.check, found.leg);
            assert!(html.contains(&row), "{row}");
        }
    }
}

#[test]
fn every_control_and_each_of_its_legs_is_in_every_document() {
    for record in [troubled(10, 10, 9), record(50, 45, 48)] {
        let [markdown, html] = [Format::Md, Format::Html].map(|format| render(&record, format));
        for control in &record.controls {
            let name = in_markdown(&control.mutant);
            // one row per leg, and one row that says what it is
            let expected = control.legs.len().max(1) + 1;
            if control.mutant != HOSTILE {
                assert_eq!(rows(&markdown, &[&name, &control.side]).len(), expected, "{name}");
            }
            assert!(markdown.contains(&name), "{name}");
            assert!(html.contains(&in_html(&control.mutant)) && html.contains(&control.what), "{name}");
            for leg in &control.legs {
                let row = format!("</th><td>{}</td><td>{}</td><td>{}</td>", control.side, leg.check, leg.leg);
                assert!(html.contains(&row), "{row}");
            }
        }
    }
}

#[test]
fn what_is_wrong_is_spelled_out() {
    let record = troubled(10, 10, 9);
    let console = terminal(&record);
    for text in [render(&record, Format::Md), console.clone()] {
        assert!(
            rows(&text, &["forced.kl", "mean", "short", "FAIL", "NaN"]).len() == 1,
            "a NaN fails and is shown"
        );
        assert!(
            rows(&text, &["layer.branch", "attn.median", "short", "FAIL", "6.1e-6", "≤ 5e-6", "1.22"]).len()
                == 1
        );
        assert!(rows(&text, &["free.top1", "shortfall", "short", "VOID"]).len() == 1);
        assert!(rows(&text, &["renorm_topk", "reference"])[0].contains("NOT CAUGHT"));
        assert!(rows(&text, &["eps_times_ten", "checkpoint"])[0].contains("caught, weak"));
        assert!(rows(&text, &["swap_sandwich_norms", "reference"])[0].contains("bound to no leg"));
    }
    let verdict = console.find("Verdict: FAIL").expect("the verdict is there");
    assert!(console[verdict..].contains("layer.branch attn.median failed"), "reasons follow the verdict");
    assert!(!console[verdict..].contains('|') || console[verdict..].contains("a|b"), "no table follows it");
}

#[test]
fn hostile_names_stay_text() {
    let record = troubled(10, 10, 9);
    let [markdown, html] = [Format::Md, Format::Html].map(|format| render(&record, format));
    assert!(!html.contains("<script") && !html.contains("<img"), "no element of theirs");
    assert!(
        !markdown.contains("<script") && !markdown.contains("\n# c"),
        "no element and no heading of theirs"
    );
    assert!(!terminal(&record).contains("\n# c"));
    let tables = markdown.lines().filter(|line| line.starts_with('|'));
    let mut columns = None;
    for line in markdown.lines() {
        let bars = line.replace("\\|", "").matches('|').count();
        if line.starts_with('|') {
            assert_eq!(*columns.get_or_insert(bars), bars, "{line}");
        } else {
            columns = None;
        }
    }
    assert!(tables.count() > 100);
}

#[test]
fn control_characters_do_not_reach_a_terminal() {
    let mut record = record(2, 1, 1);
    record.findings[0].place = "\u{1b}[2Jgone".into();
    assert!(!terminal(&record).contains('\u{1b}'));
    assert!(!render(&record, Format::Md).contains('\u{1b}'));
}

#[test]
fn html_needs_neither_network_nor_script() {
    let html = render(&record(10, 10, 9), Format::Html);
    for word in ["http:", "https:", "src=", "<script", "url(", "@import", "<link", "javascript:", "onload"] {
        assert!(!html.contains(word), "`{word}`");
    }
    let links = html.match_indices("href=\"").map(|(at, word)| &html[at + word.len()..]);
    let anchors: Vec<&str> = links.filter_map(|rest| rest.split('"').next()).collect();
    assert!(!anchors.is_empty());
    for anchor in anchors {
        let id = format!("id=\"{}\"", anchor.strip_prefix('#').expect("a place in the file"));
        assert!(html.contains(&id), "{anchor} leads somewhere");
    }
}

#[test]
fn every_figure_has_a_caption_and_its_numbers_as_a_table() {
    let html = render(&troubled(10, 10, 9), Format::Html);
    let figures: Vec<&str> =
        html.split("<figure").skip(1).map(|rest| rest.split("</figure>").next().unwrap()).collect();
    // errors, router, KL and top-1 of two sets; controls; damage of two sets
    assert_eq!(figures.len(), 11);
    for figure in figures {
        assert!(figure.contains("<figcaption>") && figure.contains("<details>"), "{figure}");
        assert!(figure.contains("<svg") && figure.contains("role=\"img\"") && figure.contains("aria-label="));
        let table = figure.split("<table>").nth(1).expect("a table");
        assert!(table.contains("scope=\"col\"") && table.contains("scope=\"row\""), "{table}");
    }
}

#[test]
fn a_figure_shows_every_layer_of_every_arm() {
    let html = render(&record(50, 0, 1), Format::Html);
    let figure = html.split("<figure").nth(1).expect("the first figure").split("</figure>").next().unwrap();
    let marks = figure.split("class=\"plots\"").nth(1).unwrap().matches("class=\"mark ").count();
    // three arms, median and largest, two branches, 50 layers
    assert_eq!(marks, 3 * 2 * 2 * 50);
    assert!(figure.contains("port f32, median, layer 49:"), "marks say what they are");
}

#[test]
fn values_that_an_axis_cannot_show_are_drawn_beside_it() {
    let html = render(&troubled(10, 10, 9), Format::Html);
    let figures: Vec<&str> = html.split("<figure").skip(1).collect();
    for word in [">NaN</text>", ">≤ 0</text>", ">inf</text>"] {
        assert!(figures[0].contains(word), "the errors of layers have a place for {word}");
    }
    assert!(figures[0].contains("port f32, median, layer 2: NaN"));
    assert!(figures[0].contains("port f32, largest, layer 3: 0"));
    assert!(figures[1].contains("emulation, layer 6: inf"));
    assert!(figures[2].contains("sorted floor (port f32), position (middle of bucket, tokens) 96: 0"));
    assert!(html.contains("eps_times_ten, damage: NaN"));
}

#[test]
fn the_heat_map_tells_caught_weak_and_missed_by_words() {
    let html = render(&troubled(10, 10, 9), Format::Html);
    let cell = |says: &str| {
        let at = html.find(says).unwrap_or_else(|| panic!("{says}"));
        let start = html[..at].rfind("<g class=\"").expect("in a cell");
        let end = at + html[at..].find("</g>").expect("in a cell");
        html[start..end].to_owned()
    };
    let missed = cell("renorm_topk on static.census: margin 0.310, NOT CAUGHT");
    assert!(missed.contains("cell missed") && missed.contains(">×</text>"), "{missed}");
    let weak = cell("eps_times_ten on static.weights: margin 9.96, caught, weak");
    assert!(weak.contains("cell weak") && weak.contains(">0.9</text>"), "a weak margin is not 1.0: {weak}");
    let nan = cell("one_plus_w_norm on harness.forcing_exact: margin NaN");
    assert!(nan.contains(">NaN</text>"), "{nan}");
}

#[test]
fn a_demonstration_says_so_before_the_verdict() {
    let mut record = record(2, 1, 1);
    record.inputs.port_mutant = Some("renorm_topk".into());
    record.inputs.disabled_control = Some("eps_times_ten".into());
    for format in [Format::Md, Format::Html] {
        let text = render(&record, format);
        let [bug, control, checks] =
            ["“renorm_topk” was planted", "“eps_times_ten” was switched off", "Excess is"]
                .map(|words| text.find(words).unwrap_or_else(|| panic!("{words}")));
        assert!(bug < checks && control < checks);
    }
    assert!(terminal(&record).contains("Demonstration"));
}

#[test]
fn the_verdict_says_what_it_means_and_what_was_not_seen() {
    let mut judged = record(2, 1, 1);
    for format in [Format::Md, Format::Html] {
        let text = render(&judged, format);
        for words in
            ["PASS", "this port passed this gate", "golden outputs share", "Metal: not run", "kernel.gather"]
        {
            assert!(text.contains(words), "{words}");
        }
    }
    judged.environment.sides[1].device = "metal".into();
    assert!(!render(&judged, Format::Md).contains("Metal: not run"));
    judged.verdict = None;
    assert!(render(&judged, Format::Md).contains("**unfinished**"));
}

#[test]
fn csv_reads_back_to_the_numbers_of_the_record() {
    let record = troubled(10, 10, 9);
    assert_eq!(render(&record, Format::Csv), layers_csv(&record));
    let text = layers_csv(&record);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().expect("a header").clone();
    let rows: Vec<csv::StringRecord> =
        reader.records().collect::<Result<_, _>>().expect("rows of one length");
    assert_eq!(rows.len(), 20);
    let cell = |row: &csv::StringRecord, name: &str| {
        row[header.iter().position(|column| column == name).unwrap_or_else(|| panic!("{name}"))].to_owned()
    };
    let layers = record.sets.iter().flat_map(|set| set.layers.iter().map(move |layer| (&set.name, layer)));
    for (row, (set, layer)) in rows.iter().zip(layers) {
        let number = |name: &str| cell(row, name).parse::<f64>().expect("a number").to_bits();
        assert_eq!((cell(row, "set"), cell(row, "layer")), (set.clone(), layer.layer.to_string()));
        assert_eq!(number("f32_attn_p50_rel_l2"), layer.f32.attn.p50.to_bits());
        assert_eq!(number("f32_moe_max_rel_l2"), layer.f32.moe.max.to_bits());
        assert_eq!(number("emulation_moe_p99_rel_l2"), layer.emulation.moe.p99.to_bits());
        assert_eq!(number("router_bf16_free_largest_z"), layer.router_bf16_free.largest_z.to_bits());
        assert_eq!(cell(row, "router_bf16_differing_rows"), layer.router_bf16.differing.count.to_string());
    }
}

#[test]
fn json_reads_back_to_an_equal_record() {
    let whole = record(10, 10, 9);
    let text = render(&whole, Format::Json);
    assert!(text.ends_with("}\n"));
    assert_eq!(serde_json::from_str::<Record>(&text).expect("a record"), whole);
    let troubled = troubled(10, 10, 9);
    let read: Record = serde_json::from_str(&render(&troubled, Format::Json)).expect("a record with NaN");
    assert_eq!(format!("{read:?}"), format!("{troubled:?}"), "NaN equals no NaN, so by their words");
}

#[test]
fn a_record_of_nothing_is_rendered_too() {
    let mut empty = record(0, 0, 1);
    (empty.findings, empty.sets, empty.verdict) = (Vec::new(), Vec::new(), None);
    (empty.environment.sides, empty.times.phases, empty.inputs.lock) = (Vec::new(), Vec::new(), None);
    for format in [Format::Md, Format::Csv, Format::Json, Format::Html] {
        assert!(render(&empty, format).ends_with('\n'));
    }
    assert!(terminal(&empty).contains("Verdict: unfinished"));
}
