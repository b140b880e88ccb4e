//! The cluster as this process knows it, for its clients: nodes and slots from etcd, leaders from the replicas here.

use std::sync::Arc;
use std::time::Duration;

use kv::Engine;
use parking_lot::RwLock;
use peers::Network;
use placement::{ClusterView, GroupPlan};
use replica::{GroupId, NodeId, ReplicaId, Role, Term};
use server::cluster::{Cluster, ClusterNode, GroupStats, HandingOver, NodeIndex, SlotRange, Topology};
use tokio::sync::watch;

use crate::handing_over::hand_over_all;
use crate::replicas::Replicas;

/// Hexadecimal digits of a node's name for clients; a UUID has 32.
const NAME_DIGITS: usize = 40;

const NANOS_IN_MS: u128 = 1_000_000;

/// Election timeouts within which a process that ends hands its groups over.
const END_TIMEOUTS: u32 = 2;

/// Election timeouts in which the group of a leader that is gone has another one.
const DOUBT: u32 = 4;

/// The cluster as this process knows it.
#[derive(Debug)]
pub(crate) struct Members {
    me: NodeId,
    replicas: Arc<Replicas>,
    election_timeout: Duration,
    /// The time for which a leader whose connection ended counts as gone, unless another replica says that it leads.
    doubt: Duration,
    network: RwLock<Option<Arc<Network>>>,
    known: RwLock<Known>,
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Known {
    /// `None` before etcd was heard.
    view: Option<ClusterView>,
    topology: Arc<Topology>,
    /// The state from which the topology was made; `None` where the view is newer.
    made_from: Option<Observed>,
}

/// The things beside etcd's view on which the topology depends.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Observed {
    /// Of each group here: the leader, its term, whether commands may run in this process's engine, and whether its replica has lost its majority.
    groups: Vec<(GroupId, Option<ReplicaId>, Term, bool, bool)>,
    /// The nodes whose connections have ended not long ago.
    lost: Vec<NodeId>,
}

impl Members {
    /// A node that has not heard of its cluster yet.
    pub(crate) fn new(me: NodeId, replicas: Arc<Replicas>, election_timeout: Duration) -> Members {
        let topology = Topology { epoch: 0, me: NodeIndex(0), nodes: Vec::new(), ranges: Vec::new() };
        let known = Known { view: None, topology: Arc::new(topology), made_from: None };
        Members {
            me,
            replicas,
            election_timeout,
            doubt: DOUBT * election_timeout,
            network: RwLock::default(),
            known: RwLock::new(known),
            changes: watch::Sender::new(0),
        }
    }

    /// The connections to the other nodes.
    pub(crate) fn set_network(&self, network: Arc<Network>) {
        *self.network.write() = Some(network);
    }

    /// False while a node's connection has ended not long ago, as when its process dies: clients wait then for the next leader, and are not sent to a closed port.
    fn is_there(&self, node: NodeId) -> bool {
        let network = self.network.read();
        network.as_ref().is_none_or(|network| !network.is_lost_within(node, self.doubt))
    }

    /// The replica that is to lead a group by the plan in etcd, if its node is alive.
    pub(crate) fn preferred(&self, group: GroupId) -> Option<ReplicaId> {
        let known = self.known.read();
        let view = known.view.as_ref()?;
        let plan = &view.want.get(&group)?.plan;
        let node = plan.member(plan.preferred())?.node;
        let is_alive = view.alive.contains_key(&node) && self.is_there(node);
        is_alive.then(|| plan.preferred())
    }

    /// Takes what etcd holds of the cluster.
    pub(crate) fn set_view(&self, view: ClusterView) {
        {
            let mut known = self.known.write();
            (known.view, known.made_from) = (Some(view), None);
        }
        self.update();
    }

    /// Takes in who leads the groups that this process has replicas of. To be called often: clients wait for it after the death of a leader.
    pub(crate) fn update(&self) {
        let observed = self.observe();
        let changed = {
            let mut known = self.known.write();
            let is_known = known.made_from.as_ref() == Some(&observed);
            if let Some(topology) =
                known.view.as_ref().filter(|_| !is_known).and_then(|view| self.topology_of(view))
            {
                known.topology = Arc::new(topology);
            }
            known.made_from = Some(observed);
            !is_known
        };
        if changed {
            self.changes.send_modify(|number| *number += 1);
        }
    }

    fn observe(&self) -> Observed {
        let groups = self.replicas.all().into_iter().map(|local| {
            let group = local.group.place().group;
            let (leader, term) = local.group.with_replica(|replica| (replica.leader(), replica.term()));
            (group, leader, term, local.group.view().is_ok(), local.group.is_cut_off())
        });
        let groups = groups.collect();
        let known = self.known.read();
        let nodes = known.view.iter().flat_map(|view| view.nodes.keys());
        Observed { groups, lost: nodes.copied().filter(|node| !self.is_there(*node)).collect() }
    }

    fn topology_of(&self, view: &ClusterView) -> Option<Topology> {
        let nodes: Vec<(&NodeId, &placement::Node)> = view.nodes.iter().collect();
        let index = |id: NodeId| nodes.iter().position(|(node, _)| **node == id).map(NodeIndex);
        let me = index(self.me)?;
        let ranges = view.slots.ranges().iter().map(|range| {
            let plan = view.want.get(&range.group).map(|want| &want.plan);
            let there = |replica: ReplicaId| {
                let node = plan?.replicas().find(|member| member.replica == replica)?.node;
                index(node).filter(|_| self.is_there(node))
            };
            let seen = || view.seen.get(&range.group).and_then(|seen| seen.leader);
            let here = self.replicas.group(range.group);
            let leader = match here {
                Some(local) => local.group.with_replica(|replica| replica.leader()),
                None => seen(),
            };
            let backups = plan.map_or(&[][..], GroupPlan::members).iter();
            let backups = backups.filter(|member| member.role == Role::Backup);
            SlotRange {
                first: range.first.number(),
                last: range.last.number(),
                group: range.group,
                leader: leader.and_then(there),
                backups: backups.filter_map(|member| index(member.node)).collect(),
            }
        });
        let terms = self.replicas.all();
        let terms = terms.iter().map(|local| local.group.with_replica(|replica| replica.term().0));
        Some(Topology {
            epoch: view.meta.epoch().0 + terms.sum::<u64>(),
            me,
            ranges: ranges.collect(),
            nodes: nodes
                .iter()
                .map(|(id, node)| ClusterNode {
                    name: format!("{:0<NAME_DIGITS$}", id.0.simple().to_string()),
                    host: node.client.host().to_owned(),
                    port: node.client.port(),
                    // A view from the drive does not say who is alive.
                    is_alive: view.alive.is_empty() || view.alive.contains_key(id),
                })
                .collect(),
        })
    }
}

impl Cluster for Members {
    fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.known.read().topology)
    }

    fn engine(&self, group: GroupId) -> Option<Engine> {
        self.replicas.group(group).map(|local| local.engine)
    }

    fn leads(&self, group: GroupId) -> bool {
        self.replicas.group(group).is_some_and(|local| local.group.view().is_ok())
    }

    fn behind_ms(&self, group: GroupId) -> Option<u64> {
        let behind = self.replicas.group(group)?.group.behind()?;
        u64::try_from(behind.as_nanos().div_ceil(NANOS_IN_MS)).ok()
    }

    fn is_cut_off(&self, group: GroupId) -> bool {
        self.replicas.group(group).is_some_and(|local| local.group.is_cut_off())
    }

    fn stats(&self) -> Vec<GroupStats> {
        self.replicas.all().iter().map(|local| local.group.stats()).collect()
    }

    fn hand_over(&self) -> HandingOver {
        let led = self.replicas.all().into_iter().map(|local| {
            let successor = self.preferred(local.group.place().group);
            (local.group, successor)
        });
        Box::pin(hand_over_all(led.collect(), END_TIMEOUTS * self.election_timeout))
    }

    fn close(&self) -> kv::Result<()> {
        // Each one is closed, whatever became of the others.
        let closed: Vec<kv::Result<()>> =
            self.replicas.all().iter().map(|local| local.engine.close()).collect();
        closed.into_iter().collect()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
