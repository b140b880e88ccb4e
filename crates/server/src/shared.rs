//! The server's state that all connections share.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use zoned::ShareStatus;

use crate::backing::Backing;
use crate::clients::Clients;
use crate::counters::Counters;
use crate::engines::Engines;
use crate::options::ServeOptions;
use crate::output::OutputBudget;
use crate::recent_reads::RecentReads;

/// The server, as its connections see it.
pub(crate) struct Shared {
    pub engines: Engines,
    /// The file system and the array with the data, if the server knows them.
    pub backing: Backing,
    pub options: ServeOptions,
    pub password: Option<Vec<u8>>,
    /// The server's side of TLS, if the clients' port speaks TLS.
    pub tls: Option<TlsAcceptor>,
    pub clients: Clients,
    pub counters: Counters,
    pub output: Arc<OutputBudget>,
    pub started_ms: u64,
    pub port: u16,
    /// Permits to read on a worker thread; there are fewer permits than workers, so that one worker always serves the
    /// sockets.
    pub readers: Semaphore,
    pub recent_reads: RecentReads,
    /// Becomes true when the server is asked to end. In a cluster the process hands its groups over then.
    pub ending: watch::Sender<bool>,
    /// The shutdown's signal: becomes true when the server shuts down, once its groups are handed over.
    pub stopping: watch::Sender<bool>,
    /// The totals of INFO at the last CONFIG RESETSTAT.
    pub reset: Mutex<InfoTotals>,
}

/// The totals that CONFIG RESETSTAT sets to zero in INFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct InfoTotals {
    pub accepted: u64,
    pub refused: u64,
    pub commands: u64,
    pub expired: u64,
}

impl Shared {
    /// The time of day in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.engines.driver().unix_millis()
    }

    /// Whether reads are expected to find all data in memory. False if the number of the drive's reads is not known.
    pub fn reads_memory_only(&self) -> bool {
        let now = self.engines.driver().now();
        let submitted = self.backing.fs.as_ref().map(|fs| fs.operations(fs::Purpose::Read));
        submitted.is_some_and(|submitted| self.recent_reads.are_quiet(submitted, now))
    }

    /// The counts of the scheduler before the drive, if the server knows its drive and that has one.
    pub fn share_status(&self) -> Option<ShareStatus> {
        self.backing.fs.as_ref().and_then(|fs| fs.device().share_status())
    }

    /// Longest reply in bytes.
    pub fn max_output(&self) -> usize {
        usize::try_from(self.options.max_output).unwrap_or(usize::MAX)
    }

    /// Whether `given` is the password. The comparison's time depends on the length of `given` alone.
    pub fn is_password(&self, given: &[u8]) -> bool {
        let Some(password) = &self.password else { return false };
        let different = password.iter().zip(given).fold(0, |seen, (a, b)| seen | (a ^ b));
        password.len() == given.len() && different == 0
    }

    /// The totals of INFO since the server's start.
    fn totals(&self) -> InfoTotals {
        let clients = self.clients.counts();
        InfoTotals {
            accepted: clients.accepted,
            refused: clients.refused,
            commands: self.counters.commands_total(),
            expired: self.engines.stats().expired,
        }
    }

    /// The totals of INFO since the last [`reset_totals`](Shared::reset_totals).
    pub fn totals_since_reset(&self) -> InfoTotals {
        let (now, reset) = (self.totals(), *self.reset.lock());
        InfoTotals {
            accepted: now.accepted.saturating_sub(reset.accepted),
            refused: now.refused.saturating_sub(reset.refused),
            commands: now.commands.saturating_sub(reset.commands),
            expired: now.expired.saturating_sub(reset.expired),
        }
    }

    /// Restarts the totals of INFO at zero. The totals of the metrics go on, as counters do.
    pub fn reset_totals(&self) {
        let now = self.totals();
        *self.reset.lock() = now;
    }

    /// Begins the server's end: the groups that the process leads are handed over, then the shutdown begins.
    pub fn stop(&self) {
        self.ending.send_replace(true);
    }

    /// Waits until the server is asked to end, hands the groups over, and begins the shutdown.
    pub async fn shut_down_when_asked(&self) {
        let mut ending = self.ending.subscribe();
        // The wait ends when the value becomes true: the sender lives as long as this.
        drop(ending.wait_for(|ending| *ending).await);
        if let Some(cluster) = self.engines.cluster() {
            cluster.hand_over().await;
        }
        self.stopping.send_replace(true);
    }
}
