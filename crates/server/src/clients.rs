//! The registry of connected clients.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use units::Driver;

use crate::session::Session;

/// A client's connection, as other connections see it.
#[derive(Debug)]
pub(crate) struct Client {
    pub id: u64,
    pub address: SocketAddr,
    pub local: SocketAddr,
    since_ms: u64,
    active_ms: AtomicU64,
    /// Bytes of replies that the client has not received yet.
    output: AtomicUsize,
    noted: Mutex<SessionCopy>,
    is_killed: AtomicBool,
    kill: Notify,
}

/// A copy of the client's session after its last pipeline, for CLIENT LIST.
#[derive(Debug)]
struct SessionCopy {
    session: Session,
    command: &'static str,
}

impl Client {
    /// The client's line in CLIENT LIST, without the line end.
    pub fn line(&self, now_ms: u64) -> String {
        let SessionCopy { session, command } = &*self.noted.lock();
        let idle = now_ms.saturating_sub(self.active_ms.load(Ordering::Relaxed)) / 1000;
        let mut flags = String::new();
        for (flag, is_set) in [
            ('x', session.transaction.is_some()),
            ('e', session.no_evict),
            ('T', session.no_touch),
            ('r', session.read_only),
        ] {
            flags.extend(is_set.then_some(flag));
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let multi = session.transaction.map_or(-1, |open| (open.end - open.start) as i64);
        format!(
            "id={} addr={} laddr={} name={} age={} idle={idle} flags={flags} db=0 sub=0 psub=0 multi={multi} omem={} \
             cmd={} user=default resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local,
            session.name,
            self.age_seconds(now_ms),
            self.output.load(Ordering::Relaxed),
            command.to_ascii_lowercase(),
            if session.resp3 { 3 } else { 2 },
            session.library.0,
            session.library.1,
        )
    }

    /// Whole seconds since the client's connection was accepted.
    pub fn age_seconds(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.since_ms) / 1000
    }

    /// Notes the time at which the client sent something.
    pub fn note_activity(&self, now_ms: u64) {
        self.active_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Copies the client's session after `command`, for CLIENT LIST.
    pub fn note_session(&self, session: &Session, command: &'static str) {
        let mut noted = self.noted.lock();
        noted.command = command;
        // The copy has no watches: a watch ends only with its last copy.
        noted.session = Session { watches: Vec::new(), ..session.clone() };
    }

    /// Notes how many bytes of replies the client has not received yet.
    pub fn note_unread_bytes(&self, bytes: usize) {
        self.output.store(bytes, Ordering::Relaxed);
    }

    /// Makes the client's connection close.
    pub fn kill(&self) {
        self.is_killed.store(true, Ordering::Release);
        self.kill.notify_one();
    }

    /// Whether the client's connection must be closed.
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Acquire)
    }

    /// Waits until the client's connection must be closed.
    pub async fn wait_until_killed(&self) {
        while !self.is_killed() {
            self.kill.notified().await;
        }
    }
}

/// All connected clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    table: Mutex<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
}

/// Numbers of client connections: open now, and accepted and refused since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientCounts {
    pub connected: usize,
    pub accepted: u64,
    pub refused: u64,
}

impl Clients {
    /// Adds a client's connection, unless `limit` are open already.
    pub fn admit(
        &self,
        address: SocketAddr,
        local: SocketAddr,
        limit: usize,
        authenticated: bool,
        driver: &dyn Driver,
    ) -> Option<Arc<Client>> {
        let mut table = self.table.lock();
        if table.len() >= limit {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let (id, now) = (self.last_id.fetch_add(1, Ordering::Relaxed) + 1, driver.unix_millis());
        let client = Arc::new(Client {
            id,
            address,
            local,
            since_ms: now,
            active_ms: AtomicU64::new(now),
            output: AtomicUsize::new(0),
            noted: Mutex::new(SessionCopy { session: Session::new(id, authenticated), command: "NULL" }),
            is_killed: AtomicBool::new(false),
            kill: Notify::new(),
        });
        table.insert(client.id, Arc::clone(&client));
        Some(client)
    }

    /// Removes a client's connection that ended.
    pub fn remove(&self, id: u64) {
        self.table.lock().remove(&id);
    }

    /// All connected clients but those that were killed and whose connections end, in the order in which they were accepted.
    pub fn list(&self) -> Vec<Arc<Client>> {
        self.table.lock().values().filter(|client| !client.is_killed()).cloned().collect()
    }

    /// The connected client with this number, unless it was killed.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.table.lock().get(&id).filter(|client| !client.is_killed()).cloned()
    }

    /// Numbers of client connections, now and since the start.
    pub fn counts(&self) -> ClientCounts {
        ClientCounts {
            connected: self.table.lock().len(),
            accepted: self.accepted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}
