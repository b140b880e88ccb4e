use std::collections::BTreeSet;

use super::*;
use crate::{PROFILES, Row, Run};

fn rows_of_quick_run(figure: &Figure) -> Vec<Row> {
    figure.rows(&Run { quick: true, ..Run::default() }).unwrap()
}

#[test]
fn figures_and_their_panels_are_told_apart_by_their_names() {
    let all: Vec<&Figure> = FIGURES.iter().chain([&PROFILES]).collect();
    let names: BTreeSet<&str> = all.iter().map(|figure| figure.name).collect();
    assert_eq!(names.len(), all.len());
    let panels: Vec<&str> = all.iter().flat_map(|figure| figure.panels).map(|panel| panel.figure).collect();
    assert_eq!(panels.iter().collect::<BTreeSet<_>>().len(), panels.len(), "{panels:?}");
    for word in names.into_iter().chain(panels) {
        assert_eq!(all.iter().filter(|figure| figure.is_called(word)).count(), 1, "{word}");
    }
}

#[test]
fn a_quick_run_fills_its_panels_and_is_marked_as_quick() {
    for figure in [fig2::FIGURE, barrier::FIGURE] {
        let rows = rows_of_quick_run(&figure);
        for panel in figure.panels {
            assert!(rows.iter().any(|row| row.figure == panel.figure), "{}", panel.figure);
        }
        for row in &rows {
            assert!(row.ours.is_finite() && row.ours > 0.0 && row.note.contains("quick"), "{row:?}");
            assert!(figure.panels.iter().any(|panel| panel.figure == row.figure), "{row:?}");
        }
        assert!(rows.iter().any(|row| row.paper.is_some()));
        // The figures of ZWAL are measured in virtual time, and so are the same on every machine.
        for name in ["barrier-a", "barrier-b"] {
            let rates: Vec<f64> = rows.iter().filter(|row| row.figure == name).map(|row| row.ours).collect();
            assert!(rates.is_sorted_by(|a, b| *a <= b * 1.01), "{rates:?}");
        }
    }
}
