use std::collections::BTreeSet;

use super::*;
use crate::{PROFILES, Run, zwal};

#[test]
fn figures_and_their_panels_are_told_apart_by_their_names() {
    let all: Vec<&Figure> = FIGURES.iter().chain(&zwal::FIGURES).chain([&PROFILES]).collect();
    let names: Vec<&str> = all.iter().map(|figure| figure.name).collect();
    let panels: Vec<&str> =
        FIGURES.iter().flat_map(|figure| figure.panels).map(|panel| panel.figure).collect();
    for list in [&names, &panels] {
        assert_eq!(list.iter().collect::<BTreeSet<_>>().len(), list.len(), "{list:?}");
    }
    let called = |word: &str| FIGURES.iter().filter(|figure| figure.is_called(word)).count();
    for word in FIGURES.iter().map(|figure| figure.name).chain(panels) {
        assert_eq!(called(word), 1, "{word}");
    }
}

#[test]
fn every_figure_and_table_of_the_paper_s_evaluation_is_found_by_its_number() {
    let called = |word: &str| FIGURES.iter().filter(|figure| figure.is_called(word)).count();
    let figures = [3, 5].into_iter().chain(8..=18).map(|number| format!("fig{number}"));
    for word in figures.chain((2..=4).map(|number| format!("table{number}"))).chain([String::from("waf")]) {
        // Fig. 12 is measured by two kinds of runs.
        assert_eq!(called(&word), if word == "fig12" { 2 } else { 1 }, "{word}");
    }
    for word in ["fig1", "fig4", "fig6", "fig19", "table1", "table5", "fig", "table", ""] {
        assert_eq!(called(word), 0, "{word}");
    }
}

#[test]
fn writes_wait_for_each_other_and_appends_do_not() {
    let rows = fig3::FIGURE.rows(&Run { quick: true, ..Run::default() }).unwrap();
    let at = |figure: &str, series: &str, threads: u32| {
        let found =
            rows.iter().find(|row| row.figure == figure && row.series == series && row.x == threads.into());
        found.unwrap().ours
    };
    assert!((at("waltz3a", "append", 1) / 93.0 - 1.0).abs() < 0.1);
    assert!(at("waltz3a", "write", 8) > 7.5 * at("waltz3a", "write", 1));
    // One die limits both appends and writes to its zone; appends keep the die busy.
    assert!(at("waltz3a", "append", 8) < 0.5 * at("waltz3a", "write", 8));
    for row in &rows {
        assert!(row.ours > 0.0 && row.note.contains("quick"), "{row:?}");
    }
}

#[test]
fn a_quick_run_with_rocksdb_fills_its_panels() {
    let figure = ablation::FIGURE;
    let rows = figure.rows(&Run { quick: true, ..Run::default() }).unwrap();
    for panel in figure.panels {
        let series: Vec<&str> =
            rows.iter().filter(|row| row.figure == panel.figure).map(|row| &*row.series).collect();
        assert_eq!(series, ["base", "+reservation", "+append", "waltz", "auto"], "{}", panel.figure);
    }
    assert!(rows.iter().all(|row| row.ours > 0.0 && row.note.contains("dilated=")));
    assert_eq!(rows.iter().filter(|row| row.paper.is_some()).count(), 4);
}
