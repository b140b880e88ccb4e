//! Fig. 4.13: db_bench's workloads on RocksDB over the file system, on the array and on one drive, in dilated time; and
//! what share of the bytes written is the array's metadata.
//!
//! The workloads are db_bench's, run in this process: the counters of the array are read here.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use array::Counters;
use fs::log::LogOptions;
use fs::{FormatOptions, Fs, MountOptions};
use rocks::{Db, DbOptions, WriteBatch};
use units::{Bytes, Driver, SplitMix64, VirtualDriver, block_on, spawn};
use zoned::ZonedDevice;

use super::setup;
use crate::array::Setup;
use crate::figures::{Better, Error, Figure, Panel, Result, Row, Run, Shape, Unit};
use crate::{Clock, Recorder};

const X: &str = "db_bench workload";
const Y: &str = "thousand operations a second";

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "raizn-fig13",
    title: "Fig. 4.13: RocksDB on the array and on one drive",
    panels: &[
        Panel { figure: "fig4.13a", title: "values of 4,000 bytes", x: X, y: Y, shape: Shape::Bars },
        Panel { figure: "fig4.13b", title: "values of 8,000 bytes", x: X, y: Y, shape: Shape::Bars },
        Panel { figure: "fig4.13a-p99", title: "4,000 bytes", x: X, y: "p99, us", shape: Shape::Bars },
        Panel { figure: "fig4.13b-p99", title: "8,000 bytes", x: X, y: "p99, us", shape: Shape::Bars },
    ],
    measure,
};

/// So much slower are the drives: the host's own slowness counts that much less.
const DILATION: u32 = 50;
/// A stripe of four units of 64 KiB: the log writes one at a time.
const STRIPE: usize = 256 << 10;
/// Of the rates, for little data.
const MEMTABLE: usize = 8 << 20;
/// db_bench's own, for the shares of metadata: what a flush costs does not grow with it.
const WHOLE_MEMTABLE: usize = 64 << 20;
const CACHE: usize = 8 << 20;
const READERS: u64 = 8;
const PATH: &str = "/db";

/// db_bench's names, in its order; the array is made anew after the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Workload {
    FillSeq,
    FillRandom,
    Overwrite,
    ReadWhileWriting,
}

impl Workload {
    const ALL: [(Workload, &str); 4] = [
        (Workload::FillSeq, "fillseq"),
        (Workload::FillRandom, "fillrandom"),
        (Workload::Overwrite, "overwrite"),
        (Workload::ReadWhileWriting, "readwhilewriting"),
    ];
}

/// What a workload gave.
struct Outcome {
    name: &'static str,
    /// Thousand operations a second: reads where it reads, else writes.
    kiops: f64,
    /// Of the same, in us.
    p99: f64,
    /// What the array wrote meanwhile.
    counters: Option<Counters>,
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let data = run.pick(64 << 20, 8 << 20);
    let panels = [
        (4000, "fig4.13a", "fig4.13a-p99", "fig4.13a-metadata"),
        (8000, "fig4.13b", "fig4.13b-p99", "fig4.13b-metadata"),
    ];
    for (value, rates, tails, shares) in panels.into_iter().take(run.pick(2, 1)) {
        for (drives, series) in [(true, "Furrow, five drives"), (false, "one drive")] {
            let count = data / value;
            let note = format!(
                "db_bench's workloads in this process, clock dilated {DILATION} times, {count} values of {value} \
                 bytes, never synced, log buffer of a stripe; published: within 10 % of md"
            );
            for outcome in outcomes(run, drives, value, count, MEMTABLE, &Workload::ALL)? {
                let name = outcome.name;
                rows.push(Row::new(rates, series, name, Unit::Kiops, outcome.kiops).note(&note));
                rows.push(Row::new(tails, series, name, Unit::Us, outcome.p99).note(&note));
                rows.extend(outcome.counters.iter().flat_map(|of| metadata(shares, name, of)));
            }
        }
    }
    let (value, figure) = (4000, "fig4.13-metadata-64MiB");
    let (count, writing) =
        (run.pick(320 << 20, 16 << 20) / value, Workload::ALL.get(..3).unwrap_or_default());
    for outcome in outcomes(run, true, value, count, run.pick(WHOLE_MEMTABLE, MEMTABLE), writing)? {
        rows.extend(outcome.counters.iter().flat_map(|of| metadata(figure, outcome.name, of)));
    }
    Ok(rows)
}

/// Shares of all bytes that the array wrote.
fn metadata(figure: &'static str, name: &'static str, of: &Counters) -> Vec<Row> {
    let all = of.data_bytes + of.parity_bytes + of.partial_parity_bytes + of.metadata_bytes;
    let share = |series: &str, bytes: u64, note: &str| Row {
        better: Better::Lower,
        ..Row::new(figure, series, name, Unit::Times, bytes as f64 / (all.max(1)) as f64).note(note)
    };
    vec![
        share(
            "metadata of all bytes written",
            of.metadata_bytes,
            "published: below 0.001, partial parity included or not is not said",
        ),
        share(
            "partial parity of all bytes written",
            of.partial_parity_bytes,
            "logged for stripes that were not full when a write ended",
        ),
    ]
}

fn outcomes(
    run: &Run<'_>,
    drives: bool,
    value: u64,
    count: u64,
    memtable: usize,
    workloads: &[(Workload, &'static str)],
) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    let mut ground = None;
    for &(workload, name) in workloads {
        (run.progress)(&format!("{name}, {value} bytes, {}", if drives { "array" } else { "one drive" }));
        let failed = |e: crate::Error| Error::new(format!("{name} on {drives:?} drives"), e);
        if matches!(workload, Workload::FillSeq | Workload::FillRandom) {
            // As in the paper: fillseq has an array of its own.
            close(ground.take()).map_err(failed)?;
            ground = Some(Ground::new(drives, memtable).map_err(failed)?);
        }
        if let Some(ground) = &ground {
            outcomes.push(ground.run(workload, name, value, count).map_err(failed)?);
        }
    }
    close(ground).map_err(|e| Error::new("closing the database", e))?;
    Ok(outcomes)
}

fn close(ground: Option<Ground>) -> crate::Result<()> {
    let Some(ground) = ground else { return Ok(()) };
    ground.db.close()?;
    Ok(block_on(&*ground.driver, ground.fs.unmount())?)
}

/// A database on an array or on a drive.
struct Ground {
    driver: Arc<dyn Driver>,
    array: Option<Arc<array::Array>>,
    fs: Fs,
    db: Arc<Db>,
}

impl Ground {
    fn new(drives: bool, memtable: usize) -> crate::Result<Ground> {
        let driver = Clock::Dilated(NonZeroU32::new(DILATION).expect("not zero")).driver();
        let setup = Setup { dilation: DILATION, ..setup(16, Bytes(64 << 10)) };
        // Formatting finishes zones, which takes such a drive a second each: that is done in virtual time.
        let (array, device): (_, Arc<dyn ZonedDevice>) = if drives {
            let bed = Setup { dilation: 1, ..setup }.build()?;
            block_on(&*bed.driver, Fs::format(&bed.device, &FormatOptions::default()))?;
            let bed = setup.build_from(&bed, Arc::clone(&driver))?;
            (Some(bed.array), bed.device)
        } else {
            let emu = Setup { dilation: 1, ..setup }.drive(&(VirtualDriver::new(1) as Arc<dyn Driver>), 0);
            let device: Arc<dyn ZonedDevice> = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
            block_on(&**device.driver(), Fs::format(&device, &FormatOptions::default()))?;
            (None, setup.drive_with(&driver, 0, emu.media()))
        };
        let fs = block_on(&*driver, async {
            let log = LogOptions { buffer: STRIPE, ..LogOptions::default() };
            Fs::mount(device, &MountOptions { log, ..MountOptions::default() }).await
        })?;
        let options = DbOptions { write_buffer: memtable, block_cache: CACHE, ..DbOptions::default() };
        let db = Arc::new(Db::open(&fs, PATH, &options)?);
        Ok(Ground { driver, array, fs, db })
    }

    fn run(&self, workload: Workload, name: &'static str, value: u64, count: u64) -> crate::Result<Outcome> {
        let before = self.array.as_ref().map(|array| array.counters());
        let begin = self.driver.now();
        let stop = Arc::new(AtomicBool::new(false));
        let reads = workload == Workload::ReadWhileWriting;
        let writer = {
            let (db, driver, stop) = (Arc::clone(&self.db), Arc::clone(&self.driver), Arc::clone(&stop));
            spawn(&*self.driver, "writer", async move { write(&db, &driver, workload, value, count, &stop) })
        };
        let readers: Vec<_> = (0..if reads { READERS } else { 0 })
            .map(|reader| {
                let (db, driver) = (Arc::clone(&self.db), Arc::clone(&self.driver));
                spawn(&*self.driver, "reader", async move { read(&db, &driver, reader, count) })
            })
            .collect();
        let mut recorder = Recorder::new();
        block_on(&*self.driver, async {
            for reader in readers {
                recorder.add(&reader.await?);
            }
            stop.store(reads, Ordering::Relaxed);
            let written = writer.await?;
            if !reads {
                recorder.add(&written);
            }
            Ok::<(), crate::Error>(())
        })?;
        let seconds = self.driver.now().since(begin).as_secs_f64() / f64::from(DILATION);
        let counters = self.array.as_ref().map(|array| array.counters()).zip(before);
        let counters = counters.map(|(after, before)| Counters {
            data_bytes: after.data_bytes - before.data_bytes,
            parity_bytes: after.parity_bytes - before.parity_bytes,
            partial_parity_bytes: after.partial_parity_bytes - before.partial_parity_bytes,
            metadata_bytes: after.metadata_bytes - before.metadata_bytes,
            ..after
        });
        let kiops = recorder.count() as f64 / seconds / 1e3;
        Ok(Outcome { name, kiops, p99: recorder.summary(DILATION).p99, counters })
    }
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn write(
    db: &Db,
    driver: &Arc<dyn Driver>,
    workload: Workload,
    value: u64,
    count: u64,
    stop: &AtomicBool,
) -> crate::Result<Recorder> {
    let mut random = SplitMix64::new(workload as u64 + 1);
    let mut recorder = Recorder::new();
    // Nothing to compress.
    let mut bytes: Vec<u8> = (0..value.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes()).collect();
    for n in 0.. {
        let ends =
            if workload == Workload::ReadWhileWriting { stop.load(Ordering::Relaxed) } else { n == count };
        if ends {
            break;
        }
        let at = if workload == Workload::FillSeq { n } else { random.draw() % count };
        if let Some(head) = bytes.first_chunk_mut::<8>() {
            *head = random.draw().to_le_bytes();
        }
        let mut batch = WriteBatch::new();
        batch.put(&key(at), &bytes);
        let begin = driver.now();
        db.write(&batch, false)?;
        recorder.record(driver.now().since(begin));
    }
    Ok(recorder)
}

fn read(db: &Db, driver: &Arc<dyn Driver>, reader: u64, count: u64) -> crate::Result<Recorder> {
    let mut random = SplitMix64::new(reader + 100);
    let mut recorder = Recorder::new();
    for _ in 0..count / READERS {
        let begin = driver.now();
        let _found_or_not = db.get(&key(random.draw() % count))?;
        recorder.record(driver.now().since(begin));
    }
    Ok(recorder)
}
