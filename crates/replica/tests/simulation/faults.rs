//! The faults of a simulated group, and the outcome of a run.

use std::time::Duration;

use units::SplitMix64;

/// Which faults a run has.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// One message in so many is lost, and one is repeated.
    pub lost: u64,
    /// The longest time of a message on its way, in microseconds.
    pub slow_us: u64,
    /// The mean time between two of what follows.
    pub pause: Duration,
    /// How often which of them comes: a death, a node cut off, two nodes cut off from each other, an end of all cuts, a handing over, a change of members, a drive lost.
    pub weights: [u64; 7],
    /// The longest time between two commands or reads, in microseconds, and how many of ten are reads.
    pub ask_us: u64,
    pub reads: u64,
    /// One time in so many that values could be pulled they are.
    pub pull: u64,
    /// One time in so many a replica starts anew just before it is asked for a pre-vote; a leader dies soon after a command is committed.
    pub mean: u64,
    /// The number of keys.
    pub keys: u64,
    /// One time in so many a node's tables are flushed.
    pub flush: u64,
}

impl Faults {
    pub fn of(seed: u64) -> Faults {
        let mut chance = SplitMix64::new(seed ^ 0x5eed);
        let mut one_of = |values: &[u64]| values[(chance.draw() % values.len() as u64) as usize];
        Faults {
            lost: one_of(&[10, 100, 100_000, 100_000]),
            slow_us: one_of(&[100, 2_000, 150_000]),
            pause: Duration::from_millis(one_of(&[50, 100, 200, 400])),
            weights: [(); 7].map(|()| one_of(&[0, 1, 4])),
            ask_us: one_of(&[2_000, 5_000, 50_000]),
            reads: one_of(&[1, 5, 9]),
            pull: one_of(&[1, 10, 100]),
            mean: one_of(&[2, 20, u64::MAX, u64::MAX]),
            keys: one_of(&[3, 30, 1_000]),
            flush: one_of(&[1, 5, 50, u64::MAX]),
        }
    }

    pub const NONE: Faults = Faults {
        lost: 1_000_000_000,
        slow_us: 100,
        pause: Duration::from_secs(3600),
        weights: [0, 0, 0, 1, 0, 0, 0],
        ask_us: 5_000,
        reads: 5,
        pull: 1,
        mean: u64::MAX,
        keys: 30,
        flush: 5,
    };
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Broken promises, in the order in which they were seen.
    pub faults: Vec<String>,
    pub acknowledged: usize,
    pub terms: u64,
    /// Changes of members that ended.
    pub changes: u64,
    /// Snapshots that replicas took, and drives that were lost.
    pub snapshots: u64,
    pub lost: u64,
    /// Reads answered by a round of heartbeats, and by the lease.
    pub answered: [u64; 2],
    /// Steps of backups whose tables were behind by less than an election timeout.
    pub fresh: u64,
}
