use super::*;
use crate::{Row, Run};

fn rows_of_quick_run(figure: &Figure) -> Vec<Row> {
    figure.rows(&Run { quick: true, progress: &|_| () }).expect("measured")
}

fn value(rows: &[Row], figure: &str, series: &str, x: f64) -> f64 {
    let is = |row: &&Row| row.figure == figure && row.series == series && row.x == x.into();
    rows.iter().find(is).unwrap_or_else(|| panic!("no {figure}, {series} at {x}")).ours
}

#[test]
fn every_panel_has_rows() {
    for figure in FIGURES {
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
fn streams_overwrite_an_array_at_its_rate_and_copy_nothing() {
    let rows = rows_of_quick_run(&overwrite::FIGURE);
    let mean = |name: &str, half: std::ops::RangeInclusive<u32>| {
        let of = rows.iter().filter(|row| row.figure == "fig5.17" && row.series == name);
        let of: Vec<f64> =
            of.filter(|row| half.clone().any(|x| row.x == x.into())).map(|row| row.ours).collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    for name in [overwrite::A, overwrite::B] {
        let ratio = mean(name, 101..=200) / mean(name, 0..=100);
        assert!(ratio >= 0.98, "{name}: {ratio}");
        let copied = rows.iter().find(|row| row.figure == "fig5.17-copied" && row.series == name);
        assert_eq!(copied.expect("a row").ours, 0.0, "{name}");
    }
    let random = mean(overwrite::RANDOM, 101..=200) / mean(overwrite::RANDOM, 0..=100);
    assert!(random > 0.45, "half of each reclaimed zone is valid: {random}");
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
