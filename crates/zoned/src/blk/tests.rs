//! The block backend over a fake kernel.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use sys::Priority;
use sys::block::Zone;
use units::{Bytes, RealDriver, VirtualDriver};

use super::*;
use crate::blk::wire::BlockZones;
use crate::conformance::failures;
use crate::emu::{Emu, EmuOptions, FaultOp, FaultSpec};
use crate::kernel::fake::{Blocking, Fake, SHAPES, block, errno, options, zeroed_block};
use crate::{Action, Blocks, Done, Durability, Io, IoClass, Lba, Op, ZoneId, ZoneState};

impl BlockZones for Fake {
    fn file(&self) -> Arc<File> {
        Fake::file(self)
    }

    fn report(&self, from: Bytes, max: u32) -> io::Result<Vec<Zone>> {
        if (**self).is_gone() {
            return Err(io::Error::from_raw_os_error(5));
        }
        let geometry = self.geometry().clone();
        let size = geometry.block_size;
        let first = u32::try_from(from.0 / geometry.zone_size.bytes(size).0).expect("few zones");
        let end = first.saturating_add(max);
        let Ok(Done::Zones(zones)) = self.apply(Op::Report { zones: first..end }) else {
            panic!("a report");
        };
        if !self.several_paths.load(Ordering::Relaxed) {
            let reported: Vec<ZoneId> = zones.iter().map(|info| info.zone).collect();
            self.lost_pointers.lock().retain(|zone, noticed| !(*noticed && reported.contains(zone)));
        }
        Ok(zones.iter().map(|info| report_entry(&geometry, info)).collect())
    }

    fn command(&self, action: Action, at: Bytes, len: Bytes) -> io::Result<()> {
        if (**self).is_gone() {
            return Err(io::Error::from_raw_os_error(19));
        }
        let geometry = self.geometry();
        assert_eq!(len, geometry.zone_size.bytes(geometry.block_size));
        let zone = ZoneId(u32::try_from(at.0 / len.0).expect("few zones"));
        if matches!(action, Action::Reset | Action::Finish) {
            self.lost_pointers.lock().remove(&zone);
        }
        self.apply(Op::Zone { zone, action }).map(drop).map_err(|e| errno(e.kind()))
    }

    fn is_gone(&self) -> bool {
        (**self).is_gone()
    }
}

fn device_over(fake: &Fake, driver: &Arc<dyn Driver>) -> Arc<dyn ZonedDevice> {
    let geometry = fake.geometry();
    let limits = Limits {
        block_size: geometry.block_size,
        max_transfer: geometry.max_transfer.bytes(geometry.block_size).0.min(64 << 10),
        max_open: geometry.max_open,
        max_active: geometry.max_active,
        volatile_cache: geometry.volatile_cache,
    };
    let zones = Arc::new(fake.clone());
    let kernels = Kernels { usual: Arc::new(fake.clone()), blocking: Arc::new(Blocking(fake.clone())) };
    let name = Arc::from("blk:fake");
    assemble(name, limits, zones, kernels, Vec::new(), Arc::clone(driver)).expect("opens")
}

fn drive(options: EmuOptions, seed: u64) -> (Fake, Arc<dyn ZonedDevice>) {
    let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
    let fake = Fake::new(options, &driver);
    let dev = device_over(&fake, &driver);
    (fake, dev)
}

fn error_kinds<T: crate::FromDone>(ios: Vec<Io<T>>) -> Vec<Option<ErrorKind>> {
    ios.into_iter().map(|io| io.wait().err().map(|e| e.kind())).collect()
}

#[test]
fn the_suite_passes_in_virtual_time_whatever_order_the_kernel_takes() {
    for shape in SHAPES.iter().copied().chain(["zones=12&zone-size=64KiB&conventional=3"]) {
        for seed in 0..3 {
            let (_, dev) = drive(options(shape), seed);
            let found = failures(&dev);
            assert!(found.is_empty(), "{shape}, seed {seed}:\n{}", found.join("\n"));
        }
    }
}

#[test]
fn a_class_is_a_priority_in_the_kernel_s_queue() {
    let (fake, dev) = drive(options("zones=8&zone-size=64KiB"), 1);
    let size = dev.geometry().block_size;
    let write = |at| Op::Write { at: Lba(at), data: block(size, 7), how: Durability::Cached };
    let asked = |submit: &dyn Fn() -> Io| {
        fake.priorities.lock().clear();
        submit().wait().expect("succeeds");
        fake.priorities.lock().clone()
    };
    assert_eq!(asked(&|| dev.submit_as(IoClass::Log, write(0))), [Priority::of_log()]);
    assert_eq!(asked(&|| dev.submit_as(IoClass::Compaction, write(1))), [Priority::of_bulk()]);
    assert_eq!(asked(&|| dev.submit(write(2))), [Priority::Unset], "no class, no priority");
    let read = || Op::Read { at: Lba(0), into: zeroed_block(size) };
    assert_eq!(asked(&|| dev.submit_as(IoClass::Read, read())), [Priority::Unset]);
    assert_eq!(asked(&|| dev.submit_as(IoClass::Scrub, read())), [Priority::of_bulk()]);
    // Writes that wait for the one in flight go as one, with the highest class among them.
    fake.priorities.lock().clear();
    let classes = [IoClass::Flush, IoClass::Reclaim, IoClass::Log];
    let ios: Vec<Io> = classes.iter().zip(3..).map(|(class, at)| dev.submit_as(*class, write(at))).collect();
    ios.into_iter().for_each(|io| drop(io.wait().expect("succeeds")));
    assert_eq!(*fake.priorities.lock(), [Priority::of_bulk(), Priority::of_log()]);
    fake.priorities.lock().clear();
    let none = || dev.submit(write(7));
    let ios = [dev.submit_as(IoClass::Flush, write(6)), none(), dev.submit_as(IoClass::Flush, write(8))];
    ios.into_iter().for_each(|io| drop(io.wait().expect("succeeds")));
    let wanted = [Priority::of_bulk(), Priority::Unset];
    assert_eq!(*fake.priorities.lock(), wanted, "an operation without a class is not made bulk");
}

#[test]
fn the_suite_passes_where_a_failed_write_blocks_a_zone_until_its_reset() {
    for shape in SHAPES {
        let (fake, dev) = drive(options(shape), 1);
        fake.several_paths.store(true, Ordering::Relaxed);
        let found = failures(&dev);
        assert!(found.is_empty(), "{shape}:\n{}", found.join("\n"));
    }
}

#[test]
fn the_suite_passes_in_real_time_on_threads() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    for shape in &SHAPES[..2] {
        let fake = Fake::new(options(shape), &driver);
        let found = failures(&device_over(&fake, &driver));
        assert!(found.is_empty(), "{shape}:\n{}", found.join("\n"));
    }
}

#[test]
fn queued_neighbours_go_out_as_one_write() {
    let (fake, dev) = drive(EmuOptions::tiny(), 1);
    let before = fake.requests.load(Ordering::Relaxed);
    let ios = (0..14).map(|at| dev.write(Lba(at), block(4096, at), Durability::Cached)).collect();
    assert_eq!(error_kinds(ios), vec![None; 14]);
    assert_eq!(fake.requests.load(Ordering::Relaxed) - before, 2, "the first, and all that came meanwhile");
}

#[test]
fn a_merged_write_is_durable_if_one_of_its_parts_is() {
    // The tenth write is merged with its neighbours, behind the first write, which is in flight.
    let options = EmuOptions { track_power_cuts: true, ..EmuOptions::tiny() };
    let (fake, dev) = drive(options, 1);
    let how = |at| if at == 9 { Durability::Durable } else { Durability::Cached };
    let ios: Vec<Io<()>> = (0..14).map(|at| dev.write(Lba(at), block(4096, at), how(at))).collect();
    assert_eq!(error_kinds(ios), vec![None; 14]);
    for seed in 0..20 {
        let cut = fake.emu.power_cut(&mut crate::emu::Seeded::new(seed));
        let after: Arc<dyn ZonedDevice> =
            Emu::from_media(cut, "cut", crate::emu::Latency::NONE, VirtualDriver::new(1));
        let pointer = after.report(0..1).wait().expect("reports")[0].pointer.0;
        assert!(pointer >= 10, "{pointer}");
    }
}

#[test]
fn a_durable_write_makes_cached_blocks_below_it_durable() {
    // A write with FUA alone would leave the earlier blocks in the cache; the test looks for the flush.
    let (fake, dev) = drive(EmuOptions::tiny(), 1);
    let flushes = |at: u64, how| {
        let before = fake.flushes.load(Ordering::Relaxed);
        dev.write(Lba(at), block(4096, at), how).wait().expect("at the pointer");
        fake.flushes.load(Ordering::Relaxed) - before
    };
    assert_eq!(flushes(0, Durability::Durable), 0, "nothing cached lies below");
    assert_eq!(flushes(1, Durability::Cached), 0);
    assert_eq!(flushes(2, Durability::Durable), 1);
    assert_eq!(flushes(3, Durability::Durable), 0, "all below is durable by now");
}

#[test]
fn a_failed_write_fails_what_builds_on_it_and_nothing_else() {
    let (fake, dev) = drive(EmuOptions::tiny(), 2);
    // All three attempts of the write fail.
    fake.emu.fail(FaultSpec { count: 3, ..FaultSpec::next(FaultOp::Write) }.in_zone(ZoneId(0)));
    let ios: Vec<Io<()>> = (0..4).map(|at| dev.write(Lba(at), block(4096, at), Durability::Cached)).collect();
    let other = dev.write(dev.geometry().start(ZoneId(1)), block(4096, 9), Durability::Cached);
    let off = Some(ErrorKind::NotAtWritePointer);
    assert_eq!(error_kinds(ios), vec![Some(ErrorKind::Media), off, off, off]);
    other.wait().expect("another zone");
    dev.write(Lba(0), block(4096, 1), Durability::Cached).wait().expect("the pointer did not move");
}

#[test]
fn a_bad_block_does_not_fail_its_neighbours_in_a_merged_write() {
    let (fake, dev) = drive(EmuOptions::tiny(), 2);
    // The first write succeeds; the merged write fails, and then its parts are sent one by one.
    fake.emu.fail(FaultSpec { after: 1, ..FaultSpec::next(FaultOp::Write) });
    let ios = (0..10).map(|at| dev.write(Lba(at), block(4096, at), Durability::Cached)).collect();
    assert_eq!(error_kinds(ios), vec![None; 10]);
}

#[test]
fn appends_behind_a_failed_one_take_the_place_that_is_free() {
    let (fake, dev) = drive(EmuOptions::tiny(), 3);
    fake.emu.fail(FaultSpec { count: 3, ..FaultSpec::next(FaultOp::Write) });
    let ios: Vec<Io<Lba>> =
        (0..3).map(|n| dev.append(ZoneId(0), block(4096, n), Durability::Cached)).collect();
    let got: Vec<_> = ios.into_iter().map(|io| io.wait().map_err(|e| e.kind())).collect();
    assert_eq!(got, [Err(ErrorKind::Media), Ok(Lba(0)), Ok(Lba(1))]);
    for at in 0..2 {
        let found = dev.read(Lba(at), zeroed_block(4096)).wait().expect("reads");
        assert_eq!(*found, *block(4096, at + 1));
    }
}

#[test]
fn a_block_layer_that_lost_track_of_a_pointer_costs_reports_and_no_error() {
    let (fake, dev) = drive(EmuOptions::tiny(), 4);
    dev.write(Lba(0), block(4096, 1), Durability::Cached).wait().expect("writes");
    for (first, notices_blocking) in [(1, false), (5, true)] {
        fake.notices_blocking.store(notices_blocking, Ordering::Relaxed);
        fake.lost_pointers.lock().insert(ZoneId(0), false);
        let ios =
            (first..first + 4).map(|at| dev.write(Lba(at), block(4096, at), Durability::Cached)).collect();
        assert_eq!(error_kinds(ios), vec![None; 4]);
    }
}

#[test]
fn a_zone_that_wears_out_is_named_so() {
    let (fake, dev) = drive(EmuOptions::tiny(), 5);
    dev.write(Lba(0), block(4096, 7), Durability::Cached).wait().expect("writes");
    fake.emu.wear(ZoneId(0), ZoneState::ReadOnly);
    let error = dev.write(Lba(1), block(4096, 8), Durability::Cached).wait().expect_err("worn");
    assert_eq!((error.kind(), error.zone()), (ErrorKind::ZoneReadOnly, Some(ZoneId(0))));
    assert_eq!(*dev.read(Lba(0), zeroed_block(4096)).wait().expect("reads"), *block(4096, 7));
    let requests = fake.requests.load(Ordering::Relaxed);
    let error = dev.zone(ZoneId(0), Action::Reset).wait().expect_err("worn");
    assert_eq!(error.kind(), ErrorKind::ZoneReadOnly);
    assert_eq!(fake.requests.load(Ordering::Relaxed), requests, "it was not sent");
    fake.emu.wear(ZoneId(0), ZoneState::Offline);
    let mut error = dev.read(Lba(0), zeroed_block(4096)).wait().expect_err("offline");
    assert!(error.take_buffer().is_some());
    let error = dev.read(Lba(0), zeroed_block(4096)).wait().expect_err("offline");
    assert_eq!(error.kind(), ErrorKind::ZoneOffline);
}

#[test]
fn reads_past_the_pointer_are_zero_and_those_across_it_hold_what_was_written() {
    let (fake, dev) = drive(EmuOptions::tiny(), 6);
    dev.write(Lba(0), block(4096, 7), Durability::Cached).wait().expect("writes");
    let found = dev.read(Lba(0), crate::BufMut::zeroed(3 * 4096)).wait().expect("reads");
    assert_eq!((&found[..4096], &found[4096..]), (&*block(4096, 7), &*vec![0; 8192]));
    let requests = fake.requests.load(Ordering::Relaxed);
    let mut dirty = crate::BufMut::zeroed(4096);
    dirty.fill(9);
    assert_eq!(*dev.read(Lba(5), dirty).wait().expect("reads"), *vec![0; 4096]);
    assert_eq!(fake.requests.load(Ordering::Relaxed), requests);
}

#[test]
fn a_reset_waits_for_the_reads_before_it_and_reads_behind_it_find_nothing() {
    for seed in 0..30 {
        let (_, dev) = drive(EmuOptions::tiny(), seed);
        dev.write(Lba(0), block(4096, 7), Durability::Cached).wait().expect("writes");
        let before: Vec<_> = (0..4).map(|_| dev.read(Lba(0), zeroed_block(4096))).collect();
        let reset = dev.zone(ZoneId(0), Action::Reset);
        let behind = dev.read(Lba(0), zeroed_block(4096));
        let write = dev.write(Lba(0), block(4096, 8), Durability::Cached);
        let last = dev.read(Lba(0), zeroed_block(4096));
        for read in before {
            assert_eq!(*read.wait().expect("reads"), *block(4096, 7));
        }
        reset.wait().expect("resets");
        assert_eq!(*behind.wait().expect("reads"), *vec![0; 4096]);
        write.wait().expect("writes");
        assert_eq!(*last.wait().expect("reads"), *block(4096, 8));
    }
}

#[test]
fn a_report_shows_what_was_submitted_before_it() {
    for seed in 0..20 {
        let (_, dev) = drive(EmuOptions::tiny(), seed);
        let writes: Vec<Io<()>> =
            (0..5).map(|at| dev.write(Lba(at), block(4096, at), Durability::Cached)).collect();
        let finish = dev.zone(ZoneId(1), Action::Finish);
        let report = dev.report(0..3).wait().expect("reports");
        let states: Vec<_> = report.iter().map(|info| (info.state, info.pointer.0)).collect();
        assert_eq!(states, [(ZoneState::ImplicitOpen, 5), (ZoneState::Full, 14), (ZoneState::Empty, 0)]);
        assert_eq!(error_kinds(writes), vec![None; 5]);
        finish.wait().expect("finishes");
    }
}

#[test]
fn an_unplugged_device_ends_every_operation_as_gone() {
    for seed in 0..10 {
        let (fake, dev) = drive(EmuOptions::tiny(), seed);
        dev.write(Lba(0), block(4096, 7), Durability::Cached).wait().expect("writes");
        let writes = (1..6).map(|at| dev.write(Lba(at), block(4096, at), Durability::Cached)).collect();
        let (read, reset) = (dev.read(Lba(0), zeroed_block(4096)), dev.zone(ZoneId(1), Action::Reset));
        let report = dev.report(0..4);
        fake.gone.store(true, Ordering::SeqCst);
        let gone = Some(ErrorKind::Gone);
        assert_eq!(error_kinds(writes), vec![gone; 5]);
        assert_eq!(reset.wait().err().map(|e| e.kind()), gone);
        assert_eq!(report.wait().err().map(|e| e.kind()), gone);
        let mut error = read.wait().expect_err("gone");
        assert!(error.kind() == ErrorKind::Gone && error.take_buffer().is_some());
        let error = dev.append(ZoneId(3), block(4096, 1), Durability::Durable).wait().expect_err("gone");
        assert_eq!((error.kind(), error.zone()), (ErrorKind::Gone, Some(ZoneId(3))));
        assert_eq!(dev.flush().wait().err().map(|e| e.kind()), gone);
    }
}

#[test]
fn what_is_in_flight_when_the_device_is_dropped_still_happens() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(8);
    let fake = Fake::new(EmuOptions::tiny(), &driver);
    let dev = device_over(&fake, &driver);
    let mut ios: Vec<Io<()>> =
        (0..8).map(|at| dev.write(Lba(at), block(4096, at), Durability::Cached)).collect();
    let last = ios.pop().expect("eight");
    drop((ios, dev));
    last.wait().expect("written");
    let pointer = fake.emu.geometry().clone();
    assert!(pointer.zones > 0);
    let Ok(Done::Zones(report)) = fake.apply(Op::Report { zones: 0..1 }) else { panic!("a report") };
    assert_eq!(report[0].pointer, Blocks(8));
}

/// A random operation on one of a few zones, without limits on open zones.
fn any_op() -> impl Strategy<Value = (u32, u64, u64, u8)> {
    (0..3_u32, 0..14_u64, 1..4_u64, 0..10_u8)
}

fn make_op(dev: &Arc<dyn ZonedDevice>, tag: u64, (zone, at, len, what): (u32, u64, u64, u8)) -> Option<Op> {
    let geometry = dev.geometry();
    let start = geometry.start(ZoneId(zone));
    let data = || {
        let bytes: Vec<u8> = (0..len).flat_map(|n| block(4096, tag * 16 + n).to_vec()).collect();
        crate::Buf::copy_from(&bytes)
    };
    let how = if tag.is_multiple_of(5) { Durability::Durable } else { Durability::Cached };
    let zone = ZoneId(zone);
    Some(match what {
        0..=2 => Op::Append { zone, data: data(), how },
        3..=4 => Op::Write { at: start.plus(Blocks(at)), data: data(), how },
        5..=6 => Op::Read { at: start.plus(Blocks(at)), into: crate::BufMut::zeroed((len * 4096) as usize) },
        7 => Op::Zone { zone, action: Action::Reset },
        8 => Op::Zone { zone, action: [Action::Open, Action::Close, Action::Finish][(at % 3) as usize] },
        _ => Op::Report { zones: zone.0..zone.0 + 1 },
    })
}

fn describe_result(result: crate::Result<Done>) -> String {
    match result {
        Ok(Done::Read(data)) => {
            format!("read {:?}", data.chunks(4096).map(|block| block[0]).collect::<Vec<_>>())
        }
        // Reports are not compared: a merged write may contain operations submitted after the report.
        Ok(Done::Zones(_)) => "report".into(),
        Ok(done) => format!("{done:?}"),
        // The address in the error of an append to a finished zone is not specified.
        Err(e) if e.kind() == ErrorKind::ZoneFull => format!("full {:?}", e.zone()),
        Err(e) => format!("{:?} {:?} {:?}", e.kind(), e.zone(), e.address()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn all_at_once_gives_what_one_by_one_gives(ops in prop::collection::vec(any_op(), 1..40), seed: u64) {
        let options = || EmuOptions { max_open: None, max_active: None, ..EmuOptions::tiny() };
        let (_, dev) = drive(options(), seed);
        let plain: Arc<dyn ZonedDevice> = Emu::memory(options(), VirtualDriver::new(1));
        let tagged = || ops.iter().copied().zip(1_u64..);
        let ios: Vec<Io> =
            tagged().filter_map(|(op, tag)| make_op(&dev, tag, op)).map(|op| dev.submit(op)).collect();
        let together: Vec<String> = ios.into_iter().map(|io| describe_result(io.wait())).collect();
        let one_by_one: Vec<String> = tagged()
            .filter_map(|(op, tag)| make_op(&plain, tag, op))
            .map(|op| describe_result(plain.submit(op).wait()))
            .collect();
        prop_assert_eq!(together, one_by_one);
        let states = |dev: &Arc<dyn ZonedDevice>| dev.report_all().expect("reports");
        prop_assert_eq!(states(&dev), states(&plain));
    }
}
