//! The zone map for a terminal, and for a log file: a letter for a zone's use, a bar for its written part.

use std::fmt::Write;

use super::map::{Category, Map};
use crate::size;

/// Number of zones in a line.
const ZONES_PER_LINE: usize = 32;

/// Bars for a zone's written part, from empty to full, in eighths.
const FILL_BARS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the zone map as text.
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
    for row in map.zones.chunks(ZONES_PER_LINE) {
        let Some(first) = row.first() else { continue };
        let _ = write!(out, "{:>6} ", first.zone.0);
        for cell in row {
            let bar = FILL_BARS.get((cell.written_share() * 8.0).ceil() as usize).copied().unwrap_or('█');
            let letter = category_letter(cell.category);
            if colour {
                let _ = write!(out, " \x1b[38;5;{}m{letter}{bar}\x1b[0m", ansi_colour(cell.category));
            } else {
                let _ = write!(out, " {letter}{bar}");
            }
        }
        out.push('\n');
    }
    let mut legend = Vec::new();
    for category in Category::ALL {
        let cells = map.zones.iter().filter(|cell| cell.category == category);
        let (count, live, written) = cells.fold((0, 0, 0), |(count, live, written), cell| {
            (count + 1, live + cell.live.unwrap_or(cell.pointer).0, written + cell.pointer.0)
        });
        if count == 0 {
            continue;
        }
        let share = match written {
            _ if matches!(
                category,
                Category::Superblock
                    | Category::Metadata
                    | Category::Free
                    | Category::Worn
                    | Category::Unknown
            ) =>
            {
                String::new()
            }
            0 => String::new(),
            written => format!(", {:.0} % live", live as f64 * 100.0 / written as f64),
        };
        legend.push(format!("{} {} ({count}{share})", category_letter(category), category.name()));
    }
    for entry in legend {
        let _ = writeln!(out, "        {entry}");
    }
    out.truncate(out.trim_end().len());
    out
}

fn category_letter(category: Category) -> char {
    match category {
        Category::Superblock => 'S',
        Category::Metadata => 'M',
        Category::Log => 'L',
        Category::Data => 'd',
        Category::Short => '1',
        Category::Medium => '2',
        Category::Long => '3',
        Category::Extreme => '4',
        Category::Unknown => '?',
        Category::Worn => 'x',
        Category::Free => '·',
    }
}

fn ansi_colour(category: Category) -> u8 {
    match category {
        Category::Superblock => 244,
        Category::Metadata => 134,
        Category::Log => 208,
        Category::Data | Category::Unknown => 37,
        Category::Short => 203,
        Category::Medium => 178,
        Category::Long => 71,
        Category::Extreme => 33,
        Category::Worn => 196,
        Category::Free => 240,
    }
}
