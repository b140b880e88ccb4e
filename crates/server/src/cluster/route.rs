//! The place where a command of a cluster's client runs, by the slot of its keys: a decision without I/O.

use kv::{Args, SLOTS, Spec, key_slot};

use super::Cluster;
use super::topology::{SlotRange, Topology};
use replica::GroupId;

/// The reply to keys of several slots.
pub(crate) const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// The reply for a slot that no node serves.
pub(crate) const SLOT_NOT_SERVED: &str = "CLUSTERDOWN Hash slot not served";

/// The slots of a set of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum KeySlots {
    /// The set has no key.
    #[default]
    None,
    /// All keys are in this slot.
    One(u16),
    /// The keys are in more than one slot.
    Several,
}

impl KeySlots {
    /// The slots of the keys among a command's words.
    pub fn of_command(spec: &Spec, args: Args<'_>) -> KeySlots {
        KeySlots::of_keys(kv::key_places(spec, args).map(|place| args.get(place)))
    }

    /// The slots of keys.
    pub fn of_keys<'k>(keys: impl Iterator<Item = &'k [u8]>) -> KeySlots {
        keys.fold(KeySlots::None, |slots, key| slots.join(KeySlots::One(key_slot(key))))
    }

    /// The slots of both sets of keys.
    pub fn join(self, other: KeySlots) -> KeySlots {
        match (self, other) {
            (KeySlots::None, slots) | (slots, KeySlots::None) => slots,
            (KeySlots::One(a), KeySlots::One(b)) if a == b => self,
            _ => KeySlots::Several,
        }
    }
}

/// The replicas that may run a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Only the leader may run the command.
    Leader,
    /// A backup may run the command for a client that has sent READONLY.
    Backup,
}

/// The place where a command runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// The command has no key, and needs no engine.
    Anywhere,
    /// The command runs in the group's engine of this process, which leads.
    Leader(GroupId),
    /// The command reads from this process's backup of the group.
    Backup {
        /// The group.
        group: GroupId,
        /// The reply where the backup lacks a value: `MOVED` to the leader, or that there is none.
        elsewhere: String,
    },
    /// The reply is this error.
    Refused(String),
    /// No node leads the slot's group, as far as this process knows: the command waits for a leader.
    Unled,
}

/// Decides where the commands of one client run, from the state of the cluster at one moment.
#[derive(Debug)]
pub(crate) struct Router<'a> {
    /// The nodes and slots.
    pub topology: &'a Topology,
    /// This process's replicas.
    pub cluster: &'a dyn Cluster,
    /// The time by which a backup that answers reads may be behind the leader, in milliseconds.
    pub stale_limit_ms: u64,
    /// The group whose engine has just given commands back, since its replica does not lead.
    pub gave_back: Option<GroupId>,
    /// True once commands without a leader are refused.
    pub hold_is_over: bool,
}

impl Router<'_> {
    /// The route of a command with keys in `slots`. `read_only`: whether the client has sent READONLY.
    pub fn route(&self, slots: KeySlots, access: Access, read_only: bool) -> Route {
        let slot = match slots {
            KeySlots::None => return Route::Anywhere,
            KeySlots::Several => return Route::Refused(CROSS_SLOT.into()),
            KeySlots::One(slot) => slot,
        };
        let Some(range) = self.topology.range_of(slot) else {
            return Route::Refused(SLOT_NOT_SERVED.into());
        };
        let group = range.group;
        if self.gave_back != Some(group) && self.cluster.leads(group) {
            return Route::Leader(group);
        }
        let leader = range.leader.filter(|leader| *leader != self.topology.me);
        let leader = leader.and_then(|leader| self.topology.node(leader));
        let elsewhere = match leader {
            Some(node) => format!("MOVED {slot} {}:{}", node.host, node.port),
            None => SLOT_NOT_SERVED.into(),
        };
        // A backup answers without a leader too, as long as it is recent enough.
        if read_only && access == Access::Backup && self.reads_here(range) {
            return Route::Backup { group, elsewhere };
        }
        let is_refused = leader.is_some() || self.hold_is_over || self.cluster.is_cut_off(group);
        if is_refused { Route::Refused(elsewhere) } else { Route::Unled }
    }

    /// Whether this process has a backup of the range's group that is recent enough to be read.
    fn reads_here(&self, range: &SlotRange) -> bool {
        let is_recent = |behind_ms| behind_ms <= self.stale_limit_ms;
        self.gave_back != Some(range.group)
            && range.backups.contains(&self.topology.me)
            && self.cluster.behind_ms(range.group).is_some_and(is_recent)
    }
}

/// Reads a slot's number, as the commands CLUSTER COUNTKEYSINSLOT and CLUSTER GETKEYSINSLOT name it.
pub(crate) fn parse_slot(word: &[u8]) -> Option<u16> {
    u16::try_from(kv::parse_integer(word)?).ok().filter(|slot| *slot < SLOTS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kv::Engine;
    use tokio::sync::watch;

    use super::*;
    use crate::cluster::{ClusterNode, GroupStats, HandingOver, NodeIndex};

    /// A group whose leader is this process, without its majority.
    const CUT_OFF: GroupId = GroupId(6);

    /// This process's replicas: whether each leads, and how far it is behind.
    #[derive(Debug, Default)]
    struct Replicas(BTreeMap<u64, (bool, Option<u64>)>);

    impl Cluster for Replicas {
        fn topology(&self) -> std::sync::Arc<Topology> {
            unreachable!("the router has the topology")
        }
        fn engine(&self, _group: GroupId) -> Option<Engine> {
            None
        }
        fn leads(&self, group: GroupId) -> bool {
            self.0.get(&group.0).is_some_and(|(leads, _)| *leads)
        }
        fn behind_ms(&self, group: GroupId) -> Option<u64> {
            self.0.get(&group.0)?.1
        }
        fn is_cut_off(&self, group: GroupId) -> bool {
            group == CUT_OFF
        }
        fn stats(&self) -> Vec<GroupStats> {
            Vec::new()
        }
        fn hand_over(&self) -> HandingOver {
            Box::pin(std::future::ready(()))
        }
        fn changes(&self) -> watch::Receiver<u64> {
            watch::channel(0).1
        }
        fn close(&self) -> kv::Result<()> {
            Ok(())
        }
    }

    fn topology() -> Topology {
        let node = |port| ClusterNode {
            name: format!("{port:040x}"),
            host: "10.0.0.1".into(),
            port,
            is_alive: true,
        };
        let range = |first, last, group, leader: Option<usize>, backups: &[usize]| SlotRange {
            first,
            last,
            group: GroupId(group),
            leader: leader.map(NodeIndex),
            backups: backups.iter().copied().map(NodeIndex).collect(),
        };
        Topology {
            epoch: 1,
            me: NodeIndex(0),
            nodes: vec![node(7000), node(7001)],
            ranges: vec![
                range(0, 99, 1, Some(0), &[1]),
                range(100, 199, 2, Some(1), &[0]),
                range(200, 299, 3, None, &[]),
                range(300, 399, 4, Some(0), &[]),
                range(400, 499, 5, Some(1), &[]),
                range(600, 699, 6, None, &[]),
            ],
        }
    }

    /// The route of a read of a slot for a client that has sent READONLY or has not.
    fn route(slot: u16, read_only: bool, change: impl FnOnce(&mut Router<'_>, &mut Replicas)) -> Route {
        let topology = topology();
        let mut replicas = Replicas([(1, (true, None)), (2, (false, Some(1000)))].into());
        let none = Replicas::default();
        let mut router = Router {
            topology: &topology,
            cluster: &none,
            stale_limit_ms: 1000,
            gave_back: None,
            hold_is_over: false,
        };
        change(&mut router, &mut replicas);
        Router { cluster: &replicas, ..router }.route(KeySlots::One(slot), Access::Backup, read_only)
    }

    fn refused(text: &str) -> Route {
        Route::Refused(text.into())
    }

    #[test]
    fn keys_have_one_slot_if_their_hash_tags_agree() {
        let slots = |keys: &[&str]| KeySlots::of_keys(keys.iter().map(|key| key.as_bytes()));
        assert_eq!(slots(&[]), KeySlots::None);
        assert_eq!(slots(&["foo"]), KeySlots::One(12182));
        assert_eq!(slots(&["{foo}a", "b{foo}", "foo"]), KeySlots::One(12182));
        assert_eq!(slots(&["{foo}a", "bar", "foo"]), KeySlots::Several);
    }

    #[test]
    fn a_command_runs_where_its_group_is_led() {
        assert_eq!(route(99, false, |_, _| {}), Route::Leader(GroupId(1)));
        assert_eq!(route(100, false, |_, _| {}), refused("MOVED 100 10.0.0.1:7001"));
        let leads_too = route(100, false, |_, replicas| {
            replicas.0.insert(2, (true, None));
        });
        assert_eq!(leads_too, Route::Leader(GroupId(2)), "this process knows first that its replica leads");
    }

    #[test]
    fn a_command_without_a_leader_waits_and_is_refused_once_the_hold_is_over() {
        for slot in [200, 300] {
            assert_eq!(route(slot, true, |_, _| {}), Route::Unled);
            assert_eq!(route(slot, true, |router, _| router.hold_is_over = true), refused(SLOT_NOT_SERVED));
        }
        assert_eq!(route(600, false, |_, _| {}), refused(SLOT_NOT_SERVED), "nothing is waited for");
        assert_eq!(route(0, false, |router, _| router.gave_back = Some(GroupId(1))), Route::Unled);
        assert_eq!(route(500, false, |_, _| {}), refused(SLOT_NOT_SERVED), "no group has the slot");
    }

    #[test]
    fn a_backup_is_read_by_clients_in_read_only_mode_while_it_is_recent() {
        let moved = "MOVED 150 10.0.0.1:7001";
        assert_eq!(route(150, true, |_, _| {}), Route::Backup { group: GroupId(2), elsewhere: moved.into() });
        assert_eq!(route(150, false, |_, _| {}), refused(moved));
        assert_eq!(route(150, true, |router, _| router.stale_limit_ms = 999), refused(moved));
        let without_leader = |range| {
            let mut topology = topology();
            topology.ranges[1].leader = None;
            let replicas = Replicas([(2, (false, range))].into());
            let router = Router {
                topology: &topology,
                cluster: &replicas,
                stale_limit_ms: 1000,
                gave_back: None,
                hold_is_over: false,
            };
            router.route(KeySlots::One(150), Access::Backup, true)
        };
        let elsewhere = SLOT_NOT_SERVED.into();
        assert_eq!(without_leader(Some(1000)), Route::Backup { group: GroupId(2), elsewhere });
        assert_eq!(without_leader(Some(1001)), Route::Unled);
        let unknown = route(150, true, |_, replicas| {
            replicas.0.insert(2, (false, None));
        });
        assert_eq!(unknown, refused(moved));
        let no_backup = route(450, true, |_, replicas| {
            replicas.0.insert(5, (false, Some(0)));
        });
        assert_eq!(no_backup, refused("MOVED 450 10.0.0.1:7001"));
        assert_eq!(route(50, true, |_, _| {}), Route::Leader(GroupId(1)), "a leader answers in any mode");
    }

    #[test]
    fn keys_of_several_slots_are_refused_and_no_keys_go_anywhere() {
        let (topology, replicas) = (topology(), Replicas::default());
        let router = Router {
            topology: &topology,
            cluster: &replicas,
            stale_limit_ms: 0,
            gave_back: None,
            hold_is_over: false,
        };
        assert_eq!(router.route(KeySlots::Several, Access::Leader, false), refused(CROSS_SLOT));
        assert_eq!(router.route(KeySlots::None, Access::Leader, false), Route::Anywhere);
    }

    #[test]
    fn slots_are_numbers_below_their_count() {
        assert_eq!(parse_slot(b"0"), Some(0));
        assert_eq!(parse_slot(b"16383"), Some(16383));
        for wrong in [&b"16384"[..], b"-1", b"x", b""] {
            assert_eq!(parse_slot(wrong), None);
        }
    }
}
