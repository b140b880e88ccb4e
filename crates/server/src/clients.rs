//! Who is connected.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use units::Driver;

/// One connection, as others see it.
#[derive(Debug)]
pub(crate) struct Client {
    pub id: u64,
    pub address: SocketAddr,
    pub local: SocketAddr,
    pub since_ms: u64,
    pub active_ms: AtomicU64,
    pub seen: Mutex<Seen>,
    pub kill: Notify,
}

/// What changes from pipeline to pipeline.
#[derive(Debug)]
pub(crate) struct Seen {
    pub name: Arc<str>,
    pub command: &'static str,
    pub resp3: bool,
}

impl Client {
    /// The line of CLIENT LIST, without its end.
    pub fn line(&self, now_ms: u64) -> String {
        let seen = self.seen.lock();
        let seconds = |since: u64| now_ms.saturating_sub(since) / 1000;
        format!(
            "id={} addr={} laddr={} name={} age={} idle={} flags=N db=0 sub=0 psub=0 multi=-1 cmd={} user=default resp={}",
            self.id,
            self.address,
            self.local,
            seen.name,
            seconds(self.since_ms),
            seconds(self.active_ms.load(Ordering::Relaxed)),
            seen.command.to_ascii_lowercase(),
            if seen.resp3 { 3 } else { 2 },
        )
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    table: Mutex<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
}

impl Clients {
    /// Takes one in, unless there are `limit` already.
    pub fn admit(
        &self,
        address: SocketAddr,
        local: SocketAddr,
        limit: usize,
        driver: &dyn Driver,
    ) -> Option<Arc<Client>> {
        let mut table = self.table.lock();
        if table.len() >= limit {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let now = driver.unix_millis();
        let client = Arc::new(Client {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            address,
            local,
            since_ms: now,
            active_ms: AtomicU64::new(now),
            seen: Mutex::new(Seen { name: "".into(), command: "NULL", resp3: false }),
            kill: Notify::new(),
        });
        table.insert(client.id, Arc::clone(&client));
        Some(client)
    }

    /// One is gone.
    pub fn leave(&self, id: u64) {
        self.table.lock().remove(&id);
    }

    /// Everyone, in the order of arrival.
    pub fn list(&self) -> Vec<Arc<Client>> {
        self.table.lock().values().cloned().collect()
    }

    /// One of them.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.table.lock().get(&id).cloned()
    }

    /// How many there are, were taken in, and were refused.
    pub fn counts(&self) -> (usize, u64, u64) {
        let connected = self.table.lock().len();
        (connected, self.accepted.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}
