//! Conformance checks of the limits of open and active zones.

use crate::conformance::fixture::{Check, Fixture, Outcome, check, must, refused_in};
use crate::{Action, ErrorKind, ZoneId, ZoneState};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("explicitly open zones stop at the open limit", explicit_limit),
    ("the device closes an implicitly open zone to open another", implicit_close),
    ("active zones stop at the active limit", active_limit),
];

fn zones(g: &mut Fixture<'_>, count: u32) -> Outcome<Option<Vec<ZoneId>>> {
    let mut zones = Vec::new();
    for _ in 0..count {
        match g.try_zone()? {
            Some(zone) => zones.push(zone),
            None => return Ok(None),
        }
    }
    Ok(Some(zones))
}

fn explicit_limit(g: &mut Fixture<'_>) -> Outcome {
    let Some(most) = g.geometry().max_open else { return Ok(()) };
    let Some(mut zones) = zones(g, most + 1)? else { return Ok(()) };
    let Some(extra) = zones.pop() else { return Ok(()) };
    for zone in &zones {
        must("an open", g.act(*zone, Action::Open))?;
    }
    // If the limits of open and active zones are equal, the drive may name either.
    let kinds = [ErrorKind::TooManyOpen, ErrorKind::TooManyActive];
    refused_in(extra, "an open above the limit", g.act(extra, Action::Open), &kinds)?;
    refused_in(extra, "a write above the limit", g.write(g.start(extra), g.data(1, 1)), &kinds)?;
    g.state(extra, ZoneState::Empty, 0)?;
    if let Some(zone) = zones.first() {
        must("a close", g.act(*zone, Action::Close))?;
    }
    must("an open after a close", g.act(extra, Action::Open))
}

fn implicit_close(g: &mut Fixture<'_>) -> Outcome {
    let Some(most) = g.geometry().max_open else { return Ok(()) };
    if g.geometry().max_active.is_some_and(|active| active <= most) || g.geometry().zone_capacity.0 < 3 {
        return Ok(());
    }
    let Some(zones) = zones(g, most + 1)? else { return Ok(()) };
    for zone in &zones {
        must("a write", g.write(g.start(*zone), g.data(1, 1)))?;
    }
    let mut open = 0;
    for zone in &zones {
        match g.info(*zone)?.state {
            ZoneState::ImplicitOpen => open += 1,
            ZoneState::Closed => {}
            other => return Err(format!("zone {zone} is {other:?}")),
        }
    }
    check(open <= most, || format!("{open} zones are open, {most} may be"))?;
    for zone in &zones {
        must("an append to a zone that the device closed", g.append(*zone, g.data(2, 1)))?;
    }
    Ok(())
}

fn active_limit(g: &mut Fixture<'_>) -> Outcome {
    let Some(most) = g.geometry().max_active else { return Ok(()) };
    if g.geometry().zone_capacity.0 < 2 {
        return Ok(());
    }
    let Some(mut zones) = zones(g, most + 1)? else { return Ok(()) };
    let Some(extra) = zones.pop() else { return Ok(()) };
    for zone in &zones {
        must("a write", g.write(g.start(*zone), g.data(1, 1)))?;
        must("a close", g.act(*zone, Action::Close))?;
    }
    let kinds = [ErrorKind::TooManyActive];
    refused_in(extra, "a write above the limit", g.append(extra, g.data(1, 1)), &kinds)?;
    g.state(extra, ZoneState::Empty, 0)?;
    let (Some(first), Some(last)) = (zones.first(), zones.last()) else { return Ok(()) };
    must("a finish", g.act(*first, Action::Finish))?;
    must("a write after a finish", g.append(extra, g.data(1, 1)))?;
    must("a reset", g.act(*last, Action::Reset))?;
    must("an open after a reset", g.act(*last, Action::Open))
}
