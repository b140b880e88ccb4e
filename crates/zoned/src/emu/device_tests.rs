use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use units::{RealDriver, VirtualDriver};

use super::*;
use crate::{
    Action, Blocks, Buf, BufMut, Driver, Durability, ErrorKind, Io, Lba, ZoneId, ZoneState, ZonedDevice,
};

fn as_device(emu: &Arc<Emu>) -> Arc<dyn ZonedDevice> {
    emu.clone()
}

fn block(tag: u8) -> Buf {
    Buf::copy_from(&[tag; 4096])
}

fn append(dev: &Arc<dyn ZonedDevice>, zone: u32, tag: u8) -> Io<Lba> {
    dev.append(ZoneId(zone), block(tag), Durability::Cached)
}

#[test]
fn operations_in_flight_share_the_delay() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let latency = Latency { read: Duration::from_micros(50), ..Latency::all(Duration::from_micros(15)) };
    let dev = as_device(&Emu::memory(EmuOptions { latency, ..EmuOptions::tiny() }, Arc::clone(&driver)));
    let ios: Vec<_> = (0..10).map(|n| append(&dev, 0, n)).collect();
    assert!(ios.into_iter().all(|io| io.wait().is_ok()));
    assert_eq!(driver.now().0, 15_000);
    dev.read(Lba(0), BufMut::zeroed(4096)).wait().expect("written");
    assert_eq!(driver.now().0, 65_000);
}

#[test]
fn what_has_not_come_due_is_not_acknowledged_when_the_power_goes() {
    let latency = Latency::all(Duration::from_micros(15));
    let options = EmuOptions { latency, volatile_cache: false, ..EmuOptions::tiny() };
    let emu = Emu::memory(options, VirtualDriver::new(1));
    let dev = as_device(&emu);
    let pointers = |emu: &Emu| -> BTreeSet<u64> {
        let mut all = Exhaustive::new();
        let mut seen = BTreeSet::new();
        while all.next() {
            let after = emu.power_cut(&mut all);
            let info = after.report(0..1).remove(0);
            if info.state != ZoneState::Full {
                seen.insert(info.pointer.0);
            }
        }
        seen
    };
    let first = append(&dev, 0, 1);
    assert_eq!(pointers(&emu), BTreeSet::from([0, 1]));
    first.wait().expect("fits");
    assert_eq!(pointers(&emu), BTreeSet::from([1]));
    drop(append(&dev, 0, 2));
    assert_eq!(pointers(&emu), BTreeSet::from([1, 2]));
}

#[test]
fn a_flush_in_flight_does_not_cover_later_writes() {
    let latency = Latency::all(Duration::from_micros(15));
    let emu = Emu::memory(EmuOptions { latency, ..EmuOptions::tiny() }, VirtualDriver::new(1));
    let dev = as_device(&emu);
    append(&dev, 0, 1).wait().expect("fits");
    let flush = dev.flush();
    let late = append(&dev, 0, 2);
    flush.wait().expect("flushes");
    late.wait().expect("fits");
    let mut all = Exhaustive::new();
    let mut least = u64::MAX;
    while all.next() {
        least = least.min(emu.power_cut(&mut all).report(0..1).remove(0).pointer.0);
    }
    assert_eq!(least, 1);
}

#[test]
fn threads_append_to_one_zone_and_to_their_own_without_losing_a_block() {
    let options = EmuOptions { zones: 8, track_power_cuts: true, ..EmuOptions::default() };
    for track_power_cuts in [false, true] {
        let dev =
            as_device(&Emu::memory(EmuOptions { track_power_cuts, ..options.clone() }, RealDriver::new()));
        let places: Vec<(Lba, u8)> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4_u8)
                .map(|worker| {
                    let dev = &dev;
                    scope.spawn(move || {
                        let mut places = Vec::new();
                        for _ in 0..200 {
                            for zone in [0, u32::from(worker) + 1] {
                                places
                                    .push((append(dev, zone, worker + 1).wait().expect("fits"), worker + 1));
                            }
                        }
                        places
                    })
                })
                .collect();
            workers.into_iter().flat_map(|w| w.join().expect("no panic")).collect()
        });
        assert_eq!(places.iter().map(|(at, _)| at).collect::<BTreeSet<_>>().len(), 4 * 400);
        for (at, tag) in places {
            let data = dev.read(at, BufMut::zeroed(4096)).wait().expect("written");
            assert!(data.iter().all(|b| *b == tag));
        }
        assert_eq!(dev.report(0..1).wait().expect("reports").remove(0).pointer, Blocks(800));
    }
}

#[test]
fn threads_that_compete_for_open_zones_never_exceed_the_limits() {
    let options = EmuOptions { zones: 16, max_open: Some(3), max_active: Some(6), ..EmuOptions::tiny() };
    let emu = Emu::memory(options, RealDriver::new());
    std::thread::scope(|scope| {
        for worker in 0..4_u32 {
            let dev = as_device(&emu);
            scope.spawn(move || {
                for round in 0..500 {
                    let zone = ZoneId((worker * 4 + round % 4) % 16);
                    match dev.append(zone, block(1), Durability::Cached).wait() {
                        Ok(_) => {}
                        Err(e) if e.kind() == ErrorKind::TooManyActive || e.kind() == ErrorKind::ZoneFull => {
                            dev.zone(zone, Action::Reset).wait().expect("legal");
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    let (open, active) = emu.media().in_use();
    assert!(open <= 3 && active <= 6, "{open} {active}");
    let report = as_device(&emu).report_all().expect("reports");
    assert_eq!(report.iter().filter(|i| i.state.is_open()).count(), open as usize);
    assert_eq!(report.iter().filter(|i| i.state.is_active()).count(), active as usize);
}

#[test]
fn worn_zones_refuse_writes_and_free_their_resources() {
    let emu = Emu::memory(EmuOptions::tiny(), VirtualDriver::new(1));
    let dev = as_device(&emu);
    let at = append(&dev, 0, 7).wait().expect("fits");
    append(&dev, 1, 8).wait().expect("fits");
    emu.wear(ZoneId(0), ZoneState::ReadOnly);
    emu.wear(ZoneId(1), ZoneState::Offline);
    assert_eq!(emu.media().in_use(), (0, 0));
    assert!(dev.read(at, BufMut::zeroed(4096)).wait().is_ok_and(|data| data[0] == 7));
    let lost = dev.read(dev.geometry().start(ZoneId(1)), BufMut::zeroed(4096)).wait();
    assert_eq!(lost.expect_err("gone").kind(), ErrorKind::ZoneOffline);
    for (zone, kind) in [(0, ErrorKind::ZoneReadOnly), (1, ErrorKind::ZoneOffline)] {
        assert_eq!(append(&dev, zone, 1).wait().expect_err("worn").kind(), kind);
        for action in [Action::Reset, Action::Finish, Action::Open, Action::Close] {
            let error = dev.zone(ZoneId(zone), action).wait().expect_err("worn");
            assert_eq!((error.kind(), error.zone()), (kind, Some(ZoneId(zone))));
        }
    }
}

#[test]
fn injected_faults_hit_the_operations_they_name_and_no_others() {
    let emu = Emu::memory(EmuOptions::tiny(), VirtualDriver::new(1));
    let dev = as_device(&emu);
    emu.fail(
        FaultSpec { after: 1, every: 2, count: 2, ..FaultSpec::next(FaultOp::Write) }.in_zone(ZoneId(0)),
    );
    let failed: Vec<bool> = (0..7).map(|n| append(&dev, 0, n).wait().is_err()).collect();
    assert_eq!(failed, [false, true, false, true, false, false, false]);
    emu.fail(FaultSpec::next(FaultOp::Read));
    let mut error = dev.read(Lba(0), BufMut::zeroed(4096)).wait().expect_err("injected");
    assert_eq!((error.kind(), error.take_buffer().map(|b| b.len())), (ErrorKind::Media, Some(4096)));
    emu.fail(FaultSpec::all(FaultOp::Flush));
    assert!(dev.flush().wait().is_err() && dev.flush().wait().is_err());
    emu.clear_faults();
    assert!(dev.flush().wait().is_ok());
    assert_eq!(dev.report(0..1).wait().expect("reports").remove(0).pointer, Blocks(5));
}

#[test]
fn a_flush_that_failed_makes_nothing_durable() {
    let emu = Emu::memory(EmuOptions::tiny(), VirtualDriver::new(1));
    let dev = as_device(&emu);
    append(&dev, 0, 1).wait().expect("fits");
    emu.fail(FaultSpec::next(FaultOp::Flush));
    dev.flush().wait().expect_err("injected");
    let mut all = Exhaustive::new();
    let mut lost = false;
    while all.next() {
        lost |= emu.power_cut(&mut all).report(0..1).remove(0).pointer == Blocks::ZERO;
    }
    assert!(lost);
}

#[test]
fn a_drive_goes_on_after_a_power_cut() {
    let emu = Emu::memory(EmuOptions::tiny(), VirtualDriver::new(1));
    let dev = as_device(&emu);
    append(&dev, 0, 1).wait().expect("fits");
    dev.flush().wait().expect("flushes");
    let media = emu.power_cut(&mut Seeded::new(3));
    let again = Emu::from_media(media, "emu:again", Latency::NONE, VirtualDriver::new(1));
    let dev = as_device(&again);
    assert_eq!(&*dev.geometry().name, "emu:again");
    append(&dev, 1, 2).wait().expect("fits");
    assert!(append(&dev, 99, 2).wait().expect_err("no such zone").to_string().contains("(emu:again: append"));
    assert_eq!(dev.read(Lba(0), BufMut::zeroed(4096)).wait().expect("durable")[0], 1);
}

#[test]
fn what_lies_past_the_pointer_reads_as_zeros_whatever_the_buffer_or_the_zone_held() {
    let emu = Emu::memory(EmuOptions::tiny(), VirtualDriver::new(1));
    let dev = as_device(&emu);
    for tag in 1..4 {
        append(&dev, 0, tag).wait().expect("fits");
    }
    dev.zone(ZoneId(0), Action::Reset).wait().expect("legal");
    append(&dev, 0, 9).wait().expect("fits");
    let mut into = BufMut::zeroed(3 * 4096);
    into.fill(7);
    let data = dev.read(Lba(0), into).wait().expect("allowed");
    assert!(data[..4096].iter().all(|b| *b == 9) && data[4096..].iter().all(|b| *b == 0));
}
