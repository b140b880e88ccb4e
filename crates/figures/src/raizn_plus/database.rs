//! Fig. 5.16: a database on an array with two zones in a physical one, filled and overwritten by stock `db_bench`: how much of the drives
//! holds anything at all ("committed"), while only physical zones without content are reset and nothing is copied.
//!
//! The drives are those of the paper at a smaller scale: the database fills 114 logical zones, as there, and the sizes of RocksDB's tables
//! and memtables shrink with the zones. They take no time, as the figure is about space.

use std::path::Path;
use std::sync::Arc;

use array::{Array, CreateOptions, OpenOptions};
use bench::{Clock, Scratch};
use fs::{FormatOptions, Fs};
use serde_json::Value;
use units::block_on;
use zoned::ZonedDevice;

use crate::db_bench::DbBench;
use crate::raizn::rocks::{Bench, MEMORY_DIRECTORY};
use crate::raizn::setup::{DRIVES, MIB};
use crate::{Better, Error, Figure, Panel, Result, Row, Run, Shape, Unit};

/// Fig. 5.16 of the dissertation.
pub(super) const FIGURE: Figure = Figure {
    name: "raiznplus-fig16",
    title: "Fig. 5.16: the room that a database of 114 logical zones commits, five drives, two zones in a physical one",
    panels: &[
        Panel::new(
            "fig5.16",
            "fillseq, then overwrite",
            "written to the array, times the database",
            "times the database",
            Shape::LINES,
        ),
        Panel::new(
            "fig5.16-most",
            "the most until 3.3 times the database were written",
            "",
            "times",
            Shape::Bars,
        ),
    ],
    measure,
};

/// Committed room that data may take, and with parity.
pub(super) const DATA: &str = "committed, room of data";
pub(super) const ALL: &str = "committed, parity included";
/// Bytes that reclaim copied.
pub(super) const COPIED: &str = "copied by reclaim";

/// Logical zones that the database fills.
const ZONES_OF_DATABASE: u64 = 114;
/// Times the database that are written to the array, its log and the compactions included: 800 of 240 GiB in the paper.
const WRITTEN: f64 = 3.3;
/// Physical zones of a drive: as much room as the database needs three times over, as nothing is copied for want of room.
const ZONES: u32 = 256;
/// Bytes of a value, and of a value with its key.
const VALUE: u64 = 4000;
const ENTRY: u64 = VALUE + 16;
/// Time between two samples in seconds.
const SAMPLE_SECONDS: &str = "0.1";
/// The share of the keys that one run of db_bench overwrites.
const SHARE_OF_RUN: u64 = 20;
/// Points of a curve for each time that the database is written.
const POINTS: f64 = 10.0;

const SCRATCH_PREFIX: &str = "furrow-fig516-";

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    rows(run, Path::new(MEMORY_DIRECTORY), &DbBench::run)
}

/// A sample of the array beside the database.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sample {
    /// Bytes of data that were written to the array since it was made.
    written: u64,
    /// Bytes of physical zones with content at the moment.
    committed: u64,
    /// Bytes that reclaim copied since the array was made.
    copied: u64,
}

/// Measures the rows of the figure, with drives in files of `dir`.
pub(super) fn rows(run: &Run<'_>, dir: &Path, bench: Bench<'_>) -> Result<Vec<Row>> {
    let failed = |e: bench::Error| Error::new("making the drives", e);
    Scratch::sweep(dir, SCRATCH_PREFIX).map_err(failed)?;
    // Half of a physical zone of each of four drives.
    let zone = run.pick(8, 2) * MIB;
    let database = ZONES_OF_DATABASE * zone / 2 * u64::from(DRIVES - 1);
    let ground = Ground::new(dir, zone).map_err(failed)?;
    let (mut samples, keys) = (Vec::new(), database / ENTRY);
    (run.progress)("db_bench fillseq");
    ground.run(bench, "fillseq", (keys, keys), &mut samples)?;
    let written = |samples: &[Sample]| samples.last().map_or(0, |sample| sample.written);
    let times = |bytes: u64| bytes as f64 / database as f64;
    while times(written(&samples)) < WRITTEN {
        (run.progress)(&format!("db_bench overwrite, {:.1} times written", times(written(&samples))));
        ground.run(bench, "overwrite", (keys, keys / SHARE_OF_RUN), &mut samples)?;
    }
    let note = format!(
        "stock db_bench, a database of {} MiB in zones of {} MiB, drives that take no time, samples every {SAMPLE_SECONDS} s",
        database / MIB,
        zone / 2 * u64::from(DRIVES - 1) / MIB
    );
    let of_data = |committed: u64| times(committed) * f64::from(DRIVES - 1) / f64::from(DRIVES);
    let mut rows = Vec::new();
    let mut from = 0;
    while let Some(first) = samples.get(from) {
        let point = (times(first.written) * POINTS).floor();
        let of_point = |sample: &&Sample| (times(sample.written) * POINTS).floor() == point;
        let here = samples.iter().skip(from).take_while(of_point);
        let most = here.clone().map(|sample| sample.committed).max().unwrap_or(0);
        from += here.count();
        for (series, y) in [(DATA, of_data(most)), (ALL, times(most))] {
            rows.push(Row::new("fig5.16", series, point / POINTS, Unit::Times, y).note(&note));
        }
    }
    let until = samples.iter().position(|sample| times(sample.written) >= WRITTEN).unwrap_or(samples.len());
    let most = samples.iter().take(until + 1).map(|sample| sample.committed).max().unwrap_or(0);
    let copied = samples.last().map_or(0, |sample| sample.copied);
    for (series, y, paper) in [
        (DATA, of_data(most), Some(400.0 / 240.0)),
        (ALL, times(most), None),
        (COPIED, times(copied), Some(0.0)),
    ] {
        let row = Row::new("fig5.16-most", series, "", Unit::Times, y).note(&note);
        let row = Row { better: Better::Lower, ..row };
        rows.push(match paper {
            Some(paper) => row.paper(paper),
            None => row,
        });
    }
    Ok(rows)
}

/// An array of drives in files with a file system on it, below db_bench, which is another process.
struct Ground {
    url: String,
    zone: u64,
    files: Scratch,
}

impl Ground {
    fn new(dir: &Path, zone: u64) -> bench::Result<Ground> {
        let files = Scratch::new(dir, SCRATCH_PREFIX)?;
        let drives: Vec<String> = (0..DRIVES).map(|n| format!("emu:{}/{n}", files.path())).collect();
        let driver = Clock::Virtual.driver();
        let size = format!("?zones={ZONES}&zone-size={zone}&max-open=14&max-active=14");
        let made: Vec<Arc<dyn ZonedDevice>> = drives
            .iter()
            .map(|url| zoned::open_or_create(&format!("{url}{size}"), Arc::clone(&driver)))
            .collect::<zoned::Result<_>>()?;
        block_on(&*driver, async {
            array::create(&made, &CreateOptions { shares: 2, ..CreateOptions::default() }).await?;
            let open = OpenOptions { resume: false, ..OpenOptions::default() };
            let array: Arc<dyn ZonedDevice> = Array::open(made, open).await?;
            Fs::format(&array, &FormatOptions::default()).await?;
            Ok::<(), bench::Error>(())
        })?;
        Ok(Ground { url: format!("array:{}", drives.join(",")), zone, files })
    }

    /// Runs db_bench with `writes` of `keys` keys, and adds what the array counted meanwhile to the samples.
    fn run(
        &self,
        bench: Bench<'_>,
        name: &'static str,
        (keys, writes): (u64, u64),
        samples: &mut Vec<Sample>,
    ) -> Result<()> {
        // A zone of the paper's has room for 34 tables of RocksDB's default size.
        let table = self.zone / 8;
        let settings = [
            ("num", keys),
            ("writes", writes),
            ("value_size", VALUE),
            ("write_buffer_size", table),
            ("target_file_size_base", table),
            ("max_bytes_for_level_base", 4 * table),
            ("seed", 1 + samples.len() as u64),
            ("use_existing_db", u64::from(!samples.is_empty())),
        ];
        let mut args: Vec<String> =
            settings.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        args.push("--compression_type=none".to_owned());
        let counters = format!("{}/counters.json", self.files.path());
        let environment = vec![
            ("FURROW_LOG_DIR", self.files.path().to_owned()),
            ("FURROW_COUNTERS", counters.clone()),
            ("FURROW_COUNTERS_EVERY", SAMPLE_SECONDS.to_owned()),
        ];
        bench(&DbBench { url: self.url.clone(), benchmark: name, args, environment })?;
        let failed = |why: String| Error::new(format!("what the array counted, in {counters}"), why);
        let text = std::fs::read_to_string(&counters).map_err(|e| failed(e.to_string()))?;
        std::fs::remove_file(&counters).map_err(|e| failed(e.to_string()))?;
        let before = samples.last().copied().unwrap_or_default();
        for line in text.lines() {
            let counted: Value =
                serde_json::from_str(line).map_err(|e| failed(format!("{e} in {line:?}")))?;
            let bytes = |name: &str| {
                counted
                    .get(name)
                    .and_then(Value::as_u64)
                    .ok_or_else(|| failed(format!("no {name} in {line:?}")))
            };
            samples.push(Sample {
                written: before.written + bytes("data_bytes")?,
                committed: bytes("committed_bytes")?,
                copied: before.copied + bytes("moved_bytes")?,
            });
        }
        match samples.last() {
            Some(last) if last.written > before.written => Ok(()),
            _ => Err(failed(format!("nothing was written: {text:?}"))),
        }
    }
}
