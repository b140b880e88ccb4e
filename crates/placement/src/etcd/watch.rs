//! Changes of the cluster, as they happen.

use std::time::Duration;

use etcd_client::{WatchOptions, WatchStream};

use super::client::Etcd;
use super::request::bounded;
use crate::error::Error;
use crate::keys::prefix;
use crate::view::ClusterView;

/// The time for which changes are gathered before the cluster is loaded: many groups elect a leader where a node fails.
const GATHERING: Duration = Duration::from_millis(50);

/// The pause after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The cluster after each change. Survives restarts of etcd and compaction: what it cannot follow it loads.
pub struct ViewWatch {
    etcd: Etcd,
    /// The changes behind the view that was loaded last.
    changes: Option<WatchStream>,
    /// The view that was given last.
    given: Option<ClusterView>,
    /// True if the cluster has changed since it was loaded, or was never loaded.
    outdated: bool,
    failed: bool,
}

impl std::fmt::Debug for ViewWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ViewWatch({:?})", self.etcd)
    }
}

impl Etcd {
    /// The cluster as it is, and after each change.
    pub fn watch(&self) -> ViewWatch {
        ViewWatch { etcd: self.clone(), changes: None, given: None, outdated: true, failed: false }
    }
}

impl ViewWatch {
    /// The next view: the first one at once, each further one when something has changed. Several changes may be in one view. A view at an earlier revision than the one before comes from
    /// a restored etcd: see [`crate::accepts`].
    ///
    /// The future may be dropped at any time, and loses no change.
    ///
    /// # Errors
    /// The errors of [`Etcd::load`], within the time of a request. The caller may call again at once: the next call begins with a pause of half a second.
    pub async fn next(&mut self) -> Result<ClusterView, Error> {
        loop {
            if self.failed {
                tokio::time::sleep(RETRY_PAUSE).await;
                self.failed = false;
            }
            if (self.outdated || self.changes.is_none())
                && let Some(view) = self.load().await?
            {
                return Ok(view);
            }
            self.wait().await;
        }
    }

    /// Loads the cluster; `None` if nothing differs from the view that was given last.
    async fn load(&mut self) -> Result<Option<ClusterView>, Error> {
        self.failed = true;
        let view = self.etcd.load().await?;
        if self.changes.is_none() {
            let behind =
                WatchOptions::new().with_prefix().with_start_revision(view.revision.0.saturating_add(1));
            let mut client = self.etcd.client();
            let watch = client.watch(prefix(self.etcd.cluster()), Some(behind));
            self.changes = Some(bounded("watch the cluster", self.etcd.timeout(), watch).await?);
        }
        (self.failed, self.outdated) = (false, false);
        if self.given.as_ref().is_some_and(|given| is_same(given, &view)) {
            return Ok(None);
        }
        self.given = Some(view.clone());
        Ok(Some(view))
    }

    /// Waits for a change, or for the end of the stream of changes.
    async fn wait(&mut self) {
        let Some(changes) = &mut self.changes else { return };
        match changes.message().await {
            Ok(Some(message)) if message.events().is_empty() && !message.canceled() => {}
            Ok(Some(message)) if !message.canceled() => {
                self.outdated = true;
                tokio::time::sleep(GATHERING).await;
            }
            // Etcd ends the stream where the changes were compacted, too.
            Ok(_) | Err(_) => {
                self.changes = None;
                self.failed = true;
            }
        }
    }
}

/// True if `now` shows nothing that `given` did not, revisions apart, and comes from no earlier state of etcd.
fn is_same(given: &ClusterView, now: &ClusterView) -> bool {
    now.revision >= given.revision && ClusterView { revision: given.revision, ..now.clone() } == *given
}
