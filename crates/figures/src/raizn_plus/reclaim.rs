//! Section 5.2.5: the most that clients may write while reclaim keeps up, by the share V of valid data in the zones that are reclaimed.
//!
//! A reclaimed zone of capacity P costs V P of copies and frees (1 - V) P, as its copies take V P of a new zone. Clients that write
//! at the rate Tc need Tc of freed space a second, so that copies take Tc V / (1 - V), and both together Tc / (1 - V) of the drives' rate
//! Ta: reclaim keeps up while Tc <= (1 - V) Ta. The paper has Tc V for the copies, as if a whole zone were freed for V P of them.

use crate::{Figure, Panel, Result, Row, Run, Shape, Unit};

/// The condition of section 5.2.5.
pub(super) const FIGURE: Figure = Figure {
    name: "raiznplus-reclaim",
    title: "Section 5.2.5: clients' highest rate beside reclaim, over the rate of all drives",
    panels: &[Panel::new("reclaim-share", "by valid data in reclaimed zones", "V", "Tc / Ta", Shape::LINES)],
    measure,
};

/// The series of the condition with the room that copies take, and of the published one.
pub(super) const CORRECTED: &str = "Tc <= (1 - V) Ta";
pub(super) const PUBLISHED: &str = "published: (Ta - Tc) / V >= Tc";

/// The clients' highest share of the drives' rate while reclaim keeps up.
pub(super) fn corrected(valid: f64) -> f64 {
    1.0 - valid
}

/// The same by the published condition.
pub(super) fn published(valid: f64) -> f64 {
    1.0 / (1.0 + valid)
}

fn measure(_: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for valid in (0..=19).map(|step| f64::from(step) / 20.0) {
        let row = |series, share| Row::new("reclaim-share", series, valid, Unit::Times, share);
        let note = "arithmetic; published: the share at which the published condition holds with equality";
        rows.push(row(CORRECTED, corrected(valid)).paper(published(valid)).note(note));
        rows.push(row(PUBLISHED, published(valid)).note("arithmetic"));
    }
    Ok(rows)
}
