use std::collections::BTreeSet;

use bench::stage::Way;

use super::*;
use crate::{Row, Run};

fn rows_of_quick_run(figure: &Figure) -> Vec<Row> {
    figure.rows(&Run { quick: true, ..Run::default() }).expect("measured")
}

fn value(rows: &[Row], figure: &str, series: &str, x: f64) -> f64 {
    let is = |row: &&Row| row.figure == figure && row.series == series && row.x == x.into();
    rows.iter().find(is).unwrap_or_else(|| panic!("no {figure}, {series} at {x}")).ours
}

fn assert_panels_are_full(figure: &Figure, rows: &[Row]) {
    for panel in figure.panels {
        assert!(rows.iter().any(|row| row.figure == panel.figure), "{}", panel.figure);
    }
    assert!(rows.iter().all(|row| row.ours.is_finite() && row.note.contains("quick")));
}

#[test]
fn figures_and_their_panels_are_told_apart_by_their_names() {
    let panels: Vec<&str> =
        FIGURES.iter().flat_map(|figure| figure.panels).map(|panel| panel.figure).collect();
    assert_eq!(panels.iter().collect::<BTreeSet<_>>().len(), panels.len(), "{panels:?}");
    for word in FIGURES.iter().map(|figure| figure.name).chain(panels) {
        assert_eq!(FIGURES.iter().filter(|figure| figure.is_called(word)).count(), 1, "{word}");
    }
}

#[test]
fn staged_writes_of_several_threads_are_as_fast_as_one_thread_in_order() {
    let rows = rows_of_quick_run(&fig1::FIGURE);
    assert_panels_are_full(&fig1::FIGURE, &rows);
    for figure in ["buffered1-one", "buffered1-many"] {
        for size in [4.0, 16.0, 64.0] {
            let rate = |way| value(&rows, figure, fig1::name(way), size);
            assert!(rate(Way::Staged) >= 0.95 * rate(Way::Ordered), "{figure}, {size} KiB: {rows:?}");
        }
        assert!(value(&rows, figure, "lock", 4.0) < value(&rows, figure, "lane", 4.0), "{figure}");
    }
}

/// Bytes that are read hardly depend on the clock: all that was written is still in a memory larger than the data.
#[test]
fn what_was_written_is_read_from_memory_when_writes_are_buffered() {
    let rows = rows_of_quick_run(&fig4::FIGURE);
    assert_panels_are_full(&fig4::FIGURE, &rows);
    for engine in ["rocksdb", "leveldb"] {
        let read = |workload, mode| value(&rows, &format!("buffered4b-{engine}-{workload}"), mode, 3.2);
        for workload in ["load", "a"] {
            let (buffered, direct) = (read(workload, "buffered"), read(workload, "direct"));
            assert!(
                buffered < 0.3 * direct && direct > 1.0,
                "{engine}, {workload}: {buffered}, {direct} MiB"
            );
        }
        assert!(value(&rows, &format!("buffered4-over-{engine}"), "load", 3.2) > 0.0);
    }
}

#[test]
fn a_drive_in_use_takes_all_records_and_the_model_moves_what_its_formula_says() {
    let rows = rows_of_quick_run(&fig3::FIGURE);
    assert_panels_are_full(&fig3::FIGURE, &rows);
    for engine in ["rocksdb", "leveldb"] {
        let moved = value(&rows, &format!("buffered3-{engine}-moved"), fig3::MODEL, 90.0);
        assert!((moved - (ftl::write_amplification(0.9) - 1.0)).abs() < 1e-9, "{engine}: {moved}");
        let rate = |series| value(&rows, &format!("buffered3-{engine}"), series, 90.0);
        assert!(0.0 < rate(fig3::MODEL) && rate(fig3::MODEL) < rate(fig3::ZONE_TABLES), "{engine}");
    }
}

#[test]
fn a_quick_run_compares_workloads_on_one_database() {
    let rows = rows_of_quick_run(&fig5::FIGURE);
    assert_panels_are_full(&fig5::FIGURE, &rows);
    for series in ["RocksDB, warm", "LevelDB, warm"] {
        let of = rows.iter().filter(|row| row.figure == "buffered5-over" && row.series == series);
        let of: Vec<String> = of.map(|row| row.x.to_string()).collect();
        assert_eq!(of, ["load", "C"], "{series}");
    }
}

#[test]
fn a_quick_run_in_dilated_time_says_so() {
    let rows = rows_of_quick_run(&dilated::FIGURE);
    assert_panels_are_full(&dilated::FIGURE, &rows);
    assert!(rows.iter().all(|row| row.x == 2.into() && row.note.contains("dilated=2")));
}
