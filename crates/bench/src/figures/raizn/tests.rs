use super::*;
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
