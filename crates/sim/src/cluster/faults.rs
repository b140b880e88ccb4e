//! The faults of a simulated cluster, and the shape of a run.

use std::time::Duration;

use super::driver::Pauses;
use super::objects::Object;
use crate::Rng;

/// The longest pause of a client between two operations once all faults have ended, in microseconds.
const LAST_THINK_US: u64 = 10_000;

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
    /// The same, and the other voters start anew when the leader is cut off: they have acknowledged its heartbeats in an earlier life.
    RestartBesideLease,
    /// The leader is asked to hand over, and cut off a moment later.
    HandOverCutOff,
    /// The leader is cut off, and all clients ask for what was written last until another one leads.
    ReadAfterCutOff,
    /// The leader is cut off while clients write to it; then the next leader is cut off instead, and the old one comes back with entries that nobody else has.
    OldLeaderReturns,
    /// A node is drained, or two: their replicas are to be replaced by new ones.
    Drain,
    /// The leader is asked to hand over, and its node is drained then.
    DrainOldLeader,
    /// The leader is asked for members without a backup, which it is to refuse.
    WithoutBackups,
    /// A drive is lost, with its node.
    DriveLost,
    /// A write or a flush of a drive fails.
    DriveError,
    /// The groups are to be raised to the newest version.
    Finalize,
    /// Etcd answers nothing for a time.
    EtcdGone,
    /// Etcd is restored from a backup, and the epoch raised a moment later.
    EtcdRestored,
}

impl Fault {
    const ALL: [Fault; 19] = [
        Fault::PowerCut,
        Fault::PowerCutEverywhere,
        Fault::CutOff,
        Fault::Parted,
        Fault::Healed,
        Fault::HandOver,
        Fault::VoteBesideLease,
        Fault::RestartBesideLease,
        Fault::HandOverCutOff,
        Fault::ReadAfterCutOff,
        Fault::OldLeaderReturns,
        Fault::Drain,
        Fault::DrainOldLeader,
        Fault::WithoutBackups,
        Fault::DriveLost,
        Fault::DriveError,
        Fault::Finalize,
        Fault::EtcdGone,
        Fault::EtcdRestored,
    ];
}

/// The shape of a run: how often which fault comes, and what clients ask.
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
    /// One time in so many the leader is cut off when a change of members has begun.
    pub cut_changes: u64,
    /// One time in so many the power of all machines is cut when a node has deleted a replica.
    pub cut_deletions: u64,
    /// The share, in per cent, of creations and deletions of replicas in which a power cut comes between the write of the log and that of the node's state.
    pub cut_short: u64,
    /// The weight of each kind of fault.
    weights: [u64; Fault::ALL.len()],
    /// The longest pause of a client between two operations, in microseconds.
    pub think_us: u64,
    /// Of ten operations so many are reads.
    pub reads: u64,
    /// The number of groups.
    pub groups: usize,
    /// The number of objects in each group.
    pub objects: u64,
    /// The bytes of a value.
    pub value_bytes: usize,
    /// The bytes of a group's log above which it takes no commands.
    pub group_bytes: u64,
    /// The bytes of a node's drive that the log of all its groups may take.
    pub log_bytes: u64,
    /// The mean time between two flushes of a node's tables, in microseconds.
    pub flush_us: u64,
    /// The pauses of the groups' tasks on each node.
    pub pauses: Pauses,
    /// The most by which wall clocks are wrong, in milliseconds.
    pub wall_ms: u64,
}

impl Faults {
    pub(super) fn of(rng: &mut Rng) -> Faults {
        let mut one_of = |values: &[u64]| values.get(rng.index(values.len())).copied().unwrap_or_default();
        // Groups of large values have few entries in their logs.
        let value_bytes = one_of(&[8, 8, 200, 1_500]);
        let scale = if value_bytes > 1_000 { 4 } else { 1 };
        Faults {
            lost: one_of(&[10, 100, 100_000, 100_000]),
            slow_us: one_of(&[100, 2_000, 150_000]),
            pause: Duration::from_millis(one_of(&[80, 150, 300])),
            down_us: one_of(&[5_000, 100_000, 500_000]),
            weights: Fault::ALL.map(|fault| match fault {
                Fault::PowerCut => one_of(&[1, 4]),
                Fault::Healed => one_of(&[1, 2]),
                // Few of its reads come in the moment before a new leader has committed an entry.
                Fault::ReadAfterCutOff => one_of(&[1, 3, 6]),
                Fault::WithoutBackups => one_of(&[0, 0, 1]),
                _ => one_of(&[0, 1, 2]),
            }),
            restarts: one_of(&[2, 20, u64::MAX, u64::MAX]),
            cut_changes: one_of(&[2, 8, u64::MAX]),
            cut_deletions: one_of(&[2, 8, u64::MAX]),
            cut_short: one_of(&[0, 5, 20]),
            think_us: one_of(&[10_000, 50_000, 200_000]),
            reads: one_of(&[2, 5, 8]),
            groups: usize::try_from(one_of(&[1, 1, 2, 3])).unwrap_or(1),
            objects: Object::ROUND * one_of(&[2, 3, 8]),
            value_bytes: usize::try_from(value_bytes).unwrap_or_default(),
            group_bytes: scale * (8 << 10),
            log_bytes: one_of(&[64 << 10, 128 << 10, 256 << 10, 512 << 10]),
            flush_us: one_of(&[5_000, 50_000, 1_000_000]),
            pauses: Pauses { tables_us: one_of(&[0, 0, 2_000, 20_000]), values_us: one_of(&[0, 0, 100_000]) },
            wall_ms: one_of(&[0, 500, 2_000]),
        }
    }

    /// The run after its faults: messages take their time, and are neither lost nor slow; clients ask without long pauses.
    pub(super) fn end(&mut self) {
        (self.lost, self.slow_us) = (u64::MAX, 100);
        (self.restarts, self.cut_changes, self.cut_deletions) = (u64::MAX, u64::MAX, u64::MAX);
        self.cut_short = 0;
        self.think_us = self.think_us.min(LAST_THINK_US);
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
