use bench::turns::Policy;

use super::sentences::quoted;
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

/// The numbers of a sentence, with their places.
fn of_sentence<'a>(rows: &'a [Row], sentence: &str) -> Vec<(String, f64, &'a str)> {
    let of = rows.iter().filter(|row| row.series == sentence);
    of.map(|row| (row.x.to_string(), row.ours, row.note.as_str())).collect()
}

/// The one number of a sentence whose place has all of `words`.
fn number(rows: &[Row], sentence: &str, words: &[&str]) -> f64 {
    let found: Vec<f64> = of_sentence(rows, sentence)
        .into_iter()
        .filter(|(x, _, _)| words.iter().all(|word| x.contains(word)))
        .map(|(_, ours, _)| ours)
        .collect();
    assert!(matches!(found.as_slice(), [_]), "{words:?} in {sentence}: {found:?}");
    found[0]
}

#[test]
fn sentences_of_the_paper_stand_beside_numbers_that_contradict_or_qualify_them() {
    let rows = rows_of_quick_run(&sentences::FIGURE);
    // The origin of a number begins its note.
    let origins = ["virtual ", "measured elsewhere: ", "arithmetic: "];
    assert!(rows.iter().all(|row| origins.iter().any(|origin| row.note.starts_with(origin))), "{rows:?}");

    let of_queue = |words: &[&str]| number(&rows, quoted::FRONT_OF_THE_QUEUE, words);
    assert!(of_queue(&["nothing queued"]) > 100.0 && of_queue(&["scheduler"]) < 1.3, "{rows:?}");

    let at_once = |words: &[&str]| number(&rows, quoted::NO_MAJORITY, words);
    assert_eq!((at_once(&["patch", "at once"]), at_once(&["turns", "at once"])), (2.0, 1.0), "{rows:?}");
    assert!(at_once(&["patch", "leader"]) > 0.0 && at_once(&["turns", "leader"]) == 0.0, "{rows:?}");

    let sync = |words: &[&str]| number(&rows, quoted::IMPORTANT_FIRST, words);
    let [nothing, some, much] = ["nothing", "64 MiB", "256 MiB"].map(|of| sync(&["smr: flush", of]));
    assert!(10.0 * nothing < some && 2.0 * some < much, "{rows:?}");
    let [flush, durable] = ["flush", "durable"].map(|how| sync(&["smallzone", how]));
    assert!(durable < 0.5 * flush, "{rows:?}");

    let lost = |words: &[&str]| number(&rows, quoted::SENT_STRAIGHT, words);
    assert!(lost(&["without O_DSYNC"]) > 0.0 && lost(&["durable"]) == 0.0, "{rows:?}");

    let bulk = |words: &[&str]| number(&rows, quoted::BULK_MAY_WAIT, words);
    assert!(bulk(&["BFQ", "thread"]) < bulk(&["BFQ, no priority"]), "repeated numbers: {rows:?}");
    assert!(bulk(&["bulk by the scheduler"]) > 0.7 * bulk(&["bulk at once"]), "{rows:?}");
    for sentence in
        [quoted::PROCESS_LEVEL, quoted::DESCRIPTORS, quoted::ONLY_BFQ, quoted::AS_ALONE, quoted::DRIVE]
    {
        assert!(of_sentence(&rows, sentence).len() >= 2, "{sentence}");
    }
}

#[test]
fn the_paper_s_numbers_stand_beside_its_own_policies_alone() {
    for (policy, scheduler, size, ratio, longest) in [
        (Policy::Random, false, 3000, Some(0.25), Some(3000.0)),
        (Policy::Patch, false, 3000, None, Some(200.0)),
        (Policy::Random, true, 3000, None, None),
        (Policy::Turns, false, 3000, None, None),
        (Policy::Random, false, 1000, None, None),
    ] {
        let published = snapshots::published(policy, scheduler, size);
        assert_eq!((published.ratio, published.longest), (ratio, longest), "{policy:?} {scheduler} {size}");
    }
}

#[test]
fn snapshots_in_turns_under_a_scheduler_leave_the_writes_their_rate() {
    let rows = rows_of_quick_run(&snapshots::FIGURE);
    // Snapshots of a quick run are smaller than those of which the paper has numbers.
    assert!(rows.iter().all(|row| row.paper.is_none()), "{rows:?}");
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
