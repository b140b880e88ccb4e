//! A chart of lines, bars or stacks between two axes.

use super::canvas::{Canvas, colour};
use super::panel::{Frame, Panel, Shape};
use super::scale::{Scale, number};
use crate::{Row, X};

/// Space left of the vertical axis, in pixels.
const SPACE_LEFT: f64 = 48.0;

/// Space above the axes for the panel's title and the unit, in pixels.
const SPACE_ABOVE: f64 = 44.0;

/// Space below the axes, in pixels.
const SPACE_BELOW: f64 = 40.0;

/// The share of a place on the horizontal axis that its bars fill.
const BAR_SHARE_OF_PLACE: f64 = 0.76;

/// The content of a pair of axes.
struct Plot<'a> {
    area: Frame,
    scale: Scale,
    places: Vec<X>,
    series: &'a [String],
    rows: &'a [&'a Row],
}

/// Draws a chart of lines, bars or stacks.
pub fn draw(canvas: &mut Canvas, frame: Frame, panel: &Panel, rows: &[&Row], series: &[String]) {
    let area = Frame {
        left: frame.left + SPACE_LEFT,
        top: frame.top + SPACE_ABOVE,
        width: frame.width - SPACE_LEFT,
        height: frame.height - SPACE_ABOVE - SPACE_BELOW,
    };
    let places = places(rows);
    let values = rows.iter().flat_map(|row| [Some(row.ours), row.paper]).flatten();
    let scale = match panel.shape {
        Shape::Lines { log: true } => Scale::log(values),
        Shape::Stack => Scale::linear(
            places
                .iter()
                .map(|place| rows.iter().filter(|row| row.x == *place).map(|row| row.ours).sum::<f64>()),
        ),
        _ => Scale::linear(values),
    };
    let plot = Plot { area, scale, places, series, rows };
    canvas.text(frame.left, frame.top + 13.0, "head", "start", panel.title);
    canvas.text(frame.left, frame.top + 31.0, "quiet", "start", panel.y);
    plot.axes(canvas, panel.x);
    match panel.shape {
        Shape::Lines { .. } => plot.lines(canvas),
        Shape::Stack => plot.stacks(canvas),
        _ => plot.bars(canvas),
    }
}

/// The places on the horizontal axis: numbers in ascending order, names in the order of the rows.
fn places(rows: &[&Row]) -> Vec<X> {
    let mut places: Vec<X> = Vec::new();
    for row in rows {
        if !places.contains(&row.x) {
            places.push(row.x.clone());
        }
    }
    places.sort_by(|a, b| match (a, b) {
        (X::Number(a), X::Number(b)) => a.total_cmp(b),
        _ => std::cmp::Ordering::Equal,
    });
    places
}

fn tip(row: &Row) -> String {
    let unit = row.unit.name();
    let paper = row.paper.map(|paper| format!(", published {} {unit}", number(paper))).unwrap_or_default();
    format!("{}, {}: {} {unit}{paper}", row.series, row.x, number(row.ours))
}

impl Plot<'_> {
    fn pitch(&self) -> f64 {
        self.area.width / self.places.len().max(1) as f64
    }

    /// The horizontal position of the middle of a place, in pixels.
    fn x(&self, place: usize) -> f64 {
        self.area.left + (place as f64 + 0.5) * self.pitch()
    }

    fn y(&self, value: f64) -> f64 {
        self.area.top + self.area.height * (1.0 - self.scale.at(value))
    }

    fn floor(&self) -> f64 {
        self.area.top + self.area.height
    }

    fn axes(&self, canvas: &mut Canvas, label: &str) {
        let (left, right) = (self.area.left, self.area.left + self.area.width);
        for tick in &self.scale.ticks {
            let y = self.y(*tick);
            canvas.line((left, y), (right, y), "grid");
            canvas.text(left - 6.0, y + 4.0, "quiet", "end", &number(*tick));
        }
        canvas.line((left, self.floor()), (right, self.floor()), "axis");
        for (place, x) in self.places.iter().enumerate() {
            let text = match x {
                X::Number(value) => number(*value),
                X::Name(name) => name.clone(),
            };
            canvas.text(self.x(place), self.floor() + 16.0, "", "middle", &text);
        }
        canvas.text(left + self.area.width / 2.0, self.floor() + 34.0, "quiet", "middle", label);
    }

    /// The rows of a series with their places, from left to right.
    fn rows_of_series(&self, series: &str) -> Vec<(usize, &Row)> {
        let mut along: Vec<(usize, &Row)> = self
            .rows
            .iter()
            .filter(|row| row.series == series)
            .filter_map(|row| Some((self.places.iter().position(|place| *place == row.x)?, *row)))
            .collect();
        along.sort_by_key(|(place, _)| *place);
        along
    }

    fn lines(&self, canvas: &mut Canvas) {
        for (index, series) in self.series.iter().enumerate() {
            let (index, along) = (colour(index), self.rows_of_series(series));
            let paper: Vec<(usize, f64)> =
                along.iter().filter_map(|(place, row)| Some((*place, row.paper?))).collect();
            let ours: Vec<(f64, f64)> =
                along.iter().map(|(place, row)| (self.x(*place), self.y(row.ours))).collect();
            // Published numbers are joined only between neighbouring places, since those in between are unknown.
            for part in paper.chunk_by(|(a, _), (b, _)| a + 1 == *b) {
                let part: Vec<(f64, f64)> = part.iter().map(|(x, y)| (self.x(*x), self.y(*y))).collect();
                canvas.path(&part, &format!("dashed l{index}"));
            }
            canvas.path(&ours, &format!("l{index}"));
            // The larger rings lie below the dots: both are visible where the numbers are equal.
            for (place, value) in paper {
                canvas.ring(self.x(place), self.y(value), &format!("l{index}"), None);
            }
            for ((x, y), (_, row)) in ours.into_iter().zip(along) {
                canvas.dot(x, y, &format!("s{index}"), Some(&tip(row)));
            }
        }
    }

    fn bars(&self, canvas: &mut Canvas) {
        let shown: Vec<usize> = (0..self.series.len())
            .filter(|index| {
                self.series.get(*index).is_some_and(|name| self.rows.iter().any(|row| row.series == *name))
            })
            .collect();
        let beside = if self.rows.iter().any(|row| row.paper.is_some()) { 2.0 } else { 1.0 };
        let width = self.pitch() * BAR_SHARE_OF_PLACE / (shown.len().max(1) as f64 * beside);
        for (nth, index) in shown.iter().enumerate() {
            let Some(series) = self.series.get(*index) else { continue };
            let index = colour(*index);
            for (place, row) in self.rows_of_series(series) {
                let left =
                    self.x(place) - self.pitch() * BAR_SHARE_OF_PLACE / 2.0 + nth as f64 * beside * width;
                if let Some(paper) = row.paper {
                    let y = self.y(paper);
                    let class = format!("ring dashed l{index}");
                    canvas.rect(left + 1.0, y, (width - 2.0).max(1.0), self.floor() - y, &class);
                }
                let y = self.y(row.ours);
                let left = left + (beside - 1.0) * width;
                let class = format!("s{index}");
                let tip = tip(row);
                canvas.tipped_rect(left, y, (width - 1.0).max(1.0), self.floor() - y, &class, Some(&tip));
            }
        }
    }

    fn stacks(&self, canvas: &mut Canvas) {
        let width = self.pitch() * BAR_SHARE_OF_PLACE;
        for (place, x) in self.places.iter().enumerate() {
            let mut below = 0.0;
            for (index, series) in self.series.iter().enumerate() {
                for row in self.rows.iter().filter(|row| row.x == *x && row.series == *series) {
                    let (bottom, top) = (self.y(below), self.y(below + row.ours));
                    let class = format!("s{}", colour(index));
                    let left = self.x(place) - width / 2.0;
                    canvas.tipped_rect(left, top, width, bottom - top, &class, Some(&tip(row)));
                    below += row.ours;
                }
            }
        }
    }
}
