//! The array's part of the server's HTML page.

use std::fmt::Write as _;

use super::html::escape;
use crate::array::ArrayView;

/// Number of array events on the page.
const EVENTS_SHOWN: usize = 8;

/// The array as HTML: its health, a table of the drives, the running jobs, and the last events.
pub(super) fn array_table(view: &ArrayView) -> String {
    let name = if view.label.is_empty() { &view.array } else { &view.label };
    let mut page = format!("<h2>Array {}: {}</h2>\n", escape(name), escape(&view.health));
    page.push_str("<table>\n<tr><th>drive</th><th>state</th><th>device</th><th>medium's errors</th></tr>\n");
    for member in &view.members {
        let device = escape(member.drive.as_deref().unwrap_or("-"));
        let (slot, state, errors) = (member.slot, escape(&member.state), member.media_errors);
        let row = format!("<tr><td>{slot}</td><td>{state}</td><td>{device}</td><td>{errors}</td></tr>\n");
        page.push_str(&row);
    }
    for spare in &view.spares {
        let (device, state) = (escape(spare.drive.as_deref().unwrap_or("-")), escape(&spare.state));
        let row = format!("<tr><td>spare</td><td>{state}</td><td>{device}</td><td></td></tr>\n");
        page.push_str(&row);
    }
    page.push_str("</table>\n");
    for (what, progress) in [("Rebuild", &view.rebuild), ("Scrub", &view.scrub)] {
        if let Some(progress) = progress {
            // Writing to a string cannot fail.
            let _ = writeln!(
                page,
                "<p>{what}: <progress max={} value={}></progress> {}</p>",
                progress.total.max(1),
                progress.bytes,
                escape(&progress.words())
            );
        }
    }
    for advice in &view.advice {
        let _ = writeln!(page, "<p><b>{}</b></p>", escape(advice));
    }
    if !view.events.is_empty() {
        page.push_str("<ul>\n");
        for event in view.events.iter().rev().take(EVENTS_SHOWN) {
            let _ = writeln!(page, "<li>{}</li>", escape(&event.text));
        }
        page.push_str("</ul>\n");
    }
    page
}
