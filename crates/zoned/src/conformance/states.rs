//! Conformance checks of the zone state machine.

use crate::conformance::fixture::{Check, Fixture, Outcome, check, must, refused_in};
use crate::{Action, Blocks, ErrorKind, ZoneState};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a filled zone is full and takes no more", full),
    ("nothing is written past the capacity", past_capacity),
    ("a finish makes a zone full and keeps its content", finish),
    ("a finish of an empty zone makes it full", finish_empty),
    ("a reset empties a zone whatever its state", reset),
    ("a reset zone takes new content", rewritten),
    ("open and close move a zone as they should", open_close),
    ("commands that the state does not allow are refused", illegal),
];

fn full(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    g.fill(zone)?;
    let capacity = g.geometry().zone_capacity;
    g.state(zone, ZoneState::Full, capacity.0)?;
    refused_in(zone, "an append to a full zone", g.append(zone, g.data(1, 1)), &[ErrorKind::ZoneFull])?;
    let first = g.write(g.start(zone), g.data(1, 1));
    refused_in(zone, "a write to a full zone", first, &[ErrorKind::ZoneFull])
}

fn past_capacity(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    let (capacity, size) = (g.geometry().zone_capacity, g.geometry().zone_size);
    let most = g.piece();
    if capacity.0 > most * 4096 || most < 2 {
        return Ok(());
    }
    let mut at = 0;
    while at + 1 < capacity.0 {
        let n = most.min(capacity.0 - 1 - at);
        must("an append", g.append(zone, g.data(at, n)))?;
        at += n;
    }
    refused_in(zone, "an append past the capacity", g.append(zone, g.data(1, 2)), &[ErrorKind::ZoneFull])?;
    let pointer = g.start(zone).plus(Blocks(at));
    if size > capacity {
        refused_in(
            zone,
            "a write past the capacity",
            g.write(pointer, g.data(1, 2)),
            &[ErrorKind::ZoneFull],
        )?;
        let gap = g.write(g.start(zone).plus(capacity), g.data(1, 1));
        refused_in(zone, "a write into the gap", gap, &[ErrorKind::ZoneFull, ErrorKind::NotAtWritePointer])?;
    }
    g.state(zone, ZoneState::ImplicitOpen, at)?;
    must("the last block", g.write(pointer, g.data(1, 1)))?;
    g.state(zone, ZoneState::Full, capacity.0)
}

fn finish(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    let data = g.data(3, 1);
    must("a write", g.write(g.start(zone), data.clone()))?;
    must("a finish", g.act(zone, Action::Finish))?;
    g.state(zone, ZoneState::Full, g.geometry().zone_capacity.0)?;
    g.holds(g.start(zone), &data)?;
    refused_in(zone, "an append", g.append(zone, g.data(1, 1)), &[ErrorKind::ZoneFull])?;
    must("a second finish", g.act(zone, Action::Finish))?;
    let last = g.start(zone).plus(g.geometry().zone_capacity.minus(Blocks(1)));
    must("a read of what a finish skipped", g.read(last, 1)).map(drop)
}

fn finish_empty(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    must("a finish", g.act(zone, Action::Finish))?;
    g.state(zone, ZoneState::Full, g.geometry().zone_capacity.0)
}

fn reset(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    let again = |g: &Fixture<'_>, what: &str| {
        must(what, g.act(zone, Action::Reset))?;
        g.state(zone, ZoneState::Empty, 0)
    };
    again(g, "a reset of an empty zone")?;
    must("a write", g.write(g.start(zone), g.data(1, 1)))?;
    again(g, "a reset of an implicitly open zone")?;
    must("an open", g.act(zone, Action::Open))?;
    again(g, "a reset of an explicitly open zone")?;
    must("a write", g.write(g.start(zone), g.data(1, 1)))?;
    if g.geometry().zone_capacity.0 > 1 {
        must("a close", g.act(zone, Action::Close))?;
    }
    again(g, "a reset of a closed zone")?;
    must("a finish", g.act(zone, Action::Finish))?;
    again(g, "a reset of a full zone")
}

fn rewritten(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    for round in 0..3 {
        let data = g.data(round, 1);
        must("an append", g.append(zone, data.clone()))?;
        if round == 1 {
            must("a flush", g.dev.flush().wait())?;
        }
        g.holds(g.start(zone), &data)?;
        must("a reset", g.act(zone, Action::Reset))?;
    }
    Ok(())
}

fn open_close(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    if g.geometry().zone_capacity.0 < 3 {
        return Ok(());
    }
    must("an open", g.act(zone, Action::Open))?;
    g.state(zone, ZoneState::ExplicitOpen, 0)?;
    must("a second open", g.act(zone, Action::Open))?;
    must("a close", g.act(zone, Action::Close))?;
    // After a close an unwritten zone is empty on some drives and closed on others.
    let closed = g.info(zone)?;
    let either =
        matches!(closed.state, ZoneState::Empty | ZoneState::Closed) && closed.pointer == Blocks::ZERO;
    check(either, || {
        format!("an unwritten zone is {:?} at {:?} after a close", closed.state, closed.pointer)
    })?;
    must("a write", g.write(g.start(zone), g.data(1, 1)))?;
    g.state(zone, ZoneState::ImplicitOpen, 1)?;
    must("an open of an open zone", g.act(zone, Action::Open))?;
    g.state(zone, ZoneState::ExplicitOpen, 1)?;
    must("a write", g.write(g.start(zone).plus(Blocks(1)), g.data(2, 1)))?;
    g.state(zone, ZoneState::ExplicitOpen, 2)?;
    must("a close", g.act(zone, Action::Close))?;
    g.state(zone, ZoneState::Closed, 2)?;
    must("a second close", g.act(zone, Action::Close))?;
    must("an append to a closed zone", g.append(zone, g.data(3, 1)))?;
    let full = g.geometry().zone_capacity.0 == 3;
    g.state(zone, if full { ZoneState::Full } else { ZoneState::ImplicitOpen }, 3)
}

fn illegal(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    let kinds = [ErrorKind::IllegalMove];
    refused_in(zone, "a close of an empty zone", g.act(zone, Action::Close), &kinds)?;
    must("a finish", g.act(zone, Action::Finish))?;
    refused_in(zone, "an open of a full zone", g.act(zone, Action::Open), &kinds)?;
    refused_in(zone, "a close of a full zone", g.act(zone, Action::Close), &kinds)
}
