//! Logs on the profiles of published drives, in virtual time.

use bench::wal::{self, LogMode, Sync, WalLoad, WalOutcome};
use fs::wal::IoMode;
use zoned::Bytes;

fn measure(profile: &str, load: WalLoad) -> WalOutcome {
    let device = format!("emu:mem?profile={profile}&zones=16&zone-size=256MiB");
    let clock = Some("virtual".parse().expect("a clock"));
    wal::run(&WalLoad { device, clock, window: 32, ..load }).expect("the drive has room")
}

#[test]
fn appends_are_never_slower_than_writes() {
    for profile in ["confzns", "zn540"] {
        for (buffer, total) in [(4 << 10, 4 << 20), (64 << 10, 16 << 20), (1 << 20, 64 << 20)] {
            for record in [100, 4 << 10, 64 << 10] {
                let load = |io| WalLoad {
                    io,
                    buffer: Bytes(buffer),
                    record: Bytes(record),
                    // Records of 100 bytes need fewer bytes in all: the measurement counts the log's appends.
                    total: Bytes(if record == 100 { total.min(16 << 20) } else { total }),
                    ..WalLoad::default()
                };
                let append = measure(profile, load(IoMode::Append));
                let write = measure(profile, load(IoMode::Write));
                assert!(
                    append.payload_mib_per_s >= write.payload_mib_per_s * 0.999,
                    "{profile}, buffer {buffer}, records of {record}: {} and {}",
                    append.payload_mib_per_s,
                    write.payload_mib_per_s
                );
            }
        }
    }
}

#[test]
fn synced_appends_are_never_slower_than_synced_writes() {
    for profile in ["confzns", "zn540"] {
        for threads in [1, 4, 16, 64] {
            let load =
                |io| WalLoad { io, threads, sync: Sync::Each, total: Bytes(8 << 20), ..WalLoad::default() };
            let (append, write) =
                (measure(profile, load(IoMode::Append)), measure(profile, load(IoMode::Write)));
            let ratio = append.ops_per_s / write.ops_per_s;
            assert!(
                ratio >= 0.99,
                "{profile}, {threads} writers: {} and {}",
                append.ops_per_s,
                write.ops_per_s
            );
        }
    }
}

#[test]
fn records_reach_nearly_the_rate_of_raw_appends() {
    for profile in ["confzns", "zn540"] {
        for (buffer, record, total) in [
            (4 << 10, 100, 16 << 20),
            (4 << 10, 4 << 10, 16 << 20),
            (4 << 10, 64 << 10, 16 << 20),
            (64 << 10, 4 << 10, 128 << 20),
            (1 << 20, 64 << 10, 512 << 20),
        ] {
            let (buffer, record, total) = (Bytes(buffer), Bytes(record), Bytes(total));
            let outcome = measure(profile, WalLoad { buffer, record, total, ..WalLoad::default() });
            assert!(outcome.of_raw >= 0.97, "{profile}, buffer {buffer}, records of {record}: {outcome:?}");
        }
    }
}

#[test]
fn writers_that_sync_each_record_do_not_wait_for_each_other() {
    for profile in ["confzns", "zn540"] {
        for threads in [1, 4, 16, 64] {
            let load = WalLoad { threads, sync: Sync::Each, total: Bytes(16 << 20), ..WalLoad::default() };
            let outcome = measure(profile, load);
            assert!(outcome.of_writers >= Some(0.9), "{profile}, {threads} writers: {outcome:?}");
        }
    }
}

#[test]
fn a_run_repeats_exactly_and_accounts_for_every_byte() {
    for mode in [LogMode::Each, LogMode::Group] {
        let load =
            WalLoad { wal: mode, threads: 8, sync: Sync::Each, total: Bytes(2 << 20), ..WalLoad::default() };
        let (one, other) = (measure("zn540", load.clone()), measure("zn540", load));
        assert_eq!((one.seconds, one.appends), (other.seconds, other.appends));
        assert_eq!(one.records, 512);
        assert!(one.device_operations.bytes >= (512 * 4096), "{one:?}");
        // Eight writers sync each record, so an entry holds at most eight records.
        assert!(one.appends >= 512 / 8, "{one:?}");
        assert!(
            mode == LogMode::Each || one.appends <= 512 / 2,
            "a leader takes other writers' records along: {one:?}"
        );
        assert!(one.latency_us.p50 > 0.0 && one.ops_per_s > 0.0);
    }
}

#[test]
fn logs_take_turns_where_the_drive_cannot_hold_everything() {
    let device = String::from("emu:mem?profile=zn540&zones=16&zone-size=2MiB");
    for mode in [LogMode::Each, LogMode::Group] {
        let load = WalLoad {
            device: device.clone(),
            wal: mode,
            threads: 4,
            total: Bytes(64 << 20),
            ..WalLoad::default()
        };
        let outcome = wal::run(&load).unwrap();
        assert_eq!(outcome.records, 16_384);
        assert!(outcome.logs > 2, "{outcome:?}");
        assert!(outcome.device_operations.zone_commands > 10, "{outcome:?}");
    }
}

#[test]
fn small_synced_records_count_as_the_blocks_that_they_take() {
    let device = String::from("emu:mem?profile=zn540&zones=16&zone-size=2MiB");
    let load =
        WalLoad { device, record: Bytes(100), sync: Sync::Each, total: Bytes(4 << 20), ..WalLoad::default() };
    let outcome = wal::run(&load).unwrap();
    assert_eq!(outcome.records, 41_943);
    assert!(outcome.device_operations.bytes >= 41_943 * 4096 && outcome.logs > 10, "{outcome:?}");
}

#[test]
fn the_limit_of_a_drive_with_a_cache_includes_the_flush_of_the_log() {
    let load = WalLoad { record: Bytes(4 << 10), total: Bytes(64 << 20), ..WalLoad::default() };
    for sync in [Sync::None, Sync::Each] {
        let total = if sync == Sync::Each { Bytes(8 << 20) } else { load.total };
        let outcome = measure("smr", WalLoad { sync, total, ..load.clone() });
        let share = if sync == Sync::Each { outcome.of_writers } else { Some(outcome.of_limit) };
        assert!(share >= Some(0.8) && share <= Some(1.2), "{sync}: {outcome:?}");
    }
}

#[test]
fn no_share_of_the_limit_is_given_for_records_of_several_entries() {
    for (record, fits) in [(4 << 10, true), ((64 << 10) - 64, true), (64 << 10, false), (128 << 10, false)] {
        let load = WalLoad {
            record: Bytes(record),
            threads: 2,
            sync: Sync::Each,
            total: Bytes(2 << 20),
            ..WalLoad::default()
        };
        assert_eq!(measure("zn540", load).of_writers.is_some(), fits, "a record of {record}");
    }
}
