//! Tests of the ordered log as a whole, on an emulated drive.

mod appending;
mod in_place;
mod power;
mod reading;
mod recovery;
mod writing;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use units::{Blocks, Bytes, Driver, Lba, VirtualDriver, ZoneId, block_on};
use uuid::Uuid;
use zoned::emu::{Emu, EmuOptions, Media};
use zoned::{Action, Buf, BufMut, Durability, Geometry, Io, Op, ZonedDevice};

use crate::error::{Error, ErrorKind, Result};
use crate::wal::entry::{EntryHeader, HEADER_SIZE, Home};
use crate::wal::index::{Check, LogIndex};
use crate::wal::options::{IoMode, LogOptions, LogZones};
use crate::wal::ordered::buffer::LogIdentity;
use crate::wal::ordered::recover::recover;
use crate::wal::ordered::recovered::{Cut, Recovered};
use crate::wal::ordered::writer::LogWriter;
use crate::wal::segment::{Next, Segment, SegmentSource};

const BLOCK: usize = 4096;
const LOG: u64 = 77;
const GENERATION: u64 = 5;
const FIRST: [Cut; 1] = [Cut { epoch: 1, first_sequence: 0 }];

fn check() -> Check {
    Check { uuid: uuid(), log: LOG }
}

fn identity(epoch: u32) -> LogIdentity {
    LogIdentity { uuid: uuid(), log: LOG, epoch }
}

fn uuid() -> Uuid {
    Uuid::from_bytes(*b"furrow log tests")
}

/// An emulated drive that counts its operations, with a transfer limit of its own.
#[derive(Debug)]
struct Drive {
    emu: Arc<Emu>,
    geometry: Geometry,
    reads: AtomicU64,
    blocks_read: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    /// The drive's next write or append takes this long.
    stalled: Mutex<Option<std::time::Duration>>,
    /// Bytes that the test has synced and appended, and the medium's content before and after each operation
    /// once the test asks for it.
    synced: AtomicU64,
    appended: AtomicU64,
    moments: Mutex<Option<Vec<MediumMoment>>>,
}

/// The medium's content at one moment.
#[derive(Debug)]
struct MediumMoment {
    media: Media,
    synced: u64,
    appended: u64,
}

impl Drive {
    fn remember(&self) {
        if let Some(moments) = &mut *self.moments.lock() {
            let (synced, appended) =
                (self.synced.load(Ordering::Relaxed), self.appended.load(Ordering::Relaxed));
            moments.push(MediumMoment { media: self.emu.media(), synced, appended });
        }
    }
}

impl ZonedDevice for Drive {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, op: Op) -> Io {
        let blocks = |len: usize| (len / BLOCK) as u64;
        match &op {
            Op::Read { into, .. } => {
                assert!(blocks(into.len()) <= self.geometry.max_transfer.0, "a read above the limit");
                self.reads.fetch_add(1, Ordering::Relaxed);
                self.blocks_read.fetch_add(blocks(into.len()), Ordering::Relaxed);
            }
            Op::Write { data, .. } => {
                assert!(blocks(data.len()) <= self.geometry.max_transfer.0, "a write above the limit");
                assert_eq!(data.as_ptr().align_offset(BLOCK), 0, "direct I/O wants aligned buffers");
                self.writes.fetch_add(1, Ordering::Relaxed);
            }
            Op::Flush => {
                self.flushes.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        self.remember();
        let writes = matches!(op, Op::Write { .. } | Op::Append { .. });
        let io = self.emu.submit(op);
        self.remember();
        match writes.then(|| self.stalled.lock().take()).flatten() {
            None => io,
            Some(time) => {
                let driver = Arc::clone(self.driver());
                Io::spawn(self.driver(), &self.geometry.name, async move {
                    let done = io.await?;
                    units::sleep_until(&*driver, driver.now().after(time)).await;
                    Ok(done)
                })
            }
        }
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

/// A drive, its clock, and the segments of the log under test.
struct Bench {
    driver: Arc<VirtualDriver>,
    drive: Arc<Drive>,
    source: Arc<Zones>,
}

impl Bench {
    fn new(options: EmuOptions, max_transfer: u64) -> Bench {
        let driver = VirtualDriver::new(1);
        let emu = Emu::memory(options, driver.clone());
        Bench::over(driver, emu, max_transfer)
    }

    fn from_media(media: Media) -> Bench {
        let driver = VirtualDriver::new(1);
        let emu = Emu::from_media(media, "emu:cut", zoned::emu::Latency::NONE, driver.clone());
        Bench::over(driver, emu, 64)
    }

    fn over(driver: Arc<VirtualDriver>, emu: Arc<Emu>, max_transfer: u64) -> Bench {
        let mut geometry = emu.geometry().clone();
        geometry.max_transfer = Blocks(max_transfer).min(geometry.max_transfer);
        let zones = (1..geometry.zones).map(|zone| segment(zone, 0, geometry.zone_capacity.0));
        let source = Arc::new(Zones { left: Mutex::new(zones.collect()), ..Zones::default() });
        let [reads, blocks_read, writes, flushes, synced, appended] = Default::default();
        let (moments, stalled) = (Mutex::default(), Mutex::default());
        Bench {
            driver,
            drive: Arc::new(Drive {
                emu,
                geometry,
                reads,
                blocks_read,
                writes,
                flushes,
                synced,
                appended,
                moments,
                stalled,
            }),
            source,
        }
    }

    fn tiny() -> Bench {
        Bench::new(EmuOptions::tiny(), 64)
    }

    fn dev(&self) -> Arc<dyn ZonedDevice> {
        self.drive.clone()
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        block_on(&*self.driver, future)
    }

    fn writer(&self, blocks: usize) -> LogWriter {
        self.writer_in(LogZones::Conventional, blocks)
    }

    fn writer_in(&self, zones: LogZones, blocks: usize) -> LogWriter {
        let options = LogOptions { buffer: blocks * BLOCK, zones, ..LogOptions::default() };
        LogWriter::new(
            self.dev(),
            identity(1),
            0,
            LogIndex::starting_at(Bytes(0)),
            options,
            self.source.clone(),
        )
    }

    fn recover(&self, cuts: &[Cut]) -> Recovered {
        self.recover_from(cuts, &self.source.given.lock().clone())
    }

    fn recover_from(&self, cuts: &[Cut], segments: &[Segment]) -> Recovered {
        self.run(recover(&self.dev(), uuid(), LOG, cuts, segments)).expect("recovery does not fail")
    }

    /// All bytes of the log, read by its index.
    fn content(&self, recovered: &Recovered) -> Vec<u8> {
        self.content_of(LOG, recovered)
    }

    fn content_of(&self, log: u64, recovered: &Recovered) -> Vec<u8> {
        let check = Check { log, ..check() };
        let mut all = vec![0; usize::try_from(recovered.size).expect("small")];
        let got = self.run(recovered.index.read_at(&self.dev(), check, Bytes(0), &mut all)).expect("reads");
        assert_eq!(got, all.len());
        all
    }

    /// The blocks of a zone up to its write pointer.
    fn raw(&self, zone: u32) -> Vec<u8> {
        let pointer = self.pointer(zone);
        let at = self.drive.geometry.start(ZoneId(zone));
        let into = BufMut::zeroed(pointer as usize * BLOCK);
        if pointer == 0 {
            Vec::new()
        } else {
            self.run(self.drive.emu_dev().read(at, into)).expect("reads").to_vec()
        }
    }

    fn pointer(&self, zone: u32) -> u64 {
        self.run(self.drive.emu_dev().report(zone..zone + 1)).expect("reports")[0].pointer.0
    }

    /// Writes `bytes` unchanged at a zone's write pointer.
    fn put_raw(&self, zone: u32, bytes: &[u8]) {
        let at = self.drive.geometry.start(ZoneId(zone)).plus(Blocks(self.pointer(zone)));
        self.run(self.drive.emu_dev().write(at, Buf::copy_from(bytes), Durability::Cached)).expect("writes");
    }

    fn reset(&self, zone: u32) {
        self.run(self.drive.emu_dev().zone(ZoneId(zone), Action::Reset)).expect("resets");
    }
}

impl Drive {
    fn emu_dev(&self) -> Arc<dyn ZonedDevice> {
        self.emu.clone()
    }
}

fn segment(zone: u32, start: u64, end: u64) -> Segment {
    Segment { zone: ZoneId(zone), generation: GENERATION, start: Blocks(start), end: Blocks(end) }
}

/// A segment source that hands out whole zones, and remembers which.
#[derive(Default)]
struct Zones {
    left: Mutex<VecDeque<Segment>>,
    given: Mutex<Vec<Segment>>,
    /// One zone at a time.
    apart: AtomicBool,
}

impl SegmentSource for Zones {
    fn next(&self) -> Pin<Box<dyn Future<Output = Result<Next>> + Send + '_>> {
        Box::pin(async {
            let segment = self.left.lock().pop_front();
            let segment = segment.ok_or_else(|| Error::new(ErrorKind::NoSpace, "extend the test's log"))?;
            self.given.lock().push(segment);
            Ok(Next { segment, beside: !self.apart.load(Ordering::Relaxed) })
        })
    }
}

/// Test bytes that differ from place to place.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|n| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[5]).collect()
}
