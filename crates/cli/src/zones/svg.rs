//! The zone map as an SVG, for light and dark pages: text and free zones follow the reader's colour scheme.

use std::fmt::Write;

use super::map::{Category, Cell, Map};
use crate::{describe, size};

/// Width of the picture, in SVG units.
const WIDTH: f64 = 960.0;

/// Space around the picture, in SVG units.
const MARGIN: f64 = 16.0;

/// Height of the title, in SVG units.
const TITLE_HEIGHT: f64 = 44.0;

/// Height of a legend line, in SVG units.
const LEGEND_LINE_HEIGHT: f64 = 22.0;

/// Number of legend entries in a line.
const LEGEND_ENTRIES_PER_LINE: usize = 4;

/// Draws a zone map: a cell's outline is a zone, its pale fill the written part, its opaque fill the live part.
pub fn draw(map: &Map) -> String {
    let inner = WIDTH - 2.0 * MARGIN;
    let across = (map.zones.len() as f64 * 1.8).sqrt().ceil().clamp(16.0, 400.0);
    let pitch = inner / across;
    let gap = if pitch >= 8.0 { pitch * 0.12 } else { 0.0 };
    let rows = (map.zones.len() as f64 / across).ceil();
    let used: Vec<Category> = Category::ALL
        .into_iter()
        .filter(|category| map.zones.iter().any(|cell| cell.category == *category))
        .collect();
    let legend_top = MARGIN + TITLE_HEIGHT + rows * pitch + 12.0;
    let lines = (used.len() + 1).div_ceil(LEGEND_ENTRIES_PER_LINE) as f64;
    let height = legend_top + lines * LEGEND_LINE_HEIGHT + MARGIN;

    let mut out = String::new();
    let _ = writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="zone map">"##
    );
    out.push_str(
        "<style>\ntext{fill:#1c2733} .quiet{fill:#5b6875} .free{fill:#9aa7b418;stroke:#9aa7b4}\n\
         @media (prefers-color-scheme:dark){text{fill:#e6edf3} .quiet{fill:#9aa7b4} .free{stroke:#5b6875}}\n\
         .zone{stroke-width:.8}\n",
    );
    for category in Category::ALL {
        let _ = writeln!(
            out,
            ".{}{{fill:{c}}} .{}-edge{{stroke:{c};fill:{c}22}}",
            class(category),
            class(category),
            c = colour(category)
        );
    }
    out.push_str("</style>\n");
    let _ = writeln!(
        out,
        r#"<text x="{MARGIN}" y="{:.0}" font-size="17">{}</text>"#,
        MARGIN + 14.0,
        escape(&title(map))
    );
    let _ = writeln!(
        out,
        r#"<text class="quiet" x="{MARGIN}" y="{:.0}">{}</text>"#,
        MARGIN + 33.0,
        escape(&subtitle(map))
    );
    for (index, cell) in map.zones.iter().enumerate() {
        let column = index as f64 % across;
        let row = (index as f64 / across).floor();
        draw_zone(
            &mut out,
            map,
            cell,
            MARGIN + column * pitch,
            MARGIN + TITLE_HEIGHT + row * pitch,
            pitch - gap,
        );
    }
    for (index, category) in used.iter().enumerate() {
        let count = map.zones.iter().filter(|cell| cell.category == *category).count();
        let text = format!("{} ({count})", category.name());
        draw_legend_entry(
            &mut out,
            index,
            legend_top,
            &edge(*category),
            class(*category),
            *category != Category::Free,
            &text,
        );
    }
    draw_legend_entry(
        &mut out,
        used.len(),
        legend_top,
        "quiet-box",
        "",
        false,
        "pale: written, no longer live",
    );
    out.push_str("</svg>");
    out
}

fn title(map: &Map) -> String {
    match &map.space {
        Some(space) if !space.label.is_empty() => format!("{} ({})", map.device, space.label),
        _ => map.device.clone(),
    }
}

fn subtitle(map: &Map) -> String {
    let zones = format!("{} zones", map.zones.len());
    match &map.space {
        Some(space) => {
            format!("{zones}, {} of {} used", size::show(space.used), size::show(space.capacity))
        }
        None => format!("{zones}, no file system"),
    }
}

/// Draws one zone of the map: filled from below, the live part opaque.
fn draw_zone(out: &mut String, map: &Map, cell: &Cell, x: f64, y: f64, side: f64) {
    let bytes = |blocks: units::Blocks| size::show(blocks.bytes(map.block_size));
    let live = cell.live.map(|live| format!(", {} live", bytes(live))).unwrap_or_default();
    let _ = write!(
        out,
        r#"<g><title>zone {}: {}, {}, {} of {} written{live}</title>"#,
        cell.zone,
        cell.category.name(),
        describe::zone_state(cell.state),
        bytes(cell.pointer),
        bytes(cell.capacity),
    );
    let _ = write!(
        out,
        r#"<rect class="zone {}" x="{x:.1}" y="{y:.1}" width="{side:.1}" height="{side:.1}"/>"#,
        edge(cell.category)
    );
    let mut bar = |share: f64, opacity: &str| {
        let height = side * share;
        if height > 0.0 {
            let _ = write!(
                out,
                r#"<rect class="{}"{opacity} x="{x:.1}" y="{:.1}" width="{side:.1}" height="{height:.1}"/>"#,
                class(cell.category),
                y + side - height,
            );
        }
    };
    if cell.category != Category::Free {
        bar(cell.written_share(), r#" opacity=".35""#);
        bar(cell.live_share(), "");
    }
    out.push_str("</g>\n");
}

fn draw_legend_entry(
    out: &mut String,
    index: usize,
    top: f64,
    edge: &str,
    class: &str,
    filled: bool,
    text: &str,
) {
    let across = (WIDTH - 2.0 * MARGIN) / LEGEND_ENTRIES_PER_LINE as f64;
    let x = MARGIN + (index % LEGEND_ENTRIES_PER_LINE) as f64 * across;
    let y = top + (index / LEGEND_ENTRIES_PER_LINE) as f64 * LEGEND_LINE_HEIGHT;
    if edge == "quiet-box" {
        let _ = write!(
            out,
            r##"<rect class="quiet" opacity=".35" x="{x:.1}" y="{y:.1}" width="13" height="13"/>"##
        );
    } else {
        let _ = write!(out, r#"<rect class="zone {edge}" x="{x:.1}" y="{y:.1}" width="13" height="13"/>"#);
    }
    if filled {
        let _ = write!(out, r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="13" height="13"/>"#);
    }
    let _ = writeln!(out, r#"<text x="{:.1}" y="{:.1}">{}</text>"#, x + 20.0, y + 11.0, escape(text));
}

fn edge(category: Category) -> String {
    match category {
        Category::Free => "free".to_owned(),
        category => format!("{}-edge", class(category)),
    }
}

fn class(category: Category) -> &'static str {
    match category {
        Category::Superblock => "super",
        Category::Metadata => "meta",
        Category::Log => "log",
        Category::Data => "data",
        Category::Short => "short",
        Category::Medium => "medium",
        Category::Long => "long",
        Category::Extreme => "extreme",
        Category::Unknown => "unknown",
        Category::Worn => "worn",
        Category::Free => "free-zone",
    }
}

fn colour(category: Category) -> &'static str {
    match category {
        Category::Superblock => "#6b7785",
        Category::Metadata => "#8e5bd0",
        Category::Log => "#e07b21",
        Category::Data => "#1b9aaa",
        Category::Short => "#e0566b",
        Category::Medium => "#c9a227",
        Category::Long => "#3fa45b",
        Category::Extreme => "#3b7dd8",
        Category::Unknown => "#1b9aaa",
        Category::Worn => "#b3261e",
        Category::Free => "#9aa7b4",
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Blocks, ZoneId};
    use zoned::ZoneState;

    fn map(zones: u32) -> Map {
        let cell = |zone| Cell {
            zone: ZoneId(zone),
            category: if zone == 0 { Category::Superblock } else { Category::Long },
            state: ZoneState::Full,
            pointer: Blocks(10),
            capacity: Blocks(10),
            live: Some(Blocks(5)),
        };
        let zones = (0..zones).map(cell).collect();
        Map { device: "emu:a<b".into(), space: None, zones, block_size: 4096 }
    }

    #[test]
    fn every_zone_is_drawn_and_names_are_escaped() {
        let svg = draw(&map(100));
        assert_eq!(svg.matches("<g>").count(), 100);
        assert!(svg.contains("emu:a&lt;b") && !svg.contains("a<b"));
        assert!(svg.contains("data, long-lived (99)"));
    }

    #[test]
    fn the_live_half_of_a_zone_is_drawn_opaque() {
        let svg = draw(&map(1));
        let heights: Vec<f64> = svg
            .lines()
            .find(|line| line.contains("<g>"))
            .unwrap()
            .split("height=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!((heights[1] - 2.0 * heights[2]).abs() < 0.2, "{heights:?}");
    }
}
