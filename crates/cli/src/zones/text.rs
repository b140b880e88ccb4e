//! The zone map for a terminal, and for a log file: a letter for the use, a bar for how full.

use std::fmt::Write;

use crate::size;
use crate::zones::{Map, Paint};

/// Zones in a line.
const ACROSS: usize = 32;

/// From empty to full, in eighths.
const BARS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the map.
pub fn draw(map: &Map, colour: bool) -> String {
    let mut out = String::new();
    let _ = write!(out, "{}: {} zones", map.device, map.zones.len());
    if let Some(space) = &map.space {
        if !space.label.is_empty() {
            let _ = write!(out, ", {}", space.label);
        }
        let _ = write!(out, ", {} of {} used", size::show(space.used), size::show(space.capacity));
    }
    out.push('\n');
    for row in map.zones.chunks(ACROSS) {
        let Some(first) = row.first() else { continue };
        let _ = write!(out, "{:>6} ", first.zone.0);
        for cell in row {
            let bar = BARS.get((cell.filled() * 8.0).ceil() as usize).copied().unwrap_or('█');
            let letter = letter(cell.paint);
            if colour {
                let _ = write!(out, " \x1b[38;5;{}m{letter}{bar}\x1b[0m", ansi(cell.paint));
            } else {
                let _ = write!(out, " {letter}{bar}");
            }
        }
        out.push('\n');
    }
    let mut legend = Vec::new();
    for paint in Paint::ALL {
        let cells = map.zones.iter().filter(|cell| cell.paint == paint);
        let (count, live, written) = cells.fold((0, 0, 0), |(count, live, written), cell| {
            (count + 1, live + cell.live.unwrap_or(cell.pointer).0, written + cell.pointer.0)
        });
        if count == 0 {
            continue;
        }
        let share = match written {
            _ if matches!(
                paint,
                Paint::Superblock | Paint::Metadata | Paint::Free | Paint::Worn | Paint::Unknown
            ) =>
            {
                String::new()
            }
            0 => String::new(),
            written => format!(", {:.0} % live", live as f64 * 100.0 / written as f64),
        };
        legend.push(format!("{} {} ({count}{share})", letter(paint), paint.name()));
    }
    for entry in legend {
        let _ = writeln!(out, "        {entry}");
    }
    out.truncate(out.trim_end().len());
    out
}

fn letter(paint: Paint) -> char {
    match paint {
        Paint::Superblock => 'S',
        Paint::Metadata => 'M',
        Paint::Log => 'L',
        Paint::Data => 'd',
        Paint::Short => '1',
        Paint::Medium => '2',
        Paint::Long => '3',
        Paint::Extreme => '4',
        Paint::Unknown => '?',
        Paint::Worn => 'x',
        Paint::Free => '·',
    }
}

fn ansi(paint: Paint) -> u8 {
    match paint {
        Paint::Superblock => 244,
        Paint::Metadata => 134,
        Paint::Log => 208,
        Paint::Data | Paint::Unknown => 37,
        Paint::Short => 203,
        Paint::Medium => 178,
        Paint::Long => 71,
        Paint::Extreme => 33,
        Paint::Worn => 196,
        Paint::Free => 240,
    }
}
