//! Fig. 4.13 of the RAIZN paper: stock `db_bench` on RocksDB over the file system, on the array, on one drive, and on a model
//! of md's array of conventional drives ([`md`]), in dilated time; and the share of the bytes written that the array adds.

use std::path::Path;
use std::sync::Arc;

use array::{Array, CreateOptions, OpenOptions, Placement};
use fs::{FormatOptions, Fs};
use units::{Driver, block_on};
use zoned::ZonedDevice;
use zoned::emu::Profile;

use super::md;
use super::setup::{DRIVES, OURS, setup};
use super::shares;
use crate::db_bench::{DbBench, Measured};
use crate::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::Clock;
use bench::Scratch;

const X: &str = "db_bench workload";
const Y: &str = "thousand operations a second";

/// Fig. 4.13 of the RAIZN paper.
pub(super) const FIGURE: Figure = Figure {
    name: "raizn-fig13",
    title: "Fig. 4.13: RocksDB on the array, on one drive, and on md as a model",
    panels: &[
        Panel::new("fig4.13a", "values of 4,000 bytes", X, Y, Shape::Bars),
        Panel::new("fig4.13b", "values of 8,000 bytes", X, Y, Shape::Bars),
        Panel::new("fig4.13a-p99", "4,000 bytes", X, "p99, us", Shape::Bars),
        Panel::new("fig4.13b-p99", "8,000 bytes", X, "p99, us", Shape::Bars),
    ],
    measure,
};

/// The factor by which the drives' times are stretched, so that the host's own time counts this much less.
const DILATION: u32 = 50;
/// Bytes of a stripe, four units of 64 KiB: the log writes one stripe at a time.
const STRIPE_BYTES: u64 = 256 << 10;
/// Bytes of the memtable in the measurements of rates, which write little data.
const MEMTABLE_BYTES: u64 = 8 << 20;
/// Bytes of db_bench's default memtable, for the measurement of the array's share: the cost of a flush does not grow with the
/// memtable.
const DEFAULT_MEMTABLE_BYTES: u64 = 64 << 20;
/// The benchmarks of db_bench, as in the paper; the drives are made anew after the first.
pub(crate) const WORKLOADS: [&str; 4] = ["fillseq", "fillrandom", "overwrite", READ_WORKLOAD];
const READ_WORKLOAD: &str = "readwhilewriting";
const READERS: u64 = 8;
/// Rate of the writes beside reads, over all keys, in bytes a second of the drives' time: two fifths of the overwriting that
/// one drive sustains. Without a limit a faster array is written to more, and reads are the slower.
const WRITER_BYTES_PER_SECOND: u64 = 200_000_000;
/// Divisor of the number of reads: the longer reads take, the larger the database grows.
const READ_DIVISOR: u64 = 2;
/// The directory of the drive files, in memory: the machine's disk takes no part.
pub(crate) const MEMORY_DIRECTORY: &str = "/dev/shm";
const SCRATCH_PREFIX: &str = "furrow-fig13-";

/// The device below db_bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Array,
    /// An array two of whose logical zones share a physical one (RAIZN+).
    ArrayOfHalves,
    Alone,
    /// The model of md's array, as one drive.
    Model {
        collecting: bool,
    },
}

impl Place {
    /// The places of the figure.
    const ALL: [Place; 4] =
        [Place::Array, Place::Alone, Place::Model { collecting: false }, Place::Model { collecting: true }];

    /// The settings of the array; `None` for a drive.
    fn create_options(self) -> Option<CreateOptions> {
        match self {
            Place::Array => Some(CreateOptions { placement: Placement::Fixed, ..CreateOptions::default() }),
            Place::ArrayOfHalves => Some(CreateOptions { shares: 2, ..CreateOptions::default() }),
            Place::Alone | Place::Model { .. } => None,
        }
    }

    pub(crate) fn series(self) -> &'static str {
        match self {
            Place::Array => OURS,
            Place::ArrayOfHalves => "Furrow, two zones in a physical one",
            Place::Alone => "one drive",
            Place::Model { collecting: false } => "md (model), new drives",
            Place::Model { collecting: true } => "md (model), collecting garbage",
        }
    }

    fn note(self) -> String {
        match self {
            Place::Array | Place::ArrayOfHalves => {
                format!("{DRIVES} zn540 that finish zones unpadded; published: within 10 % of md")
            }
            Place::Alone => "one zn540 that finishes zones unpadded".into(),
            Place::Model { collecting: false } => {
                "a model, not md: one drive as fast as md's array, never in mid-stripe".into()
            }
            Place::Model { collecting: true } => format!(
                "a model, not md: likewise, and {:.0} % of the bandwidth of writes left by drives with 7 % spare that \
                 are full",
                md::write_share_while_collecting() * 100.0
            ),
        }
    }
}

/// The size of a panel's load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    value: u64,
    count: u64,
    memtable: u64,
}

impl Size {
    /// Values of `value` bytes, of 64 MiB in all, or of 4 MiB in a quick run.
    pub(crate) fn of(run: &Run<'_>, value: u64) -> Size {
        Size { value, count: run.pick(64 << 20, 4 << 20) / value, memtable: MEMTABLE_BYTES }
    }

    pub(crate) fn note(&self, workload: &str) -> String {
        let Size { value, count, memtable } = self;
        let reads = match workload {
            READ_WORKLOAD => {
                format!(
                    ", {} reads beside a writer of {} MB/s",
                    count / READ_DIVISOR,
                    WRITER_BYTES_PER_SECOND / 1_000_000
                )
            }
            _ => String::new(),
        };
        format!(
            "stock db_bench, drives dilated {DILATION} times, {count} values of {value} bytes{reads}, never synced, log buffer of \
             a stripe, RocksDB's LOG on the host, --write_buffer_size={}MiB",
            memtable >> 20
        )
    }
}

/// A function that runs db_bench.
pub(crate) type Bench<'a> = &'a dyn Fn(&DbBench) -> Result<Measured>;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    rows(run, Path::new(MEMORY_DIRECTORY), &DbBench::run)
}

/// Measures the rows of the figure, with drives in files of `dir`.
pub(super) fn rows(run: &Run<'_>, dir: &Path, bench: Bench<'_>) -> Result<Vec<Row>> {
    Scratch::sweep(dir, SCRATCH_PREFIX).map_err(|e| Error::new("making the drives", e))?;
    let mut rows = Vec::new();
    let panels = [
        (4000, "fig4.13a", "fig4.13a-p99", "fig4.13a-metadata"),
        (8000, "fig4.13b", "fig4.13b-p99", "fig4.13b-metadata"),
    ];
    for (value, rates, tails, shared) in panels.into_iter().take(run.pick(2, 1)) {
        let size = Size::of(run, value);
        for place in Place::ALL {
            for (name, ran) in workloads(run, dir, bench, place, size, &WORKLOADS)? {
                let how = format!("{}; {}", size.note(name), place.note());
                let p99 = ran.p99 / f64::from(DILATION);
                rows.push(Row::new(rates, place.series(), name, Unit::Kiops, ran.kiops()).note(&how));
                let whose = if name == READ_WORKLOAD {
                    ""
                } else {
                    "no drive's: the machine's own time by the dilation"
                };
                rows.push(Row::new(tails, place.series(), name, Unit::Us, p99).note(&how).note(whose));
                rows.extend(
                    ran.written.iter().flat_map(|of| shares::rows(shared, name, of, &size.note(name))),
                );
            }
        }
    }
    let value = 4000;
    let size = Size { value, count: run.pick(640 << 20, 4 << 20) / value, memtable: DEFAULT_MEMTABLE_BYTES };
    let fills = WORKLOADS.get(..3).unwrap_or_default();
    for (name, ran) in workloads(run, dir, bench, Place::Array, size, fills)? {
        let of = ran.written.iter();
        rows.extend(of.flat_map(|of| shares::rows("fig4.13-metadata-64MiB", name, of, &size.note(name))));
    }
    Ok(rows)
}

/// The outcome of one db_bench workload.
pub(crate) struct Ran {
    measured: Measured,
    p99: f64,
    /// Bytes that the array wrote; `None` without an array.
    written: Option<shares::BytesWritten>,
}

impl Ran {
    /// Thousand operations a second of the drives' time.
    pub(crate) fn kiops(&self) -> f64 {
        self.measured.rate * f64::from(DILATION) / 1e3
    }
}

/// Runs workloads of db_bench one after the other, with drives in files of `dir`.
pub(crate) fn workloads(
    run: &Run<'_>,
    dir: &Path,
    bench: Bench<'_>,
    place: Place,
    size: Size,
    names: &[&'static str],
) -> Result<Vec<(&'static str, Ran)>> {
    let mut ran = Vec::new();
    let mut ground: Option<DrivesInFiles> = None;
    for &name in names {
        (run.progress)(&format!("db_bench {name}, {} bytes, {}", size.value, place.series()));
        let failed = |e: bench::Error| Error::new("making the drives", e);
        let there = match ground.take().filter(|_| !begins_with_empty_drives(name)) {
            Some(there) => there,
            None => DrivesInFiles::new(dir, place).map_err(failed)?,
        };
        let measured = bench(&there.db_bench_arguments(name, size))?;
        let p99 =
            measured.p99.ok_or_else(|| Error::new(format!("db_bench {name}"), "it prints no percentiles"))?;
        let counters = || shares::read_counters(there.files.path().as_ref());
        let written = place.create_options().map(|_| counters()).transpose()?;
        ran.push((name, Ran { measured, p99, written }));
        ground = Some(there);
    }
    Ok(ran)
}

/// Whether a workload of db_bench begins with empty drives.
fn begins_with_empty_drives(name: &str) -> bool {
    ["fillseq", "fillrandom"].contains(&name)
}

/// Drives in files, with a file system on them: db_bench is another process.
struct DrivesInFiles {
    /// The drives' URLs, without the dilation.
    drives: Vec<String>,
    place: Place,
    files: Scratch,
}

impl DrivesInFiles {
    fn new(dir: &Path, place: Place) -> bench::Result<DrivesInFiles> {
        let files = Scratch::new(dir, SCRATCH_PREFIX)?;
        // An array whose zones share physical ones keeps up to half of these in reserve. With 16 zones of each drive the array would allow
        // too few active zones for a file system.
        let zones = if place == Place::ArrayOfHalves { 36 } else { 16 };
        let setup = setup(zones, CreateOptions::default().stripe_unit);
        let (count, text) = match place {
            Place::Array | Place::ArrayOfHalves => (DRIVES, profile_without_padding(setup.profile)),
            Place::Alone => (1, profile_without_padding(setup.profile)),
            Place::Model { collecting } => {
                (1, md::profile(if collecting { md::write_share_while_collecting() } else { 1.0 }))
            }
        };
        let profile = format!("{}/profile.toml", files.path());
        std::fs::write(&profile, text)
            .map_err(|e| bench::Error::Settings(format!("{e} (writing {profile})")))?;
        let drives = (0..count)
            .map(|n| format!("emu:{}/{n}?profile={profile}&log-target=none", files.path()))
            .collect();
        let ground = DrivesInFiles { drives, place, files };
        let driver = Clock::Virtual.driver();
        let made = ground.opened(&driver, &format!("&zones={}", setup.zones))?;
        block_on(&*driver, async {
            if let Some(create) = place.create_options() {
                array::create(&made, &create).await?;
            }
            Fs::format(&assemble_drives(made).await?, &FormatOptions::default()).await?;
            Ok::<(), bench::Error>(())
        })?;
        Ok(ground)
    }

    fn opened(&self, driver: &Arc<dyn Driver>, more: &str) -> zoned::Result<Vec<Arc<dyn ZonedDevice>>> {
        self.drives
            .iter()
            .map(|url| zoned::open_or_create(&format!("{url}{more}"), Arc::clone(driver)))
            .collect()
    }

    fn url(&self) -> String {
        let drives: Vec<String> =
            self.drives.iter().map(|drive| format!("{drive}&dilated={DILATION}")).collect();
        format!("{}{}", if self.place.create_options().is_some() { "array:" } else { "" }, drives.join(","))
    }

    /// The arguments of db_bench, as in the paper but for the numbers.
    fn db_bench_arguments(&self, name: &'static str, Size { value, count, memtable }: Size) -> DbBench {
        let readers = if name == READ_WORKLOAD { READERS } else { 1 };
        let settings = [
            ("num", count),
            ("reads", count / READ_DIVISOR / readers),
            ("threads", readers),
            ("value_size", value),
            ("write_buffer_size", memtable),
            ("seed", 1),
            ("use_existing_db", u64::from(!begins_with_empty_drives(name))),
        ];
        let limit = (name == READ_WORKLOAD)
            .then_some(("benchmark_write_rate_limit", WRITER_BYTES_PER_SECOND / u64::from(DILATION)));
        let mut args: Vec<String> =
            settings.iter().chain(&limit).map(|(name, value)| format!("--{name}={value}")).collect();
        let flags = [
            "compression_type=none",
            "use_direct_reads",
            "use_direct_io_for_flush_and_compaction",
            "histogram",
        ];
        args.extend(flags.iter().map(|flag| format!("--{flag}")));
        // RocksDB makes its info LOG durable every few seconds of the real clock, which is much more often in the drives' time.
        let mut environment = vec![
            ("FURROW_WAL_BUFFER", STRIPE_BYTES.to_string()),
            ("FURROW_LOG_DIR", self.files.path().to_owned()),
        ];
        if self.place.create_options().is_some() {
            environment.push(shares::environment(self.files.path().as_ref()));
        }
        DbBench { url: self.url(), benchmark: name, args, environment }
    }
}

/// A built-in profile whose zones are finished without padding them: a mount finishes zones that are almost empty, which takes
/// a drive that pads a second each, ten times as long as the workloads here.
fn profile_without_padding(profile: &str) -> String {
    let text = Profile::text(profile).unwrap_or_default();
    text.lines()
        .filter(|line| !line.starts_with("finish-bandwidth"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Assembles the array of all drives, without tasks that would hold the drives on a clock that stands still; one drive stays as it is.
async fn assemble_drives(drives: Vec<Arc<dyn ZonedDevice>>) -> zoned::Result<Arc<dyn ZonedDevice>> {
    match &drives[..] {
        [alone] => Ok(Arc::clone(alone)),
        _ => Ok(Array::open(drives, OpenOptions { resume: false, ..OpenOptions::default() }).await?),
    }
}
