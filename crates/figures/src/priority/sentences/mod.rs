//! Sentences of the paper that its own numbers, or a measurement, contradict or qualify.
//!
//! The note of each row begins with the origin of the number: `virtual`, measured by this figure on emulated drives; `measured elsewhere`, a number that was measured on a
//! real kernel and is repeated here; `arithmetic`, computed from numbers of the paper.

mod drive_cache;
mod elsewhere;
pub(super) mod quoted;

use std::time::Duration;

use bench::share::{self, Admit, LogLoad, ShareLoad};
use bench::turns::{self, Due, Policy, TurnsLine, TurnsLoad};
use units::Bytes;
use zoned::Durability;

use self::drive_cache::{BulkInCache, SyncWay};
use self::quoted::{
    AS_ALONE, BULK_MAY_WAIT, DRIVE, FRONT_OF_THE_QUEUE, IMPORTANT_FIRST, NO_MAJORITY, SENT_STRAIGHT, row,
};
use crate::{Error, Figure, Result, Row, Run, Unit};

/// The sentences, without a chart.
pub(super) const FIGURE: Figure = Figure {
    name: "priority-sentences",
    title: "Sentences of the paper beside numbers",
    panels: &[],
    measure,
};

fn virtual_row(sentence: &str, x: &str, unit: Unit, value: f64, note: &str) -> Row {
    row(sentence, x, unit, value).note(format!("virtual {note}"))
}

fn computed_row(sentence: &str, x: &str, unit: Unit, value: f64, note: &str) -> Row {
    row(sentence, x, unit, value).note(format!("arithmetic: {note}"))
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = turns_of_snapshots(run)?;
    rows.extend(log_and_bulk(run)?);
    rows.extend(syncs(run)?);
    rows.extend(elsewhere::rows());
    rows.extend([
        computed_row(
            DRIVE,
            "0.25 s",
            Unit::MibPerS,
            536.0 / 0.25,
            "SATA carries 572 MiB/s at most, so that a cache of the host took the writes",
        ),
        computed_row(
            DRIVE,
            "0.45 s",
            Unit::MibPerS,
            536.0 / 0.45,
            "SATA carries 572 MiB/s at most, so that a cache of the host took the writes",
        ),
        computed_row(AS_ALONE, "0.2 ms by 0.15 ms", Unit::Times, 0.2 / 0.15, "the means of Figs. 10 and 7"),
        computed_row(AS_ALONE, "0.2 ms by 0.05 ms", Unit::Times, 0.2 / 0.05, "the means of Figs. 10 and 7"),
    ]);
    Ok(rows)
}

/// Rows of how many servers write snapshots at the same time, and of snapshots on the leader: by the authors' patch, and by the crate `turns`.
fn turns_of_snapshots(run: &Run<'_>) -> Result<Vec<Row>> {
    (run.progress)(NO_MAJORITY);
    let measured = |load: &TurnsLoad| turns::measure(load).map_err(|e| Error::new(NO_MAJORITY, e));
    let large = TurnsLoad {
        snapshot: Bytes(3000 << 20),
        scheduler: false,
        time: Duration::from_secs(run.pick(60, 8)),
        ..TurnsLoad::default()
    };
    let small = TurnsLoad {
        snapshot: Bytes(16 << 20),
        due: Due::Entries(20_000),
        time: Duration::from_secs(run.pick(30, 8)),
        ..large.clone()
    };
    let mut rows = Vec::new();
    let at_once = [
        "zn540, snapshots of 3000 MiB; while two of five write, none of the other three may be slow or gone",
        "zn540, snapshots of 3000 MiB; while one of five writes, one of the other four may be slow or gone",
    ];
    let policies = [("the authors' patch", Policy::Patch), ("turns", Policy::Turns)];
    for ((name, policy), at_once) in policies.into_iter().zip(at_once) {
        let line = measured(&TurnsLoad { policy, ..large.clone() })?;
        rows.push(virtual_row(
            NO_MAJORITY,
            &format!("{name}: servers of five that write snapshots at once, at most"),
            Unit::Count,
            line.most_at_once as f64,
            at_once,
        ));
        let line = measured(&TurnsLoad { policy, ..small.clone() })?;
        rows.push(virtual_row(
            NO_MAJORITY,
            &format!("{name}: snapshots on the leader"),
            Unit::Count,
            line.snapshots_on_leader as f64,
            &note_of_leaders(&line),
        ));
    }
    Ok(rows)
}

fn note_of_leaders(line: &TurnsLine) -> String {
    format!(
        "zn540, snapshots of 16 MiB; of {} snapshots, leadership handed over {} times",
        line.snapshots, line.hand_overs
    )
}

/// A log beside bulk on a drive whose own buffer is the queue, and the bulk's rate.
fn log_and_bulk(run: &Run<'_>) -> Result<Vec<Row>> {
    (run.progress)(FRONT_OF_THE_QUEUE);
    let time = Duration::from_secs(run.pick(6, 2));
    let load = ShareLoad { log: LogLoad::OneAfterTheOther, time, ..ShareLoad::default() };
    let failed = |e| Error::new(FRONT_OF_THE_QUEUE, e);
    let alone = share::measure_alone(&load).map_err(failed)?;
    let at_once = share::measure(&load, Admit::Unbounded, &alone).map_err(failed)?;
    let scheduled = share::measure(&load, Admit::Controller, &alone).map_err(failed)?;
    let bulk = |x: &str, line: &share::Line| {
        let rate = line.beside.bulk_rate / f64::from(1 << 20);
        let log = line.beside.log_rate / f64::from(1 << 20);
        virtual_row(
            BULK_MAY_WAIT,
            x,
            Unit::MibPerS,
            rate,
            &format!("zn540; the log writes {log:.1} MiB/s meanwhile"),
        )
    };
    Ok(vec![
        virtual_row(
            FRONT_OF_THE_QUEUE,
            "log beside bulk, nothing queued in the host",
            Unit::Times,
            at_once.mean,
            "zn540; mean latency by that alone: the drive's own buffer is the queue",
        ),
        virtual_row(
            FRONT_OF_THE_QUEUE,
            "log beside bulk at the scheduler's rate",
            Unit::Times,
            scheduled.mean,
            "zn540; mean latency by that alone: the rate of admission decides",
        ),
        bulk("bulk at once", &at_once),
        bulk("bulk by the scheduler", &scheduled),
    ])
}

/// Syncs of a log whose drive has other writers' data in its cache, and acknowledged blocks that a power cut loses.
fn syncs(run: &Run<'_>) -> Result<Vec<Row>> {
    (run.progress)(IMPORTANT_FIRST);
    let mut rows = Vec::new();
    for (x, bulk, sync) in [
        ("smr: flush, nothing of bulk in the cache", BulkInCache::smr(0), SyncWay::Flush),
        ("smr: flush, 64 MiB of bulk in the cache", BulkInCache::smr(1), SyncWay::Flush),
        ("smr: flush, 256 MiB of bulk in the cache", BulkInCache::smr(4), SyncWay::Flush),
        ("smr: durable write, 256 MiB of bulk in the cache", BulkInCache::smr(4), SyncWay::DurableWrite),
        ("smallzone: flush, 512 KiB of bulk in each of 8 dies", BulkInCache::smallzone(8), SyncWay::Flush),
        (
            "smallzone: durable write, 512 KiB of bulk in each of 8 dies",
            BulkInCache::smallzone(8),
            SyncWay::DurableWrite,
        ),
    ] {
        let time = drive_cache::time_of_sync(&bulk, sync)?;
        rows.push(virtual_row(IMPORTANT_FIRST, x, Unit::Ms, time.as_secs_f64() * 1000.0, bulk.note(sync)));
    }
    for (x, how) in [
        ("acknowledged blocks lost, without O_DSYNC and flush", Durability::Cached),
        ("acknowledged blocks lost, durable writes", Durability::Durable),
    ] {
        let lost = drive_cache::most_lost_blocks(how)?;
        rows.push(virtual_row(
            SENT_STRAIGHT,
            x,
            Unit::Count,
            lost as f64,
            &format!(
                "drive with a volatile cache, {} blocks of 4 KiB; the most of {} power cuts",
                drive_cache::BLOCKS,
                drive_cache::POWER_CUTS
            ),
        ));
    }
    Ok(rows)
}
