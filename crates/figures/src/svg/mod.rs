//! Figures as SVG: axes with units, measured numbers solid, published ones hollow and dashed.
//!
//! A picture has its own background, light or dark as the reader prefers, and needs no fonts from outside.

mod canvas;
mod deviation;
mod panel;
mod plot;
mod scale;

pub use panel::{Panel, Shape};
pub use scale::number;

use super::Row;
use canvas::Canvas;
use panel::Frame;

/// Width of every picture, in pixels.
pub const WIDTH: f64 = 720.0;

/// Space around a picture and between its panels, in pixels.
const MARGIN: f64 = 16.0;

/// Height of the title's line, in pixels.
const TITLE_HEIGHT: f64 = 26.0;

/// Height of a line of the legend, in pixels.
const LEGEND_LINE_HEIGHT: f64 = 20.0;

/// Height of a panel with axes, in pixels.
const PANEL_HEIGHT: f64 = 270.0;

/// Number of panels side by side.
const PANELS_PER_LINE: usize = 2;

/// Draws a figure as SVG.
pub fn draw(title: &str, panels: &[Panel], rows: &[Row]) -> String {
    let series = series(panels, rows);
    let legend = legend_lines(panels, &series);
    let top = MARGIN + TITLE_HEIGHT + legend.len() as f64 * LEGEND_LINE_HEIGHT + 8.0;
    let frames = frames(panels, rows, top);
    let bottom = frames.iter().map(|frame| frame.top + frame.height).fold(top, f64::max);
    let mut canvas = Canvas::new(title, WIDTH, bottom + MARGIN);
    canvas.text(MARGIN, MARGIN + 14.0, "title", "start", title);
    for (line, entries) in legend.iter().enumerate() {
        let y = MARGIN + TITLE_HEIGHT + line as f64 * LEGEND_LINE_HEIGHT + 10.0;
        for (x, entry) in entries {
            entry.draw(&mut canvas, *x, y);
        }
    }
    for (panel, frame) in panels.iter().zip(frames) {
        let shown: Vec<&Row> = rows.iter().filter(|row| row.figure == panel.figure).collect();
        match panel.shape {
            Shape::Deviation { allowed } => deviation::draw(&mut canvas, frame, panel, &shown, allowed),
            _ => plot::draw(&mut canvas, frame, panel, &shown, &series),
        }
    }
    canvas.end()
}

/// The series that panels draw in colours, in order of appearance.
fn series(panels: &[Panel], rows: &[Row]) -> Vec<String> {
    let mut series: Vec<String> = Vec::new();
    for panel in panels.iter().filter(|panel| !matches!(panel.shape, Shape::Deviation { .. })) {
        for row in rows.iter().filter(|row| row.figure == panel.figure) {
            if !series.contains(&row.series) {
                series.push(row.series.clone());
            }
        }
    }
    series
}

fn frames(panels: &[Panel], rows: &[Row], top: f64) -> Vec<Frame> {
    let inner = WIDTH - 2.0 * MARGIN;
    let mut top = top;
    let mut frames = Vec::new();
    for pair in panels.chunks(PANELS_PER_LINE) {
        let width = (inner - (pair.len() - 1) as f64 * MARGIN) / pair.len() as f64;
        let height = |panel: &Panel| match panel.shape {
            Shape::Deviation { .. } => deviation::height(panel, rows),
            _ => PANEL_HEIGHT,
        };
        let tallest = pair.iter().map(height).fold(0.0, f64::max);
        for n in 0..pair.len() {
            let left = MARGIN + n as f64 * (width + MARGIN);
            frames.push(Frame { left, top, width, height: tallest });
        }
        top += tallest + MARGIN;
    }
    frames
}

/// An entry of a figure's legend.
enum Entry {
    Series(usize, String),
    Ours,
    Paper,
}

impl Entry {
    fn text(&self) -> &str {
        match self {
            Entry::Series(_, name) => name,
            Entry::Ours => "solid: measured here",
            Entry::Paper => "hollow: published",
        }
    }

    fn draw(&self, canvas: &mut Canvas, x: f64, y: f64) {
        match self {
            Entry::Series(index, _) => {
                canvas.rect(x, y - 6.0, 12.0, 12.0, &format!("s{}", canvas::colour(*index)));
            }
            Entry::Ours => canvas.dot(x + 6.0, y, "quiet", None),
            Entry::Paper => canvas.ring(x + 6.0, y, "quiet-line", None),
        }
        canvas.text(x + 18.0, y + 4.5, "", "start", self.text());
    }
}

/// The entries of a figure's legend with their horizontal places, line by line.
fn legend_lines(panels: &[Panel], series: &[String]) -> Vec<Vec<(f64, Entry)>> {
    let mut entries: Vec<Entry> =
        series.iter().enumerate().map(|(index, name)| Entry::Series(index, name.clone())).collect();
    if panels.iter().any(|panel| panel.shape != Shape::Stack) {
        entries.push(Entry::Ours);
        entries.push(Entry::Paper);
    }
    let mut lines: Vec<Vec<(f64, Entry)>> = vec![Vec::new()];
    let mut x = MARGIN;
    for entry in entries {
        let width = 18.0 + canvas::width(entry.text()) + 18.0;
        if x + width > WIDTH - MARGIN && x > MARGIN {
            lines.push(Vec::new());
            x = MARGIN;
        }
        if let Some(line) = lines.last_mut() {
            line.push((x, entry));
        }
        x += width;
    }
    lines
}

#[cfg(test)]
mod tests;
