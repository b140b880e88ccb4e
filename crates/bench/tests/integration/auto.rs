//! The batching `auto` of the parallel log, in virtual time, compared with a group commit and with the batching `each`, where the number of writers changes, and where zones are replaced.

use std::sync::Arc;
use std::time::Duration;

use bench::wal::{self, LogMode, Sync, WalLoad, WalOutcome};
use fs::{Batching, FormatOptions, Fs, MountOptions, ParallelLog, ParallelOptions};
use units::{Driver, VirtualDriver, block_on, sleep_until, spawn};
use zoned::Bytes;

fn load(device: &str, threads: u32, record: u64, records: u64) -> WalLoad {
    WalLoad {
        device: format!("emu:mem?profile={device}"),
        clock: Some("virtual".parse().expect("a clock")),
        threads,
        record: Bytes(record),
        sync: Sync::Each,
        total: Bytes(record * records),
        ..WalLoad::default()
    }
}

const ZN540: &str = "zn540&zones=16&zone-size=256MiB";
const CONFZNS: &str = "confzns&zones=16&zone-size=256MiB";
const SMALLZONE: &str = "smallzone&zones=64";

const FEW: u64 = 20_000;
const MANY_RECORDS: u64 = 102_400;

/// Cells of `furrow bench wal --batchings`: device, bytes of a record, writers, records. Where the drive's buffer is always
/// full, an entry holds many records: the slowest thousandth of 20,000 records would be two entries, which is no percentile.
const CELLS: &[(&str, u64, u32, u64)] = &[
    (ZN540, 4096, 1, FEW),
    (ZN540, 4096, 2, FEW),
    (ZN540, 4096, 4, FEW),
    (ZN540, 4096, 8, FEW),
    (ZN540, 4096, 16, MANY_RECORDS),
    (ZN540, 4096, 32, FEW),
    (ZN540, 4096, 64, FEW),
    (ZN540, 512, 16, FEW),
    (ZN540, 16 << 10, 2, FEW),
    (ZN540, 16 << 10, 32, FEW),
    (SMALLZONE, 4096, 1, FEW),
    (SMALLZONE, 4096, 8, FEW),
    (SMALLZONE, 4096, 2, FEW),
    (SMALLZONE, 4096, 4, FEW),
    (SMALLZONE, 4096, 16, FEW),
    (SMALLZONE, 4096, 32, FEW),
    (SMALLZONE, 4096, 64, FEW),
    (SMALLZONE, 16 << 10, 16, FEW),
    (CONFZNS, 4096, 2, FEW),
    (CONFZNS, 4096, 16, FEW),
    (CONFZNS, 4096, 64, FEW),
];

#[test]
fn auto_is_within_three_percent_of_the_better_of_group_and_waltz_or_ahead() {
    for &(device, record, threads, records) in CELLS {
        let compared =
            wal::compare(&load(device, threads, record, records), threads).expect("the drive has room");
        let (ops, late) = (compared.throughput(), compared.tail());
        println!("{device}, {record} bytes, {threads} writers: {ops:.3} of the rate, {late:.3} of p99.9");
        assert!(
            ops >= 0.97 && late <= 1.03,
            "{device}, {record} bytes, {threads} writers: {ops:.3}, {late:.3}"
        );
    }
}

#[test]
fn a_lone_writer_writes_at_the_pointer_and_each_of_its_records_is_an_entry() {
    let outcome = wal::run(&WalLoad { wal: LogMode::Auto, ..load(ZN540, 1, 4096, 5000) }).expect("room");
    let (appends, writes) = (outcome.device_operations.appends, outcome.device_operations.writes);
    assert!(writes > 4900 && appends + writes < 5020, "{outcome:?}");
}

/// Appends `records` records to a log by `writers` tasks; gives records a second.
async fn append_phase(driver: &Arc<dyn Driver>, log: &Arc<ParallelLog>, writers: u64, records: u64) -> f64 {
    let begin = driver.now();
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let log = Arc::clone(log);
            spawn(&**driver, "writer", async move {
                for _ in 0..records / writers {
                    log.append(&[7; 4096], true).await.expect("room");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    records as f64 / driver.now().since(begin).as_secs_f64()
}

#[test]
fn a_change_of_the_number_of_writers_is_followed_at_once() {
    for device in [ZN540, SMALLZONE, CONFZNS] {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let drive = zoned::open(&format!("emu:mem?profile={device}"), Arc::clone(&driver)).expect("a drive");
        let phases = [(1, 512), (64, 4096), (4, 1024), (64, 4096), (1, 512)];
        let rates = block_on(&*driver, async {
            Fs::format(&drive, &FormatOptions::default()).await.expect("a new drive");
            let fs = Fs::mount(drive, &MountOptions::default()).await.expect("formatted");
            let options = ParallelOptions { batching: Batching::Auto, ..ParallelOptions::default() };
            let (log, _) = fs.parallel_log("/log", &options).await.expect("a new log");
            let log = Arc::new(log);
            log.append(b"first", true).await.expect("room");
            let mut rates = Vec::new();
            for (writers, records) in phases {
                // The drive writes out the buffers that the phase before filled.
                sleep_until(&*driver, driver.now().after(Duration::from_millis(20))).await;
                rates.push(append_phase(&driver, &log, writers, records).await);
            }
            log.close().await.expect("nothing failed");
            rates
        });
        println!("{device}: {rates:.0?}");
        for ((writers, records), rate) in phases.into_iter().zip(rates) {
            let threads = u32::try_from(writers).expect("few");
            // The run on a fresh drive is as long as the phase, and long enough for the drive's buffer to be full.
            let fresh = [1, 8].map(|times| {
                let load = load(device, threads, 4096, times * records);
                wal::run(&WalLoad { wal: LogMode::Auto, ..load }).expect("room").ops_per_s
            });
            let fresh = fresh[0].max(fresh[1]);
            assert!(
                rate > 0.93 * fresh,
                "{device}, {writers} writers: {rate:.0} of {fresh:.0} records a second"
            );
        }
    }
}

/// The latencies of writes to zones so small that many are replaced.
fn outcome_with_zone_replacements(device: &str, mode: LogMode, threads: u32) -> WalOutcome {
    wal::run(&WalLoad { wal: mode, ..load(device, threads, 4096, 20_000) }).expect("the drive has room")
}

#[test]
fn no_record_is_three_times_slower_than_its_neighbours_where_zones_are_replaced_under_eight_writers() {
    for device in ["zn540&zones=64&zone-size=4MiB", "smallzone&zones=64&zone-size=4MiB"] {
        for mode in [LogMode::Waltz, LogMode::Auto] {
            let outcome = outcome_with_zone_replacements(device, mode, 8);
            let worst = outcome.worst_over_neighbours.expect("few records");
            assert!(outcome.device_operations.zone_commands > 20, "{outcome:?}");
            assert!(worst <= 3.0, "{device}, {mode}: {worst:.2}");
        }
    }
}
