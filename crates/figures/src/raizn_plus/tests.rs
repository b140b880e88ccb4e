use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use units::{Driver, VirtualDriver};

use super::*;
use crate::db_bench::{DbBench, Measured};
use crate::{Row, Run};

/// The rows of a quick run of `figure`. Tests of the same figure share one run.
fn rows_of_quick_run(figure: &Figure) -> Vec<Row> {
    static RUNS: Mutex<BTreeMap<&str, Arc<OnceLock<Vec<Row>>>>> = Mutex::new(BTreeMap::new());
    let run = Arc::clone(RUNS.lock().expect("no test panics with the lock").entry(figure.name).or_default());
    run.get_or_init(|| figure.rows(&Run { quick: true, ..Run::default() }).expect("measured")).clone()
}

fn value(rows: &[Row], figure: &str, series: &str, x: f64) -> f64 {
    let is = |row: &&Row| row.figure == figure && row.series == series && row.x == x.into();
    rows.iter().find(is).unwrap_or_else(|| panic!("no {figure}, {series} at {x}")).ours
}

#[test]
fn every_panel_has_rows() {
    // Stock db_bench is not run here: below, its numbers are given.
    let of_db_bench = [rocks::FIGURE.name, database::FIGURE.name];
    for figure in FIGURES.into_iter().filter(|figure| !of_db_bench.contains(&figure.name)) {
        let rows = rows_of_quick_run(&figure);
        for panel in figure.panels {
            assert!(rows.iter().any(|row| row.figure == panel.figure), "{}", panel.figure);
        }
    }
}

#[test]
fn atomic_writes_have_nearly_the_rate_and_the_tail_of_others() {
    let rows = rows_of_quick_run(&atomic_writes::FIGURE);
    for size in [4.0, 64.0, 1024.0] {
        let of = |figure, series| value(&rows, figure, series, size);
        let ratio = |figure| of(figure, atomic_writes::WRITES) / of(figure, atomic_writes::PLAIN);
        assert!(ratio("fig5.14a-rate") >= 0.97, "{size} KiB: {}", ratio("fig5.14a-rate"));
        assert!(ratio("fig5.14a-p99.9") <= 1.2, "{size} KiB: {}", ratio("fig5.14a-p99.9"));
        let appends = of("fig5.14a-rate", atomic_writes::APPENDS);
        assert!(appends >= 0.97 * of("fig5.14a-rate", atomic_writes::WRITES), "{size} KiB: {appends}");
    }
}

#[test]
fn two_zones_in_a_physical_one_have_the_rate_and_the_tail_of_one() {
    let rows = rows_of_quick_run(&shared_zones::FIGURE);
    for [fixed, halves] in [shared_zones::WRITES, shared_zones::READS] {
        for size in [4.0, 64.0, 1024.0] {
            let ratio = |figure| value(&rows, figure, halves, size) / value(&rows, figure, fixed, size);
            assert!(ratio("fig5.14b-rate") >= 0.99, "{halves}, {size} KiB: {}", ratio("fig5.14b-rate"));
            assert!(ratio("fig5.14b-p99.9") <= 1.05, "{halves}, {size} KiB: {}", ratio("fig5.14b-p99.9"));
        }
    }
}

#[test]
fn streams_overwrite_an_array_at_its_rate_and_copy_nothing() {
    let rows = rows_of_quick_run(&overwrite::FIGURE);
    let mean = |name: &str, half: std::ops::RangeInclusive<u32>| {
        let of = rows.iter().filter(|row| row.figure == "fig5.17" && row.series == name);
        let of: Vec<f64> =
            of.filter(|row| half.clone().any(|x| row.x == x.into())).map(|row| row.ours).collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    for name in [overwrite::A, overwrite::B, overwrite::DP] {
        let ratio = mean(name, 101..=200) / mean(name, 0..=100);
        assert!(ratio >= 0.98, "{name}: {ratio}");
        let copied = rows.iter().find(|row| row.figure == "fig5.17-copied" && row.series == name);
        assert_eq!(copied.expect("a row").ours, 0.0, "{name}");
    }
    let random = mean(overwrite::RANDOM, 101..=200) / mean(overwrite::RANDOM, 0..=100);
    assert!(random > 0.45, "half of each reclaimed zone is valid: {random}");
}

/// The two arrays take turns, each workload with the drives that it is to have, and the ratio is that of the medians.
#[test]
fn db_bench_runs_on_both_placements_in_turn() {
    zoned::register_array_opener(::array::url::open);
    let ran = RefCell::new(Vec::new());
    let bench = |bench: &DbBench| {
        let clock = VirtualDriver::new(1);
        let device = zoned::open(&bench.url, Arc::clone(&clock) as Arc<dyn Driver>).expect("an array");
        ran.borrow_mut().push((device.geometry().zone_capacity, bench.benchmark));
        // The array's tasks hold its drives until the clock runs.
        clock.drop_all_tasks();
        let (_, file) =
            bench.environment.iter().find(|(name, _)| *name == "FURROW_COUNTERS").expect("an array");
        let line = r#"{"data_bytes":79,"parity_bytes":18,"partial_parity_bytes":2,"metadata_bytes":1}"#;
        std::fs::write(file, line).expect("written");
        Ok(Measured { rate: 1000.0 * ran.borrow().len() as f64, p99: Some(100.0) })
    };
    let run = Run { quick: true, ..Run::default() };
    let rows = rocks::rows(&run, &std::env::temp_dir(), &bench).expect("measured");
    let (fixed, halves) = (ran.borrow()[0].0, ran.borrow()[4].0);
    assert!(halves.0 * 2 <= fixed.0 && fixed.0 < halves.0 * 3, "{fixed} {halves}");
    let names = ["fillseq", "fillrandom", "overwrite", "readwhilewriting"];
    let expected = [fixed, halves].map(|capacity| names.map(|name| (capacity, name))).concat();
    assert_eq!(*ran.borrow(), expected);
    let ratios: Vec<f64> =
        rows.iter().filter(|row| row.figure == "fig5.15-ratio").map(|row| row.ours).collect();
    assert_eq!(ratios, [5.0, 3.0, 7.0 / 3.0, 2.0]);
    assert!(rows.iter().filter(|row| row.figure == "fig5.15").count() == 8);
}

/// The database is overwritten until 3.3 times its size is written, and the most room that a sample found committed until then counts.
#[test]
fn a_database_is_overwritten_and_the_room_it_commits_is_sampled() {
    zoned::register_array_opener(::array::url::open);
    let ran = RefCell::new(Vec::new());
    let bench = |bench: &DbBench| {
        let clock = VirtualDriver::new(1);
        let device = zoned::open(&bench.url, Arc::clone(&clock) as Arc<dyn Driver>).expect("an array");
        // 114 zones of 4 MiB.
        assert_eq!(device.geometry().zone_capacity.0 * 4096, 4 << 20);
        clock.drop_all_tasks();
        let database = 114 * (4_u64 << 20);
        ran.borrow_mut().push((bench.benchmark, bench.args.contains(&"--use_existing_db=1".to_owned())));
        let (_, file) =
            bench.environment.iter().find(|(name, _)| *name == "FURROW_COUNTERS").expect("an array");
        let line = |written: u64, committed: u64| {
            format!(
                r#"{{"data_bytes":{written},"moved_bytes":0,"live_bytes":1,"committed_bytes":{committed}}}"#
            )
        };
        let lines = [line(database / 2, database), line(database, database * 3 / 2)];
        let last = [line(database / 2, database * 5 / 4), line(database, database * 9)];
        let lines = if ran.borrow().len() < 4 { lines } else { last };
        std::fs::write(file, lines.join("\n")).expect("written");
        Ok(Measured { rate: 1000.0, p99: None })
    };
    let run = Run { quick: true, ..Run::default() };
    let rows = database::rows(&run, &std::env::temp_dir(), &bench).expect("measured");
    let overwrite = ("overwrite", true);
    assert_eq!(*ran.borrow(), [("fillseq", false), overwrite, overwrite, overwrite]);
    let most = |series: &str| {
        let is = |row: &&Row| row.figure == "fig5.16-most" && row.series == series;
        rows.iter().find(is).expect("a row").ours
    };
    assert_eq!((most(database::ALL), most(database::DATA), most(database::COPIED)), (1.5, 1.2, 0.0));
    let curve: Vec<f64> = rows
        .iter()
        .filter(|row| row.figure == "fig5.16" && row.series == database::ALL)
        .map(|row| row.ours)
        .collect();
    assert_eq!(curve, [1.0, 1.5, 1.0, 1.5, 1.0, 1.5, 1.25, 9.0]);
}

#[test]
fn memory_is_below_the_published_one() {
    for row in rows_of_quick_run(&memory::FIGURE) {
        assert!(row.paper.is_none_or(|paper| row.ours < paper), "{row:?}");
        assert!(row.figure != "table5.1-tables" || row.ours <= 256.0, "{row:?}");
    }
}

/// Reclaims zones of which a share is valid, one after the other, and writes what that frees: bytes of clients over all bytes written.
fn clients_share(zones: u32, valid: f64) -> f64 {
    let (mut copied, mut written, mut free) = (0.0, 0.0, 0.0);
    for _ in 0..zones {
        copied += valid;
        // The copies take room of a new zone, and the reclaimed zone is empty.
        free += 1.0 - valid;
        written += free;
        free = 0.0;
    }
    written / (written + copied)
}

#[test]
fn the_corrected_condition_is_what_reclaim_leaves() {
    for valid in [0.0, 0.25, 0.5, 0.75] {
        assert!((reclaim::corrected(valid) - clients_share(1000, valid)).abs() < 1e-9);
    }
    // Six drives, clients at the rate of four: the paper says that reclaim keeps up until half of each zone is valid.
    let four_of_six = 4.0 / 6.0;
    assert!((reclaim::published(0.5) - four_of_six).abs() < 1e-9);
    assert!(reclaim::corrected(1.0 / 3.0) >= four_of_six - 1e-9 && reclaim::corrected(0.5) < four_of_six);
}
