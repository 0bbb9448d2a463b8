//! A panel: series of points over a numeric x axis, with limits as lines.
//!
//! Numbers that the y axis cannot show stand in gutters: infinite above it; zero and less (on a
//! logarithmic axis) and NaN below it, each with its word as the tick. Panels of one figure have the same
//! gutters and margins, so that their axes are level.

use super::at;
use super::mark::{Look, mark};
use super::scale::{Scale, Spot};
use crate::number::number;
use maud::{Markup, html};

const WIDTH: f64 = 440.0;
const LEFT: f64 = 46.0;
/// Room to the right of the plot, for half a tick label or for the labels of limits.
const RIGHT: f64 = 18.0;
const RIGHT_WITH_LIMITS: f64 = 72.0;
const TOP: f64 = 44.0;
const PLOT_HEIGHT: f64 = 210.0;
const BOTTOM: f64 = 40.0;
/// Height of a gutter.
const GUTTER: f64 = 18.0;
/// Between the plot and its gutters, so that the words of both have room.
const GAP: f64 = 5.0;
/// Smallest distance between two labels of limits, of two lines each.
const LABEL_HEIGHT: f64 = 27.0;

/// An axis.
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// How.
    pub scale: Scale,
}

/// Points that belong together.
pub struct Series {
    /// What they are.
    pub name: String,
    /// How they look.
    pub look: Look,
    /// `(x, y)` in the axes' units, in the order of x; x is on the axis.
    pub points: Vec<(f64, f64)>,
}

/// A limit, drawn as a line.
#[derive(Clone)]
pub struct Limit {
    /// What it limits.
    pub name: String,
    /// How: "≤ 5e-6".
    pub bound: String,
    /// Where, on the y axis.
    pub at: f64,
}

/// A panel.
pub struct Panel {
    /// Its title.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// Drawn in this order.
    pub series: Vec<Series>,
    /// Those that the y axis shows are drawn.
    pub limits: Vec<Limit>,
    /// Ranges of x that are shaded.
    pub bands: Vec<(f64, f64)>,
}

/// Which gutters the panels of a figure have, and where things are in them.
struct Layout {
    zero: bool,
    nan: bool,
    infinite: bool,
    limits: bool,
}

impl Layout {
    fn of(panels: &[Panel]) -> Self {
        let spots: Vec<Spot> = panels
            .iter()
            .flat_map(|panel| {
                let points = panel.series.iter().flat_map(|series| &series.points);
                points.map(|(_, y)| panel.y.scale.spot(*y))
            })
            .collect();
        let has = |spot: Spot| spots.contains(&spot);
        Self {
            zero: has(Spot::Zero),
            nan: has(Spot::Nan),
            infinite: has(Spot::Infinite),
            limits: panels.iter().any(|panel| !panel.limits.is_empty()),
        }
    }

    fn top(&self) -> f64 {
        TOP + if self.infinite { GUTTER + GAP } else { 0.0 }
    }

    fn floor(&self) -> f64 {
        self.top() + PLOT_HEIGHT
    }

    fn bottom(&self) -> f64 {
        let gutters = u8::from(self.zero) + u8::from(self.nan);
        self.floor() + GUTTER * f64::from(gutters) + if gutters > 0 { GAP } else { 0.0 }
    }

    fn right(&self) -> f64 {
        WIDTH - if self.limits { RIGHT_WITH_LIMITS } else { RIGHT }
    }

    fn x_at(&self, share: f64) -> f64 {
        LEFT + share * (self.right() - LEFT)
    }

    /// Panics if the number is not on the axis.
    fn x(&self, scale: &Scale, value: f64) -> f64 {
        let Spot::At(share) = scale.spot(value) else { panic!("{value} is not on the x axis") };
        self.x_at(share)
    }

    fn y(&self, spot: Spot) -> f64 {
        match spot {
            Spot::At(share) => self.floor() - share * PLOT_HEIGHT,
            Spot::Infinite => TOP + GUTTER / 2.0,
            Spot::Zero => self.floor() + GAP + GUTTER / 2.0,
            Spot::Nan => self.bottom() - GUTTER / 2.0,
        }
    }

    /// The gutters' words and where they are.
    fn gutters(&self) -> Vec<(&'static str, f64)> {
        let all = [
            (self.infinite, "inf", Spot::Infinite),
            (self.zero, "≤ 0", Spot::Zero),
            (self.nan, "NaN", Spot::Nan),
        ];
        let there = all.into_iter().filter(|(is_there, ..)| *is_there);
        there.map(|(_, word, spot)| (word, self.y(spot))).collect()
    }
}

/// Draws the panels of a figure.
pub fn panels(panels: &[Panel]) -> Vec<Markup> {
    let layout = Layout::of(panels);
    panels.iter().map(|one| panel(one, &layout)).collect()
}

fn panel(panel: &Panel, layout: &Layout) -> Markup {
    let height = layout.bottom() + BOTTOM;
    html! {
        svg class="panel" viewBox={ "0 0 " (at(WIDTH)) " " (at(height)) } role="img"
            aria-label={ (panel.title) ": " (panel.y.label) " over " (panel.x.label) ", "
                (panel.series.len()) " series; the numbers are in the table below" } {
            text class="panel-title" x="0" y="13" { (panel.title) }
            text class="axis-title" x="0" y="32" { "↑ " (panel.y.label) }
            (bands(panel, layout))
            (y_axis(panel, layout))
            (x_axis(panel, layout))
            (limit_lines(panel, layout))
            @for series in &panel.series { (line(series, panel, layout)) }
            @for series in &panel.series { (marks(series, panel, layout)) }
            (limit_labels(panel, layout))
        }
    }
}

fn bands(panel: &Panel, layout: &Layout) -> Markup {
    html! {
        @for (from, to) in &panel.bands {
            @let (from, to) = (layout.x(&panel.x.scale, *from), layout.x(&panel.x.scale, *to));
            rect class="band" x=(at(from)) y=(at(layout.top())) width=(at(to - from))
                height=(at(PLOT_HEIGHT)) {}
        }
    }
}

fn y_axis(panel: &Panel, layout: &Layout) -> Markup {
    let right = at(layout.right());
    html! {
        @for (share, word) in panel.y.scale.ticks() {
            @let y = layout.y(Spot::At(share));
            path class="grid" d={ "M" (at(LEFT)) " " (at(y)) "H" (right) } {}
            text class="tick end" x=(at(LEFT - 7.0)) y=(at(y + 3.8)) { (word) }
        }
        @for (word, y) in layout.gutters() {
            rect class="gutter" x=(at(LEFT)) y=(at(y - GUTTER / 2.0 + 1.0)) width=(at(layout.right() - LEFT))
                height=(at(GUTTER - 2.0)) {}
            text class="tick end" x=(at(LEFT - 7.0)) y=(at(y + 3.8)) { (word) }
        }
    }
}

fn x_axis(panel: &Panel, layout: &Layout) -> Markup {
    let y = layout.bottom();
    html! {
        path class="axis" d={ "M" (at(LEFT)) " " (at(y)) "H" (at(layout.right())) } {}
        @for (share, word) in panel.x.scale.ticks() {
            @let x = layout.x_at(share);
            path class="axis" d={ "M" (at(x)) " " (at(y)) "v4" } {}
            text class="tick middle" x=(at(x)) y=(at(y + 16.0)) { (word) }
        }
        text class="axis-title end" x=(at(layout.right())) y=(at(y + 34.0)) { (panel.x.label) " →" }
    }
}

/// The limits that the axis shows, from the lowest up.
fn limits<'a>(panel: &'a Panel, layout: &Layout) -> Vec<(&'a Limit, f64)> {
    let shown = panel.limits.iter().filter_map(|limit| match panel.y.scale.spot(limit.at) {
        spot @ Spot::At(_) => Some((limit, layout.y(spot))),
        _ => None,
    });
    let mut shown: Vec<(&Limit, f64)> = shown.collect();
    shown.sort_by(|a, b| b.1.total_cmp(&a.1));
    shown
}

fn limit_lines(panel: &Panel, layout: &Layout) -> Markup {
    html! {
        @for (_, y) in limits(panel, layout) {
            path class="limit" d={ "M" (at(LEFT)) " " (at(y)) "H" (at(layout.right() + 3.0)) } {}
        }
    }
}

/// Labels stand beside their lines, or higher where the next one's label would be.
fn limit_labels(panel: &Panel, layout: &Layout) -> Markup {
    let mut labels = limits(panel, layout);
    for index in 1..labels.len() {
        labels[index].1 = labels[index].1.min(labels[index - 1].1 - LABEL_HEIGHT);
    }
    let x = at(layout.right() + 7.0);
    html! {
        @for (limit, y) in labels {
            text class="limit-label" x=(x) y=(at(y - 2.0)) { (limit.name) }
            text class="limit-label" x=(x) y=(at(y + 10.0)) { (limit.bound) }
        }
    }
}

/// The line through the points that the axis shows, broken at those it does not.
fn line(series: &Series, panel: &Panel, layout: &Layout) -> Markup {
    let mut path = String::new();
    let mut is_broken = true;
    for (x, y) in &series.points {
        let spot = panel.y.scale.spot(*y);
        if let Spot::At(_) = spot {
            path.push(if is_broken { 'M' } else { 'L' });
            path.push_str(&format!("{} {}", at(layout.x(&panel.x.scale, *x)), at(layout.y(spot))));
        }
        is_broken = !matches!(spot, Spot::At(_));
    }
    html! { path class={ "line " (series.look.classes()) } d=(path) {} }
}

fn marks(series: &Series, panel: &Panel, layout: &Layout) -> Markup {
    let size = if series.points.len() > 24 { 2.0 } else { 3.4 };
    html! {
        @for (x, y) in &series.points {
            @let spot = panel.y.scale.spot(*y);
            @let look = Look { hollow: series.look.hollow || !matches!(spot, Spot::At(_)), ..series.look };
            @let (at_x, at_y) = (number(*x), number(*y));
            @let says = format!("{}, {} {at_x}: {at_y}", series.name, panel.x.label);
            (mark(look, layout.x(&panel.x.scale, *x), layout.y(spot), size, &says))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mark::Shape;
    use super::*;

    #[test]
    fn a_point_is_drawn_where_its_logarithm_is_and_a_nan_below_the_axis() {
        let look = Look { colour: "ink", shape: Shape::Circle, hollow: false };
        let points = vec![(0.0, 1e-4), (1.0, f64::NAN)];
        let drawn = panels(&[Panel {
            title: "Errors".into(),
            x: Axis { label: "layer".into(), scale: Scale::Linear { low: -0.5, high: 1.5 } },
            y: Axis { label: "error".into(), scale: Scale::Log { low: -7, high: -2 } },
            series: vec![Series { name: "port".into(), look, points }],
            limits: Vec::new(),
            bands: Vec::new(),
        }]);
        let drawn = drawn[0].clone().into_string();
        // x: 46 + 0.25 * (422 - 46) = 140, less the radius of 3.4; y: 44 + 210 * (1 - 3/5) = 128
        assert!(drawn.contains(r#"class="mark ink" d="M136.6 128a"#), "{drawn}");
        // x: 46 + 0.75 * 376 = 328; y: the middle of the gutter, 44 + 210 + 5 + 9 = 268
        assert!(drawn.contains(r#"class="mark ink hollow" d="M324.6 268a"#), "{drawn}");
        assert!(drawn.contains(">NaN</text>") && drawn.contains("port, layer 1: NaN"), "{drawn}");
    }
}
