//! The client: requests about one cluster.

use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, GetResponse, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse,
};

use super::request::bounded;
use super::settings::EtcdSettings;
use crate::error::Error;
use crate::keys::{Key, prefix};
use crate::names::{ClusterName, Epoch, Revision};
use crate::values::drain::Drain;
use crate::values::meta::Meta;
use crate::values::plan::GroupPlan;
use crate::values::seen::Seen;
use crate::values::slot_map::SlotMap;
use crate::view::{ClusterView, RawValue};
use replica::{GroupId, NodeId, Version};

/// The longest answer that is read, in bytes: about ten times what a cluster of 1,024 groups and as many nodes has.
const MAX_ANSWER: usize = 32 << 20;

/// Attempts of a change that other processes' changes get in the way of.
const MAX_TRIES: usize = 16;

/// The outcome of the write of a leader's value about its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SeenOutcome {
    /// Etcd holds the value.
    Written,
    /// Etcd holds a newer one, which stays.
    Newer(Seen),
}

/// A client of etcd for one cluster. Clones share a connection.
///
/// Each request ends within the settings' timeout; those that may be tried again because another process was faster take a few times that. An etcd that cannot be reached is an error of the kind
/// [`crate::ErrorKind::Retry`], which callers wait out: the connection is made again by itself. After such an error of a request that writes it is not known whether it took place; all of
/// them may be repeated, [`Etcd::join`] with a higher counter of starts.
///
/// No request of a redis client needs etcd: this crate has nothing that the path of data could call.
#[derive(Clone)]
pub struct Etcd {
    client: Client,
    cluster: ClusterName,
    timeout: Duration,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Etcd({})", self.cluster)
    }
}

impl Etcd {
    /// A client for the cluster of this name, which need not exist. Connects to etcd later, when that is first needed; only a user and a password are sent now.
    ///
    /// # Errors
    /// [`Error::Endpoint`], [`Error::CredentialFile`]: the settings. With a user also [`Error::Unreachable`], and [`Error::Refused`] for a wrong password.
    pub async fn connect(settings: &EtcdSettings, cluster: ClusterName) -> Result<Etcd, Error> {
        let options = settings.options()?;
        let connect = Client::connect(&settings.endpoints, Some(options));
        let client = bounded("connect", settings.timeout, connect).await?;
        Ok(Etcd { client, cluster, timeout: settings.timeout })
    }

    /// The name of the cluster.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// Creates the cluster, with slots in even ranges and without nodes or plans.
    ///
    /// # Errors
    /// [`Error::ClusterExists`], unless etcd holds exactly this value, as after a repeated request; errors of a request.
    pub async fn create_cluster(&self, meta: &Meta) -> Result<(), Error> {
        let everything = prefix(&self.cluster);
        let (key, value) = (self.path(Key::Meta), meta.encode());
        let txn = Txn::new()
            .when([Compare::create_revision(everything, CompareOp::Equal, 0).with_prefix()])
            .and_then([
                TxnOp::put(key.as_str(), value.as_slice(), None),
                TxnOp::put(self.path(Key::Slots), SlotMap::even(meta.groups()).encode(), None),
            ])
            .or_else([TxnOp::get(key.as_str(), None)]);
        let answer = self.txn("create the cluster", txn).await?;
        if answer.succeeded() || current(&answer).is_some_and(|found| found.value() == value) {
            return Ok(());
        }
        Err(Error::ClusterExists(self.cluster.clone()))
    }

    /// Raises the cluster's epoch, after etcd was restored from a backup: nodes that refuse what it holds take it from then on. The caller has asked the nodes for the highest epoch that they remember, and gives a higher one.
    ///
    /// # Errors
    /// [`Error::Conflict`]: the epoch is as high already, or was raised by another process; errors of [`Etcd::load`].
    pub async fn raise_epoch(&self, epoch: Epoch) -> Result<Meta, Error> {
        let key = self.path(Key::Meta);
        let answer = self.get("read the cluster's epoch", key.as_str(), None).await?;
        let found = answer.kvs().first().ok_or_else(|| Error::NoCluster(self.cluster.clone()))?;
        let meta = Meta::decode(found.value()).map_err(|error| Error::Value { key: key.clone(), error })?;
        if epoch <= meta.epoch() {
            return Err(Error::Conflict(key));
        }
        let raised = meta.with_epoch(epoch);
        match self.swap("raise the cluster's epoch", &key, raised.encode(), found.mod_revision()).await? {
            Ok(_) => Ok(raised),
            Err(_) => Err(Error::Conflict(key)),
        }
    }

    /// Raises the cluster's version: its groups are raised to it, and no node whose program does not speak it joins any more. A cluster of that version, or of a later one, stays as it is.
    ///
    /// # Errors
    /// [`Error::OlderNodes`]: the program that a node ran last does not speak the version; [`Error::Conflict`]: a node joined, or the cluster changed meanwhile; errors of [`Etcd::load`].
    pub async fn raise_version(&self, version: Version) -> Result<Meta, Error> {
        let view = self.load().await?;
        if view.meta.version() >= version {
            return Ok(view.meta);
        }
        let older = view.nodes.iter().filter(|(_, node)| node.speaks < version);
        let nodes: Vec<(NodeId, Version)> = older.map(|(id, node)| (*id, node.speaks)).collect();
        if !nodes.is_empty() {
            return Err(Error::OlderNodes { version, nodes });
        }
        self.write_version(&view, version, [self.unchanged_kind(view.revision, "nodes")]).await
    }

    /// Writes the version that a group of the cluster has already, and that a restored etcd does not know, whatever the nodes' programs speak: those that are too old end. A cluster of that version, or of a later one, stays as it is.
    ///
    /// # Errors
    /// [`Error::Conflict`]: the cluster changed meanwhile; errors of [`Etcd::load`].
    pub async fn restore_version(&self, version: Version) -> Result<Meta, Error> {
        let view = self.load().await?;
        if view.meta.version() >= version {
            return Ok(view.meta);
        }
        self.write_version(&view, version, []).await
    }

    async fn write_version<const N: usize>(
        &self,
        view: &ClusterView,
        version: Version,
        also: [Compare; N],
    ) -> Result<Meta, Error> {
        let (key, raised) = (self.path(Key::Meta), view.meta.with_version(version));
        let unchanged = unchanged_since(view.revision, key.as_str());
        let conditions: Vec<Compare> = also.into_iter().chain([unchanged]).collect();
        let write = TxnOp::put(key.as_str(), raised.encode(), None);
        let answer =
            self.txn("raise the cluster's version", Txn::new().when(conditions).and_then([write])).await?;
        if answer.succeeded() { Ok(raised) } else { Err(Error::Conflict(key)) }
    }

    /// Everything that etcd holds of the cluster, at one revision, which is not below that of any earlier answer to anybody.
    ///
    /// # Errors
    /// [`Error::NoCluster`]; [`Error::Value`] for a value that is none; errors of a request.
    pub async fn load(&self) -> Result<ClusterView, Error> {
        let options = GetOptions::new().with_prefix();
        let answer = self.get("load the cluster", prefix(&self.cluster), Some(options)).await?;
        let revision = Revision(answer.header().map_or(0, |header| header.revision()));
        let raw = answer.kvs().iter().map(|pair| RawValue {
            key: pair.key(),
            value: pair.value(),
            changed: Revision(pair.mod_revision()),
        });
        let view = ClusterView::decode(&self.cluster, revision, raw)
            .map_err(|error| Error::Value { key: error.key, error: error.error })?;
        view.ok_or_else(|| Error::NoCluster(self.cluster.clone()))
    }

    /// Every key of the cluster with its value, as etcd holds them: bytes that are no text are replaced.
    ///
    /// # Errors
    /// [`Error::NoCluster`] where there is none; errors of a request.
    pub async fn dump(&self) -> Result<Vec<(String, String)>, Error> {
        let options = GetOptions::new().with_prefix();
        let answer = self.get("read the cluster", prefix(&self.cluster), Some(options)).await?;
        if answer.kvs().is_empty() {
            return Err(Error::NoCluster(self.cluster.clone()));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(answer.kvs().iter().map(|pair| (text(pair.key()), text(pair.value()))).collect())
    }

    /// Writes what a group's log says about its members, if that is not older than what etcd holds: see [`Seen::may_replace`].
    ///
    /// # Errors
    /// [`Error::NoCluster`]; [`Error::Value`]: what etcd holds is none, and stays; [`Error::Conflict`] where others were faster 16 times; errors of a request.
    pub async fn write_seen(&self, group: GroupId, seen: &Seen) -> Result<SeenOutcome, Error> {
        let key = self.path(Key::Seen(group));
        for _ in 0..MAX_TRIES {
            let answer = self.get("read what a group's log says", key.as_str(), None).await?;
            let found = answer.kvs().first();
            if let Some(found) = found {
                let held =
                    Seen::decode(found.value()).map_err(|error| Error::Value { key: key.clone(), error })?;
                if held == *seen {
                    return Ok(SeenOutcome::Written);
                }
                if !seen.may_replace(&held) {
                    return Ok(SeenOutcome::Newer(held));
                }
            }
            let changed = found.map_or(0, KeyValue::mod_revision);
            if self.swap("write what a group's log says", &key, seen.encode(), changed).await?.is_ok() {
                return Ok(SeenOutcome::Written);
            }
        }
        Err(Error::Conflict(key))
    }

    /// Writes the members that a group is to have, in the place of the plan that was written at the revision `replaces`; `None`: the group has no plan. Gives the revision of the new plan.
    ///
    /// # Errors
    /// [`Error::Conflict`]: the group's plan is another one by now; [`Error::NoCluster`]; errors of a request.
    pub async fn write_want(
        &self,
        group: GroupId,
        plan: &GroupPlan,
        replaces: Option<Revision>,
    ) -> Result<Revision, Error> {
        let key = self.path(Key::Want(group));
        let value = plan.encode();
        let changed = replaces.map_or(0, |revision| revision.0);
        match self.swap("write a plan", &key, value.clone(), changed).await? {
            Ok(revision) => Ok(revision),
            Err(Some(found)) if found.value() == value => Ok(Revision(found.mod_revision())),
            Err(_) => Err(Error::Conflict(key)),
        }
    }

    /// Says that a node is to have no replicas, or takes that back.
    ///
    /// # Errors
    /// [`Error::NoNode`]; errors of a request.
    pub async fn set_drain(&self, node: NodeId, drain: Option<Drain>) -> Result<(), Error> {
        let key = self.path(Key::Draining(node));
        let write = match drain {
            Some(drain) => TxnOp::put(key.as_str(), drain.encode(), None),
            None => TxnOp::delete(key.as_str(), None),
        };
        let there = Compare::create_revision(self.path(Key::Node(node)), CompareOp::Greater, 0);
        let answer = self.txn("drain a node", Txn::new().when([there]).and_then([write])).await?;
        if answer.succeeded() { Ok(()) } else { Err(Error::NoNode { node }) }
    }

    /// Removes a node that is not alive from the cluster: it never joins again. The caller knows by [`crate::upkeep`] that no group has a replica there. False if the node is alive, or not there, and nothing changed.
    ///
    /// # Errors
    /// Errors of a request.
    pub async fn remove_node(&self, node: NodeId) -> Result<bool, Error> {
        let key = self.path(Key::Node(node));
        let txn = Txn::new()
            .when([
                Compare::create_revision(key.as_str(), CompareOp::Greater, 0),
                Compare::create_revision(self.path(Key::Alive(node)), CompareOp::Equal, 0),
            ])
            .and_then([
                TxnOp::delete(key.as_str(), None),
                TxnOp::delete(self.path(Key::Draining(node)), None),
            ]);
        Ok(self.txn("remove a node", txn).await?.succeeded())
    }

    /// Puts a value in the place of one that was changed last at the revision `changed`, 0 for none. The inner error is what the key holds instead.
    async fn swap(
        &self,
        doing: &'static str,
        key: &str,
        value: Vec<u8>,
        changed: i64,
    ) -> Result<Result<Revision, Option<KeyValue>>, Error> {
        let meta = self.path(Key::Meta);
        let txn = Txn::new()
            .when([
                Compare::create_revision(meta.as_str(), CompareOp::Greater, 0),
                Compare::mod_revision(key, CompareOp::Equal, changed),
            ])
            .and_then([TxnOp::put(key, value, None)])
            .or_else([TxnOp::get(key, None), TxnOp::get(meta.as_str(), None)]);
        let answer = self.txn(doing, txn).await?;
        if answer.succeeded() {
            return Ok(Ok(Revision(answer.header().map_or(0, |header| header.revision()))));
        }
        let found = gets(&answer);
        if found.get(1).is_none_or(|meta| meta.kvs().is_empty()) {
            return Err(Error::NoCluster(self.cluster.clone()));
        }
        Ok(Err(found.first().and_then(|found| found.kvs().first().cloned())))
    }

    /// A condition: every key of a kind was changed last at this revision or before.
    pub(super) fn unchanged_kind(&self, revision: Revision, kind: &str) -> Compare {
        unchanged_since(revision, format!("{}{kind}/", prefix(&self.cluster))).with_prefix()
    }

    pub(super) fn path(&self, key: Key) -> String {
        key.path(&self.cluster)
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) async fn get(
        &self,
        doing: &'static str,
        key: impl Into<Vec<u8>>,
        options: Option<GetOptions>,
    ) -> Result<GetResponse, Error> {
        let mut client = self.client.kv_client().max_decoding_message_size(MAX_ANSWER);
        bounded(doing, self.timeout, client.get(key, options)).await
    }

    pub(super) async fn txn(&self, doing: &'static str, txn: Txn) -> Result<TxnResponse, Error> {
        let mut client = self.client.kv_client();
        bounded(doing, self.timeout, client.txn(txn)).await
    }
}

/// A condition: the key was changed last at this revision or before.
pub(super) fn unchanged_since(revision: Revision, key: impl Into<Vec<u8>>) -> Compare {
    Compare::mod_revision(key, CompareOp::Less, revision.0.saturating_add(1))
}

/// The answers of a transaction's reads.
fn gets(answer: &TxnResponse) -> Vec<GetResponse> {
    let get = |response| match response {
        TxnOpResponse::Get(get) => Some(get),
        _ => None,
    };
    answer.op_responses().into_iter().filter_map(get).collect()
}

/// The value that a transaction read first.
pub(super) fn current(answer: &TxnResponse) -> Option<KeyValue> {
    gets(answer).first().and_then(|get| get.kvs().first().cloned())
}
