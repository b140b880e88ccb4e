//! A group of five replicas on emulated drives with a modelled network, in virtual time.

use std::time::Duration;

use bench::Error;
use bench::cluster::{ClusterLoad, ClusterOutcome, measure};
use units::Bytes;

fn short() -> ClusterLoad {
    ClusterLoad {
        lone_writes: 100,
        records: 5_000,
        reads: 100,
        lost_primaries: 8,
        election_timeout: Duration::from_millis(100),
        ..ClusterLoad::default()
    }
}

fn measured(load: &ClusterLoad) -> ClusterOutcome {
    measure(load).expect("measured")
}

#[test]
fn a_write_takes_a_round_trip_and_one_drive_s_write_a_read_no_message_and_a_lost_primary_two_timeouts() {
    let ClusterOutcome { alone, writers, reads, first_write, .. } = measured(&short());
    assert!((1.0..1.05).contains(&alone.over_floor), "{alone:?}");
    assert_eq!((reads.reads, reads.messages, reads.drive_operations), (100, 0, 0));
    assert!(writers.over_log > 0.5 && writers.records_per_drive_write > 8.0, "{writers:?}");
    assert_eq!((first_write.runs, first_write.within_two_timeouts), (8, 1.0), "{first_write:?}");
    // Nobody stands for election before the timeout since the last heartbeat is over.
    assert!(first_write.all_us.p50 > 85_000.0, "{first_write:?}");
}

#[test]
fn a_longer_way_is_a_later_acknowledgement_and_a_run_repeats() {
    let near = measured(&short());
    let far = measured(&ClusterLoad { one_way: Duration::from_micros(60), ..short() });
    let later = far.alone.latency_us.p50 - near.alone.latency_us.p50;
    assert!((99.0..101.0).contains(&later), "{later} us later by a round trip that is 100 us longer");
    assert_eq!(measured(&short()), near);
}

#[test]
fn loads_without_writers_or_with_values_beyond_a_batch_are_refused() {
    for bad in [
        ClusterLoad { writers: 0, ..short() },
        ClusterLoad { value: Bytes(1 << 20), ..short() },
        ClusterLoad { link_bits_per_s: 0, ..short() },
        ClusterLoad { profile: String::from("none-such"), ..short() },
    ] {
        assert!(matches!(measure(&bad), Err(Error::Settings(_))), "{bad:?}");
    }
}
