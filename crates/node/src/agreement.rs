//! This process's part in what the cluster agrees on by etcd: the process registers its node, follows the plans of the groups, writes who leads, and places where it is elected to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peers::{Network, NetworkOptions};
use placement::{
    Address, ClusterName, ClusterView, Etcd, Joined, JoinedState, Node, RawValue, Remembered, StaleError,
    accepts,
};
use replica::Version;
use shard::{GroupId, Peers};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use crate::error::{Error, Result};
use crate::leaders::Leaders;
use crate::members::Members;
use crate::options::NodeOptions;
use crate::placer::Placer;
use crate::planned::Planned;
use crate::replicas::Replicas;
use crate::state::{Belonging, NodeState, StoredValue};

/// The pause between two checks of the groups' leaders.
const CHECK_PAUSE: Duration = Duration::from_millis(10);
/// Checks of the groups' leaders between two attempts to join, and after an error of etcd.
const CHECKS_BETWEEN_ATTEMPTS: u32 = 50;
/// The sentence of a process whose node is not in the cluster any more.
const REMOVED: &str =
    "this node was removed from the cluster: format its drive, so that it joins as a new one";

/// The part of a process that speaks with etcd. Requests of clients never wait for it, and no error of etcd ends the process but that of a cluster whose version the program does not speak.
pub(crate) struct Agreement {
    pub options: Arc<NodeOptions>,
    pub replicas: Arc<Replicas>,
    pub members: Arc<Members>,
    pub runtime: Handle,
    /// The address that clients are told to connect to.
    pub client: Address,
    pub planned: Planned,
    pub placer: Placer,
    /// The last view of etcd.
    pub view: Option<ClusterView>,
    pub network: Option<Arc<Network>>,
    pub leaders: Leaders,
    /// Texts of errors that were logged: each is logged once in a row.
    pub complaint: Option<String>,
    /// Groups whose replica has ended, and that were logged.
    pub ended: BTreeSet<GroupId>,
    /// True once this process has taken a view of etcd.
    pub has_met: bool,
    /// True if etcd answered last with a view that this process has taken.
    pub is_current: bool,
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
        if let Some(view) = stored_view(&self.planned.state, &self.options.cluster)? {
            self.take(&view).await?;
            self.view = Some(view);
        }
        let etcd = self.connect().await?;
        let mut views = etcd.watch();
        let mut joined: Option<Joined> = None;
        let mut ending = self.ending.clone();
        loop {
            if joined.is_none() && self.has_met {
                joined = self.join(&etcd).await?;
            }
            let next = tokio::select! {
                view = views.next() => Some(view),
                () = self.write_leaders(&etcd, joined.as_ref()) => None,
                () = is_true(&mut ending) => return leave(joined).await,
            };
            match joined.as_ref().map(Joined::state) {
                Some(JoinedState::Superseded { starts }) => {
                    return Err(Error::Setting(format!(
                        "another process is this node, and has started {starts} times: the drive was copied, or has two processes"
                    )));
                }
                Some(JoinedState::Removed) => return Err(Error::Setting(REMOVED.into())),
                Some(JoinedState::Alive | JoinedState::Unknown(_)) | None => {}
            }
            match next {
                Some(Ok(view)) => self.follow(view).await?,
                Some(Err(error)) if error.is_too_old() => return Err(error.into()),
                Some(Err(error)) => {
                    self.is_current = false;
                    self.complain(&error);
                    self.write_leaders(&etcd, None).await;
                    self.planned.change_members();
                    continue;
                }
                None => {}
            }
            self.planned.change_members();
            if !self.is_current {
                continue;
            }
            self.planned.delete_left_out(&etcd);
            if let Some(version) = self.planned.forgotten_version()
                && let Err(error) = etcd.restore_version(version).await
            {
                self.complain(&error);
            }
            if let Some(view) = &self.view
                && let Err(error) = self.placer.attend(&etcd, view).await
            {
                self.complain(&error);
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
            if let Some(view) = &self.view {
                let own = (self.planned.state.node, view.meta.epoch());
                self.leaders.write(&self.replicas, etcd, own, self.network.as_deref());
            }
            self.log_ended();
            if joined.is_some_and(|joined| {
                matches!(joined.state(), JoinedState::Superseded { .. } | JoinedState::Removed)
            }) {
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
        let known = self.planned.state.belonging.as_ref();
        let remembered = match known.map(|known| accepts(&known.remembered, &view.meta, view.revision)) {
            None => {
                Remembered { cluster: view.meta.cluster(), epoch: view.meta.epoch(), revision: view.revision }
            }
            Some(Ok(remembered)) => remembered,
            Some(Err(error @ StaleError::OtherCluster { .. })) if !self.has_met => return Err(error.into()),
            Some(Err(error)) => {
                self.is_current = false;
                self.complain(&error);
                return Ok(());
            }
        };
        let was_in = |before: &ClusterView| {
            before.nodes.contains_key(&self.planned.state.node) && before.meta.epoch() == view.meta.epoch()
        };
        if self.view.as_ref().is_some_and(was_in) && !view.nodes.contains_key(&self.planned.state.node) {
            return Err(Error::Setting(REMOVED.into()));
        }
        let values = values(&view, &self.options);
        let says_more = known.is_none_or(|known| known.values != values);
        let replicas = known.map_or_else(BTreeMap::new, |known| known.replicas.clone());
        if self.view.as_ref().is_some_and(|before| before.meta.epoch() != view.meta.epoch()) {
            self.leaders.forget();
        }
        self.leaders.compare(&view);
        self.has_met = true;
        self.is_current = true;
        self.planned.state.belonging = Some(Belonging { remembered, replicas, values });
        if says_more && let Err(error) = self.planned.save() {
            // A later start begins with an older view.
            self.complain(&error);
        }
        self.take(&view).await?;
        self.view = Some(view.clone());
        self.members.set_view(view);
        self.complaint = None;
        Ok(())
    }

    /// Tells the network where the others are, and starts or creates replicas.
    ///
    /// # Errors
    /// The network's: this process cannot listen for peers.
    async fn take(&mut self, view: &ClusterView) -> Result<()> {
        let me = self.planned.state.node;
        let network = match &self.network {
            Some(network) => Arc::clone(network),
            None => {
                let (cluster, starts) = (view.meta.cluster(), self.planned.state.starts);
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
            for member in want.plan.replicas() {
                // A plan of an old backup of etcd may name an earlier node, and is better than none.
                if !view.has_old_plan(*group) || network.node_of(*group, member.replica).is_none() {
                    network.set_replica(*group, member.replica, member.node);
                }
            }
        }
        self.planned.follow(view, &(network as Arc<dyn Peers>));
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
            starts: self.planned.state.starts,
            speaks: Version::NEWEST,
        };
        let remembered = self.planned.state.belonging.as_ref().map(|belonging| belonging.remembered);
        match etcd.join(self.planned.state.node, &node, self.options.node_ttl, remembered.as_ref()).await {
            Ok(joined) => Ok(Some(joined)),
            Err(error) if error.is_too_old() => Err(error.into()),
            Err(error @ (placement::Error::StartsNotAbove { .. } | placement::Error::Endpoint { .. })) => {
                Err(error.into())
            }
            Err(error) => {
                // Where the answer was lost, etcd has seen this counter.
                self.planned.state.starts += 1;
                if let Err(error) = self.planned.save() {
                    self.complain(&error);
                }
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
