//! Fig. 3 of the WALTZ paper: writes to one zone, one at a time, against appends, by threads: mean and tail latency.

use std::sync::Arc;

use parking_lot::Mutex;
use units::sync::Turnstile;
use units::{Blocks, block_on, spawn};
use zoned::{Buf, Durability, Lba, ZoneId, ZonedDevice};

use super::step::Drive;
use crate::closed_loop::drive;
use crate::{Error, Figure, Panel, Result, Row, Run, Shape, Unit};
use bench::Recorder;

const X: &str = "threads";
const Y: &str = "4 KiB to one zone, us";

/// Fig. 3 of the WALTZ paper.
pub const FIGURE: Figure = Figure {
    name: "waltz-fig3",
    title: "Fig. 3: write against append, by threads",
    panels: &[
        Panel::new("waltz3a", "smallzone: mean", X, Y, Shape::LINES),
        Panel::new("waltz3b", "smallzone: 99 %", X, Y, Shape::LINES),
        Panel::new("waltz3c", "smallzone: max", X, Y, Shape::LINES),
        Panel::new("waltz3d", "zn540: mean", X, Y, Shape::LINES),
        Panel::new("waltz3e", "zn540: 99 %", X, Y, Shape::LINES),
        Panel::new("waltz3f", "zn540: max", X, Y, Shape::LINES),
    ],
    measure,
};

const OPERATION_BYTES: usize = 4096;
/// Number of operations: they fill less than a zone.
const OPERATIONS: u64 = 4000;
/// Published mean latency in us of an append with one thread, section 3.2.
const PUBLISHED_APPEND_US: f64 = 93.0;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for which in Drive::BOTH {
        let [mean, tail, max] = match which {
            Drive::SmallZone => ["waltz3a", "waltz3b", "waltz3c"],
            Drive::Zn540 => ["waltz3d", "waltz3e", "waltz3f"],
        };
        for threads in [1, 2, 4, 8] {
            for append in [false, true] {
                let series = if append { "append" } else { "write" };
                (run.progress)(&format!("{}, {series}, {threads}", which.name()));
                let counted = one(which, threads, append, run.pick(OPERATIONS, OPERATIONS / 10));
                let found = counted.map_err(|e| Error::new(format!("Fig. 3, {series}"), e))?.summary(1);
                let note =
                    if append { "virtual clock" } else { "virtual clock; a lock in the order of asking" };
                let row = Row::new(mean, series, threads, Unit::Us, found.mean).note(note);
                let known = append && threads == 1 && which == Drive::SmallZone;
                rows.push(row.paper(known.then_some(PUBLISHED_APPEND_US)));
                rows.push(Row::new(tail, series, threads, Unit::Us, found.p99).note(note));
                rows.push(Row::new(max, series, threads, Unit::Us, found.max).note(note).note(
                    "published: appends' max 85 times lower in the geometric mean, for the lock is unfair",
                ));
            }
        }
    }
    Ok(rows)
}

fn one(which: Drive, threads: u32, append: bool, count: u64) -> zoned::Result<Recorder> {
    let url = which.url().trim_start_matches("emu:mem?");
    let (device, driver) = drive(url)?;
    let lock = Arc::new((Turnstile::new(), Mutex::new(device.geometry().start(ZoneId(0)))));
    let tasks: Vec<_> = (0..threads)
        .map(|_| {
            let (device, lock) = (Arc::clone(&device), Arc::clone(&lock));
            let each = count / u64::from(threads);
            spawn(&*driver, "load", async move { task(&*device, &lock, append, each).await })
        })
        .collect();
    block_on(&*driver, async {
        let mut all = Recorder::new();
        for task in tasks {
            all.add(&task.await?);
        }
        Ok(all)
    })
}

async fn task(
    device: &dyn ZonedDevice,
    lock: &(Turnstile, Mutex<Lba>),
    append: bool,
    count: u64,
) -> zoned::Result<Recorder> {
    let (driver, data) = (device.driver(), Buf::copy_from(&vec![3; OPERATION_BYTES]));
    let blocks = Blocks(OPERATION_BYTES as u64 / u64::from(device.geometry().block_size));
    let mut recorder = Recorder::new();
    for _ in 0..count {
        let begin = driver.now();
        if append {
            device.append(ZoneId(0), data.clone(), Durability::Cached).await?;
        } else {
            let _turn = lock.0.acquire().await;
            let at = *lock.1.lock();
            device.write(at, data.clone(), Durability::Cached).await?;
            *lock.1.lock() = at.plus(blocks);
        }
        recorder.record(driver.now().since(begin));
    }
    Ok(recorder)
}
