use std::collections::HashMap;

use parking_lot::Mutex;
use units::{Driver, VirtualDriver, block_on};
use zoned::Op;
use zoned::emu::{Emu, EmuOptions};

use super::*;

const BLOCK: u64 = 4096;

/// The data of requests, in memory.
#[derive(Default)]
struct Memory(Mutex<HashMap<u16, Vec<u8>>>);

impl RequestData for Memory {
    fn take(&self, _: u16, tag: Tag, into: &mut [u8]) -> std::io::Result<()> {
        let data = self.0.lock();
        into.copy_from_slice(data.get(&tag.0).ok_or(std::io::ErrorKind::InvalidInput)?);
        Ok(())
    }

    fn give(&self, _: u16, tag: Tag, data: &[u8]) -> std::io::Result<()> {
        self.0.lock().insert(tag.0, data.to_vec());
        Ok(())
    }
}

/// A device that keeps the names and durability of the operations that it is given.
#[derive(Debug)]
struct Recorded {
    inner: Arc<dyn ZonedDevice>,
    operations: Mutex<Vec<(&'static str, Durability)>>,
}

impl ZonedDevice for Recorded {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let how = match &op {
            Op::Write { how, .. } | Op::Append { how, .. } => *how,
            _ => Durability::Cached,
        };
        self.operations.lock().push((op.name(), how));
        self.inner.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

struct Bench {
    recorded: Arc<Recorded>,
    service: Service<Memory>,
}

fn bench() -> Bench {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let options = EmuOptions { max_open: Some(2), max_active: Some(3), ..EmuOptions::tiny() };
    let inner: Arc<dyn ZonedDevice> = Emu::memory(options, driver);
    let recorded = Arc::new(Recorded { inner, operations: Mutex::default() });
    let device = Arc::clone(&recorded) as Arc<dyn ZonedDevice>;
    Bench { service: Service::new(&device, &Arc::default(), 3, Bytes(1 << 20)), recorded }
}

impl Bench {
    fn zone_start(&self, zone: u32) -> u64 {
        self.recorded.geometry().start(ZoneId(zone)).0 * BLOCK
    }

    fn request(&self, tag: u16, operation: Operation, at: u64, blocks: u64) -> Request {
        Request { tag: Tag(tag), operation, at: Bytes(at), len: Bytes(blocks * BLOCK), zones: 0, fua: false }
    }

    /// The request of a write or an append of blocks with the byte `fill`.
    fn write(&self, tag: u16, operation: Operation, at: u64, fill: u8) -> Request {
        self.service.data.0.lock().insert(tag, vec![fill; usize::try_from(BLOCK).expect("small")]);
        self.request(tag, operation, at, 1)
    }

    fn run(&self, request: Request) -> Outcome {
        block_on(&**self.recorded.driver(), self.service.start(request)).1
    }

    fn data(&self, tag: u16) -> Vec<u8> {
        self.service.data.0.lock().get(&tag).cloned().unwrap_or_default()
    }
}

#[test]
fn writes_of_a_zone_reach_the_device_in_the_order_in_which_they_are_started() {
    let bench = bench();
    let start = bench.zone_start(1);
    let requests: Vec<Request> = (0..3)
        .map(|n| bench.write(n, Operation::Write, start + u64::from(n) * BLOCK, 10 + n as u8))
        .collect();
    let running: Vec<Running> = requests.into_iter().map(|request| bench.service.start(request)).collect();
    // Only the order of starting counts, not that of waiting.
    for running in running.into_iter().rev() {
        let (_, outcome) = block_on(&**bench.recorded.driver(), running);
        assert_eq!(outcome, Outcome::Moved(Bytes(BLOCK)));
    }
    assert_eq!(bench.run(bench.request(7, Operation::Read, start, 3)), Outcome::Moved(Bytes(3 * BLOCK)));
    let read = bench.data(7);
    assert_eq!((read[0], read[4096], read[8192], read.len()), (10, 11, 12, 12_288));
}

#[test]
fn an_append_says_at_which_byte_it_landed() {
    let bench = bench();
    let start = bench.zone_start(2);
    for n in 0..3 {
        let append = bench.write(0, Operation::Append, start, 1);
        assert_eq!(bench.run(append), Outcome::Appended(Bytes(start + n * BLOCK)));
    }
}

#[test]
fn only_a_fua_request_is_a_durable_write() {
    let bench = bench();
    let plain = bench.write(0, Operation::Write, 0, 1);
    bench.run(plain);
    let fua = Request { fua: true, ..bench.write(0, Operation::Write, BLOCK, 1) };
    bench.run(fua);
    let append = Request { fua: true, ..bench.write(0, Operation::Append, bench.zone_start(1), 1) };
    bench.run(append);
    assert_eq!(bench.run(bench.request(0, Operation::Flush, 0, 0)), Outcome::Done);
    assert_eq!(
        *bench.recorded.operations.lock(),
        [
            ("write", Durability::Cached),
            ("write", Durability::Durable),
            ("append", Durability::Durable),
            ("flush", Durability::Cached),
        ]
    );
}

#[test]
fn zone_commands_name_the_zone_by_its_first_byte() {
    let bench = bench();
    let start = bench.zone_start(3);
    for operation in [Operation::OpenZone, Operation::CloseZone, Operation::FinishZone, Operation::ResetZone]
    {
        assert_eq!(bench.run(bench.request(0, operation, start, 0)), Outcome::Done, "{operation:?}");
    }
    let names: Vec<_> = bench.recorded.operations.lock().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["open", "close", "finish", "reset"]);
}

#[test]
fn a_report_has_the_zones_that_were_asked_for_and_fills_the_kernels_buffer() {
    let bench = bench();
    let write = bench.write(0, Operation::Write, bench.zone_start(1), 1);
    bench.run(write);
    let report = Request { zones: 2, ..bench.request(5, Operation::ReportZones, bench.zone_start(1), 0) };
    assert_eq!(bench.run(report), Outcome::Moved(Bytes(1 << 20)));
    let bytes = bench.data(5);
    assert_eq!(bytes.len(), 2 * 64);
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) * 512;
    assert_eq!((word(0), word(16)), (bench.zone_start(1), bench.zone_start(1) + BLOCK));
    assert_eq!((bytes[25], bytes[64 + 25]), (2, 1), "implicitly open, empty");
    // At the device's end there are fewer.
    let last = bench.recorded.geometry().zones - 1;
    let report = Request { zones: 9, ..bench.request(6, Operation::ReportZones, bench.zone_start(last), 0) };
    bench.run(report);
    assert_eq!(bench.data(6).len(), 64);
}

#[test]
fn a_reset_of_all_zones_resets_those_that_hold_something() {
    let bench = bench();
    for zone in [0, 2] {
        let write = bench.write(0, Operation::Write, bench.zone_start(zone), 1);
        bench.run(write);
    }
    bench.recorded.operations.lock().clear();
    assert_eq!(bench.run(bench.request(0, Operation::ResetAllZones, 0, 0)), Outcome::Done);
    let names: Vec<_> = bench.recorded.operations.lock().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["report", "reset", "reset"]);
    let zones = bench.recorded.inner.report_all().expect("a report");
    assert!(zones.iter().all(|zone| zone.state == ZoneState::Empty));
}

#[test]
fn failures_have_the_block_layers_error_numbers() {
    let bench = bench();
    let away = bench.write(0, Operation::Write, 5 * BLOCK, 1);
    assert_eq!(bench.run(away), Outcome::Failed { errno: libc::EIO });
    for zone in 0..3 {
        let write = bench.write(0, Operation::Write, bench.zone_start(zone), 1);
        assert_eq!(bench.run(write), Outcome::Moved(Bytes(BLOCK)));
    }
    let fourth = bench.write(0, Operation::Write, bench.zone_start(3), 1);
    assert_eq!(bench.run(fourth), Outcome::Failed { errno: libc::EOVERFLOW });
    let beyond = bench.request(0, Operation::ResetZone, 1 << 50, 0);
    assert_eq!(bench.run(beyond), Outcome::Failed { errno: libc::EIO });
    let unknown = bench.request(0, Operation::Other(5), 0, 8);
    assert_eq!(bench.run(unknown), Outcome::Failed { errno: libc::EOPNOTSUPP });
    let unaligned = bench.request(0, Operation::Read, 512, 1);
    assert_eq!(bench.run(unaligned), Outcome::Failed { errno: libc::EIO });
}

#[test]
fn a_request_whose_data_cannot_be_copied_fails_and_writes_nothing() {
    let bench = bench();
    let request = bench.request(9, Operation::Write, 0, 1);
    assert_eq!(bench.run(request), Outcome::Failed { errno: libc::EIO });
    assert!(bench.recorded.operations.lock().is_empty());
}
