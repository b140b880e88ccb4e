use super::*;
use crate::{Row, Run};

fn rows_of_quick_run(figure: &Figure) -> Vec<Row> {
    let rows = figure.rows(&Run { quick: true, ..Run::default() }).expect("measured");
    for panel in figure.panels {
        assert!(rows.iter().any(|row| row.figure == panel.figure), "{}", panel.figure);
    }
    assert!(rows.iter().all(|row| row.ours.is_finite() && row.note.contains("quick")));
    rows
}

#[test]
fn the_scheduler_shortens_the_log_s_writes_on_each_drive_and_bulk_goes_on() {
    let rows = rows_of_quick_run(&log_beside_bulk::FIGURE);
    for drive in ["zn540", "confzns", "smr"] {
        let value = |figure: &str, series: &str| {
            let is = |row: &&Row| row.figure == figure && row.series == series && row.x == drive.into();
            rows.iter().find(is).unwrap_or_else(|| panic!("{figure}, {series} on {drive}")).ours
        };
        let latency = |series| value("priority11-log", series);
        let rate = |series| value("priority11-bulk", series);
        assert!(
            2.0 * latency(log_beside_bulk::SCHEDULED) < latency(log_beside_bulk::AT_ONCE),
            "{drive}: {rows:?}"
        );
        assert!(rate(log_beside_bulk::SCHEDULED) > 0.3 * rate(log_beside_bulk::ALONE), "{drive}: {rows:?}");
    }
}

#[test]
fn the_front_of_the_host_s_queue_does_not_suffice() {
    let rows = rows_of_quick_run(&sentences::FIGURE);
    let of_queue: Vec<f64> =
        rows.iter().filter(|row| row.series == sentences::FRONT_OF_THE_QUEUE).map(|row| row.ours).collect();
    assert!(
        matches!(of_queue.as_slice(), [at_once, scheduled] if *at_once > 100.0 && *scheduled < 1.3),
        "{rows:?}"
    );
}

#[test]
fn snapshots_in_turns_under_a_scheduler_leave_the_writes_their_rate() {
    use bench::turns::Policy;

    let rows = rows_of_quick_run(&snapshots::FIGURE);
    let value = |figure: &str, policy, scheduler, size: u32| {
        let series = snapshots::series(policy, scheduler);
        let is = |row: &&Row| row.figure == figure && row.series == series && row.x == size.into();
        rows.iter().find(is).unwrap_or_else(|| panic!("{figure}, {series}, {size} MiB")).ours
    };
    let (alone, turns) =
        (value("priority4", Policy::None, false, 300), value("priority4", Policy::Turns, true, 300));
    let random = value("priority4", Policy::Random, false, 300);
    assert!(turns > 0.8 * alone && turns > random, "{turns} {alone} {random}: {rows:?}");
}
