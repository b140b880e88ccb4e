//! Defects of published logs with zone appends, one test each: Furrow's ordered log in the same situation.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Drive, bytes, log, read};
use fs::wal::entry::{EntryHeader, Home};
use fs::wal::{Check, Cut, IoMode, LogOptions, Segment, recover};
use fs::{BrokenRule, ErrorKind, Fs, MountOptions, Uuid, Writer, ZoneRole};
use parking_lot::Mutex;
use units::{Blocks, Bytes, Driver, Instant, ZoneId};
use zoned::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency, Seeded};
use zoned::{Buf, BufMut, Durability, Geometry, Io, Op, ZonedDevice};

const BLOCK: usize = 4096;
const WRITE: Duration = Duration::from_micros(100);

/// A drive whose zones hold many entries and whose appends take their addresses in any order.
fn options(volatile_cache: bool) -> EmuOptions {
    let latency = Latency { write: WRITE, flush: Duration::from_micros(50), ..Latency::NONE };
    EmuOptions {
        zones: 40,
        zone_size: Blocks(64),
        zone_capacity: Blocks(60),
        volatile_cache,
        latency,
        reorder: true,
        ..EmuOptions::tiny()
    }
}

fn drive(seed: u64, options: EmuOptions) -> Drive {
    let driver = units::VirtualDriver::new(seed);
    let emu = Emu::memory(options, driver.clone());
    let drive = Drive { driver, emu };
    drive.format();
    drive
}

fn append_mode(buffer: usize) -> LogOptions {
    LogOptions { mode: IoMode::Append, window: 32, buffer, ..LogOptions::default() }
}

fn mount(drive: &Drive, dev: Arc<dyn ZonedDevice>, log: LogOptions) -> Fs {
    drive.run(Fs::mount(dev, &MountOptions { log, ..MountOptions::default() })).unwrap()
}

fn record(n: usize) -> Vec<u8> {
    bytes(700 + (n * 379) % 3000, n as u8)
}

/// The content of a file after a power cut at this moment.
fn content_after_power_cut(drive: &Drive, seed: u64, path: &str) -> Vec<u8> {
    let cut = drive.cut(&mut Seeded::new(seed));
    let fs = cut.mount();
    cut.run(read(&fs, path)).unwrap()
}

/// A device operation that was submitted to the drive.
#[derive(Clone, Debug)]
struct SubmittedOperation {
    at: Instant,
    blocks: usize,
    append: bool,
    entry: EntryHeader,
}

/// A drive that records the log entries in the operations submitted to it.
#[derive(Debug)]
struct LogEntryRecorder {
    emu: Arc<Emu>,
    sent: Mutex<Vec<SubmittedOperation>>,
}

impl LogEntryRecorder {
    fn over(drive: &Drive) -> Arc<LogEntryRecorder> {
        Arc::new(LogEntryRecorder { emu: Arc::clone(&drive.emu), sent: Mutex::default() })
    }

    fn take(&self) -> Vec<SubmittedOperation> {
        std::mem::take(&mut *self.sent.lock())
    }
}

impl ZonedDevice for LogEntryRecorder {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        if let Op::Write { data, .. } | Op::Append { data, .. } = &op
            && let Ok(entry) = EntryHeader::parse(data)
        {
            let append = matches!(op, Op::Append { .. });
            let at = self.driver().now();
            self.sent.lock().push(SubmittedOperation { at, blocks: data.len() / BLOCK, append, entry });
        }
        self.emu.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

/// The zones with log segments of a mounted file system.
fn log_zones(fs: &Fs) -> Vec<ZoneId> {
    fs.zone_map().into_iter().filter(|z| z.role == ZoneRole::Log).map(|z| z.zone).collect()
}

/// The sequences of the entries in a zone, in the order of their addresses.
fn sequences(drive: &Drive, uuid: Uuid, zone: ZoneId) -> Vec<u64> {
    let dev = drive.dev();
    drive.run(async {
        let pointer = dev.report(zone.0..zone.0 + 1).await.unwrap()[0].pointer;
        let start = dev.geometry().start(zone);
        let mut found = Vec::new();
        let into = BufMut::zeroed(pointer.0 as usize * BLOCK);
        let zone_bytes =
            if pointer.0 > 0 { dev.read(start, into).await.unwrap().to_vec() } else { Vec::new() };
        let home = Home { uuid, zone };
        for at in (0..zone_bytes.len()).step_by(BLOCK) {
            if let Ok((header, _)) = fs::wal::entry::decode(&zone_bytes[at..], &home, BLOCK as u32)
                && !header.padding
            {
                found.push(header.sequence);
            }
        }
        found
    })
}

/// Appends records to the log without a sync; returns all their bytes.
async fn append_unsynced(writer: &Writer, records: std::ops::Range<usize>) -> Vec<u8> {
    let mut all = Vec::new();
    for n in records {
        let record = record(n);
        writer.append(&record).await.unwrap();
        all.extend_from_slice(&record);
    }
    all
}

/// Syncs one more record while many appends are in flight; returns the log's content after a power cut right
/// after the sync, and the expected content.
fn cut_after_sync(seed: u64, broken_rule: Option<BrokenRule>) -> (Vec<u8>, Vec<u8>) {
    let drive = drive(seed, options(seed.is_multiple_of(2)));
    let buffer = [1, 2, 8][seed as usize % 3] * BLOCK;
    let options = MountOptions { log: append_mode(buffer), broken_rule, ..MountOptions::default() };
    let fs = drive.run(Fs::mount(drive.dev(), &options)).unwrap();
    let wanted = drive.run(async {
        let writer = fs.create("/a.log", &log()).await.unwrap();
        // The log file's name is durable before the power cut; its bytes may be lost.
        writer.append(b"first").await.unwrap();
        writer.sync().await.unwrap();
        fs.sync().await.unwrap();
        let mut wanted = b"first".to_vec();
        wanted.extend(append_unsynced(&writer, 0..30).await);
        writer.append(b"the synced record").await.unwrap();
        writer.sync().await.unwrap();
        wanted.extend_from_slice(b"the synced record");
        wanted
    });
    (content_after_power_cut(&drive, seed, "/a.log"), wanted)
}

#[test]
fn sync_returns_when_the_synced_record_is_durable_and_not_before() {
    for seed in 0..60 {
        let (found, wanted) = cut_after_sync(seed, None);
        assert!(found == wanted, "seed {seed}: {} of {} bytes", found.len(), wanted.len());
    }
}

#[test]
fn a_sync_that_drains_before_it_sends_its_buffer_loses_the_record() {
    let lost = (0..60).filter(|seed| {
        let (found, wanted) = cut_after_sync(*seed, Some(BrokenRule::SyncOrder));
        assert!(wanted.starts_with(&found), "seed {seed}");
        found.len() < wanted.len()
    });
    let lost = lost.count();
    assert!(lost > 10, "{lost} of 60 cuts lose the record");
}

#[test]
fn a_hundred_synced_entries_of_one_kib_are_all_recovered() {
    for buffer in [BLOCK, 64 << 10] {
        let drive = drive(3, EmuOptions { zones: 64, ..options(true) });
        let fs = mount(&drive, drive.dev(), append_mode(buffer));
        let mut wanted = Vec::new();
        drive.run(async {
            let writer = fs.create("/a.log", &log()).await.unwrap();
            for n in 0..100 {
                let record = bytes(1024, n);
                writer.append(&record).await.unwrap();
                writer.sync().await.unwrap();
                wanted.extend_from_slice(&record);
            }
        });
        // Each log entry pads its block, and the next entry begins after the padding.
        let found = content_after_power_cut(&drive, 5, "/a.log");
        assert!(found == wanted, "{} of {} bytes", found.len(), wanted.len());
    }
}

#[test]
fn entries_whose_appends_were_reordered_give_the_right_bytes() {
    let mut shuffled = 0;
    for seed in 0..20 {
        let drive = drive(seed, options(false));
        let fs = mount(&drive, drive.dev(), append_mode(BLOCK));
        let wanted = drive.run(async {
            let writer = fs.create("/a.log", &log()).await.unwrap();
            let wanted = append_unsynced(&writer, 0..120).await;
            writer.sync().await.unwrap();
            wanted
        });
        let uuid = fs.superblock().uuid;
        for zone in log_zones(&fs) {
            shuffled += sequences(&drive, uuid, zone).windows(2).filter(|pair| pair[0] > pair[1]).count();
        }
        let found = drive.run(read(&fs, "/a.log")).unwrap();
        assert!(found == wanted, "seed {seed}, before the cut");
        let found = content_after_power_cut(&drive, seed, "/a.log");
        assert!(found == wanted, "seed {seed}: {} of {} bytes", found.len(), wanted.len());
    }
    assert!(shuffled > 200, "{shuffled} entries have a higher address than a later one");
}

/// Cuts the power while many log entries are in flight. Returns whether the cut left a gap, the number of
/// synced bytes, the appended bytes, and the recovered bytes.
fn cut_in_flight(seed: u64, broken_rule: Option<BrokenRule>) -> (bool, usize, Vec<u8>, Vec<u8>) {
    let drive = drive(seed, options(seed.is_multiple_of(2)));
    let fs = mount(&drive, drive.dev(), append_mode(BLOCK));
    let mut wanted = Vec::new();
    let synced = drive.run(async {
        let writer = fs.create("/a.log", &log()).await.unwrap();
        wanted.extend(append_unsynced(&writer, 0..5).await);
        writer.sync().await.unwrap();
        let synced = wanted.len();
        wanted.extend(append_unsynced(&writer, 5..60).await);
        synced
    });
    let cut = drive.cut(&mut Seeded::new(seed));
    let uuid = fs.superblock().uuid;
    let mut there: Vec<u64> =
        log_zones(&fs).into_iter().flat_map(|zone| sequences(&cut, uuid, zone)).collect();
    there.sort_unstable();
    let gap = there.windows(2).any(|pair| pair[0] + 1 < pair[1]);
    let options = MountOptions { broken_rule, ..MountOptions::default() };
    let after = cut.run(Fs::mount(cut.dev(), &options)).unwrap();
    let found = cut.run(read(&after, "/a.log")).unwrap();
    (gap, synced, wanted, found)
}

#[test]
fn entries_after_a_gap_are_not_recovered() {
    let mut gaps = 0;
    for seed in 0..120 {
        let (gap, synced, wanted, found) = cut_in_flight(seed, None);
        gaps += usize::from(gap);
        assert!(found.len() >= synced && wanted.starts_with(&found), "seed {seed}: {} bytes", found.len());
    }
    assert!(gaps > 20, "{gaps} cuts left a gap");
}

#[test]
fn a_recovery_that_keeps_entries_after_a_gap_gives_bytes_that_were_never_appended() {
    let wrong = |seed: &u64| {
        let (_, _, wanted, found) = cut_in_flight(*seed, Some(BrokenRule::Gap));
        !wanted.starts_with(&found)
    };
    let wrong = (0..120).filter(wrong).count();
    assert!(wrong > 20, "{wrong} of 120");
}

/// A log of one zone, with entries that the test encodes itself.
struct ForgedLog {
    drive: Drive,
    uuid: Uuid,
    segment: Segment,
}

impl ForgedLog {
    const LOG: u64 = 7;

    fn new() -> ForgedLog {
        let options = EmuOptions { zone_size: Blocks(64), zone_capacity: Blocks(60), ..EmuOptions::tiny() };
        let segment = Segment { zone: ZoneId(3), generation: 5, start: Blocks(0), end: Blocks(60) };
        ForgedLog { drive: Drive::new(options), uuid: Uuid::from_u128(9), segment }
    }

    fn header(&self, sequence: u64) -> EntryHeader {
        EntryHeader {
            padding: false,
            odd: false,
            void: false,
            known: false,
            rewritten: false,
            log: ForgedLog::LOG,
            generation: self.segment.generation,
            sequence,
            needs: sequence,
            epoch: 1,
            part: 0,
            parts: 1,
            length: 1000,
            mask: 0,
            open: u32::MAX,
            crc: 0,
        }
    }

    fn payload(sequence: u64) -> Vec<u8> {
        bytes(1000, sequence as u8)
    }

    fn block(&self, header: EntryHeader, uuid: Uuid, zone: ZoneId) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[64..1064].copy_from_slice(&ForgedLog::payload(header.sequence));
        header.seal(&mut block, &Home { uuid, zone }, BLOCK);
        block
    }

    fn write(&self, block: &[u8]) {
        let dev = self.drive.dev();
        self.drive.run(dev.append(self.segment.zone, Buf::copy_from(block), Durability::Durable)).unwrap();
    }

    fn add(&self, header: EntryHeader) {
        self.write(&self.block(header, self.uuid, self.segment.zone));
    }

    /// The bytes of the log that recovery finds.
    fn content(&self) -> Vec<u8> {
        let dev = self.drive.dev();
        let cuts = [Cut { epoch: 1, first_sequence: 0 }];
        self.drive.run(async {
            let found = recover(&dev, self.uuid, ForgedLog::LOG, &cuts, &[self.segment]).await.unwrap();
            let mut content = vec![0; found.size as usize];
            let check = Check { uuid: self.uuid, log: ForgedLog::LOG };
            assert_eq!(
                found.index.read_at(&dev, check, Bytes(0), &mut content).await.unwrap(),
                content.len()
            );
            content
        })
    }

    fn of(sequences: std::ops::Range<u64>) -> Vec<u8> {
        sequences.flat_map(ForgedLog::payload).collect()
    }
}

#[test]
fn an_entry_with_a_wrong_checksum_is_not_recovered() {
    for byte in [0, 5, 17, 25, 33, 41, 45, 49, 57, 61, 64, 700, 1063] {
        let forge = ForgedLog::new();
        forge.add(forge.header(0));
        let mut damaged = forge.block(forge.header(1), forge.uuid, forge.segment.zone);
        damaged[byte] ^= 1;
        forge.write(&damaged);
        forge.add(forge.header(2));
        assert!(forge.content() == ForgedLog::of(0..1), "byte {byte}");
        // An intact copy of the missing entry elsewhere in the zone closes the gap.
        forge.add(forge.header(1));
        assert!(forge.content() == ForgedLog::of(0..3), "byte {byte}");
    }
}

#[test]
fn an_entry_of_another_log_file_system_zone_or_generation_is_not_recovered() {
    let forge = ForgedLog::new();
    forge.add(forge.header(0));
    forge.add(EntryHeader { log: ForgedLog::LOG + 1, ..forge.header(1) });
    forge.add(EntryHeader { generation: forge.segment.generation - 1, ..forge.header(1) });
    forge.add(EntryHeader { epoch: 2, ..forge.header(1) });
    forge.write(&forge.block(forge.header(1), Uuid::from_u128(10), forge.segment.zone));
    forge.write(&forge.block(forge.header(1), forge.uuid, ZoneId(4)));
    forge.add(forge.header(2));
    assert!(forge.content() == ForgedLog::of(0..1));
    forge.add(forge.header(1));
    assert!(forge.content() == ForgedLog::of(0..3));
}

#[test]
fn an_append_error_is_reported_and_nothing_is_written_after_it() {
    for after in 0..24 {
        let drive = drive(after, options(true));
        let fs = mount(&drive, drive.dev(), append_mode(BLOCK));
        let mut all = Vec::new();
        let synced = drive.run(async {
            let writer = fs.create("/a.log", &log()).await.unwrap();
            all.extend(append_unsynced(&writer, 0..4).await);
            writer.sync().await.unwrap();
            let synced = all.len();
            let zones = drive.dev().report(0..40).await.unwrap();
            let mine = log_zones(&fs).into_iter().find(|z| zones[z.index()].pointer > Blocks(0)).unwrap();
            drive.emu.fail(FaultSpec { after, ..FaultSpec::next(FaultOp::Write) }.in_zone(mine));
            let mut reported = None;
            for n in 4..60 {
                let record = record(n);
                all.extend_from_slice(&record);
                if let Err(error) = writer.append(&record).await {
                    reported = Some(error);
                    break;
                }
            }
            // An append that ended before the device's error succeeds; the sync covers that append, and
            // fails.
            let error = match reported {
                Some(error) => error,
                None => writer.sync().await.unwrap_err(),
            };
            assert_eq!(error.kind(), ErrorKind::Device(zoned::ErrorKind::Media), "after {after}: {error}");
            for error in
                [writer.sync().await, writer.append(b"x").await, writer.flush().await, writer.close().await]
            {
                let error = error.unwrap_err();
                assert_eq!(
                    error.kind(),
                    ErrorKind::Device(zoned::ErrorKind::Media),
                    "after {after}: {error}"
                );
                assert!(error.to_string().contains("injected"), "the cause is kept: {error}");
            }
            synced
        });
        let found = content_after_power_cut(&drive, after, "/a.log");
        assert!(found.len() >= synced && all.starts_with(&found), "after {after}: {} bytes", found.len());
    }
}

#[test]
fn a_flush_error_is_reported_and_poisons_the_log() {
    let drive = drive(1, options(true));
    let fs = mount(&drive, drive.dev(), append_mode(BLOCK));
    drive.run(async {
        let writer = fs.create("/a.log", &log()).await.unwrap();
        append_unsynced(&writer, 0..4).await;
        writer.sync().await.unwrap();
        append_unsynced(&writer, 4..9).await;
        drive.emu.fail(FaultSpec::next(FaultOp::Flush));
        for error in [writer.sync().await, writer.sync().await, writer.append(b"x").await] {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Device(zoned::ErrorKind::Media), "{error}");
        }
    });
}

#[test]
fn the_parts_of_an_entry_above_the_append_limit_are_in_flight_together() {
    let drive = drive(2, EmuOptions { max_append: Blocks(2), ..options(true) });
    let watch = LogEntryRecorder::over(&drive);
    let fs = mount(&drive, watch.clone(), append_mode(16 * BLOCK));
    let wanted = bytes(16 * BLOCK - 8 * 64, 1);
    drive.run(async {
        let writer = fs.create("/a.log", &log()).await.unwrap();
        writer.append(b"first").await.unwrap();
        writer.sync().await.unwrap();
        watch.take();
        writer.append(&wanted).await.unwrap();
        writer.sync().await.unwrap();
    });
    let sent = watch.take();
    assert_eq!(sent.len(), 8, "{sent:?}");
    assert!(sent.iter().all(|op| op.append && op.blocks == 2 && op.entry.parts == 8));
    assert!(sent.iter().all(|op| op.at == sent[0].at), "all at once: {sent:?}");
    let found = content_after_power_cut(&drive, 1, "/a.log");
    assert!(found == [b"first".as_slice(), &wanted].concat());
}

#[test]
fn buffers_of_512_kib_and_more_work_and_their_parts_do_not_wait_for_each_other() {
    for buffer in [512 << 10, 1 << 20, 4 << 20] {
        let big = EmuOptions {
            zones: 24,
            zone_size: Blocks(4096),
            zone_capacity: Blocks(4000),
            max_append: Blocks(32),
            ..options(true)
        };
        let drive = drive(buffer as u64, big);
        let watch = LogEntryRecorder::over(&drive);
        let fs = mount(&drive, watch.clone(), LogOptions { window: 64, ..append_mode(buffer) });
        let mut wanted = Vec::new();
        drive.run(async {
            let writer = fs.create("/a.log", &log()).await.unwrap();
            for n in 0..40 {
                let record = bytes(buffer / 11 + n, n as u8);
                writer.append(&record).await.unwrap();
                wanted.extend_from_slice(&record);
            }
            writer.sync().await.unwrap();
            watch.take();
            let whole = bytes(buffer - (buffer / (32 * BLOCK)) * 64, 77);
            let begun = drive.driver.now();
            writer.append(&whole).await.unwrap();
            writer.sync().await.unwrap();
            let took = drive.driver.now().since(begun);
            wanted.extend_from_slice(&whole);
            // If the parts of an entry waited for each other, the append would take the sum of their
            // latencies.
            assert!(took < WRITE * 4, "{buffer}: {took:?}");
        });
        let parts = watch.take();
        assert!(parts.len() >= buffer / (32 * BLOCK), "{} parts", parts.len());
        assert!(parts.iter().all(|op| op.blocks <= 32));
        let found = content_after_power_cut(&drive, 3, "/a.log");
        assert!(found == wanted, "{buffer}: {} of {} bytes", found.len(), wanted.len());
    }
}

#[test]
fn an_entry_with_a_missing_part_is_not_recovered() {
    let forge = ForgedLog::new();
    forge.add(forge.header(0));
    forge.add(EntryHeader { parts: 3, part: 0, ..forge.header(1) });
    forge.add(EntryHeader { parts: 3, part: 2, ..forge.header(1) });
    forge.add(forge.header(2));
    assert!(forge.content() == ForgedLog::of(0..1));
    forge.add(EntryHeader { parts: 3, part: 1, ..forge.header(1) });
    let one = ForgedLog::payload(1);
    assert!(
        forge.content()
            == [ForgedLog::payload(0), one.clone(), one.clone(), one, ForgedLog::payload(2)].concat()
    );
}
