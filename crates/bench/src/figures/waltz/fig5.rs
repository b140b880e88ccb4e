//! Figs. 5 and 13, section 4.4: where a put of RocksDB's group commit spends its time, how many lead, and what either log
//! writes, by threads.

use super::{Drive, Step, measure as run_load, note};
use crate::figures::{Better, Figure, Panel, Result, Row, Run, Shape, Unit};
use crate::kv::{KvLoad, KvOutcome, SlowWrite};

const X: &str = "threads";

/// The figure.
pub const FIGURE: Figure = Figure {
    name: "waltz-fig5",
    title: "Figs. 5 and 13, section 4.4: group commit by threads",
    panels: &[
        Panel {
            figure: "waltz5a",
            title: "smallzone",
            x: X,
            y: "mean put of a group, us",
            shape: Shape::Stack,
        },
        Panel { figure: "waltz5b", title: "zn540", x: X, y: "mean put of a group, us", shape: Shape::Stack },
        Panel { figure: "waltz13a", title: "smallzone", x: X, y: "share of puts", shape: Shape::Bars },
        Panel { figure: "waltz13b", title: "zn540", x: X, y: "share of puts", shape: Shape::Bars },
        Panel {
            figure: "waltz-waf",
            title: "section 4.4",
            x: "drive",
            y: "bytes written for each byte put",
            shape: Shape::Bars,
        },
    ],
    measure,
};

/// Threads; the share of the leader's election, where the text has it; the share of followers.
const THREADS: [(u32, Option<f64>, Option<f64>); 3] =
    [(2, Some(0.38), None), (4, None, None), (8, Some(0.61), Some(0.13))];

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for drive in Drive::BOTH {
        for (threads, election, followers) in THREADS {
            let load = KvLoad { threads, slowest: 1, ..Step::Reservation.load(drive, run) };
            let what = format!("{}, {threads} threads", drive.name());
            let outcome = run_load(run, &what, &load)?;
            rows.extend(of_group(drive, threads, election, followers, &outcome));
        }
        for step in [Step::Reservation, Step::Waltz] {
            let load = step.load(drive, run);
            let outcome = run_load(run, &format!("{}, {}", drive.name(), step.name()), &load)?;
            let row =
                Row::new("waltz-waf", step.name(), drive.name(), Unit::Times, outcome.write_amplification);
            rows.push(
                Row { better: Better::Lower, ..row }
                    .note(note(&load))
                    .note("published: 1.7 % more with WALTZ on MixGraph"),
            );
        }
    }
    Ok(rows)
}

fn of_group(
    drive: Drive,
    threads: u32,
    election: Option<f64>,
    followers: Option<f64>,
    outcome: &KvOutcome,
) -> Vec<Row> {
    let (parts, shares) = match drive {
        Drive::SmallZone => ("waltz5a", "waltz13a"),
        Drive::Zn540 => ("waltz5b", "waltz13b"),
    };
    let note = note(&outcome.load);
    let SlowWrite { us, engine, wait, log, memtable, delay, switch, .. } =
        outcome.mean_write.unwrap_or_default();
    let mut rows: Vec<Row> = [
        ("election and the group before", wait),
        ("log", log),
        ("memtable", memtable),
        ("stalls", delay + switch),
        ("rest", engine),
    ]
    .into_iter()
    .map(|(series, us)| Row::new(parts, series, threads, Unit::Us, us).note(&note))
    .collect();
    let share = |series, ours: f64, paper: Option<f64>| {
        let row = Row::new(shares, series, threads, Unit::Times, ours).paper(paper).note(&note);
        Row { better: Better::Lower, ..row }
    };
    rows.push(share("time in the election", wait / us.max(f64::MIN_POSITIVE), election));
    let writes: f64 = outcome.groups.iter().map(|of| (of.groups * of.writers as u64) as f64).sum();
    let groups: f64 = outcome.groups.iter().map(|of| of.groups as f64).sum();
    let share_of = if writes > 0.0 { 1.0 - groups / writes } else { 0.0 };
    rows.push(share("followers", share_of, followers).note("published: MixGraph, where 14 % are puts"));
    rows
}
