//! A node in the cluster: its value, and the lease that says that it is alive.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::{Etcd, current, unchanged_since};
use super::lease::Lease;
use crate::error::Error;
use crate::keys::Key;
use crate::names::Epoch;
use crate::values::liveness::Liveness;
use crate::values::meta::{Remembered, accepts};
use crate::values::node::Node;
use crate::view::ClusterView;
use replica::NodeId;

/// Attempts to join that other nodes' changes get in the way of.
const MAX_TRIES: usize = 16;

/// The state of a node that joined, as others see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JoinedState {
    /// The node's lease was kept alive when etcd was asked last.
    Alive,
    /// Etcd cannot be reached, or refuses: others see the node as dead when the lease ends. The node tries on.
    Unknown(String),
    /// Another process has joined as this node, with a higher counter of starts: this one has ended its part.
    Superseded {
        /// The counter of the other process.
        starts: u64,
    },
    /// The node was removed from the cluster while it was not alive: it has ended its part.
    Removed,
}

/// A node that joined. A background task keeps its lease alive, and registers the node again where the lease ended. Dropping the value ends the task, and the lease ends by itself.
#[derive(Debug)]
pub struct Joined {
    state: watch::Receiver<JoinedState>,
    task: JoinHandle<()>,
    lease: watch::Receiver<LeaseSlot>,
}

/// The lease of the moment.
struct LeaseSlot(Lease);

impl std::fmt::Debug for LeaseSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeaseSlot({})", self.0.id())
    }
}

impl Etcd {
    /// Writes this node into the cluster, and keeps it alive there: others see it as dead `ttl` after its last sign. `remembered`: what the node has seen of etcd before, if it has.
    /// Another process that joined as this node before, with a lower counter of starts, is superseded.
    ///
    /// Crash safety: the caller has raised and stored `node.starts` before, also for a call that follows an error.
    ///
    /// # Errors
    /// [`Error::Stale`]: see [`accepts`]; [`Error::StartsNotAbove`]; [`Error::AddressTaken`] by a node that is alive; [`Error::Value`]: a rule of [`Node`], or a value in etcd; [`Error::NoCluster`]; [`Error::Conflict`] where others were
    /// faster 16 times; errors of a request.
    pub async fn join(
        &self,
        id: NodeId,
        node: &Node,
        ttl: Duration,
        remembered: Option<&Remembered>,
    ) -> Result<Joined, Error> {
        node.check().map_err(|error| Error::Value { key: self.path(Key::Node(id)), error })?;
        let mut registration = Registration {
            etcd: self.clone(),
            id,
            node: node.clone(),
            ttl,
            remembered: remembered.copied(),
            registered: None,
        };
        let lease = registration.register(true).await?;
        let (state, state_seen) = watch::channel(JoinedState::Alive);
        let (slot, lease_seen) = watch::channel(LeaseSlot(lease));
        let task = tokio::spawn(async move { registration.keep(&slot, &state).await });
        Ok(Joined { state: state_seen, task, lease: lease_seen })
    }
}

impl Joined {
    /// The node's state, as others see it.
    pub fn state(&self) -> JoinedState {
        self.state.borrow().clone()
    }

    /// Waits until the state has changed, and gives it. Waits for ever once the node is superseded or removed.
    pub async fn changed(&mut self) -> JoinedState {
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.state()
    }

    /// Takes the sign of life away, so that others see at once that the node is going. Its value stays.
    ///
    /// # Errors
    /// Errors of a request: others see it when the lease ends.
    pub async fn leave(self) -> Result<(), Error> {
        self.task.abort();
        let lease = self.lease.borrow().0.clone();
        lease.revoke().await
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The parts of a node's registration in the cluster.
struct Registration {
    etcd: Etcd,
    id: NodeId,
    node: Node,
    ttl: Duration,
    remembered: Option<Remembered>,
    /// The cluster's epoch when the node was registered last.
    registered: Option<Epoch>,
}

impl Registration {
    /// Writes the node and its sign of life. `first`: the process has not registered before.
    async fn register(&mut self, first: bool) -> Result<Lease, Error> {
        for _ in 0..MAX_TRIES {
            let view = self.etcd.load().await?;
            self.check(&view, first)?;
            let lease = Lease::grant(self.etcd.client(), self.ttl, self.etcd.timeout()).await?;
            let bound = PutOptions::new().with_lease(lease.id());
            let sign = self.etcd.path(Key::Alive(self.id));
            let alive = Liveness { starts: self.node.starts }.encode();
            let txn = Txn::new()
                .when([
                    Compare::create_revision(self.etcd.path(Key::Meta), CompareOp::Greater, 0),
                    unchanged_since(view.revision, self.etcd.path(Key::Meta)),
                    self.etcd.unchanged_kind(view.revision, "nodes"),
                    self.etcd.unchanged_kind(view.revision, "alive"),
                ])
                .and_then([
                    TxnOp::get(sign.as_str(), None),
                    TxnOp::put(self.etcd.path(Key::Node(self.id)), self.node.encode(), None),
                    TxnOp::put(sign.as_str(), alive, Some(bound)),
                ]);
            match self.etcd.txn("join the cluster", txn).await {
                Ok(answer) if answer.succeeded() => {
                    if let Some(before) = current(&answer).filter(|before| before.lease() != 0) {
                        // The process that had the lease learns that another one has taken its place.
                        let _ended = lease.of_id(before.lease()).revoke().await;
                    }
                    self.registered = Some(view.meta.epoch());
                    return Ok(lease);
                }
                Ok(_) => drop(lease.revoke().await),
                Err(error) => {
                    // Where the transaction took place, its sign of life goes with the lease.
                    let _ended = lease.revoke().await;
                    return Err(error);
                }
            }
        }
        Err(Error::Conflict(self.etcd.path(Key::Node(self.id))))
    }

    fn check(&mut self, view: &ClusterView, first: bool) -> Result<(), Error> {
        if let Some(remembered) = &self.remembered {
            self.remembered = Some(accepts(remembered, &view.meta, view.revision)?);
        } else {
            let cluster = view.meta.cluster();
            self.remembered = Some(Remembered { cluster, epoch: view.meta.epoch(), revision: view.revision });
        }
        // An etcd that was restored from a backup may lack nodes that joined later: its epoch is a higher one.
        let is_same_epoch = self.registered == Some(view.meta.epoch());
        if !first && is_same_epoch && !view.nodes.contains_key(&self.id) {
            return Err(Error::NoNode { node: self.id });
        }
        let recorded = view.nodes.get(&self.id).map_or(0, |node| node.starts);
        if recorded > self.node.starts || (first && recorded == self.node.starts) {
            return Err(Error::StartsNotAbove { node: self.id, starts: self.node.starts, recorded });
        }
        let others = view.live_nodes().filter(|(id, _)| *id != self.id);
        for (other, node) in others {
            if let Some(address) = self.node.shared_address(node) {
                return Err(Error::AddressTaken { address: address.to_string(), other });
            }
        }
        Ok(())
    }

    /// Keeps the lease alive until another process takes the node's place.
    async fn keep(mut self, slot: &watch::Sender<LeaseSlot>, state: &watch::Sender<JoinedState>) {
        let mut lost = false;
        loop {
            tokio::time::sleep(self.ttl / 3).await;
            let kept = if lost {
                Ok(false)
            } else {
                let mut lease = slot.borrow().0.clone();
                lease.refresh().await
            };
            let now = match kept {
                Ok(true) => Ok(()),
                Ok(false) => {
                    lost = true;
                    self.register(false).await.map(|lease| {
                        lost = false;
                        slot.send_replace(LeaseSlot(lease));
                    })
                }
                Err(error) => Err(error),
            };
            let now = match now {
                Ok(()) => JoinedState::Alive,
                Err(Error::StartsNotAbove { recorded, .. }) => {
                    state.send_replace(JoinedState::Superseded { starts: recorded });
                    return;
                }
                Err(Error::NoNode { .. }) => {
                    state.send_replace(JoinedState::Removed);
                    return;
                }
                Err(error) => JoinedState::Unknown(error.to_string()),
            };
            state.send_if_modified(|before| {
                let changed = *before != now;
                *before = now;
                changed
            });
        }
    }
}
