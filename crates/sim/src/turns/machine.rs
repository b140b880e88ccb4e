//! One machine of a simulated group.

use std::collections::BTreeMap;

use ::turns::{Leader, Members, Node, NodeId, Options};
use units::Instant;

use crate::Rng;

/// Bytes of an entry of the log.
pub(super) const ENTRY: u64 = 1_000;

/// One machine of the group.
pub(super) struct Machine {
    /// Bytes of the machine's snapshots.
    pub snapshot: u64,
    /// The longest log.
    pub limit: u64,
    pub is_up: bool,
    pub incarnation: u64,
    /// Reading of the machine's clock at the true time 0.
    pub clock_offset: u64,
    /// How much faster than true time the clock runs, in parts per million.
    pub clock_speed: u64,
    pub node: Node,
    pub leader: Option<Leader>,
    /// When this leadership last asked for another leader, by the machine's clock.
    pub handed_over_at: Option<Instant>,
    /// The side of the partition that the machine is on.
    pub side: usize,
    /// True while the machine's drive makes syncs slow and writes at a tenth of its rate.
    pub is_slow: bool,
    /// Entries of the group's log that the machine has.
    pub applied: u64,
    pub log: u64,
    pub entries: u64,
    /// The log's length and entries at the beginning of the snapshot.
    pub begun_at: (u64, u64),
    pub left: Option<u64>,
    /// True if the machine wrote its snapshot in the last tick.
    pub writes: bool,
    /// True while the machine writes at its limit, without a turn.
    pub is_forced: bool,
    /// When the reports of this incarnation were sent, by the machine's clock.
    pub sent: BTreeMap<u64, Instant>,
    /// The end of the leases that the machine took since its last snapshot, by its clock.
    pub leases_end: Option<Instant>,
    /// The members that the machine's leadership knows.
    pub leads_members: Option<Members>,
    /// Number of changes of the members that the machine's leadership knows.
    pub knows_changes: u64,
    /// Number of changes that the leader of the newest grant to this machine knew.
    pub granted_after: u64,
    /// True while the machine, as the leader, knows of a recovery.
    pub recovers: bool,
    /// For each machine of the group: the last time at which this machine was undisturbed and could reach that one.
    pub undisturbed_at: Vec<u64>,
    /// The end of the turn, by the machine's clock, in which the bytes were written that are not durable yet.
    pub flushes_in_turn: Option<Instant>,
    pub forced: u64,
}

impl Machine {
    /// A machine of a group of `count`, with a clock and a log of its own.
    pub(super) fn new(
        id: NodeId,
        (count, snapshot, limit, drift, options): (u64, u64, u64, u64, Options),
        rng: &mut Rng,
    ) -> Machine {
        let snapshot = snapshot / 2 + rng.below(snapshot / 2);
        Machine {
            snapshot,
            limit: limit + rng.below(limit / 2),
            is_up: true,
            incarnation: 1,
            clock_offset: rng.below(1_000_000_000_000),
            clock_speed: rng.below(drift + 1),
            node: Node::new(id, 1, options),
            leader: None,
            handed_over_at: None,
            side: 0,
            is_slow: false,
            applied: 0,
            log: snapshot / 2 + rng.below(snapshot / 2),
            entries: (snapshot / 2 + rng.below(snapshot / 2)) / ENTRY,
            begun_at: (0, 0),
            left: None,
            writes: false,
            is_forced: false,
            sent: BTreeMap::new(),
            leases_end: None,
            leads_members: None,
            knows_changes: 0,
            granted_after: 0,
            recovers: false,
            undisturbed_at: vec![0; usize::try_from(count).expect("a small group")],
            flushes_in_turn: None,
            forced: 0,
        }
    }

    /// Reading of the machine's clock at the true time `now`.
    pub(super) fn clock(&self, now: u64) -> Instant {
        let shown = u128::from(now) * u128::from(1_000_000 + self.clock_speed) / 1_000_000;
        Instant(self.clock_offset + u64::try_from(shown).expect("a run is short"))
    }

    /// Notes that this machine has no turn at `now`, and can reach machine `leading`.
    pub(super) fn note_undisturbed(&mut self, leading: usize, now: u64) {
        if let Some(at) = self.undisturbed_at.get_mut(leading) {
            *at = now;
        }
    }

    /// True if this machine had no turn, and could reach machine `leading`, at `since` or later.
    pub(super) fn was_undisturbed(&self, leading: usize, since: u64) -> bool {
        self.undisturbed_at.get(leading).is_some_and(|at| *at >= since)
    }

    /// True if the machine's drive has work of a granted turn now.
    pub(super) fn is_at_work(&self, now: u64) -> bool {
        let is_ahead = |ends_at: Option<Instant>| ends_at.is_some_and(|ends_at| ends_at > self.clock(now));
        self.is_up && (is_ahead(self.node.ends_at()) || is_ahead(self.flushes_in_turn))
    }
}

/// The machines of the group, by number from 0 on.
pub(super) struct Machines(pub Vec<Machine>);

impl Machines {
    /// The node's name of machine `at`.
    pub(super) fn id(at: usize) -> NodeId {
        NodeId(at as u64 + 1)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&Machine> {
        self.0.get(at)
    }

    pub(super) fn at(&self, at: usize) -> &Machine {
        self.0.get(at).expect("a machine of the group")
    }

    pub(super) fn at_mut(&mut self, at: usize) -> &mut Machine {
        self.0.get_mut(at).expect("a machine of the group")
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Machine> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Machine> {
        self.0.iter_mut()
    }
}
