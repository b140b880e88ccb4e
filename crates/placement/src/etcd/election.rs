//! The election of the one process that places and replaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::client::{Etcd, current};
use super::lease::Lease;
use crate::error::Error;
use crate::keys::Key;
use replica::NodeId;

/// The election that this process won. A background task keeps its lease alive; dropping the value ends that, and the lease ends by itself.
///
/// Two processes may both believe for a moment that they are elected, where a clock is slow: plans are safe from that, because each takes the place only of the plan that its writer has read.
pub struct Elected {
    lease: Lease,
    task: JoinHandle<()>,
    /// The end of the lease, by this process's clock, unless it is kept alive.
    lasts_until: watch::Receiver<Instant>,
    ended: Arc<AtomicBool>,
}

impl std::fmt::Debug for Elected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Elected(held: {})", self.is_held())
    }
}

impl Etcd {
    /// Tries to have this node elected, for as long as it keeps a lease of `ttl` alive. `None`: another node is elected; [`crate::ClusterView::placer`] names it, and changes when the office is free.
    ///
    /// # Errors
    /// [`Error::NoCluster`]; errors of a request.
    pub async fn elect(&self, candidate: NodeId, ttl: Duration) -> Result<Option<Elected>, Error> {
        let (key, meta) = (self.path(Key::Placer), self.path(Key::Meta));
        if !self.get("look who is elected", key.as_str(), None).await?.kvs().is_empty() {
            return Ok(None);
        }
        let begun = Instant::now();
        let lease = Lease::grant(self.client(), ttl, self.timeout()).await?;
        let bound = PutOptions::new().with_lease(lease.id());
        let txn = Txn::new()
            .when([
                Compare::create_revision(meta.as_str(), CompareOp::Greater, 0),
                Compare::create_revision(key.as_str(), CompareOp::Equal, 0),
            ])
            .and_then([TxnOp::put(key.as_str(), candidate.to_string(), Some(bound))])
            .or_else([TxnOp::get(meta.as_str(), None)]);
        let answer = self.txn("stand for election", txn).await;
        match answer {
            Ok(answer) if answer.succeeded() => Ok(Some(Elected::new(lease, begun, ttl))),
            Ok(answer) => {
                // The lease has no keys: where it cannot be ended it ends by itself.
                let _ended = lease.revoke().await;
                match current(&answer) {
                    Some(_) => Ok(None),
                    None => Err(Error::NoCluster(self.cluster().clone())),
                }
            }
            Err(error) => {
                let _ended = lease.revoke().await;
                Err(error)
            }
        }
    }
}

impl Elected {
    fn new(lease: Lease, begun: Instant, ttl: Duration) -> Elected {
        let (lasts, lasts_until) = watch::channel(begun + ttl);
        let ended = Arc::new(AtomicBool::new(false));
        let (mut kept, over) = (lease.clone(), ended.clone());
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(ttl / 3).await;
                let asked = Instant::now();
                match kept.refresh().await {
                    Ok(true) => drop(lasts.send_replace(asked + ttl)),
                    Ok(false) => break,
                    // Etcd cannot be reached: the lease may last, and is kept alive if that succeeds in time.
                    Err(_) => {}
                }
            }
            over.store(true, Ordering::Release);
        });
        Elected { lease, task, lasts_until, ended }
    }

    /// True while no other node can be elected, by this process's clock: the lease was kept alive within its time.
    pub fn is_held(&self) -> bool {
        !self.ended.load(Ordering::Acquire) && Instant::now() < *self.lasts_until.borrow()
    }

    /// Gives the office up, so that another node can be elected at once.
    ///
    /// # Errors
    /// Errors of a request: the office is free when the lease ends.
    pub async fn resign(self) -> Result<(), Error> {
        self.task.abort();
        self.lease.clone().revoke().await
    }
}

impl Drop for Elected {
    fn drop(&mut self) {
        self.task.abort();
    }
}
