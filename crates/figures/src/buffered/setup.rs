//! The databases and the drive of the buffered-I/O paper's figures.

use bench::Clock;
use bench::ycsb::{Caching, Engine, YcsbLoad};
use units::Bytes;

use crate::Run;

/// The fewest records with which all figures can be measured: a tenth of their bytes still has room for a page cache.
pub const MIN_RECORDS: u64 = 80_000;

/// Records of a run, and of a quick one, which leaves the smallest memories out.
const RECORDS: u64 = MIN_RECORDS;
const QUICK_RECORDS: u64 = 6_000;

/// Records for each operation of a workload, where the run does not say how many records there are: then there are as many operations.
const RECORDS_PER_OPERATION: u64 = 4;

/// Bytes of a value: YCSB's ten fields of 100 bytes.
const VALUE: Bytes = Bytes(1000);

/// Zones of the drive, and the conventional ones among them.
const ZONES: u32 = 256;
const CONVENTIONAL_ZONES: u32 = 8;

/// Bytes of a zone: the paper's.
pub(super) const ZONE: Bytes = Bytes(32 << 20);

/// The block cache's part of the data: 8 MiB for 1,000,000 records.
const BLOCK_CACHE_DIVISOR: u64 = 120;

/// The part of the data that a table of RocksDB has: 32 MiB, a zone, for 1,000,000 records. LevelDB's have its own 2 MiB.
const ROCKSDB_TABLE_DIVISOR: u64 = 30;

/// The two sides of the paper's comparison: what is written stays in the page cache, or goes past it.
pub(super) const MODES: [(&str, Caching); 2] = [("buffered", Caching::Buffered), ("direct", Caching::Direct)];

/// The name of an engine in rows.
pub(super) fn engine_name(engine: Engine) -> &'static str {
    match engine {
        Engine::RocksDb => "RocksDB",
        Engine::LevelDb => "LevelDB",
    }
}

/// One memtable's part of the data: 8 MiB of RocksDB, which has up to four, for 1,000,000 records; 4 MiB of LevelDB, which has two.
fn memtable_divisor(engine: Engine) -> u64 {
    match engine {
        Engine::RocksDb => 120,
        Engine::LevelDb => 240,
    }
}

/// Bytes of the smallest memtable that both engines take.
const MEMTABLE_MIN: u64 = 64 << 10;

/// Records of each database of the run: `own` in a full run that does not say how many.
pub(super) fn records(run: &Run<'_>, own: u64) -> u64 {
    run.records.unwrap_or(run.pick(own, QUICK_RECORDS))
}

/// Operations of each workload of the run but `load`.
fn operations(run: &Run<'_>) -> u64 {
    run.records.unwrap_or(records(run, RECORDS) / RECORDS_PER_OPERATION)
}

/// The URL of the drive with zones of `zone` bytes.
pub(super) fn drive(zone: Bytes) -> String {
    let zone = zone.0;
    format!(
        "emu:mem?profile=zn540&zones={ZONES}&zone-size={zone}&zone-capacity={zone}&conventional={CONVENTIONAL_ZONES}&log-target=none"
    )
}

/// A load of the run's records and operations: one thread, uncompressed and never synced, on the real clock. No workloads and no memory.
pub(super) fn load(engine: Engine, run: &Run<'_>) -> YcsbLoad {
    of_records(engine, records(run, RECORDS), operations(run))
}

/// A YCSB load on the figures' drive with `records` records and `operations` operations a workload.
pub(super) fn of_records(engine: Engine, records: u64, operations: u64) -> YcsbLoad {
    let data = data(records);
    YcsbLoad {
        device: drive(ZONE),
        engine,
        clock: Some(Clock::Real),
        workloads: Vec::new(),
        records,
        operations,
        value: VALUE,
        write_buffer: Some(Bytes((data.0 / memtable_divisor(engine)).max(MEMTABLE_MIN))),
        table_size: (engine == Engine::RocksDb).then_some(Bytes(data.0 / ROCKSDB_TABLE_DIVISOR)),
        block_cache: Some(Bytes(data.0 / BLOCK_CACHE_DIVISOR)),
        ..YcsbLoad::default()
    }
}

/// Bytes of the values of `records` records: the data of which memory is a part.
pub(super) fn data(records: u64) -> Bytes {
    Bytes(records.saturating_mul(VALUE.0))
}

/// The memory that is `share` of the data.
pub(super) fn memory(records: u64, share: f64) -> Bytes {
    Bytes((data(records).0 as f64 * share) as u64)
}

/// The part of a row's note that says how the load was run.
pub(super) fn note(load: &YcsbLoad) -> String {
    let clock =
        load.clock.map_or_else(|| String::from("the drive's clock"), |clock| format!("{clock} clock"));
    format!(
        "{clock}, {} records of {} bytes, {} operations, one thread, never synced",
        load.records, load.value.0, load.operations
    )
}
