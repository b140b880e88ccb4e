//! The part of the process that is elected to place: it gives groups other replicas for those on dead and draining nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use placement::{ClusterView, Elected, Epoch, Etcd, Revision, SilentNodes, upkeep};
use replica::NodeId;
use tokio::time::Instant;

/// The pause between two attempts to be elected, and before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(2);
/// The pause after the cluster's epoch was raised: etcd was restored, and the groups' leaders write first what their logs say.
const EPOCH_PAUSE: Duration = Duration::from_secs(30);

/// One process's part in the placing. Every process stands for election; the one that is elected writes plans.
///
/// A node is dead once this process has seen it without a sign of life for a while: a new placer counts from the beginning. Plans take the place only of those in the view that they were made from.
pub(crate) struct Placer {
    me: NodeId,
    /// The time without a sign of life after which a node's replicas are replaced.
    replace_after: Duration,
    /// The time after which another process is elected where this one does not answer.
    ttl: Duration,
    elected: Option<Elected>,
    /// The earliest time of the next attempt to be elected, and of the next changes.
    next: Instant,
    /// The epoch of the last view.
    epoch: Option<Epoch>,
    /// The nodes without a sign of life, by the time since `began`.
    silent: SilentNodes,
    began: Instant,
    /// The view, and the dead nodes, for which everything was done.
    done: Option<(Revision, BTreeSet<NodeId>)>,
    /// The replicas without another node that were logged last.
    logged: Vec<String>,
}

impl Placer {
    pub(crate) fn new(me: NodeId, replace_after: Duration, ttl: Duration) -> Placer {
        Placer {
            me,
            replace_after,
            ttl,
            elected: None,
            next: Instant::now(),
            epoch: None,
            silent: SilentNodes::default(),
            began: Instant::now(),
            done: None,
            logged: Vec::new(),
        }
    }

    /// Stands for election where nobody is elected, and does what the cluster in the last view needs. To be called again and again.
    ///
    /// # Errors
    /// Errors of etcd: tried again.
    pub(crate) async fn attend(&mut self, etcd: &Etcd, view: &ClusterView) -> Result<(), placement::Error> {
        let now = Instant::now();
        let before = self.epoch.replace(view.meta.epoch());
        // A process that starts in a later epoch does not know how long ago that began.
        if before.unwrap_or(Epoch(1)) != view.meta.epoch() {
            self.silent.forget();
            self.next = now + EPOCH_PAUSE;
        }
        if now < self.next {
            return Ok(());
        }
        if !self.elected.as_ref().is_some_and(Elected::is_held) {
            self.next = now + PAUSE;
            self.silent.forget();
            self.elected = None;
            if view.placer.is_none() && view.alive.contains_key(&self.me) {
                self.elected = etcd.elect(self.me, self.ttl).await?;
            }
            if self.elected.is_none() {
                return Ok(());
            }
            tracing::info!("this process is elected to place");
        }
        let dead = self.silent.dead(view, now.duration_since(self.began), self.replace_after);
        if self.done.as_ref().is_some_and(|(revision, of)| *revision == view.revision && *of == dead) {
            return Ok(());
        }
        self.next = now + PAUSE;
        self.carry_out(etcd, view, &dead).await?;
        self.next = now;
        self.done = Some((view.revision, dead));
        Ok(())
    }

    async fn carry_out(
        &mut self,
        etcd: &Etcd,
        view: &ClusterView,
        dead: &BTreeSet<NodeId>,
    ) -> Result<(), placement::Error> {
        let needed = upkeep(view, dead);
        for (group, plan) in &needed.plans {
            let changed = view.want.get(group).map(|want| want.changed);
            etcd.write_want(*group, plan, changed).await?;
            tracing::info!(%group, "the group gets another plan");
        }
        for node in &needed.removed {
            if etcd.remove_node(*node).await? {
                tracing::info!(%node, "the node is removed from the cluster");
            }
        }
        let lacking: Vec<String> = needed.lacking.iter().map(ToString::to_string).collect();
        if lacking != self.logged {
            lacking.iter().for_each(|why| tracing::warn!("{why}"));
            self.logged = lacking;
        }
        Ok(())
    }
}
