//! A chart of deviations: for each measured number a line that shows its deviation from the published one.

use super::canvas::Canvas;
use super::panel::{Frame, Panel};
use super::scale::number;
use crate::Row;

/// Height of a row of the chart, and of a group's name, in pixels.
const LINE_HEIGHT: f64 = 16.0;

/// Space above the chart's rows, and below, in pixels.
const SPACE_ABOVE: f64 = 8.0;
const SPACE_BELOW: f64 = 42.0;

/// The widths of the columns of names and of numbers, in pixels.
const NAMES_WIDTH: f64 = 250.0;
const NUMBERS_WIDTH: f64 = 150.0;

/// The axis reaches at least this multiple of the band of allowed deviations.
const MIN_AXIS_REACH: f64 = 1.3;

/// The height of all rows of the chart.
pub fn height(panel: &Panel, rows: &[Row]) -> f64 {
    let shown: Vec<&Row> = rows.iter().filter(|row| row.figure == panel.figure).collect();
    let groups = shown.chunk_by(|a, b| a.series == b.series).count();
    SPACE_ABOVE + (shown.len() + groups) as f64 * LINE_HEIGHT + SPACE_BELOW
}

/// Draws the chart of deviations.
pub fn draw(canvas: &mut Canvas, frame: Frame, panel: &Panel, rows: &[&Row], allowed: f64) {
    let off = |row: &Row| row.ratio().map(|ratio| (ratio - 1.0) * 100.0);
    let reach = rows.iter().filter_map(|row| off(row)).map(f64::abs).fold(allowed * MIN_AXIS_REACH, f64::max);
    let (left, width) = (frame.left + NAMES_WIDTH, frame.width - NAMES_WIDTH - NUMBERS_WIDTH);
    let x = |percent: f64| left + width * (percent / reach + 1.0) / 2.0;
    let (top, floor) = (frame.top + SPACE_ABOVE, frame.top + frame.height - SPACE_BELOW);
    canvas.rect(x(-allowed), top, x(allowed) - x(-allowed), floor - top, "band");
    for percent in [-allowed, -allowed / 2.0, 0.0, allowed / 2.0, allowed] {
        canvas.line((x(percent), top), (x(percent), floor), if percent == 0.0 { "axis" } else { "grid" });
        let text = if percent > 0.0 { format!("+{}", number(percent)) } else { number(percent) };
        canvas.text(x(percent), floor + 16.0, "quiet", "middle", &text);
    }
    canvas.text(left + width / 2.0, floor + 34.0, "quiet", "middle", panel.x);
    canvas.text(frame.left + frame.width, floor + 16.0, "quiet", "end", "published, ours");
    let mut y = top;
    for group in rows.chunk_by(|a, b| a.series == b.series) {
        y += LINE_HEIGHT;
        if let Some(row) = group.first() {
            canvas.text(frame.left, y - 4.0, "head", "start", &row.series);
        }
        for row in group {
            y += LINE_HEIGHT;
            canvas.text(frame.left + 10.0, y - 4.0, "", "start", &row.x.to_string());
            let (Some(paper), Some(percent)) = (row.paper, off(row)) else { continue };
            let tip = format!("{}, {}: {percent:+.1} %", row.series, row.x);
            canvas.ring(x(0.0), y - LINE_HEIGHT / 2.0, "quiet-line", None);
            canvas.dot(x(percent), y - LINE_HEIGHT / 2.0, "s0", Some(&tip));
            let both = format!("{}, {} {}", number(paper), number(row.ours), row.unit.name());
            canvas.text(frame.left + frame.width, y - 4.0, "quiet", "end", &both);
        }
    }
}
