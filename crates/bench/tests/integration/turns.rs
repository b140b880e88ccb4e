//! A replicated group with snapshots in virtual time: who decides when they are written, with and without a scheduler before each drive.

use std::time::Duration;

use bench::Error;
use bench::turns::{Due, Policy, TurnsLine, TurnsLoad, measure};
use units::Bytes;

fn measured(load: &TurnsLoad) -> TurnsLine {
    measure(load).expect("measured")
}

/// Snapshots that take longer than the logs take to the next ones.
fn large(policy: Policy, scheduler: bool) -> TurnsLoad {
    TurnsLoad {
        policy,
        scheduler,
        snapshot: Bytes(512 << 20),
        due: Due::Entries(20_000),
        time: Duration::from_secs(2),
        ..TurnsLoad::default()
    }
}

#[test]
fn turns_and_schedulers_keep_the_writes_of_a_group_without_snapshots_and_random_snapshots_do_not() {
    let none = measured(&large(Policy::None, false));
    assert_eq!((none.snapshots, none.bulk_bytes_per_s), (0, 0.0));
    let random = measured(&large(Policy::Random, false));
    assert!(random.writes_per_s < 0.5 * none.writes_per_s, "{random:?}\n{none:?}");
    assert!(random.write_latency.max > 5.0 * none.write_latency.max && random.most_at_once > 2, "{random:?}");
    for (policy, scheduler, at_once) in [
        (Policy::Random, true, 3..=5),
        (Policy::Patch, false, 1..=2),
        (Policy::Patch, true, 1..=2),
        (Policy::Turns, false, 1..=1),
        (Policy::Turns, true, 1..=1),
    ] {
        let line = measured(&large(policy, scheduler));
        assert!(line.writes_per_s > 0.97 * none.writes_per_s, "{line:?}\n{none:?}");
        assert!(line.write_latency.max < 0.5 * random.write_latency.max, "{line:?}\n{random:?}");
        assert!(at_once.contains(&line.most_at_once) && line.bulk_bytes_per_s > 0.0, "{line:?}");
        assert_eq!(line.forced, 0, "{line:?}");
    }
}

#[test]
fn where_drives_limit_the_writes_random_snapshots_cost_less_with_schedulers() {
    let load = |policy, scheduler| TurnsLoad {
        leader_time: Duration::ZERO,
        entry: Bytes(4 << 10),
        clients: 16,
        time: Duration::from_millis(500),
        ..large(policy, scheduler)
    };
    let without = measured(&load(Policy::Random, false));
    let with = measured(&load(Policy::Random, true));
    assert!(with.writes_per_s > 2.0 * without.writes_per_s, "{with:?}\n{without:?}");
    assert!(with.write_latency.p99 < 0.5 * without.write_latency.p99, "{with:?}\n{without:?}");
}

#[test]
fn every_server_has_its_turn_and_the_leader_hands_over_first() {
    let load =
        TurnsLoad { snapshot: Bytes(16 << 20), time: Duration::from_secs(30), ..large(Policy::Turns, false) };
    let line = measured(&load);
    assert!(line.snapshots >= 5 && line.hand_overs >= 1, "{line:?}");
    assert_eq!((line.most_at_once, line.snapshots_on_leader, line.forced), (1, 0, 0), "{line:?}");
    // The leader of the patch takes its snapshots as any server.
    let line = measured(&TurnsLoad { policy: Policy::Patch, ..load });
    assert!(line.snapshots_on_leader > 0 && line.hand_overs == 0, "{line:?}");
}

#[test]
fn the_seed_decides_the_result() {
    let load = TurnsLoad { time: Duration::from_secs(1), ..large(Policy::Random, false) };
    let line = measured(&load);
    assert_eq!(line, measured(&load));
    assert_ne!(line, measured(&TurnsLoad { seed: 2, ..load }));
}

#[test]
fn loads_that_make_no_sense_are_refused_in_words() {
    let good = large(Policy::Turns, true);
    for (bad, word) in [
        (TurnsLoad { servers: 2, ..good.clone() }, "2 servers"),
        (TurnsLoad { servers: 10, ..good.clone() }, "3 to 9"),
        (TurnsLoad { clients: 0, ..good.clone() }, "clients"),
        (TurnsLoad { entry: Bytes(0), ..good.clone() }, "entries of 0 bytes"),
        (TurnsLoad { entry: Bytes(1 << 20), ..good.clone() }, "64 KiB"),
        (TurnsLoad { snapshot: Bytes(4096), ..good.clone() }, "snapshots of 4096 bytes"),
        (TurnsLoad { snapshot: Bytes(u64::MAX), ..good.clone() }, "64 GiB"),
        (TurnsLoad { due: Due::Entries(1), ..good.clone() }, "due after"),
        (TurnsLoad { time: Duration::ZERO, ..good.clone() }, "at most an hour"),
        (TurnsLoad { profile: "zn541".into(), ..good.clone() }, "profile"),
    ] {
        match measure(&bad) {
            Err(Error::Settings(why)) => assert!(why.contains(word), "{why}"),
            other => panic!("{bad:?}: {other:?}"),
        }
    }
}
