use std::cell::RefCell;
use std::sync::Arc;

use ::fs::{Fs, MountOptions};
use units::block_on;

use super::*;
use crate::Clock;
use crate::figures::db_bench::{DbBench, Measured};
use crate::figures::{Row, Run};

fn quick(figure: &Figure) -> Vec<Row> {
    figure.rows(&Run { quick: true, progress: &|_| () }).unwrap()
}

#[test]
fn panels_are_told_apart_by_their_names_and_filled() {
    let all: Vec<&str> = FIGURES.iter().flat_map(|f| f.panels).map(|panel| panel.figure).collect();
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len(), "{all:?}");
    let rows = quick(&repair::FIGURE);
    for panel in repair::FIGURE.panels {
        assert!(rows.iter().any(|row| row.figure == panel.figure), "{}", panel.figure);
    }
    // Twice the data, twice the time.
    let ours: Vec<f64> = rows.iter().filter(|row| row.figure == "fig4.12").map(|row| row.ours).collect();
    assert!((ours[1] / ours[0] / 2.0 - 1.0).abs() < 0.05, "{ours:?}");
}

#[test]
fn the_model_of_conventional_drives_falls_when_it_has_to_collect_and_recovers() {
    let shares = md::overwritten(5, 20);
    assert!(shares[..19].iter().all(|share| *share > 0.95), "filling is free: {shares:?}");
    let lowest = shares.iter().copied().fold(1.0, f64::min);
    assert!(lowest < 0.35, "{shares:?}");
    assert!(shares[shares.len() - 1] > 2.0 * lowest, "{shares:?}");
    // One stream leaves nothing to move.
    assert!(md::overwritten(1, 20).iter().all(|share| *share > 0.95));
}

#[test]
fn db_bench_is_given_the_array_a_drive_and_the_models_and_its_numbers_fill_the_panels() {
    zoned::know_arrays(::array::url::open);
    let run = Run { quick: true, progress: &|_| () };
    let ran = RefCell::new(Vec::new());
    // What db_bench would do is another process's; that it can mount what it is given is seen here.
    let bench = |bench: &DbBench| {
        let drives = bench.url.matches("emu:").count();
        assert_eq!(bench.url.starts_with("array:"), drives == 5, "{}", bench.url);
        assert_eq!(bench.url.matches("dilated=50").count(), drives, "{}", bench.url);
        let driver = Clock::Virtual.driver();
        let device = zoned::open(&bench.url, Arc::clone(&driver)).unwrap();
        block_on(&*driver, async {
            let fs = Fs::mount(device, &MountOptions::default()).await.unwrap();
            // One workload's files are the next one's, but where it begins with empty drives.
            let empty = fs.read_dir("/").unwrap().is_empty();
            assert_eq!(empty, bench.benchmark.starts_with("fill"), "{}", bench.benchmark);
            assert_eq!(empty, bench.args.contains(&String::from("--use_existing_db=0")));
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
    let modelled = |row: &&Row| row.series.contains("md");
    assert!(
        rows.iter().filter(modelled).all(|row| row.series.contains("(model)") && row.note.contains("not md"))
    );
    let prefix = format!("furrow-fig13-{}", std::process::id());
    assert!(!dir.join(prefix).exists(), "its files are gone");
}

#[test]
fn the_model_of_md_is_a_drive_that_collecting_garbage_slows_down() {
    let share = md::collecting();
    assert!((0.3..0.9).contains(&share), "{share}");
    for share in [1.0, share] {
        zoned::emu::Profile::parse("md", &md::profile(share)).unwrap();
    }
}
