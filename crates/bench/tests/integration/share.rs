//! A log beside bulk writes under the drive's scheduler, in virtual time, beside the same bulk at a fixed rate.

use std::time::Duration;

use bench::share::{Admit, LogLoad, ShareLoad, measure, measure_alone, measure_scheduler_alone};

fn load(profile: &str, log: LogLoad) -> ShareLoad {
    ShareLoad { profile: profile.into(), log, time: Duration::from_secs(6), ..ShareLoad::default() }
}

const LOGS: [LogLoad; 2] = [LogLoad::OneAfterTheOther, LogLoad::Rate(2000)];

/// The mean by that alone is at most `mean`, and bulk keeps nine tenths of its rate, less the bytes of the log.
fn check(profile: &str, mean: f64) {
    for log in LOGS {
        let load = load(profile, log);
        let alone = measure_alone(&load).expect("measured");
        let unbounded = measure(&load, Admit::Unbounded, &alone).expect("measured");
        let controlled = measure(&load, Admit::Controller, &alone).expect("measured");
        assert!(unbounded.mean > 2.0 * mean, "{unbounded:?}");
        assert!(controlled.mean <= mean && controlled.kept >= 0.9, "{controlled:?}");
        // A run in which bulk goes evenly at the rate that the controller gave it on average.
        let fixed = measure(&load, Admit::Fixed(controlled.beside.bulk_rate), &alone).expect("measured");
        assert!(controlled.mean <= 1.05 * fixed.mean, "{controlled:?}\n{fixed:?}");
    }
}

#[test]
fn on_a_drive_with_a_write_buffer_the_log_hardly_notices_the_bulk() {
    check("zn540", 1.2);
}

#[test]
fn on_a_drive_that_acknowledges_after_programming_the_log_pays_what_it_pays_at_any_rate() {
    check("confzns", 1.4);
}

#[test]
fn without_a_log_or_without_bulk_the_scheduler_costs_nothing() {
    for profile in ["zn540", "confzns"] {
        let load = load(profile, LogLoad::OneAfterTheOther);
        let alone = measure_alone(&load).expect("measured");
        let (bulk, log) = measure_scheduler_alone(&load, &alone).expect("measured");
        assert!(bulk >= 0.995 && log <= 1.01, "{profile}: {bulk}, {log}");
    }
}

#[test]
fn where_each_zone_has_a_die_only_the_zone_on_the_log_s_die_is_limited() {
    // (zones of bulk, the least that bulk keeps). With eight zones, one of them is an eighth of the rate.
    for (bulk_zones, kept) in [(64, 0.95), (8, 0.85)] {
        for log in LOGS {
            let zones = ShareLoad {
                bulk_zones,
                bulk_in_flight: 64,
                last_bulk_zone: Some(384),
                ..load("smallzone", log)
            };
            let alone = measure_alone(&zones).expect("measured");
            let unbounded = measure(&zones, Admit::Unbounded, &alone).expect("measured");
            let controlled = measure(&zones, Admit::Controller, &alone).expect("measured");
            assert!(unbounded.mean > 20.0, "{unbounded:?}");
            assert!(
                controlled.mean <= 1.2 && controlled.p99 <= 1.2 && controlled.kept >= kept,
                "{controlled:?}"
            );
        }
    }
}

#[test]
fn eight_writers_that_fill_the_drive_keep_their_rate_and_bulk_has_the_rest() {
    let load = load("zn540", LogLoad::Writers(8));
    let alone = measure_alone(&load).expect("measured");
    let unbounded = measure(&load, Admit::Unbounded, &alone).expect("measured");
    let controlled = measure(&load, Admit::Controller, &alone).expect("measured");
    let of_alone = |line: &bench::share::Line| line.beside.log_rate / line.log_alone.log_rate;
    assert!(of_alone(&unbounded) < 0.5, "{unbounded:?}");
    assert!(of_alone(&controlled) >= 0.95 && controlled.kept >= 0.9, "{controlled:?}");
}
