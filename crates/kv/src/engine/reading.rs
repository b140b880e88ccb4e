//! Reads over a store that may be replicated: their replies count once the store confirms what was read.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::expiry;
use super::handle::Engine;
use crate::error::{Error, Result};
use crate::once::RecordId;
use crate::store::View;
use crate::txn::Txn;

/// A read whose replies do not count yet ([`Engine::settle`]).
#[derive(Debug)]
pub struct Reading {
    view: View,
    /// The records whose values were missing.
    missing: Vec<RecordId>,
    /// The keys that count as expired, and that a write is to delete.
    expired: Vec<Bytes>,
}

impl Engine {
    /// Like [`read`](Engine::read) over a store that may be replicated: the replies count once [`settle`](Engine::settle) says so.
    ///
    /// # Errors
    /// `NotLeader`: nothing was run.
    pub fn read_in_view<R>(&self, run: impl FnOnce(&mut Txn<'_>) -> R) -> Result<(R, Reading)> {
        let view = self.0.store.view()?;
        self.0.counters.reads.fetch_add(1, Ordering::Relaxed);
        let mut txn = self.0.reading();
        let replies = run(&mut txn);
        Ok((replies, Reading { view, missing: txn.take_missing(), expired: txn.take_expired() }))
    }

    /// True if the replies of a read count. False if the read is to be run again: values were missing that have come meanwhile, or keys had expired that are deleted now.
    ///
    /// # Errors
    /// `NotLeader`: the replies do not count, and another replica is to be asked.
    pub async fn settle(&self, reading: Reading) -> Result<bool> {
        let Reading { view, missing, expired } = reading;
        if !expired.is_empty() {
            return expiry::delete(self, expired).await.map(|()| false);
        }
        if !missing.is_empty() {
            match self.0.store.fetch(missing).await {
                Ok(()) => return Ok(false),
                // The replies of the commands that need the value say so.
                Err(Error::Missing(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(confirming) = self.0.store.confirm(view) {
            confirming.await?;
        }
        Ok(true)
    }
}
