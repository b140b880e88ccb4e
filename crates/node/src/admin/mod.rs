//! An operator's requests about a cluster, by etcd: its creation, its state, and the nodes that go.

mod nodes;
mod versions;

use std::time::Duration;

use placement::{Candidate, ClusterName, ClusterView, Etcd, EtcdSettings, Meta, PlaceError, place};
use replica::{ClusterId, Configuration, GroupId, NodeId, ReplicaId, Role};
use uuid::Uuid;

pub use self::nodes::{Departure, drain, dump, epoch, raise_epoch, replace, undrain};
pub use self::versions::{ClusterVersion, NodeVersion, finalize, version};
use crate::error::{Error, Result};

/// The pause between two looks for nodes that joined.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// The looks without a new node after which the groups are placed.
const SETTLED_LOOKS: u32 = 10;
/// The looks for the first leaders of groups that were placed.
const LEADER_LOOKS: u32 = 50;

/// The cluster that is to be created.
#[derive(Clone, Debug)]
pub struct NewCluster {
    /// The cluster's name.
    pub name: ClusterName,
    /// Number of groups.
    pub groups: u32,
    /// K: so many nodes of a group may be lost.
    pub copies: usize,
    /// The longest wait for nodes that join.
    pub wait: Duration,
}

/// The state of a group, as etcd has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStatus {
    /// The group's number.
    pub group: u64,
    /// The group's first and last slot.
    pub slots: (u16, u16),
    /// The replica that leads, as far as etcd was told.
    pub leader: Option<ReplicaId>,
    /// The replicas that the group is to have.
    pub replicas: Vec<ReplicaStatus>,
    /// False if the group's log has other replicas than these: the group changes its members.
    pub is_settled: bool,
}

/// A replica, as etcd has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaStatus {
    /// The replica's number.
    pub replica: ReplicaId,
    /// The replica's role; one of the witnesses is the primary.
    pub role: Role,
    /// The node.
    pub node: NodeId,
    /// The node's address for clients.
    pub client: String,
    /// True if the node has been heard of lately.
    pub is_alive: bool,
    /// True if the node is to have no replicas.
    pub is_draining: bool,
}

/// The health of a group or a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Health {
    /// The group has the replicas that it is to have, each on a node that is alive, and a leader.
    Whole,
    /// The group can serve, and lacks replicas or a leader, or replaces one.
    Degraded,
    /// Half of the group's nodes or more are gone, so that the group cannot serve, or the group was not placed yet.
    NoQuorum,
}

impl GroupStatus {
    /// The group's health.
    pub fn health(&self) -> Health {
        let alive = self.replicas.iter().filter(|replica| replica.is_alive).count();
        let leads = |replica: &ReplicaStatus| replica.is_alive && Some(replica.replica) == self.leader;
        if alive * 2 <= self.replicas.len() {
            Health::NoQuorum
        } else if alive < self.replicas.len() || !self.is_settled || !self.replicas.iter().any(leads) {
            Health::Degraded
        } else {
            Health::Whole
        }
    }
}

/// Creates a cluster: writes it to etcd, waits until enough nodes have joined, gives each group its replicas, and waits ten seconds at most for their first leaders. A call that was interrupted can be repeated.
///
/// # Errors
/// A cluster of that name with other numbers; too few nodes in time; errors of etcd.
pub fn create(etcd: &EtcdSettings, new: &NewCluster, random: impl Fn() -> u64) -> Result<Vec<GroupStatus>> {
    let number = u128::from(random()) << 64 | u128::from(random());
    let id = uuid::Builder::from_random_bytes(number.to_le_bytes()).into_uuid();
    let meta = meta(id, new)?;
    run(async {
        let etcd = Etcd::connect(etcd, new.name.clone()).await?;
        let (mut joined, mut lacks) = (Joined::default(), None);
        let placing = async {
            loop {
                match place_once(&etcd, (new, &meta), &mut joined).await {
                    Ok(Some(placed)) => return Ok(placed),
                    Ok(None) => {}
                    Err(error) if may_pass(&error) => lacks = Some(error),
                    Err(error) => return Err(error),
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        let placed = tokio::time::timeout(new.wait, placing).await;
        let placed = placed.unwrap_or_else(|_| {
            Err(lacks.unwrap_or_else(|| Error::Setting("nodes join and leave".into())))
        })?;
        first_leaders(&etcd, placed).await
    })
}

/// The groups once each has a leader, or after a while.
async fn first_leaders(etcd: &Etcd, mut groups: Vec<GroupStatus>) -> Result<Vec<GroupStatus>> {
    for _ in 0..LEADER_LOOKS {
        if groups.iter().all(|group| group.leader.is_some()) {
            break;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        groups = status_of(&etcd.load().await?);
    }
    Ok(groups)
}

/// True for too few nodes, and for an etcd that does not answer yet.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Place(_) => true,
        Error::Placement(error) => error.kind() == placement::ErrorKind::Retry,
        _ => false,
    }
}

/// The nodes that have joined, and the number of looks since the last one did.
#[derive(Default)]
struct Joined {
    nodes: Vec<NodeId>,
    looks: u32,
}

/// Creates the cluster if it is not there, and places its groups if no node has joined for a while. `None`: nodes are waited for.
async fn place_once(
    etcd: &Etcd,
    (new, meta): (&NewCluster, &Meta),
    joined: &mut Joined,
) -> Result<Option<Vec<GroupStatus>>> {
    let view = match etcd.load().await {
        Err(placement::Error::NoCluster(_)) => {
            etcd.create_cluster(meta).await?;
            etcd.load().await?
        }
        loaded => loaded?,
    };
    let (groups, copies) = (view.meta.groups(), view.meta.copies());
    if (groups, copies) != (new.groups, new.copies) {
        let name = new.name.as_str();
        let is = format!("the cluster {name} is there already, with {groups} groups and {copies} copies");
        return Err(Error::Setting(is));
    }
    let alive: Vec<NodeId> = view.live_nodes().map(|(id, _)| id).collect();
    joined.looks = if alive == joined.nodes { joined.looks + 1 } else { 0 };
    joined.nodes = alive;
    // Nodes that join at the same time are to have replicas too.
    if joined.looks < SETTLED_LOOKS {
        return Ok(None);
    }
    place_all(etcd, &view, new).await?;
    Ok(Some(status_of(&etcd.load().await?)))
}

fn meta(id: Uuid, new: &NewCluster) -> std::result::Result<Meta, PlaceError> {
    Meta::new(ClusterId(id), new.copies, new.groups)
}

/// Places the groups on the nodes that are alive, and writes the plans that etcd does not have.
async fn place_all(etcd: &Etcd, view: &ClusterView, new: &NewCluster) -> Result<()> {
    let nodes = view.live_nodes().filter(|(id, _)| !view.draining.contains_key(id));
    let candidates: Vec<Candidate> = nodes.map(|(id, node)| Candidate::new(id, node)).collect();
    let plans = place(&candidates, new.groups, new.copies)?;
    for (group, plan) in (0..).map(GroupId).zip(plans) {
        if !view.want.contains_key(&group) {
            etcd.write_want(group, &plan, None).await?;
        }
    }
    Ok(())
}

/// The state of each group of a cluster.
///
/// # Errors
/// Errors of etcd; there is no such cluster.
pub fn status(etcd: &EtcdSettings, cluster: &ClusterName) -> Result<Vec<GroupStatus>> {
    run(async {
        let etcd = Etcd::connect(etcd, cluster.clone()).await?;
        Ok(status_of(&etcd.load().await?))
    })
}

fn status_of(view: &ClusterView) -> Vec<GroupStatus> {
    let group = |range: &placement::SlotRange| {
        let plan = view.want.get(&range.group).map(|want| want.plan.members());
        let wanted =
            plan.map(|plan| Configuration::new(plan.iter().map(|member| (member.replica, member.role))));
        let seen = view.seen.get(&range.group);
        let replicas = plan.unwrap_or_default().iter().map(|member| ReplicaStatus {
            replica: member.replica,
            role: member.role,
            node: member.node,
            client: view.nodes.get(&member.node).map_or_else(String::new, |node| node.client.to_string()),
            is_alive: view.alive.contains_key(&member.node),
            is_draining: view.draining.contains_key(&member.node),
        });
        GroupStatus {
            group: range.group.0,
            slots: (range.first.number(), range.last.number()),
            leader: seen.and_then(|seen| seen.leader),
            replicas: replicas.collect(),
            is_settled: seen.is_none_or(|seen| Some(&seen.configuration) == wanted.as_ref()),
        }
    };
    view.slots.ranges().iter().map(group).collect()
}

fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|source| Error::System { doing: "starting threads", source })?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(alive: [bool; 3], leader: Option<u64>) -> GroupStatus {
        let replica = |(number, is_alive)| ReplicaStatus {
            replica: ReplicaId(number),
            role: Role::Witness,
            node: NodeId(Uuid::from_u128(u128::from(number))),
            client: String::new(),
            is_alive,
            is_draining: false,
        };
        let replicas = (1..).zip(alive).map(replica).collect();
        GroupStatus { group: 0, slots: (0, 9), leader: leader.map(ReplicaId), replicas, is_settled: true }
    }

    #[test]
    fn a_group_is_whole_with_all_nodes_and_a_living_leader() {
        assert_eq!(group([true; 3], Some(1)).health(), Health::Whole);
        assert_eq!(group([true; 3], None).health(), Health::Degraded);
        assert_eq!(group([true, true, false], Some(1)).health(), Health::Degraded);
        assert_eq!(group([true, true, false], Some(3)).health(), Health::Degraded);
        assert_eq!(group([true, false, false], Some(1)).health(), Health::NoQuorum);
        let changing = GroupStatus { is_settled: false, ..group([true; 3], Some(1)) };
        assert_eq!(changing.health(), Health::Degraded);
        let unplaced = GroupStatus { replicas: Vec::new(), ..group([true; 3], None) };
        assert_eq!(unplaced.health(), Health::NoQuorum);
    }
}
