//! The WALTZ paper's drives, the steps of its ablation, and the run of a load.

use std::num::NonZeroU32;

use bench::kv::{self, KvLoad, KvOutcome, LogMode};
use bench::{Clock, Latencies};
use fs::wal::IoMode;
use units::Bytes;

use crate::{Error, Result, Row, Run, Unit};

/// The dilation of a quick run, whose numbers include the host's own time.
const QUICK_DILATION: NonZeroU32 = NonZeroU32::MIN;

/// Bytes of a memtable: the paper's is 64 MiB, for databases a thousand times the size of ours.
const MEMTABLE_BYTES: Bytes = Bytes(4 << 20);

/// Number of records with which a database is filled.
const RECORDS: u64 = 5_000;

/// Bytes of a value. A put of such a value takes 4,096 bytes of the log with all headers: as much as the paper's takes, by the
/// log's bytes in section 4.4.
const VALUE_BYTES: Bytes = Bytes(3968);

/// A drive that a figure of the WALTZ paper is measured on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drive {
    /// Small zones, each on a die of its own: the paper's drive, with fewer and smaller zones.
    SmallZone,
    /// The published drive `zn540`, with smaller zones, each over all dies.
    Zn540,
}

impl Drive {
    pub const BOTH: [Drive; 2] = [Drive::SmallZone, Drive::Zn540];

    pub fn name(self) -> &'static str {
        match self {
            Drive::SmallZone => "smallzone",
            Drive::Zn540 => "zn540",
        }
    }

    pub fn url(self) -> &'static str {
        match self {
            Drive::SmallZone => "emu:mem?profile=smallzone&zones=1000&zone-size=16MiB&zone-capacity=16MiB",
            Drive::Zn540 => "emu:mem?profile=zn540&zones=512&zone-size=16MiB&zone-capacity=16MiB",
        }
    }

    /// The factor by which the drive's times are stretched: with it a put takes half a millisecond at least.
    fn dilation(self) -> NonZeroU32 {
        const SMALLZONE: NonZeroU32 = NonZeroU32::new(10).expect("ten is not zero");
        const ZN540: NonZeroU32 = NonZeroU32::new(20).expect("twenty is not zero");
        match self {
            Drive::SmallZone => SMALLZONE,
            Drive::Zn540 => ZN540,
        }
    }

    /// Number of operations of a full run: about as many as RocksDB takes before it slows its writers down, which is the same
    /// with every log.
    pub fn operations(self) -> u64 {
        match self {
            Drive::SmallZone => 10_000,
            Drive::Zn540 => 20_000,
        }
    }
}

/// A step of the WALTZ paper's ablation (section 4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Stands for ZenFS: no zone is opened ahead.
    Base,
    /// Zones are opened ahead of their first use.
    Reservation,
    /// Zones are opened ahead, and the log is written by appends.
    Append,
    /// The log is parallel, each record an append of its own.
    Waltz,
    /// The log is parallel and joins records.
    Auto,
}

impl Step {
    pub const ALL: [Step; 5] = [Step::Base, Step::Reservation, Step::Append, Step::Waltz, Step::Auto];

    pub fn name(self) -> &'static str {
        match self {
            Step::Base => "base",
            Step::Reservation => "+reservation",
            Step::Append => "+append",
            Step::Waltz => "waltz",
            Step::Auto => "auto",
        }
    }

    pub fn load(self, drive: Drive, run: &Run<'_>) -> KvLoad {
        let (wal, io) = match self {
            Step::Base => (LogMode::Base, IoMode::Write),
            Step::Reservation => (LogMode::Group, IoMode::Write),
            Step::Append => (LogMode::Group, IoMode::Append),
            Step::Waltz => (LogMode::Waltz, IoMode::Append),
            Step::Auto => (LogMode::Auto, IoMode::Append),
        };
        KvLoad {
            // The baselines of the paper have no scheduler before the drive.
            device: match wal {
                LogMode::Base | LogMode::Group => format!("{}&log-target=none", drive.url()),
                LogMode::Waltz | LogMode::Auto => drive.url().to_owned(),
            },
            clock: Some(Clock::Dilated(run.pick(drive.dilation(), QUICK_DILATION))),
            wal,
            io,
            value: Some(VALUE_BYTES),
            records: run.pick(RECORDS, RECORDS / 10),
            operations: run.pick(drive.operations(), drive.operations() / 10),
            write_buffer: run.pick(MEMTABLE_BYTES, Bytes(1 << 20)),
            ..KvLoad::default()
        }
    }
}

/// Runs a key-value load, and reports its progress.
pub fn measure(run: &Run<'_>, what: &str, load: &KvLoad) -> Result<KvOutcome> {
    (run.progress)(what);
    kv::run(load, &|doing| (run.progress)(&format!("{what}: {doing}"))).map_err(|e| Error::new(what, e))
}

/// The note of a figure's row: the conditions of its measurement.
pub fn note(load: &KvLoad) -> String {
    let value = load.value.map_or_else(|| String::from("MixGraph's"), |value| format!("{} B", value.0));
    let clock = load.clock.map_or_else(|| String::from("the drive's clock"), |clock| clock.to_string());
    format!(
        "{clock}, {} records, {} operations, values of {value}, {} threads, synced, memtable {} MiB",
        load.records,
        load.operations,
        load.threads,
        load.write_buffer.0 >> 20
    )
}

/// The latencies of a load's writes.
pub fn writes(outcome: &KvOutcome) -> Latencies {
    let writes = outcome.kinds.iter().find(|kind| kind.operation == "write");
    writes.map(|kind| kind.latency_us.clone()).unwrap_or_default()
}

/// Rows of the percentiles of a load's writes.
pub fn percentiles(figure: &'static str, series: &str, latencies: &Latencies, note: &str) -> Vec<Row> {
    let all = [
        ("50 %", latencies.p50),
        ("75 %", latencies.p75),
        ("99 %", latencies.p99),
        ("99.9 %", latencies.p99_9),
        ("99.99 %", latencies.p99_99),
        ("max", latencies.max),
    ];
    let rows = all.into_iter().map(|(x, us)| Row::new(figure, series, x, Unit::Us, us).note(note));
    rows.collect()
}
