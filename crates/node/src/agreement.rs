//! What this process agrees on with the others by etcd: it says that it is there, takes the plans of the groups, creates the replicas that it is to have, and writes who leads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fs::Fs;
use parking_lot::Mutex;
use peers::{Network, NetworkOptions};
use placement::{
    Address, ClusterName, ClusterView, Etcd, GroupPlan, Joined, Node, RawValue, Remembered, Seen, StaleError,
    accepts,
};
use replica::{Base, Configuration};
use shard::{GroupId, Peers, Place, StoredGroup};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, block_in_place};
use tokio::time::MissedTickBehavior;
use units::block_on;

use crate::error::{Error, Result};
use crate::members::Members;
use crate::options::NodeOptions;
use crate::replicas::Replicas;
use crate::state::{Belonging, NodeState, StoredValue};

/// The pause after an error of etcd, and between two looks at a cluster that is not created yet.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The pause between two looks who leads the groups here.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// What a process wrote last about the leader of each group, or is writing. What could not be written is not there.
pub(crate) type Written = Arc<Mutex<BTreeMap<GroupId, Seen>>>;

/// The part of a process that speaks with etcd. Requests of clients never wait for it.
pub(crate) struct Agreement {
    pub options: Arc<NodeOptions>,
    pub fs: Fs,
    pub replicas: Arc<Replicas>,
    pub members: Arc<Members>,
    pub runtime: Handle,
    /// Where clients are told to connect to.
    pub client: Address,
    pub state: NodeState,
    /// What the groups' log held at the start, of groups that are not started yet.
    pub stored: BTreeMap<GroupId, StoredGroup>,
    pub network: Option<Arc<Network>>,
    /// What this process wrote last about the leader of each group.
    pub written: Written,
    /// The last error of etcd since it answered, which is logged once.
    pub complaint: Option<String>,
}

impl Agreement {
    /// Starts from the drive, then follows etcd until the process ends.
    ///
    /// # Errors
    /// An error that this process cannot go on with. Etcd that cannot be reached is none.
    pub(crate) async fn run(mut self) -> Result<()> {
        let _looks = spawn_looks(Arc::clone(&self.members));
        if let Some(view) = stored_view(&self.state, &self.options.cluster)? {
            self.take(&view).await?;
        }
        let mut etcd = None;
        let mut joined: Option<Joined> = None;
        let mut watch = None;
        loop {
            let connected = match &etcd {
                Some(etcd) => Etcd::clone(etcd),
                None => match Etcd::connect(&self.options.etcd, self.options.cluster.clone()).await {
                    Ok(connected) => etcd.insert(connected).clone(),
                    Err(error) => {
                        self.wait_out(error).await;
                        continue;
                    }
                },
            };
            let views = watch.get_or_insert_with(|| connected.watch());
            let next = {
                let mut look = tokio::time::interval(LOOK_PAUSE);
                let next = views.next();
                tokio::pin!(next);
                loop {
                    tokio::select! {
                        view = &mut next => break view,
                        _ = look.tick() => write_leaders(&self.replicas, &self.written, &connected),
                    }
                }
            };
            match next {
                Ok(view) => {
                    if let Err(error) = self.accept(&view).await {
                        self.go_on_without(error)?;
                        continue;
                    }
                    if self.complaint.take().is_some() {
                        tracing::info!("etcd is followed again");
                    }
                    self.members.set_view(view);
                    if joined.is_none() {
                        joined = self.join(&connected).await?;
                    }
                }
                Err(error) => self.wait_out(error).await,
            }
        }
    }

    /// Waits after an error of etcd. The groups go on with what is known.
    async fn wait_out(&mut self, error: placement::Error) {
        self.complain(error.to_string());
        tokio::time::sleep(RETRY_PAUSE).await;
    }

    /// Logs an error unless it was the last one.
    fn complain(&mut self, text: String) {
        if self.complaint.as_ref() != Some(&text) {
            tracing::warn!("{text}");
            self.complaint = Some(text);
        }
    }

    /// Goes on with what is known where etcd was restored from an old backup: what it holds is refused until an operator raises the cluster's epoch.
    ///
    /// # Errors
    /// Any other error.
    fn go_on_without(&mut self, error: Error) -> Result<()> {
        match error {
            Error::Stale(stale) | Error::Placement(placement::Error::Stale(stale)) if is_old(stale) => {
                self.complain(format!("{stale}; this node goes on with what it knows"));
                Ok(())
            }
            other => Err(other),
        }
    }

    /// Takes a view of etcd: refuses that of another cluster, or an old one; makes it durable, and creates the replicas that are new.
    async fn accept(&mut self, view: &ClusterView) -> Result<()> {
        let belonging = match &self.state.belonging {
            Some(belonging) => {
                let remembered = accepts(&belonging.remembered, &view.meta, view.revision)?;
                Belonging { remembered, values: values(view, &self.options), ..belonging.clone() }
            }
            None => {
                let remembered = Remembered {
                    cluster: view.meta.cluster(),
                    epoch: view.meta.epoch(),
                    revision: view.revision,
                };
                Belonging { remembered, replicas: BTreeMap::new(), values: values(view, &self.options) }
            }
        };
        let says_more = self.state.belonging.as_ref().is_none_or(|known| known.values != belonging.values);
        self.state.belonging = Some(belonging);
        if says_more {
            self.save()?;
        }
        self.take(view).await
    }

    fn save(&self) -> Result<()> {
        let saved = || block_on(&**self.fs.driver(), self.state.save(&self.fs));
        block_in_place(saved)
    }

    /// Tells the network where the others are, and starts or creates replicas.
    async fn take(&mut self, view: &ClusterView) -> Result<()> {
        let me = self.state.node;
        let network = match &self.network {
            Some(network) => Arc::clone(network),
            None => {
                let (cluster, node) = (peers::ClusterId(view.meta.cluster().0), peers::NodeId(me.0));
                let mut options = NetworkOptions::new(cluster, node, self.state.starts, self.options.peer);
                options.tls = self.options.tls.clone();
                let network = Network::start(options, &self.runtime, self.replicas.inbox())?;
                Arc::clone(self.network.insert(Arc::new(network)))
            }
        };
        for (id, node) in view.nodes.iter().filter(|(id, _)| **id != me) {
            if let Some(address) = resolve(&node.peer).await {
                // One node that joined with an unfit address must not end the others.
                if let Err(error) = network.set_node(peers::NodeId(id.0), address) {
                    tracing::warn!(%error, node = %id, "nothing is sent to a node");
                }
            }
        }
        for (group, want) in &view.want {
            let group = GroupId(u64::from(group.0));
            for member in want.plan.members() {
                network.set_replica(group, member.replica, peers::NodeId(member.node.0));
            }
            let Some(own) = want.plan.member_on(me) else { continue };
            let place = Place { group, replica: own.replica, role: own.role };
            if self.replicas.group(group).is_none() {
                self.start(place, &want.plan, Arc::clone(&network) as Arc<dyn Peers>)?;
            }
        }
        Ok(())
    }

    /// Starts a replica, or creates one that the node does not have.
    fn start(&mut self, place: Place, plan: &GroupPlan, peers: Arc<dyn Peers>) -> Result<()> {
        let Some(belonging) = &mut self.state.belonging else { return Ok(()) };
        let Place { group, replica, role } = place;
        match belonging.replicas.get(&group) {
            Some(known) if *known != (replica, role) => {
                tracing::warn!(%group, "the node has another replica of the group than it is planned to have");
                return Ok(());
            }
            Some(_) => {}
            None => {
                belonging.replicas.insert(group, (replica, role));
                self.save()?;
            }
        }
        let stored = self.stored.remove(&group);
        let replicas = Arc::clone(&self.replicas);
        block_in_place(|| match stored {
            Some(stored) => replicas.start(place, stored, peers),
            None => {
                let members = plan.members().iter().map(|member| (member.replica, member.role));
                let first = Base::first(Configuration::new(members), plan.preferred());
                replicas.create(place, first, peers)
            }
        })?;
        tracing::info!(%group, replica = replica.0, ?role, "a replica is started");
        Ok(())
    }

    /// Registers the node in etcd, and waits out an etcd that does not answer. `None`: etcd was restored from an old backup.
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
        loop {
            let tried = etcd.join(self.state.node, &node, self.options.node_ttl, remembered.as_ref()).await;
            match tried {
                Ok(joined) => return Ok(Some(joined)),
                Err(error) if passes(error.kind()) => self.wait_out(error).await,
                Err(error) => return self.go_on_without(error.into()).map(|()| None),
            }
        }
    }
}

/// True for an error that ends by itself: etcd does not answer, or other processes were faster.
fn passes(kind: placement::ErrorKind) -> bool {
    matches!(kind, placement::ErrorKind::Retry | placement::ErrorKind::Conflict)
}

/// True if etcd holds an older state of the node's own cluster.
fn is_old(stale: StaleError) -> bool {
    matches!(stale, StaleError::OldEpoch { .. } | StaleError::OldRevision { .. })
}

/// What etcd held when the node heard of it last, if it ever did.
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
struct Looks(AbortHandle);

impl Drop for Looks {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Looks again and again who leads the groups here: in a task of its own, since each step of what is agreed on may wait for etcd, for the names of nodes, or for the drive.
fn spawn_looks(members: Arc<Members>) -> Looks {
    let looks = tokio::spawn(async move {
        let mut look = tokio::time::interval(LOOK_PAUSE);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            members.look();
        }
    });
    Looks(looks.abort_handle())
}

/// Writes to etcd who leads the groups that this process leads, where that is new or was not written for an error. Nothing waits for it.
fn write_leaders(replicas: &Replicas, written: &Written, etcd: &Etcd) {
    for local in replicas.all() {
        let place = local.group.place();
        let seen = local.group.with_replica(|replica| {
            let members = replica.members();
            let leads = replica.leader() == Some(place.replica);
            leads.then(|| Seen {
                configuration: members.current().clone(),
                index: members.since(),
                term: replica.term(),
                leader: Some(place.replica),
            })
        });
        let Some(seen) = seen.filter(|seen| written.lock().get(&place.group) != Some(seen)) else { continue };
        let Ok(number) = u32::try_from(place.group.0) else { continue };
        written.lock().insert(place.group, seen.clone());
        let (etcd, written) = (etcd.clone(), Arc::clone(written));
        tokio::spawn(async move {
            let Err(error) = etcd.write_seen(placement::GroupId(number), &seen).await else { return };
            tracing::debug!(%error, group = number, "etcd does not know who leads");
            tokio::time::sleep(RETRY_PAUSE).await;
            forget_unwritten(&mut written.lock(), place.group, &seen);
        });
    }
}

/// Has a value written again, unless a later one is being written.
fn forget_unwritten(written: &mut BTreeMap<GroupId, Seen>, group: GroupId, seen: &Seen) {
    if written.get(&group) == Some(seen) {
        written.remove(&group);
    }
}

/// What a node keeps of a view: everything but who is alive.
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
    use placement::{ClusterId, Epoch, Revision};
    use replica::{Index, ReplicaId, Role, Term};
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
    fn a_restored_etcd_is_old_and_another_cluster_is_not() {
        let (one, other) = (ClusterId(Uuid::from_u128(1)), ClusterId(Uuid::from_u128(2)));
        assert!(is_old(StaleError::OldEpoch { remembered: Epoch(2), found: Epoch(1) }));
        assert!(is_old(StaleError::OldRevision { remembered: Revision(2), found: Revision(1) }));
        assert!(!is_old(StaleError::OtherCluster { remembered: one, found: other }));
    }
}
