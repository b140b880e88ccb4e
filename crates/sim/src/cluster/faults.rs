//! The faults of a simulated cluster.

use std::time::Duration;

use crate::Rng;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The power of a node's machine is cut.
    PowerCut,
    /// The power of all machines is cut.
    PowerCutEverywhere,
    /// No message comes to a node, or from it, or both.
    CutOff,
    /// Two nodes do not hear each other.
    Parted,
    /// All cuts end.
    Healed,
    /// The leader is asked to hand over.
    HandOver,
    /// A node is cut off from the leader for about an election timeout, then the leader from all others: the node stands for election while the other voters have just acknowledged a heartbeat.
    VoteBesideLease,
    /// The leader is asked to hand over, and cut off a moment later.
    HandOverCutOff,
    /// A member is to be replaced by a new one.
    Replace,
    /// A drive is lost, with its node.
    DriveLost,
}

impl Fault {
    const ALL: [Fault; 10] = [
        Fault::PowerCut,
        Fault::PowerCutEverywhere,
        Fault::CutOff,
        Fault::Parted,
        Fault::Healed,
        Fault::HandOver,
        Fault::VoteBesideLease,
        Fault::HandOverCutOff,
        Fault::Replace,
        Fault::DriveLost,
    ];
}

/// How often which fault of a run comes.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    /// One message in so many is lost, and one is repeated.
    pub lost: u64,
    /// The longest time of a slow message on its way, in microseconds.
    pub slow_us: u64,
    /// The mean time between two faults.
    pub pause: Duration,
    /// The longest time that a node stays down, in microseconds.
    pub down_us: u64,
    /// One time in so many a node starts anew just before it is asked for its vote.
    pub restarts: u64,
    /// The weight of each kind of fault.
    weights: [u64; Fault::ALL.len()],
    /// The longest pause of a client between two operations, in microseconds.
    pub think_us: u64,
    /// Of ten operations so many are reads.
    pub reads: u64,
    /// The number of keys.
    pub keys: u64,
    /// The mean time between two flushes of a node's tables, in microseconds.
    pub flush_us: u64,
}

impl Faults {
    pub(super) fn of(rng: &mut Rng) -> Faults {
        let mut one_of = |values: &[u64]| values.get(rng.index(values.len())).copied().unwrap_or_default();
        Faults {
            lost: one_of(&[10, 100, 100_000, 100_000]),
            slow_us: one_of(&[100, 2_000, 150_000]),
            pause: Duration::from_millis(one_of(&[80, 150, 300])),
            down_us: one_of(&[5_000, 100_000, 500_000]),
            weights: Fault::ALL.map(|fault| match fault {
                Fault::PowerCut => one_of(&[1, 4]),
                Fault::Healed => one_of(&[1, 2]),
                _ => one_of(&[0, 1, 2]),
            }),
            restarts: one_of(&[2, 20, u64::MAX, u64::MAX]),
            think_us: one_of(&[5_000, 20_000, 100_000]),
            reads: one_of(&[2, 5, 8]),
            keys: one_of(&[8, 12, 40]),
            flush_us: one_of(&[5_000, 50_000, 1_000_000]),
        }
    }

    /// The run after its faults: messages take their time, and are neither lost nor slow.
    pub(super) fn end(&mut self) {
        (self.lost, self.slow_us, self.restarts) = (u64::MAX, 100, u64::MAX);
    }

    /// The next fault.
    pub(super) fn draw(&self, rng: &mut Rng) -> Fault {
        let mut place = rng.below(self.weights.iter().sum());
        for (fault, weight) in Fault::ALL.into_iter().zip(self.weights) {
            if place < weight {
                return fault;
            }
            place -= weight;
        }
        Fault::Healed
    }
}
