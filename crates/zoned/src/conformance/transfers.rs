//! Conformance checks of reads, writes, appends and flushes.

use std::collections::BTreeSet;

use crate::conformance::fixture::{
    Check, Fixture, Outcome, ensure, expect_error, expect_error_in_zone, expect_ok,
};
use crate::{Blocks, Buf, BufMut, Durability, ErrorKind, Lba, Result, ZoneId, ZoneState};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("the geometry fits together", check_geometry),
    ("written blocks read back", check_written_blocks),
    ("parts of what was written read back", check_reads_of_parts),
    ("appends land one after the other and say where", check_appends),
    ("writes at the pointer may be in flight together", check_writes_in_flight),
    ("appends in flight land side by side", check_appends_in_flight),
    ("an operation whose handle is dropped takes effect", check_dropped_handle),
    ("a write off the pointer is refused", check_writes_off_the_pointer),
    ("lengths that are no whole blocks are refused", check_bad_lengths),
    ("transfers above the limits are refused", check_too_large_transfers),
    ("addresses past the end are refused", check_out_of_range),
    ("transfers across two zones are refused", check_transfers_across_zones),
    ("a refused read gives its buffer back", check_returned_buffer),
    ("reads past the pointer do what the geometry says", check_reads_past_the_pointer),
    ("a flush and a durable write succeed", check_flushes),
    ("conventional zones are written anywhere", check_conventional_zones),
];

fn check_geometry(g: &mut Fixture<'_>) -> Outcome {
    let geometry = g.geometry().clone();
    ensure(geometry.block_size.is_power_of_two() && (512..=65_536).contains(&geometry.block_size), || {
        format!("a block of {} bytes", geometry.block_size)
    })?;
    ensure(geometry.zones > 0 && geometry.conventional <= geometry.zones, || {
        "the zones do not count up".into()
    })?;
    let fits = geometry.zone_capacity > Blocks::ZERO && geometry.zone_capacity <= geometry.zone_size;
    ensure(fits, || format!("capacity {:?} of {:?}", geometry.zone_capacity, geometry.zone_size))?;
    let some = [geometry.max_append, geometry.max_transfer, geometry.atomic_write, geometry.optimal_write];
    ensure(some.iter().all(|n| *n > Blocks::ZERO), || "a limit is zero blocks".into())?;
    let optimal = geometry.optimal_write;
    ensure(optimal <= geometry.max_transfer && optimal <= geometry.zone_capacity, || {
        format!("{optimal:?} should be written at a time: more than may be")
    })?;
    let report = expect_ok("the report", g.dev.report_all())?;
    ensure(report.len() == geometry.zones as usize, || format!("{} zones in the report", report.len()))?;
    let in_order = report.iter().zip(0..).all(|(info, zone)| info.zone == ZoneId(zone));
    ensure(in_order, || "the report is out of order".into())?;
    let cut = expect_ok("a report past the end", g.dev.report(geometry.zones - 1..u32::MAX).wait())?;
    ensure(cut.len() == 1, || "a report past the end is not cut to the device".into())
}

fn check_written_blocks(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    let n = g.max_append_blocks();
    let data = g.tagged_data(1, n);
    expect_ok("a write", g.write(g.start(zone), data.clone()))?;
    let full = n == g.geometry().zone_capacity.0;
    g.expect_state(zone, if full { ZoneState::Full } else { ZoneState::ImplicitOpen }, n)?;
    g.expect_content(g.start(zone), &data)
}

fn check_reads_of_parts(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    let n = g.max_append_blocks();
    let data = g.tagged_data(2, n);
    expect_ok("a write", g.write(g.start(zone), data.clone()))?;
    let size = g.geometry().block_size as usize;
    for from in 0..n {
        let part = data.slice(from as usize * size..);
        g.expect_content(g.start(zone).plus(Blocks(from)), &part)?;
    }
    Ok(())
}

fn check_appends(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    let capacity = g.geometry().zone_capacity.0;
    let mut at = 0;
    for n in (1..=g.geometry().max_append.0.min(3)).cycle().take(6) {
        if at + n > capacity {
            break;
        }
        let data = g.tagged_data(at, n);
        let landed = expect_ok("an append", g.append(zone, data.clone()))?;
        ensure(landed == g.start(zone).plus(Blocks(at)), || format!("an append at {at} landed at {landed}"))?;
        g.expect_content(landed, &data)?;
        at += n;
    }
    Ok(())
}

fn check_writes_in_flight(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    let count = g.geometry().zone_capacity.0.min(64);
    let at = |n| g.start(zone).plus(Blocks(n));
    let ios: Vec<_> =
        (0..count).map(|n| g.dev.write(at(n), g.tagged_data(n, 1), Durability::Cached)).collect();
    for io in ios {
        expect_ok("a write in flight", io.wait())?;
    }
    (0..count).try_for_each(|n| g.expect_content(at(n), &g.tagged_data(n, 1)))
}

fn check_appends_in_flight(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    let count = g.geometry().zone_capacity.0.min(64);
    let ios: Vec<_> =
        (0..count).map(|n| g.dev.append(zone, g.tagged_data(n, 1), Durability::Cached)).collect();
    let mut places = BTreeSet::new();
    for (io, n) in ios.into_iter().zip(0..) {
        let at = expect_ok("an append in flight", io.wait())?;
        ensure(places.insert(at), || format!("two appends landed at {at}"))?;
        g.expect_content(at, &g.tagged_data(n, 1))?;
    }
    let last = g.start(zone).plus(Blocks(count));
    ensure(places.last().is_some_and(|at| *at < last), || "appends left a gap".into())
}

fn check_dropped_handle(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    drop(g.dev.write(g.start(zone), g.tagged_data(1, 1), Durability::Cached));
    if g.geometry().zone_capacity.0 > 1 {
        expect_ok("the next write", g.write(g.start(zone).plus(Blocks(1)), g.tagged_data(2, 1)))?;
    }
    g.expect_content(g.start(zone), &g.tagged_data(1, 1))
}

fn check_writes_off_the_pointer(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    if g.geometry().zone_capacity.0 < 3 {
        return Ok(());
    }
    let at = |n| g.start(zone).plus(Blocks(n));
    // A stage lets a write above the pointer wait for a while.
    let kinds = [ErrorKind::NotAtWritePointer, ErrorKind::Gap];
    expect_error_in_zone(zone, "a write above the pointer", g.write(at(1), g.tagged_data(1, 1)), &kinds)?;
    g.expect_state(zone, ZoneState::Empty, 0)?;
    expect_ok("a write", g.write(at(0), g.tagged_data(1, 1)))?;
    expect_error_in_zone(zone, "a write below the pointer", g.write(at(0), g.tagged_data(2, 1)), &kinds)?;
    let error = g.write(at(2), g.tagged_data(2, 1)).err();
    ensure(error.is_some_and(|e| e.address() == Some(at(2))), || {
        "the error does not give the address".into()
    })?;
    g.expect_content(at(0), &g.tagged_data(1, 1))?;
    g.expect_state(zone, ZoneState::ImplicitOpen, 1)
}

fn check_bad_lengths(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    let size = g.geometry().block_size as usize;
    for len in [0, size - 1, size + 1] {
        let data = || Buf::zeroed(len);
        let kinds = [ErrorKind::BadLength];
        expect_error("a write", g.write(g.start(zone), data()), &kinds)?;
        expect_error("an append", g.append(zone, data()), &kinds)?;
        expect_error("a read", g.dev.read(g.start(zone), BufMut::zeroed(len)).wait(), &kinds)?;
    }
    g.expect_state(zone, ZoneState::Empty, 0)
}

fn check_too_large_transfers(g: &mut Fixture<'_>) -> Outcome {
    /// Largest buffer, in bytes, that the suite allocates to test a limit.
    const MAX_TEST_BUFFER_BYTES: u64 = 128 << 20;
    let zone = g.zone()?;
    let geometry = g.geometry().clone();
    let longer =
        |n: Blocks| (n.plus(Blocks(1)).bytes(geometry.block_size).0).min(MAX_TEST_BUFFER_BYTES) as usize;
    let kinds = [ErrorKind::TooLarge];
    expect_error(
        "an append above the limit",
        g.append(zone, Buf::zeroed(longer(geometry.max_append))),
        &kinds,
    )?;
    if geometry.max_transfer < geometry.zone_size
        && geometry.max_transfer.bytes(geometry.block_size).0 < MAX_TEST_BUFFER_BYTES
    {
        let len = longer(geometry.max_transfer);
        expect_error("a write above the limit", g.write(g.start(zone), Buf::zeroed(len)), &kinds)?;
        expect_error(
            "a read above the limit",
            g.dev.read(g.start(zone), BufMut::zeroed(len)).wait(),
            &kinds,
        )?;
    }
    g.expect_state(zone, ZoneState::Empty, 0)
}

fn check_out_of_range(g: &mut Fixture<'_>) -> Outcome {
    let zones = g.geometry().zones;
    let end = Lba(u64::from(zones) * g.geometry().zone_size.0);
    let kinds = [ErrorKind::OutOfRange];
    for at in [end, Lba(u64::MAX)] {
        expect_error("a read", g.read(at, 1), &kinds)?;
        expect_error("a write", g.write(at, g.tagged_data(1, 1)), &kinds)?;
    }
    for zone in [ZoneId(zones), ZoneId(u32::MAX)] {
        expect_error("an append", g.append(zone, g.tagged_data(1, 1)), &kinds)?;
        expect_error("a zone command", g.act(zone, crate::Action::Reset), &kinds)?;
    }
    Ok(())
}

fn check_transfers_across_zones(g: &mut Fixture<'_>) -> Outcome {
    let (zone, next) = (g.zone()?, g.next_empty_zone()?);
    if next.is_none() || g.geometry().max_transfer < Blocks(2) {
        return Ok(());
    }
    let last = g.start(zone).plus(g.geometry().zone_size.minus(Blocks(1)));
    expect_error("a read", g.read(last, 2), &[ErrorKind::CrossesZone])?;
    expect_error("a write", g.write(last, g.tagged_data(1, 2)), &[ErrorKind::CrossesZone])
}

fn check_returned_buffer(g: &mut Fixture<'_>) -> Outcome {
    let end = Lba(u64::from(g.geometry().zones) * g.geometry().zone_size.0);
    let back: Result<BufMut> = g.read(end, 1);
    let len = back.err().and_then(|mut e| e.take_buffer()).map(|b| b.len());
    ensure(len == Some(g.geometry().block_size as usize), || format!("{len:?} bytes came back"))
}

fn check_reads_past_the_pointer(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    let secret = g.tagged_data(77, 1);
    expect_ok("a write", g.write(g.start(zone), secret.clone()))?;
    expect_ok("a reset", g.act(zone, crate::Action::Reset))?;
    match g.read(g.start(zone), 1) {
        Ok(found) if g.geometry().read_past_pointer => {
            ensure(*found != *secret, || "a reset zone still shows what it held".into())
        }
        Ok(_) => Err("a read past the pointer succeeded, the geometry says it is refused".into()),
        Err(e) if g.geometry().read_past_pointer => Err(format!("a read past the pointer failed: {e}")),
        Err(e) => {
            expect_error_in_zone::<()>(zone, "a read past the pointer", Err(e), &[ErrorKind::ReadPastPointer])
        }
    }
}

fn check_flushes(g: &mut Fixture<'_>) -> Outcome {
    let zone = g.zone()?;
    expect_ok("a flush with nothing to do", g.dev.flush().wait())?;
    expect_ok(
        "a durable write",
        g.dev.write(g.start(zone), g.tagged_data(1, 1), Durability::Durable).wait(),
    )?;
    if g.geometry().zone_capacity.0 > 1 {
        expect_ok("a durable append", g.dev.append(zone, g.tagged_data(2, 1), Durability::Durable).wait())?;
        g.expect_content(g.start(zone).plus(Blocks(1)), &g.tagged_data(2, 1))?;
    }
    expect_ok("a flush", g.dev.flush().wait())?;
    g.expect_content(g.start(zone), &g.tagged_data(1, 1))
}

fn check_conventional_zones(g: &mut Fixture<'_>) -> Outcome {
    if g.geometry().conventional == 0 {
        return Ok(());
    }
    let zone = ZoneId(0);
    let size = g.geometry().zone_size;
    g.expect_state(zone, ZoneState::Conventional, size.0)?;
    let last = g.start(zone).plus(size.minus(Blocks(1)));
    for tag in 1..3 {
        expect_ok("a write at the end", g.write(last, g.tagged_data(tag, 1)))?;
        g.expect_content(last, &g.tagged_data(tag, 1))?;
    }
    expect_ok("a write at the start", g.write(g.start(zone), g.tagged_data(3, 1)))?;
    expect_ok("a flush", g.dev.flush().wait())?;
    g.expect_content(g.start(zone), &g.tagged_data(3, 1))?;
    g.expect_content(last, &g.tagged_data(2, 1))?;
    expect_error_in_zone(zone, "an append", g.append(zone, g.tagged_data(1, 1)), &[ErrorKind::Conventional])?;
    use crate::Action::{Close, Finish, Open, Reset};
    for action in [Open, Close, Finish, Reset] {
        expect_error_in_zone(zone, "a zone command", g.act(zone, action), &[ErrorKind::Conventional])?;
    }
    Ok(())
}
