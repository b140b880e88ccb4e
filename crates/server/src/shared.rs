//! What all connections share.

use std::sync::Arc;

use kv::Engine;
use tokio::sync::{Semaphore, watch};

use crate::array::Held;
use crate::clients::Clients;
use crate::metrics::Metrics;
use crate::options::ServeOptions;

/// The server, as its connections see it.
pub(crate) struct Shared {
    pub engine: Engine,
    /// The array that the data lies on, if it lies on one.
    pub array: Option<Held>,
    pub options: ServeOptions,
    pub password: Option<Vec<u8>>,
    pub clients: Clients,
    pub metrics: Arc<Metrics>,
    pub started_ms: u64,
    pub port: u16,
    /// Permits to read on a worker thread: fewer than there are workers, so that one always serves the sockets.
    pub readers: Semaphore,
    /// Turns true when the server stops.
    pub stopping: watch::Sender<bool>,
}

impl Shared {
    /// The time of day in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.engine.driver().unix_millis()
    }

    /// Whether this is the password. Takes the same time wherever the two differ.
    pub fn is_password(&self, given: &[u8]) -> bool {
        let Some(password) = &self.password else { return false };
        let different = password.iter().zip(given).fold(0, |seen, (a, b)| seen | (a ^ b));
        password.len() == given.len() && different == 0
    }

    /// Begins the end.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }
}
