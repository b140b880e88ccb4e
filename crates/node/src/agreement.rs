//! This process's part in what the cluster agrees on by etcd: the process registers its node, takes the plans of the groups, creates the replicas that the node is to have, and writes who leads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fs::Fs;
use parking_lot::Mutex;
use peers::{Network, NetworkOptions};
use placement::{
    Address, ClusterName, ClusterView, Etcd, GroupPlan, Joined, JoinedState, Node, RawValue, Remembered,
    Seen, StaleError, accepts,
};
use replica::{Base, Configuration};
use shard::{GroupId, Peers, Place, StoredGroup};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, block_in_place};
use tokio::time::MissedTickBehavior;
use units::block_on;

use crate::error::{Error, Result};
use crate::members::Members;
use crate::options::NodeOptions;
use crate::replicas::Replicas;
use crate::state::{Belonging, NodeState, StoredValue};

/// The pause between two checks of the groups' leaders.
const CHECK_PAUSE: Duration = Duration::from_millis(10);
/// Checks of the groups' leaders between two attempts to join, and after an error of etcd.
const CHECKS_BETWEEN_ATTEMPTS: u32 = 50;
/// The pause after a failed attempt to tell etcd who leads.
const WRITE_PAUSE: Duration = Duration::from_secs(1);

/// The part of a process that speaks with etcd. Requests of clients never wait for it, and no error of etcd ends the process.
pub(crate) struct Agreement {
    pub options: Arc<NodeOptions>,
    pub fs: Fs,
    pub replicas: Arc<Replicas>,
    pub members: Arc<Members>,
    pub runtime: Handle,
    /// The address that clients are told to connect to.
    pub client: Address,
    pub state: NodeState,
    /// The groups that the log held at the start, and that are not started yet.
    pub stored: BTreeMap<GroupId, StoredGroup>,
    pub network: Option<Arc<Network>>,
    pub leaders: Leaders,
    /// Texts of errors that were logged: each is logged once in a row.
    pub complaint: Option<String>,
    /// Groups whose replica has ended, and that were logged.
    pub ended: BTreeSet<GroupId>,
    /// True once this process has taken a view of etcd.
    pub has_met: bool,
    /// Becomes true when the process ends.
    pub ending: watch::Receiver<bool>,
}

impl Agreement {
    /// Starts from the drive, then follows etcd until the process ends.
    ///
    /// # Errors
    /// An error that this process cannot go on with: settings, a drive of another cluster, another process that is this node.
    pub(crate) async fn run(mut self) -> Result<()> {
        let _updates = update_members(Arc::clone(&self.members));
        if let Some(view) = stored_view(&self.state, &self.options.cluster)? {
            self.take(&view).await?;
        }
        let etcd = self.connect().await?;
        let mut views = etcd.watch();
        let mut joined: Option<Joined> = None;
        let mut ending = self.ending.clone();
        loop {
            if joined.is_none() && self.network.is_some() {
                joined = self.join(&etcd).await?;
            }
            let next = tokio::select! {
                view = views.next() => Some(view),
                () = self.write_leaders(&etcd, joined.as_ref()) => None,
                () = is_true(&mut ending) => return leave(joined).await,
            };
            if let Some(JoinedState::Superseded { starts }) = joined.as_ref().map(Joined::state) {
                return Err(Error::Setting(format!(
                    "another process is this node, and has started {starts} times: the drive was copied, or has two processes"
                )));
            }
            match next {
                Some(Ok(view)) => self.follow(view).await?,
                Some(Err(error)) => {
                    self.complain(&error);
                    self.write_leaders(&etcd, None).await;
                }
                None => {}
            }
        }
    }

    /// A client of etcd. Waits for an etcd that must answer first, as it must where a user is given.
    async fn connect(&mut self) -> Result<Etcd> {
        loop {
            match Etcd::connect(&self.options.etcd, self.options.cluster.clone()).await {
                Ok(etcd) => return Ok(etcd),
                Err(error) if error.kind() == placement::ErrorKind::Retry => self.complain(&error),
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(CHECKS_BETWEEN_ATTEMPTS * CHECK_PAUSE).await;
        }
    }

    /// Writes to etcd which groups this process leads, for half a second, or until another process has joined as this node.
    async fn write_leaders(&mut self, etcd: &Etcd, joined: Option<&Joined>) {
        for _ in 0..CHECKS_BETWEEN_ATTEMPTS {
            tokio::time::sleep(CHECK_PAUSE).await;
            self.leaders.write(&self.replicas, etcd);
            self.log_ended();
            if joined.is_some_and(|joined| matches!(joined.state(), JoinedState::Superseded { .. })) {
                return;
            }
        }
    }

    /// Logs an error, once where it comes again and again.
    fn complain(&mut self, error: &dyn std::fmt::Display) {
        let text = error.to_string();
        if self.complaint.as_ref() != Some(&text) {
            tracing::warn!("{text}");
            self.complaint = Some(text);
        }
    }

    /// Logs replicas that have ended by an error: the others of the group go on.
    fn log_ended(&mut self) {
        for local in self.replicas.all() {
            let group = local.group.place().group;
            if let Some(why) = local.group.ended().filter(|why| !why.is_empty())
                && self.ended.insert(group)
            {
                tracing::error!(%group, "the replica has ended until the process starts again: {why}");
            }
        }
    }

    /// Takes a view of etcd: makes it durable, and creates the replicas that are new. A view of an old backup is refused, and nothing changes.
    ///
    /// # Errors
    /// The first view of this process is of another cluster than the drive.
    async fn follow(&mut self, view: ClusterView) -> Result<()> {
        let known = self.state.belonging.as_ref();
        let remembered = match known.map(|known| accepts(&known.remembered, &view.meta, view.revision)) {
            None => {
                Remembered { cluster: view.meta.cluster(), epoch: view.meta.epoch(), revision: view.revision }
            }
            Some(Ok(remembered)) => remembered,
            Some(Err(error @ StaleError::OtherCluster { .. })) if !self.has_met => return Err(error.into()),
            Some(Err(error)) => {
                self.complain(&error);
                return Ok(());
            }
        };
        let values = values(&view, &self.options);
        let says_more = known.is_none_or(|known| known.values != values);
        let replicas = known.map_or_else(BTreeMap::new, |known| known.replicas.clone());
        self.has_met = true;
        self.state.belonging = Some(Belonging { remembered, replicas, values });
        if says_more && let Err(error) = self.save() {
            // A later start begins with an older view.
            self.complain(&error);
        }
        self.take(&view).await?;
        self.members.set_view(view);
        self.complaint = None;
        Ok(())
    }

    fn save(&self) -> Result<()> {
        let saved = || block_on(&**self.fs.driver(), self.state.save(&self.fs));
        block_in_place(saved)
    }

    /// Tells the network where the others are, and starts or creates replicas.
    ///
    /// # Errors
    /// The network's: this process cannot listen for peers.
    async fn take(&mut self, view: &ClusterView) -> Result<()> {
        let me = self.state.node;
        let network = match &self.network {
            Some(network) => Arc::clone(network),
            None => {
                let (cluster, starts) = (view.meta.cluster(), self.state.starts);
                let mut options = NetworkOptions::new(cluster, me, starts, self.options.peer);
                options.tls = self.options.tls.clone();
                let network = Network::start(options, &self.runtime, self.replicas.inbox())?;
                let network = Arc::clone(self.network.insert(Arc::new(network)));
                self.members.set_network(Arc::clone(&network));
                network
            }
        };
        for (id, node) in view.nodes.iter().filter(|(id, _)| **id != me) {
            if let Some(address) = resolve(&node.peer).await
                && let Err(error) = network.set_node(*id, address)
            {
                self.complain(&format!("node {id}: {error}"));
            }
        }
        for (group, want) in &view.want {
            for member in want.plan.members() {
                network.set_replica(*group, member.replica, member.node);
            }
        }
        self.start_replicas(view, &(network as Arc<dyn Peers>));
        Ok(())
    }

    /// Starts the replicas that this node has, whatever etcd says now, and creates those of groups that are new.
    fn start_replicas(&mut self, view: &ClusterView, peers: &Arc<dyn Peers>) {
        let Some(belonging) = &self.state.belonging else { return };
        let present = belonging.replicas.clone();
        for (group, (replica, role)) in &present {
            if self.replicas.group(*group).is_none() {
                let place = Place { group: *group, replica: *replica, role: *role };
                let started = self.start(place, view, peers);
                started.unwrap_or_else(|error| self.complain(&format!("{group}: {error}")));
            }
        }
        for (group, want) in &view.want {
            let Some(own) = want.plan.member_on(self.state.node) else { continue };
            match present.get(group) {
                Some(known) if *known == (own.replica, own.role) => {}
                Some(_) => self.complain(&format!(
                    "{group}: the node keeps the replica that it has: etcd plans another one"
                )),
                // Another replica of a group that is there already is not one of its first voters.
                None if is_first(&want.plan) && !view.seen.contains_key(group) => {
                    let place = Place { group: *group, replica: own.replica, role: own.role };
                    let created = self.create(place, view, peers);
                    created.unwrap_or_else(|error| self.complain(&format!("{group}: {error}")));
                }
                None => {
                    self.complain(&format!("{group}: this version adds no replica to a group that is there"))
                }
            }
        }
    }

    /// Writes a new replica into the node's state, then creates it.
    fn create(&mut self, place: Place, view: &ClusterView, peers: &Arc<dyn Peers>) -> Result<()> {
        let Some(belonging) = &mut self.state.belonging else { return Ok(()) };
        belonging.replicas.insert(place.group, (place.replica, place.role));
        if let Err(error) = self.save() {
            if let Some(belonging) = &mut self.state.belonging {
                belonging.replicas.remove(&place.group);
            }
            return Err(error);
        }
        self.start(place, view, peers)
    }

    /// Starts a replica of the node's state. The log lacks one that was to be created when the process ended.
    fn start(&mut self, place: Place, view: &ClusterView, peers: &Arc<dyn Peers>) -> Result<()> {
        let Place { group, replica, role } = place;
        let stored = self.stored.get(&group).cloned();
        let (replicas, peers) = (Arc::clone(&self.replicas), Arc::clone(peers));
        match stored {
            Some(stored) => block_in_place(|| replicas.start(place, stored, peers))?,
            None => {
                let plan = view.want.get(&group).map(|want| &want.plan).filter(|plan| is_first(plan));
                let plan =
                    plan.filter(|plan| plan.member(replica).is_some_and(|own| own.node == self.state.node));
                let Some(plan) = plan else {
                    return Err(Error::State(format!("the log has lost replica {}", replica.0)));
                };
                let members = plan.members().iter().map(|member| (member.replica, member.role));
                let first = Base::first(Configuration::new(members), plan.preferred());
                block_in_place(|| replicas.create(place, first, peers))?;
            }
        }
        self.stored.remove(&group);
        tracing::info!(%group, replica = replica.0, ?role, "a replica is started");
        Ok(())
    }

    /// Joins the cluster. `None`: to be tried again.
    ///
    /// # Errors
    /// Settings that no etcd takes, and another process that is this node.
    async fn join(&mut self, etcd: &Etcd) -> Result<Option<Joined>> {
        let peer = self.network.as_ref().map_or(self.options.peer, |network| network.address());
        let peer =
            Address::parse(&peer.to_string()).map_err(|why| Error::Setting(format!("--peer: {why}")))?;
        let node = Node {
            peer,
            client: self.client.clone(),
            offers: self.options.offers,
            rack: self.options.rack.clone(),
            starts: self.state.starts,
        };
        let remembered = self.state.belonging.as_ref().map(|belonging| belonging.remembered);
        match etcd.join(self.state.node, &node, self.options.node_ttl, remembered.as_ref()).await {
            Ok(joined) => Ok(Some(joined)),
            Err(error @ (placement::Error::StartsNotAbove { .. } | placement::Error::Endpoint { .. })) => {
                Err(error.into())
            }
            Err(error) => {
                // An address is free again once the lease of the node that had it ends.
                self.complain(&format!("joining the cluster is tried again: {error}"));
                Ok(None)
            }
        }
    }
}

/// Waits until the value is true, or its sender is gone.
async fn is_true(value: &mut watch::Receiver<bool>) {
    drop(value.wait_for(|value| *value).await);
}

/// Takes the node's sign of life from etcd: others see at once that it is going.
async fn leave(joined: Option<Joined>) -> Result<()> {
    if let Some(joined) = joined
        && let Err(error) = joined.leave().await
    {
        tracing::warn!(%error, "others see the node as dead when its lease ends");
    }
    Ok(())
}

/// The view of etcd that lies on the drive, if there is one.
///
/// # Errors
/// `State`: the values are none that this version wrote.
pub(crate) fn stored_view(state: &NodeState, cluster: &ClusterName) -> Result<Option<ClusterView>> {
    let Some(Belonging { remembered, values, .. }) = &state.belonging else { return Ok(None) };
    let raw = values.iter().map(|stored| RawValue {
        key: &stored.key,
        value: &stored.value,
        changed: stored.changed,
    });
    let view = ClusterView::decode(cluster, remembered.revision, raw);
    view.map_err(|error| Error::State(error.to_string()))
}

/// A task that ends when this is dropped.
struct Updates(AbortHandle);

impl Drop for Updates {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Has the members updated again and again: in a task of its own, since each step of what is agreed on may wait for etcd, for the names of nodes, or for the drive.
fn update_members(members: Arc<Members>) -> Updates {
    let updates = tokio::spawn(async move {
        let mut tick = tokio::time::interval(CHECK_PAUSE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            members.update();
        }
    });
    Updates(updates.abort_handle())
}

/// True for a plan of the replicas that a group has first: none of them has taken the place of another.
fn is_first(plan: &GroupPlan) -> bool {
    plan.last_replica().0 == plan.members().len() as u64
}

/// Tells etcd who leads the groups that this process leads.
#[derive(Default)]
pub(crate) struct Leaders {
    /// The last value of each group that was written, or is being written.
    written: Arc<Mutex<BTreeMap<GroupId, Seen>>>,
}

impl Leaders {
    /// Begins to write what is new. Nothing waits for it; what etcd did not take is written again.
    fn write(&self, replicas: &Replicas, etcd: &Etcd) {
        for local in replicas.all() {
            let place = local.group.place();
            let known = self.written.lock().get(&place.group).map(|seen| (seen.term, seen.index));
            let seen = local.group.with_replica(|replica| {
                let (term, members) = (replica.term(), replica.members());
                let leads = replica.leader() == Some(place.replica);
                let is_new = known != Some((term, members.since()));
                (leads && is_new).then(|| Seen {
                    configuration: members.current().clone(),
                    index: members.since(),
                    term,
                    leader: Some(place.replica),
                })
            });
            let Some(seen) = seen else { continue };
            self.written.lock().insert(place.group, seen.clone());
            let (etcd, written) = (etcd.clone(), Arc::clone(&self.written));
            tokio::spawn(async move {
                if let Err(error) = etcd.write_seen(place.group, &seen).await {
                    tracing::warn!(%error, group = %place.group, "etcd does not know who leads");
                    tokio::time::sleep(WRITE_PAUSE).await;
                    forget_unwritten(&mut written.lock(), place.group, &seen);
                }
            });
        }
    }
}

/// Has a value written again, unless a later one is being written.
fn forget_unwritten(written: &mut BTreeMap<GroupId, Seen>, group: GroupId, seen: &Seen) {
    if written.get(&group) == Some(seen) {
        written.remove(&group);
    }
}

/// The values of a view that a node keeps on its drive.
fn values(view: &ClusterView, options: &NodeOptions) -> Vec<StoredValue> {
    let values = view.durable_values(&options.cluster).into_iter();
    values.map(|(key, value, changed)| StoredValue { key: key.into_bytes(), changed, value }).collect()
}

async fn resolve(address: &Address) -> Option<SocketAddr> {
    let found = tokio::net::lookup_host((address.host(), address.port())).await;
    let found = found.map(|mut addresses| addresses.next());
    match found {
        Ok(address) => address,
        Err(error) => {
            tracing::warn!(%error, host = address.host(), "the address of a node is not known");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use placement::Member;
    use replica::{Index, NodeId, ReplicaId, Role, Term};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_leader_that_was_not_written_is_written_again_unless_a_later_one_is() {
        let seen = |term| Seen {
            configuration: Configuration::new([(ReplicaId(1), Role::Witness), (ReplicaId(2), Role::Backup)]),
            index: Index(1),
            term: Term(term),
            leader: Some(ReplicaId(1)),
        };
        let mut written = BTreeMap::from([(GroupId(3), seen(7))]);
        forget_unwritten(&mut written, GroupId(3), &seen(6));
        assert_eq!(written.get(&GroupId(3)), Some(&seen(7)));
        forget_unwritten(&mut written, GroupId(3), &seen(7));
        assert!(written.is_empty());
    }

    #[test]
    fn a_plan_with_a_replacement_makes_no_group() {
        let plan = |last: u64| {
            let numbers = [1, 2, last];
            let roles = [Role::Witness, Role::Backup, Role::Witness];
            let member = |(number, role): (u64, Role)| Member {
                replica: ReplicaId(number),
                node: NodeId(Uuid::from_u128(number.into())),
                role,
            };
            let members = numbers.into_iter().zip(roles).map(member).collect();
            GroupPlan::new(members, ReplicaId(1), ReplicaId(last)).unwrap()
        };
        assert!(is_first(&plan(3)));
        assert!(!is_first(&plan(4)));
    }
}
