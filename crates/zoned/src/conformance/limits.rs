//! Conformance checks of the limits of open and active zones.

use crate::conformance::fixture::{Check, Fixture, Outcome, ensure, expect_error_in_zone, expect_ok};
use crate::{Action, ErrorKind, ZoneId, ZoneState};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("explicitly open zones stop at the open limit", check_limit_of_explicit_opens),
    ("the device closes an implicitly open zone to open another", check_implicit_close),
    ("active zones stop at the active limit", check_limit_of_active_zones),
];

fn empty_zones(g: &mut Fixture<'_>, count: u32) -> Outcome<Option<Vec<ZoneId>>> {
    let mut zones = Vec::new();
    for _ in 0..count {
        match g.next_empty_zone()? {
            Some(zone) => zones.push(zone),
            None => return Ok(None),
        }
    }
    Ok(Some(zones))
}

fn check_limit_of_explicit_opens(g: &mut Fixture<'_>) -> Outcome {
    let Some(most) = g.geometry().max_open else { return Ok(()) };
    let Some(mut zones) = empty_zones(g, most + 1)? else { return Ok(()) };
    let Some(extra) = zones.pop() else { return Ok(()) };
    for zone in &zones {
        expect_ok("an open", g.act(*zone, Action::Open))?;
    }
    // If the limits of open and active zones are equal, the drive may name either.
    let kinds = [ErrorKind::TooManyOpen, ErrorKind::TooManyActive];
    expect_error_in_zone(extra, "an open above the limit", g.act(extra, Action::Open), &kinds)?;
    expect_error_in_zone(
        extra,
        "a write above the limit",
        g.write(g.start(extra), g.tagged_data(1, 1)),
        &kinds,
    )?;
    g.expect_state(extra, ZoneState::Empty, 0)?;
    if let Some(zone) = zones.first() {
        expect_ok("a close", g.act(*zone, Action::Close))?;
    }
    expect_ok("an open after a close", g.act(extra, Action::Open))
}

fn check_implicit_close(g: &mut Fixture<'_>) -> Outcome {
    let Some(most) = g.geometry().max_open else { return Ok(()) };
    if g.geometry().max_active.is_some_and(|active| active <= most) || g.geometry().zone_capacity.0 < 3 {
        return Ok(());
    }
    let Some(zones) = empty_zones(g, most + 1)? else { return Ok(()) };
    for zone in &zones {
        expect_ok("a write", g.write(g.start(*zone), g.tagged_data(1, 1)))?;
    }
    let mut open = 0;
    for zone in &zones {
        match g.zone_info(*zone)?.state {
            ZoneState::ImplicitOpen => open += 1,
            ZoneState::Closed => {}
            other => return Err(format!("zone {zone} is {other:?}")),
        }
    }
    ensure(open <= most, || format!("{open} zones are open, {most} may be"))?;
    for zone in &zones {
        expect_ok("an append to a zone that the device closed", g.append(*zone, g.tagged_data(2, 1)))?;
    }
    Ok(())
}

fn check_limit_of_active_zones(g: &mut Fixture<'_>) -> Outcome {
    let Some(most) = g.geometry().max_active else { return Ok(()) };
    if g.geometry().zone_capacity.0 < 2 {
        return Ok(());
    }
    let Some(mut zones) = empty_zones(g, most + 1)? else { return Ok(()) };
    let Some(extra) = zones.pop() else { return Ok(()) };
    for zone in &zones {
        expect_ok("a write", g.write(g.start(*zone), g.tagged_data(1, 1)))?;
        expect_ok("a close", g.act(*zone, Action::Close))?;
    }
    let kinds = [ErrorKind::TooManyActive];
    expect_error_in_zone(extra, "a write above the limit", g.append(extra, g.tagged_data(1, 1)), &kinds)?;
    g.expect_state(extra, ZoneState::Empty, 0)?;
    let (Some(first), Some(last)) = (zones.first(), zones.last()) else { return Ok(()) };
    expect_ok("a finish", g.act(*first, Action::Finish))?;
    expect_ok("a write after a finish", g.append(extra, g.tagged_data(1, 1)))?;
    expect_ok("a reset", g.act(*last, Action::Reset))?;
    expect_ok("an open after a reset", g.act(*last, Action::Open))
}
