//! Marks, and the legend that names them. Who is told by colour and by shape, never by colour alone.

use super::at;
use maud::{Markup, html};

/// The shape of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A circle.
    Circle,
    /// A square.
    Square,
    /// A triangle.
    Triangle,
    /// A square on its corner.
    Diamond,
}

/// How a series looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The CSS class of its colour.
    pub colour: &'static str,
    /// The shape of its marks.
    pub shape: Shape,
    /// Hollow marks and a dashed line.
    pub hollow: bool,
}

impl Look {
    /// The classes of what is drawn in it.
    pub fn classes(self) -> String {
        format!("{}{}", self.colour, if self.hollow { " hollow" } else { "" })
    }
}

/// The outline of a mark around a point; `size` is half its width.
pub fn outline(shape: Shape, x: f64, y: f64, size: f64) -> String {
    let s = |factor: f64| at(size * factor);
    let start = |dx: f64, dy: f64| format!("M{} {}", at(x + dx * size), at(y + dy * size));
    match shape {
        Shape::Circle => {
            format!("{}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z", start(-1.0, 0.0), r = s(1.0), d = s(2.0))
        }
        Shape::Square => format!("{}h{d}v{d}h-{d}z", start(-0.9, -0.9), d = s(1.8)),
        Shape::Triangle => format!("{}l{} {}h-{}z", start(0.0, -1.2), s(1.15), s(2.1), s(2.3)),
        Shape::Diamond => {
            format!("{}l{d} {d}l-{d} {d}l-{d} -{d}z", start(0.0, -1.25), d = s(1.25))
        }
    }
}

/// A mark with its tooltip.
pub fn mark(look: Look, x: f64, y: f64, size: f64, says: &str) -> Markup {
    html! { path class={ "mark " (look.classes()) } d=(outline(look.shape, x, y, size)) { title { (says) } } }
}

/// Names of looks, for a figure; `limits` adds the line of limits.
pub fn legend(entries: &[(Look, &str)], limits: bool) -> Markup {
    html! {
        ul class="legend" {
            @for (look, name) in entries {
                li {
                    svg viewBox="0 0 30 12" width="30" height="12" aria-hidden="true" {
                        path class={ "line " (look.classes()) } d="M1 6H29" {}
                        path class={ "mark " (look.classes()) } d=(outline(look.shape, 15.0, 6.0, 3.6)) {}
                    }
                    (name)
                }
            }
            @if limits {
                li {
                    svg viewBox="0 0 30 12" width="30" height="12" aria-hidden="true" {
                        path class="limit" d="M1 6H29" {}
                    }
                    "limit"
                }
            }
        }
    }
}
