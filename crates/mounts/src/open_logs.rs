//! The logs of a mount that are being written. A program may end without closing its databases. The unmount then makes the logs durable, as the
//! host's kernel would keep what such a program has written to files.

use std::sync::{Arc, Weak};

use fs::{ErrorKind, Writer};
use parking_lot::Mutex;

/// The logs of one mount that are being written. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OpenLogs(Arc<Mutex<Vec<Weak<Writer>>>>);

impl OpenLogs {
    /// Adds a log, until its writer is dropped.
    pub fn add(&self, log: &Arc<Writer>) {
        let mut logs = self.0.lock();
        logs.retain(|log| log.strong_count() > 0);
        logs.push(Arc::downgrade(log));
    }

    /// Makes the logs durable. Returns the last error; one of a log that is closed is none.
    pub(crate) async fn sync(&self) -> fs::Result<()> {
        let logs: Vec<Arc<Writer>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let mut outcome = Ok(());
        for log in logs {
            match log.sync().await {
                Err(error) if error.kind() != ErrorKind::Closed => outcome = Err(error),
                _ => {}
            }
        }
        outcome
    }
}
