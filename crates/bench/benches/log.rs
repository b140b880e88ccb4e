//! The cost of the logs' own code: 4 KiB unsynced records on a drive without delay, beside the bare drive.
#![allow(missing_docs, reason = "a benchmark")]

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fs::wal::{IoMode, LogIdentity, LogIndex, LogOptions, LogWriter, Next, Segment, SegmentSource};
use fs::{Batching, FormatOptions, Fs, MountOptions, ParallelLog, ParallelOptions};
use parking_lot::Mutex;
use units::{Blocks, Bytes, Driver, RealDriver, ZoneId, block_on};
use zoned::emu::{Emu, EmuOptions};
use zoned::{Buf, Durability, ZonedDevice};

const RECORD_BYTES: usize = 4096;
/// Number of records of one sample: 32 MiB.
const RECORDS: usize = 8192;
const ZONE_BLOCKS: Blocks = Blocks(16 << 10);
/// Zones of the drive under a file system, whose parallel log writes two blocks for each record.
const FS_ZONES: u32 = 16;

/// Hands out whole zones to logs.
struct Zones(Mutex<VecDeque<Segment>>);

impl SegmentSource for Zones {
    fn next(&self) -> Pin<Box<dyn Future<Output = fs::Result<Next>> + Send + '_>> {
        Box::pin(async {
            let segment = self.0.lock().pop_front().expect("zones enough for a sample");
            Ok(Next { segment, beside: true })
        })
    }
}

fn drive(driver: &Arc<dyn Driver>, zones: u32) -> Arc<dyn ZonedDevice> {
    let options = EmuOptions {
        zones,
        zone_size: ZONE_BLOCKS,
        zone_capacity: ZONE_BLOCKS,
        max_append: Blocks(256),
        track_power_cuts: false,
        ..EmuOptions::default()
    };
    Emu::memory(options, Arc::clone(driver))
}

fn ordered_log_writer(driver: &Arc<dyn Driver>, options: LogOptions) -> LogWriter {
    let zones = (0..2).map(|zone| Segment {
        zone: ZoneId(zone),
        generation: 1,
        start: Blocks::ZERO,
        end: ZONE_BLOCKS,
    });
    let source = Arc::new(Zones(Mutex::new(zones.collect())));
    let identity = LogIdentity { uuid: fs::Uuid::from_u128(7), log: 1, epoch: 1 };
    LogWriter::new(drive(driver, 2), identity, 0, LogIndex::starting_at(Bytes(0)), options, source)
}

/// A parallel log, and the file system that holds its file.
fn parallel_log(driver: &Arc<dyn Driver>, batching: Batching) -> (Fs, ParallelLog) {
    let dev = drive(driver, FS_ZONES);
    block_on(&**driver, async {
        Fs::format(&dev, &FormatOptions::default()).await.expect("a new drive");
        let fs = Fs::mount(dev, &MountOptions::default()).await.expect("formatted");
        let options = ParallelOptions { batching, ..ParallelOptions::default() };
        let (log, _) = fs.parallel_log("/log", &options).await.expect("a new log");
        (fs, log)
    })
}

fn log(criterion: &mut Criterion) {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let record = vec![0x5A; RECORD_BYTES];
    let mut group = criterion.benchmark_group("log");
    group.throughput(Throughput::Elements(RECORDS as u64)).sample_size(10);
    for (mode, name) in [(IoMode::Append, "append"), (IoMode::Write, "write")] {
        for buffer in [4 << 10, 64 << 10, 1 << 20] {
            group.bench_function(format!("{name}/{}KiB", buffer >> 10), |b| {
                let make =
                    || ordered_log_writer(&driver, LogOptions { buffer, mode, ..LogOptions::default() });
                let fill = |log: LogWriter| {
                    for _ in 0..RECORDS {
                        block_on(&*driver, log.append(&record)).expect("room");
                    }
                    log
                };
                b.iter_batched(make, fill, BatchSize::PerIteration);
            });
        }
    }
    for (batching, name) in [(Batching::Each, "waltz"), (Batching::Auto, "auto")] {
        group.bench_function(format!("parallel/{name}"), |b| {
            let fill = |(fs, log): (Fs, ParallelLog)| {
                for _ in 0..RECORDS {
                    block_on(&*driver, log.append(&record, false)).expect("room");
                }
                (fs, log)
            };
            b.iter_batched(|| parallel_log(&driver, batching), fill, BatchSize::PerIteration);
        });
    }
    // Measures the drive alone with the same bytes: its time is to be subtracted from a log's.
    group.bench_function("drive alone/4KiB appends", |b| {
        let data = Buf::copy_from(&record);
        let fill = |dev: Arc<dyn ZonedDevice>| {
            for _ in 0..RECORDS {
                dev.append(ZoneId(0), data.clone(), Durability::Cached).wait().expect("room");
            }
            dev
        };
        b.iter_batched(|| drive(&driver, 2), fill, BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, log);
criterion_main!(benches);
