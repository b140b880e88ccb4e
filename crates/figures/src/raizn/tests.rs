use std::cell::RefCell;
use std::sync::Arc;

use ::fs::{Fs, MountOptions};
use units::block_on;

use super::setup::{MODEL, MeasuredArray, OURS};
use super::*;
use crate::db_bench::{DbBench, Measured};
use crate::{Row, Run, Unit};
use bench::Clock;

fn rows_of_quick_run(figure: &Figure) -> Vec<Row> {
    figure.rows(&Run { quick: true, ..Run::default() }).unwrap()
}

#[test]
fn panels_are_told_apart_by_their_names_and_filled() {
    let all: Vec<&str> = FIGURES.iter().flat_map(|f| f.panels).map(|panel| panel.figure).collect();
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len(), "{all:?}");
    let rows = rows_of_quick_run(&repair::FIGURE);
    for panel in repair::FIGURE.panels {
        assert!(rows.iter().any(|row| row.figure == panel.figure), "{}", panel.figure);
    }
    // md's resync does not know which blocks hold data: its time does not depend on the data.
    let resync = series(&rows, "fig4.12", MODEL);
    assert!(resync.len() == 2 && resync[0].ours == resync[1].ours, "{resync:?}");
    let full = series(&rows, "fig4.12-full", "Furrow over md (model)")[0].ours;
    assert!((full / 1.02 - 1.0).abs() < 0.02, "{full}");
    // A rebuild of twice the data takes twice the time.
    let ours: Vec<f64> =
        rows.iter().filter(|row| row.figure == "fig4.12" && row.series == OURS).map(|row| row.ours).collect();
    assert!((ours[1] / ours[0] / 2.0 - 1.0).abs() < 0.05, "{ours:?}");
}

/// The rows of one series of a figure.
fn series<'a>(rows: &'a [Row], figure: &str, series: &str) -> Vec<&'a Row> {
    rows.iter().filter(|row| row.figure == figure && row.series == series).collect()
}

#[test]
fn md_stands_beside_every_line_of_ours_and_is_called_a_model() {
    for figure in [&micro::WORKLOADS, &micro::DEGRADED] {
        let rows = rows_of_quick_run(figure);
        let ours: Vec<&Row> = rows.iter().filter(|row| row.series.starts_with(OURS)).collect();
        assert!(!ours.is_empty() && ours.len() * 2 == rows.len(), "{}", figure.name);
        for row in ours {
            let beside = series(&rows, row.figure, &row.series.replace(OURS, MODEL));
            let beside = beside.into_iter().find(|of| of.x == row.x).expect(&row.series);
            assert!(beside.note.contains("a model, not md"), "{}", beside.note);
        }
    }
}

#[test]
fn the_model_of_md_reaches_the_rate_of_its_drives_and_reconstructs_reads_of_a_failed_drive() {
    let rows = rows_of_quick_run(&micro::WORKLOADS);
    let last = |rows: &[Row], figure, name: &str| series(rows, figure, &format!("{MODEL}: {name}"))[2].ours;
    // At 1 MiB parity takes one drive of five from the writes, and nothing from the reads; md's drives are 2 and 4 % faster
    // than zn540.
    let write = last(&rows, "fig4.9a", "sequential write") / (4.0 * 1145.0 / 0.98);
    let read = last(&rows, "fig4.9a", "sequential read") / (5.0 * 3265.0 / 0.96);
    assert!((write - 1.0).abs() < 0.02 && (read - 1.0).abs() < 0.02, "{write} {read}");
    let rows = rows_of_quick_run(&micro::DEGRADED);
    for workload in ["sequential read", "random read"] {
        // In reads of whole stripes, each of the four remaining drives is read once.
        let all = last(&rows, "fig4.11a", &format!("{workload}, all drives"));
        let lost = last(&rows, "fig4.11a", &format!("{workload}, one lost"));
        assert!((lost / all / 0.8 - 1.0).abs() < 0.03, "{workload}: {lost} {all}");
    }
    // Of md's blocks of 64 KiB a fifth is read from four drives: 8 reads for 5.
    let at_64 = |of: &str| series(&rows, "fig4.11a", &format!("{MODEL}: random read, {of}"))[1].ours;
    let (all, lost) = (at_64("all drives"), at_64("one lost"));
    assert!((lost / all / 0.5 - 1.0).abs() < 0.1, "{lost} {all}");
}

#[test]
fn where_md_is_slowest_is_compared_with_ours_there() {
    let row = |whose: MeasuredArray, x: u32, ours| Row::new("fig4.10a", whose.name(), x, Unit::MibPerS, ours);
    let both = |x, furrow, md| [row(MeasuredArray::Furrow, x, furrow), row(MeasuredArray::Md, x, md)];
    let rows = [both(100, 40.0, 50.0), both(110, 42.0, 10.0), both(120, 41.0, 30.0)].concat();
    let found = overwrite::rows_where_md_is_slowest(&rows).unwrap();
    assert_eq!(found.each_ref().map(|row| (row.ours, row.paper)), [(4.2, Some(14.0)), (0.2, Some(0.2))]);
    assert_eq!(overwrite::rows_where_md_is_slowest(&rows[..1]), None);
}

#[test]
fn the_model_of_conventional_drives_falls_when_it_has_to_collect_and_recovers() {
    let shares = md::bandwidth_shares_of_overwriting(5, 20);
    assert!(shares[..19].iter().all(|share| *share > 0.95), "filling is free: {shares:?}");
    let lowest = shares.iter().copied().fold(1.0, f64::min);
    assert!(lowest < 0.35, "{shares:?}");
    assert!(shares[shares.len() - 1] > 2.0 * lowest, "{shares:?}");
    // A single stream leaves the garbage collection no pages to move.
    assert!(md::bandwidth_shares_of_overwriting(1, 20).iter().all(|share| *share > 0.95));
}

#[test]
fn db_bench_is_given_the_array_a_drive_and_the_models_and_its_numbers_fill_the_panels() {
    zoned::register_array_opener(::array::url::open);
    let run = Run { quick: true, ..Run::default() };
    let ran = RefCell::new(Vec::new());
    // The test does not run db_bench: it mounts the device that db_bench would get.
    let bench = |bench: &DbBench| {
        let drives = bench.url.matches("emu:").count();
        assert_eq!(bench.url.starts_with("array:"), drives == 5, "{}", bench.url);
        assert_eq!(bench.url.matches("dilated=50").count(), drives, "{}", bench.url);
        let driver = Clock::Virtual.driver();
        let device = zoned::open(&bench.url, Arc::clone(&driver)).unwrap();
        block_on(&*driver, async {
            let fs = Fs::mount(device, &MountOptions::default()).await.unwrap();
            // Each db_bench workload uses the files of the one before, except those that begin with empty drives.
            let empty = fs.read_dir("/").unwrap().is_empty();
            assert_eq!(empty, bench.benchmark.starts_with("fill"), "{}", bench.benchmark);
            assert_eq!(empty, bench.args.contains(&String::from("--use_existing_db=0")));
            // The writer beside the reads is limited to the same rate on all devices: 200 MB/s in the drives' time.
            let limited = bench.args.contains(&String::from("--benchmark_write_rate_limit=4000000"));
            assert_eq!(limited, bench.benchmark == "readwhilewriting", "{:?}", bench.args);
            if empty {
                fs.mkdir("/db").await.unwrap();
            }
            fs.unmount().await.unwrap();
        });
        let counters = bench.environment.iter().find(|(name, _)| *name == "FURROW_COUNTERS");
        assert_eq!(counters.is_some(), drives == 5);
        if let Some((_, file)) = counters {
            let line = r#"{"data_bytes":79,"parity_bytes":18,"partial_parity_bytes":2,"metadata_bytes":1}"#;
            std::fs::write(file, line).unwrap();
        }
        ran.borrow_mut().push((drives, bench.benchmark));
        Ok(Measured { rate: 1000.0, p99: Some(100.0) })
    };
    let dir = std::env::temp_dir();
    let rows = rocks::rows(&run, &dir, &bench).unwrap();
    let workloads = ["fillseq", "fillrandom", "overwrite", "readwhilewriting"];
    let mut expected = [5, 1, 1, 1].map(|drives| workloads.map(|name| (drives, name))).concat();
    expected.extend(workloads[..3].iter().map(|name| (5, *name)));
    assert_eq!(*ran.borrow(), expected);
    for (panel, ours) in [("fig4.13a", 50.0), ("fig4.13a-p99", 2.0)] {
        let of: Vec<f64> = rows.iter().filter(|row| row.figure == panel).map(|row| row.ours).collect();
        assert_eq!(of, [ours; 16], "{panel}");
    }
    for (panel, count) in [("fig4.13a-metadata", 4), ("fig4.13-metadata-64MiB", 3)] {
        let of: Vec<f64> = rows.iter().filter(|row| row.figure == panel).map(|row| row.ours).collect();
        assert_eq!(of, [0.01, 0.02].repeat(count), "{panel}");
    }
    assert!(rows.iter().all(|row| row.note.contains("stock db_bench")));
    let reads = |row: &&Row| row.note.contains("reads beside a writer");
    assert!(rows.iter().any(|row| reads(&row)));
    assert!(rows.iter().filter(reads).all(|row| format!("{:?}", row.x).contains("readwhilewriting")));
    let modelled = |row: &&Row| row.series.contains("md");
    assert!(
        rows.iter().filter(modelled).all(|row| row.series.contains("(model)") && row.note.contains("not md"))
    );
    let prefix = format!("furrow-fig13-{}", std::process::id());
    assert!(!dir.join(prefix).exists(), "its files are gone");
}

#[test]
fn the_model_of_md_is_a_drive_that_collecting_garbage_slows_down() {
    let share = md::write_share_while_collecting();
    assert!((0.3..0.9).contains(&share), "{share}");
    for share in [1.0, share] {
        zoned::emu::Profile::parse("md", &md::profile(share)).unwrap();
    }
}
