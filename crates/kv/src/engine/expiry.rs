//! A background walk over all keys: deletes those whose time is past, and counts the live ones.
//!
//! Reads already treat an expired key as absent, and RocksDB's compaction drops it; the walk is for keys that no read and no
//! compaction meets. It takes a slice of keys at a time, and deletes through a writer as a client does.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_channel::oneshot::{Canceled, Sender, channel};

use super::claims::Claims;
use super::handle::Engine;
use super::stats::KeyCount;
use super::work::Work;
use crate::error::Error;
use crate::txn::Txn;

/// Keys that the expiry walk visits per slice.
const SLICE_KEYS: usize = 2_000;

/// Keys that the expiry walk deletes per slice, at most.
const SLICE_DELETES: usize = 500;

/// Pause between two slices of the expiry walk.
const SLICE_PAUSE: Duration = Duration::from_millis(500);

/// Pause after an expiry walk over all keys that met no key with an expiry.
const PAUSE_WITHOUT_EXPIRIES: Duration = Duration::from_secs(30);

/// The position of the expiry walk.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The next key to visit; empty at the beginning of the keys.
    from: Bytes,
    /// Whether this walk over the keys met a key with an expiry, past or to come.
    met_any: bool,
    count: KeyCount,
}

/// The background task that walks over the keys and deletes expired ones, until the engine is closed.
pub(super) async fn delete_expired(engine: Engine) {
    let mut walk = Walk::default();
    let mut pause = SLICE_PAUSE;
    while engine.0.pause(pause).await {
        let met_any = visit_slice(&engine, &mut walk);
        pause = if walk.from.is_empty() && !met_any { PAUSE_WITHOUT_EXPIRIES } else { SLICE_PAUSE };
    }
}

/// Visits one slice of the keys and queues the deletes of its expired keys. Gives whether this walk met any
/// key with an expiry.
pub(super) fn visit_slice(engine: &Engine, walk: &mut Walk) -> bool {
    if engine.0.store.view().is_err() {
        // The leader's engine walks.
        *walk = Walk::default();
        return false;
    }
    if walk.from.is_empty() {
        *walk = Walk::default();
    }
    let txn = engine.0.reading();
    match read_slice(&txn, walk) {
        Ok(slice) => {
            walk.from = slice.next;
            if walk.from.is_empty() {
                *engine.0.counted.lock() = Some((walk.count.keyspace_counts(), txn.now_ms()));
            }
            if !slice.expired.is_empty() {
                walk.met_any = true;
                let deletes = ExpiredDeletes::of(engine, slice.expired, None);
                // If the queue refuses the deletes because too many pipelines wait, the next walk finds the
                // keys again.
                let _next_walk = engine.submit(deletes);
            }
        }
        Err(error) => {
            tracing::warn!(%error, "looking for expired keys failed; the walk begins again");
            walk.from = Bytes::new();
        }
    }
    walk.met_any
}

#[derive(Default)]
struct KeySlice {
    expired: Vec<Bytes>,
    /// The first key after the slice; empty at the end of the keys.
    next: Bytes,
}

fn read_slice(txn: &Txn<'_>, walk: &mut Walk) -> crate::error::Result<KeySlice> {
    let mut slice = KeySlice::default();
    let mut visited = 0;
    let Walk { from, met_any, count } = walk;
    txn.scan(from, |key, record| {
        if visited == SLICE_KEYS || slice.expired.len() == SLICE_DELETES {
            slice.next = Bytes::copy_from_slice(key);
            return ControlFlow::Break(());
        }
        visited += 1;
        count.add(record, txn.now_ms());
        match record {
            None => slice.expired.push(Bytes::copy_from_slice(key)),
            Some(record) => *met_any |= record.expires.unix_ms().is_some(),
        }
        ControlFlow::Continue(())
    })?;
    Ok(slice)
}

/// The deletes of a slice's expired keys, as a pipeline.
struct ExpiredDeletes {
    engine: Engine,
    keys: Vec<Bytes>,
    deleted: u64,
    /// True if writes were refused when the deletes ran.
    refused: bool,
    /// The receiver of the end: true once the deletes are durable, false if nothing was deleted: another replica leads, or writes are refused.
    ended: Option<Sender<bool>>,
}

impl ExpiredDeletes {
    fn of(engine: &Engine, keys: Vec<Bytes>, ended: Option<Sender<bool>>) -> Box<ExpiredDeletes> {
        Box::new(ExpiredDeletes { engine: engine.clone(), keys, deleted: 0, refused: false, ended })
    }
}

/// Deletes those of `keys` whose time is past.
///
/// # Errors
/// `NotLeader`, also where the outcome is not known: the caller has answered nothing yet. `Busy` and `Closed`.
pub(super) async fn delete(engine: &Engine, keys: Vec<Bytes>) -> crate::error::Result<()> {
    let (ended, end) = channel();
    engine.submit(ExpiredDeletes::of(engine, keys, Some(ended))).map_err(|(error, _)| error)?;
    match end.await {
        Ok(true) => Ok(()),
        Ok(false) | Err(Canceled) => Err(Error::NotLeader(
            "an expired key was not deleted: the leader changed, or writes are refused".into(),
        )),
    }
}

impl Work for ExpiredDeletes {
    fn claims(&self, claims: &mut Claims) {
        self.keys.iter().for_each(|key| claims.key(key));
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        self.deleted = 0;
        self.refused = txn.refusal().is_some_and(|r| !r.growth_only);
        if self.refused {
            return;
        }
        for key in &self.keys {
            // Check the expiry again: a client may have set the key since the slice was read, or an earlier
            // walk may have deleted it.
            if matches!(txn.is_past(key), Ok(true)) {
                txn.delete_expired(key.clone());
                self.deleted += 1;
            }
        }
    }

    fn writes_are_durable(self: Box<Self>) {
        self.engine.0.counters.expired.fetch_add(self.deleted, Ordering::Relaxed);
        if let Some(ended) = self.ended {
            // The reader may have gone.
            let _gone = ended.send(!self.refused);
        }
    }

    fn not_leader(self: Box<Self>) {
        if let Some(ended) = self.ended {
            let _gone = ended.send(false);
        }
    }
}
