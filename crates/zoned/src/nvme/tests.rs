//! Tests of the NVMe backend over a fake kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use units::{Bytes, RealDriver, VirtualDriver};

use super::*;
use crate::conformance::failures;
use crate::emu::{EmuOptions, FaultOp, FaultSpec};
use crate::kernel::fake::{Fake, SHAPES, block, errno, options, zeroed_block};
use crate::{Done, Durability, Io, Lba, Op, ZoneId, ZoneState};

/// A fake namespace, with or without a block device beside it.
struct FakeNamespace {
    fake: Fake,
    block: bool,
}

impl Namespace for FakeNamespace {
    fn file(&self) -> Arc<File> {
        self.fake.file()
    }

    fn receive(&self, command: &Command, into: &mut [u8]) -> io::Result<(u16, u64)> {
        if self.fake.is_gone() {
            return Err(io::Error::from_raw_os_error(19));
        }
        fake::receive(&self.fake, command, into)
    }

    fn has_block_device(&self) -> bool {
        self.block
    }

    fn command_by_block_device(&self, action: Action, at: Bytes, len: Bytes) -> io::Result<()> {
        assert!(self.block && matches!(action, Action::Reset | Action::Finish));
        let zone = ZoneId(u32::try_from(at.0 / len.0).expect("few zones"));
        self.fake.apply(Op::Zone { zone, action }).map(drop).map_err(|e| errno(e.kind()))
    }

    fn is_gone(&self) -> bool {
        self.fake.is_gone()
    }
}

fn device_over(fake: &Fake, block: bool, driver: &Arc<dyn Driver>) -> Arc<dyn ZonedDevice> {
    let facts = shape::tests::identify_data(fake.geometry());
    let namespace = Arc::new(FakeNamespace { fake: fake.clone(), block });
    let kernel = Arc::new(fake.clone());
    let name = Arc::from("nvme:fake");
    assemble(name, 1, &facts, namespace, kernel, Vec::new(), Arc::clone(driver)).expect("opens")
}

fn drive(options: EmuOptions, seed: u64) -> (Fake, Arc<dyn ZonedDevice>) {
    let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
    let fake = Fake::new(options, &driver);
    let dev = device_over(&fake, seed.is_multiple_of(2), &driver);
    (fake, dev)
}

fn append(dev: &Arc<dyn ZonedDevice>, zone: u32, tag: u64) -> Io<Lba> {
    dev.append(ZoneId(zone), block(4096, tag), Durability::Cached)
}

#[test]
fn the_suite_passes_in_virtual_time_whatever_order_the_kernel_takes() {
    for shape in SHAPES {
        for seed in 0..4 {
            let (_, dev) = drive(options(shape), seed);
            let found = failures(&dev);
            assert!(found.is_empty(), "{shape}, seed {seed}:\n{}", found.join("\n"));
        }
    }
}

#[test]
fn the_suite_passes_where_every_refusal_is_an_internal_error() {
    for shape in SHAPES {
        let (fake, dev) = drive(options(shape), 1);
        fake.internal_errors.store(true, Ordering::Relaxed);
        let found = failures(&dev);
        assert!(found.is_empty(), "{shape}:\n{}", found.join("\n"));
    }
}

#[test]
fn the_last_result_comes_when_the_device_is_released() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let fake = Fake::new(EmuOptions::tiny(), &driver);
    for _ in 0..50 {
        let before = Arc::strong_count(&fake.file());
        let dev = device_over(&fake, true, &driver);
        let ios: Vec<Io<Lba>> = (0..4).map(|tag| append(&dev, 0, tag)).collect();
        drop(dev);
        ios.into_iter().for_each(|io| assert!(io.wait().is_ok()));
        assert_eq!(Arc::strong_count(&fake.file()), before);
        fake.apply(Op::Zone { zone: ZoneId(0), action: Action::Reset }).expect("resets");
    }
}

#[test]
fn the_suite_passes_in_real_time_on_threads() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    for shape in &SHAPES[..2] {
        let fake = Fake::new(options(shape), &driver);
        let found = failures(&device_over(&fake, true, &driver));
        assert!(found.is_empty(), "{shape}:\n{}", found.join("\n"));
    }
}

#[test]
fn appends_fly_together_and_land_in_any_order() {
    let (fake, dev) = drive(EmuOptions::tiny(), 1);
    let ios: Vec<Io<Lba>> = (0..14).map(|tag| append(&dev, 0, tag)).collect();
    let got: Vec<Lba> = ios.into_iter().map(|io| io.wait().expect("fits")).collect();
    assert_eq!(fake.most_appends.load(Ordering::Relaxed), 14);
    let mut sorted = got.clone();
    sorted.sort();
    assert_eq!(sorted, (0..14).map(Lba).collect::<Vec<_>>());
    assert_ne!(got, sorted, "they landed in the order of submission");
    for (at, tag) in got.iter().zip(0..) {
        assert_eq!(*dev.read(*at, zeroed_block(4096)).wait().expect("reads"), *block(4096, tag));
    }
}

#[test]
fn an_acknowledged_append_is_readable_while_other_appends_are_in_flight() {
    let (fake, dev) = drive(EmuOptions::tiny(), 3);
    let mut flying: Vec<Io<Lba>> = (0..8).map(|tag| append(&dev, 0, tag)).collect();
    let at = flying.remove(0).wait().expect("fits");
    let more = append(&dev, 0, 9);
    let before = fake.requests.load(Ordering::Relaxed);
    let read = dev.read(at, zeroed_block(4096));
    assert_eq!(fake.requests.load(Ordering::Relaxed), before + 1, "it does not wait for them");
    assert_eq!(*read.wait().expect("reads"), *block(4096, 0));
    more.wait().expect("fits");
    assert!(flying.into_iter().all(|io| io.wait().is_ok()));
}

#[test]
fn a_write_waits_for_the_appends_before_it() {
    for seed in 0..20 {
        let (_, dev) = drive(EmuOptions::tiny(), seed);
        let ios: Vec<Io<Lba>> = (0..5).map(|tag| append(&dev, 0, tag)).collect();
        let write = dev.write(Lba(5), block(4096, 9), Durability::Durable);
        let after = append(&dev, 0, 10);
        write.wait().expect("at the pointer");
        assert_eq!(after.wait().expect("fits"), Lba(6));
        assert!(ios.into_iter().all(|io| io.wait().expect("fits") < Lba(5)));
    }
}

#[test]
fn a_failed_append_fails_alone_and_the_zone_goes_on() {
    for seed in 0..20 {
        let (fake, dev) = drive(EmuOptions::tiny(), seed);
        fake.emu.fail(FaultSpec { after: 3, ..FaultSpec::next(FaultOp::Write) });
        let ios: Vec<Io<Lba>> = (0..8).map(|tag| append(&dev, 0, tag)).collect();
        let got: Vec<_> = ios.into_iter().map(|io| io.wait().map_err(|e| e.kind())).collect();
        assert_eq!(got.iter().filter(|r| **r == Err(ErrorKind::Media)).count(), 1);
        let places: BTreeSet<Lba> = got.into_iter().flatten().collect();
        assert_eq!(places, (0..7).map(Lba).collect());
        dev.write(Lba(7), block(4096, 1), Durability::Cached).wait().expect("the pointer is known again");
    }
}

#[test]
fn a_durable_append_makes_cached_blocks_below_it_durable() {
    // The fake's FUA makes the zone durable; the test looks for the flush, which covers all zones.
    let (fake, dev) = drive(EmuOptions::tiny(), 1);
    let durable = || {
        dev.append(ZoneId(0), block(4096, 1), Durability::Durable).wait().expect("fits");
    };
    let flushes = |what: &dyn Fn()| {
        let before = fake.flushes.load(Ordering::Relaxed);
        what();
        fake.flushes.load(Ordering::Relaxed) - before
    };
    assert_eq!(flushes(&durable), 0, "nothing cached lies below");
    append(&dev, 0, 2).wait().expect("fits");
    assert_eq!(flushes(&durable), 1);
    assert_eq!(flushes(&durable), 0, "it is durable by now");
    append(&dev, 0, 3).wait().expect("fits");
    dev.flush().wait().expect("flushes");
    assert_eq!(flushes(&durable), 0);
    append(&dev, 0, 4).wait().expect("fits");
    fake.emu.fail(FaultSpec::next(FaultOp::Flush));
    let error = dev.append(ZoneId(0), block(4096, 5), Durability::Durable).wait().expect_err("not durable");
    assert_eq!((error.kind(), error.zone()), (ErrorKind::Media, Some(ZoneId(0))));
}

#[test]
fn a_cached_append_that_lands_below_a_durable_one_is_durable_too() {
    let (mut below, mut durable_above_gap) = (0, 0);
    for seed in 0..200 {
        let (fake, dev) = drive(EmuOptions::tiny(), seed);
        let cached = append(&dev, 0, 1);
        let durable = dev.append(ZoneId(0), block(4096, 2), Durability::Durable);
        let (cached, durable) = (cached.wait().expect("fits"), durable.wait().expect("fits"));
        if cached < durable {
            below += 1;
            durable_above_gap += fake.flushes.load(Ordering::Relaxed);
        }
    }
    assert!(below > 0, "the fake kernel takes appends in any order");
    assert_eq!(durable_above_gap, below, "each has its flush, whichever was acknowledged first");
}

#[test]
fn the_drives_statuses_are_the_contracts_errors() {
    let cases = [
        (0x1b9, ErrorKind::ZoneFull),
        (0x1bc, ErrorKind::NotAtWritePointer),
        (0x1bd, ErrorKind::TooManyActive),
        (0x1be, ErrorKind::TooManyOpen),
        (0x1ba, ErrorKind::ZoneReadOnly),
        (0x1bb, ErrorKind::ZoneOffline),
        (0x281, ErrorKind::Media),
        (0x006, ErrorKind::Media),
        (0x371, ErrorKind::Unknown),
        (0x002, ErrorKind::Invalid),
    ];
    let (fake, _) = drive(EmuOptions::tiny(), 1);
    let namespace = Arc::new(FakeNamespace { fake: fake.clone(), block: false });
    let wire = NvmeWire::new(fake.geometry().clone(), 1, namespace);
    use crate::kernel::{ExpectedReply, Wire};
    for (status, kind) in cases {
        let finished = sys::Finished { result: Ok(0), status, buffer: None };
        let failure = wire.interpret(ExpectedReply::Address, finished).expect_err("a status");
        assert_eq!(failure.kind, kind, "{status:#x}");
        assert!(failure.detail.contains(&format!("{status:#05x}")), "{}", failure.detail);
    }
}

#[test]
fn an_address_that_cannot_be_is_no_success() {
    let (fake, dev) = drive(EmuOptions::tiny(), 1);
    append(&dev, 0, 1).wait().expect("fits");
    fake.wrong_append_address.store(true, Ordering::Relaxed);
    let error = append(&dev, 0, 2).wait().expect_err("it cannot have landed there");
    assert_eq!((error.kind(), error.zone()), (ErrorKind::Host, Some(ZoneId(0))));
    fake.wrong_append_address.store(false, Ordering::Relaxed);
    // The append with the wrong address landed, and the report shows its block.
    assert_eq!(append(&dev, 0, 3).wait().expect("fits"), Lba(2));
}

#[test]
fn an_unplugged_drive_ends_every_operation_as_gone() {
    for seed in 0..10 {
        let (fake, dev) = drive(EmuOptions::tiny(), seed);
        let ios: Vec<Io<Lba>> = (0..8).map(|tag| append(&dev, 0, tag)).collect();
        let reset = dev.zone(ZoneId(0), Action::Reset);
        fake.gone.store(true, Ordering::SeqCst);
        for io in ios {
            assert_eq!(io.wait().expect_err("gone").kind(), ErrorKind::Gone);
        }
        assert_eq!(reset.wait().expect_err("gone").kind(), ErrorKind::Gone);
        assert_eq!(append(&dev, 1, 1).wait().expect_err("gone").kind(), ErrorKind::Gone);
        assert_eq!(dev.report_all().expect_err("gone").kind(), ErrorKind::Gone);
    }
}

#[test]
fn a_large_drives_report_comes_in_parts() {
    let shape = EmuOptions { zones: 5000, ..EmuOptions::tiny() };
    let (fake, dev) = drive(shape, 1);
    fake.apply(Op::Zone { zone: ZoneId(4999), action: Action::Finish }).expect("finishes");
    let report = dev.report_all().expect("reports");
    assert_eq!(report.len(), 5000);
    assert_eq!(report[4999].state, ZoneState::Full);
    assert_eq!(dev.report(4998..6000).wait().expect("reports").len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Operations take effect in the order of submission, except appends among each other: the appends
    /// between two other operations of their zone share the addresses that they would have got one by one.
    #[test]
    fn all_at_once_gives_what_one_by_one_gives_up_to_the_order_of_appends(
        ops in prop::collection::vec((0..3_u32, 0..12_u8), 1..60),
        seed: u64,
    ) {
        let (_, dev) = drive(
            EmuOptions { max_open: None, max_active: None, ..EmuOptions::tiny() }, seed,
        );
        let start = |zone: u32| dev.geometry().start(ZoneId(zone));
        let mut ios = Vec::new();
        let mut pointers = [0_u64; 3];
        let mut runs = BTreeMap::new();
        let mut run = [0_u64; 3];
        let mut life = [0_u64; 3];
        for ((zone, what), tag) in ops.iter().copied().zip(1_u64..) {
            let pointer = &mut pointers[zone as usize];
            if what >= 8 {
                run[zone as usize] += 1;
            }
            let key = (zone, life[zone as usize], run[zone as usize]);
            match what {
                // The addresses that a run of appends shares, as long as the zone has room.
                0..=7 => {
                    if *pointer < 14 {
                        runs.entry(key).or_insert_with(BTreeSet::new).insert(start(zone).0 + *pointer);
                    }
                    *pointer = (*pointer + 1).min(14);
                    ios.push((Some(key), tag, dev.append(ZoneId(zone), block(4096, tag), Durability::Cached)));
                }
                8..=9 => {
                    let fits = *pointer < 14;
                    let at = Lba(start(zone).0 + *pointer);
                    *pointer += u64::from(fits);
                    let io = dev.write(at, block(4096, tag), Durability::Durable);
                    // The write's outcome is checked with the run's addresses: the given address, or a full
                    // zone.
                    ios.push((None, tag, Io::spawn(dev.driver(), &Arc::from("test"), async move {
                        let result = io.await;
                        assert_eq!(result.is_ok(), fits);
                        Ok(Done::At(at))
                    }).typed()));
                }
                _ => {
                    *pointer = 0;
                    life[zone as usize] += 1;
                    drop(dev.zone(ZoneId(zone), Action::Reset));
                }
            }
        }
        let mut found = BTreeMap::new();
        for (key, tag, io) in ios {
            match (key, io.wait()) {
                (Some(key), Ok(at)) => {
                    prop_assert!(found.entry(key).or_insert_with(BTreeSet::new).insert(at.0));
                    // Content of blocks that no reset has erased reads back.
                    if key.1 == life[key.0 as usize] {
                        let read = dev.read(at, zeroed_block(4096)).wait().expect("reads");
                        prop_assert_eq!(&read[..8], &tag.to_le_bytes());
                    }
                }
                (Some(_), Err(e)) => prop_assert_eq!(e.kind(), ErrorKind::ZoneFull),
                (None, _) => {}
            }
        }
        prop_assert_eq!(found, runs);
        let report = dev.report(0..3).wait().expect("reports");
        prop_assert_eq!(report.iter().map(|info| info.pointer.0).collect::<Vec<_>>(), pointers.to_vec());
    }
}
