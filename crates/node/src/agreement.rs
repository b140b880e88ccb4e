//! What this process agrees on with the others by etcd: it says that it is there, takes the plans of the groups, creates the replicas that it is to have, and writes who leads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fs::Fs;
use peers::{Network, NetworkOptions};
use placement::{Address, ClusterView, Etcd, GroupPlan, Joined, Node, RawValue, Remembered, Seen, accepts};
use replica::{Base, Configuration};
use shard::{GroupId, Peers, Place, StoredGroup};
use tokio::runtime::Handle;
use tokio::task::block_in_place;
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
    pub written: BTreeMap<GroupId, Seen>,
    /// The last error of etcd, which is logged once.
    pub complaint: Option<String>,
}

impl Agreement {
    /// Starts from the drive, then follows etcd until the process ends.
    ///
    /// # Errors
    /// An error that this process cannot go on with. Etcd that cannot be reached is none.
    pub(crate) async fn run(mut self) -> Result<()> {
        if let Some(view) = self.stored_view()? {
            self.take(&view).await?;
            self.members.set_view(view);
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
                        _ = look.tick() => {
                            self.members.look();
                            write_leaders(&self.replicas, &mut self.written, &connected);
                        }
                    }
                }
            };
            match next {
                Ok(view) => {
                    self.accept(&view).await?;
                    if joined.is_none() {
                        joined = self.join(&connected).await?;
                    }
                    self.members.set_view(view);
                }
                Err(error) => self.wait_out(error).await,
            }
        }
    }

    /// Waits after an error of etcd, and looks who leads meanwhile. The groups go on with what is known.
    async fn wait_out(&mut self, error: placement::Error) {
        let text = error.to_string();
        if self.complaint.as_ref() != Some(&text) {
            tracing::warn!("{text}");
            self.complaint = Some(text);
        }
        for _ in 0..RETRY_PAUSE.as_millis() / LOOK_PAUSE.as_millis().max(1) {
            tokio::time::sleep(LOOK_PAUSE).await;
            self.members.look();
        }
    }

    /// What etcd held when this node heard of it last, if it ever did.
    fn stored_view(&self) -> Result<Option<ClusterView>> {
        let Some(Belonging { remembered, values, .. }) = &self.state.belonging else { return Ok(None) };
        let raw = values.iter().map(|stored| RawValue {
            key: &stored.key,
            value: &stored.value,
            changed: stored.changed,
        });
        let view = ClusterView::decode(&self.options.cluster, remembered.revision, raw);
        view.map_err(|error| Error::State(error.to_string()))
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
                let (cluster, starts) = (view.meta.cluster(), self.state.starts);
                let mut options = NetworkOptions::new(cluster, me, starts, self.options.peer);
                options.tls = self.options.tls.clone();
                let network = Network::start(options, &self.runtime, self.replicas.inbox())?;
                Arc::clone(self.network.insert(Arc::new(network)))
            }
        };
        for (id, node) in view.nodes.iter().filter(|(id, _)| **id != me) {
            if let Some(address) = resolve(&node.peer).await {
                network.set_node(*id, address)?;
            }
        }
        for (group, want) in &view.want {
            let group = *group;
            for member in want.plan.members() {
                network.set_replica(group, member.replica, member.node);
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

    async fn join(&self, etcd: &Etcd) -> Result<Option<Joined>> {
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
            Err(error) if error.kind() == placement::ErrorKind::Retry => {
                tracing::info!(%error, "joining the cluster is tried again");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes to etcd who leads the groups that this process leads, where that is new. Nothing waits for it.
fn write_leaders(replicas: &Replicas, written: &mut BTreeMap<GroupId, Seen>, etcd: &Etcd) {
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
        let Some(seen) = seen.filter(|seen| written.get(&place.group) != Some(seen)) else { continue };
        written.insert(place.group, seen.clone());
        let etcd = etcd.clone();
        tokio::spawn(async move {
            if let Err(error) = etcd.write_seen(place.group, &seen).await {
                tracing::warn!(%error, group = %place.group, "etcd does not know who leads");
            }
        });
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
