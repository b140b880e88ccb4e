//! Deleting keys whose time is past, in the background.
//!
//! Reads already treat such a key as absent, and RocksDB's compaction drops it; this is for what nobody reads and
//! no compaction meets. It walks the keys a slice at a time, and a slice deletes through a writer like a client.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::engine::Inner;
use crate::{Claims, Txn, Work};

/// Keys looked at per slice.
const SLICE_KEYS: usize = 2_000;

/// Keys deleted per slice.
const SLICE_DELETES: usize = 500;

/// Between slices.
const SLICE_PAUSE: Duration = Duration::from_millis(500);

/// Between two walks over everything, when the last one met no key that will ever expire.
const IDLE_PAUSE: Duration = Duration::from_secs(30);

/// Where the walk stands.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The next key to look at; empty: the beginning.
    from: Bytes,
    /// Whether this walk met a key that will go some day.
    met_any: bool,
}

/// Runs until the engine is closed.
pub(crate) async fn delete_expired(engine: Arc<Inner>) {
    let mut walk = Walk::default();
    let mut pause = SLICE_PAUSE;
    while engine.pause(pause).await {
        let met_any = slice(&engine, &mut walk);
        pause = if walk.from.is_empty() && !met_any { IDLE_PAUSE } else { SLICE_PAUSE };
    }
}

/// Looks at one slice and queues what is to be deleted. Whether this walk met any key that goes.
pub(crate) fn slice(engine: &Arc<Inner>, walk: &mut Walk) -> bool {
    if walk.from.is_empty() {
        walk.met_any = false;
    }
    match look(&engine.reading(), &walk.from) {
        Ok(slice) => {
            walk.met_any |= slice.met_any;
            walk.from = slice.next;
            if !slice.expired.is_empty() {
                let deletes = Deletes { engine: Arc::clone(engine), keys: slice.expired, deleted: 0 };
                // Where too much waits, the next walk finds them again.
                let _next_time = engine.submit(Box::new(deletes));
            }
        }
        Err(error) => {
            tracing::warn!(%error, "looking for expired keys failed; beginning again");
            walk.from = Bytes::new();
        }
    }
    walk.met_any
}

#[derive(Default)]
struct Slice {
    expired: Vec<Bytes>,
    met_any: bool,
    /// Empty at the end of the keys.
    next: Bytes,
}

fn look(txn: &Txn<'_>, from: &[u8]) -> crate::Result<Slice> {
    let mut slice = Slice::default();
    let mut seen = 0;
    txn.scan(from, |key, record| {
        if seen == SLICE_KEYS || slice.expired.len() == SLICE_DELETES {
            slice.next = Bytes::copy_from_slice(key);
            return ControlFlow::Break(());
        }
        seen += 1;
        match record {
            None => slice.expired.push(Bytes::copy_from_slice(key)),
            Some(record) => slice.met_any |= record.expires.unix_ms().is_some(),
        }
        ControlFlow::Continue(())
    })?;
    slice.met_any |= !slice.expired.is_empty();
    Ok(slice)
}

struct Deletes {
    engine: Arc<Inner>,
    keys: Vec<Bytes>,
    deleted: u64,
}

impl Work for Deletes {
    fn claims(&self, claims: &mut Claims) {
        self.keys.iter().for_each(|key| claims.key(key));
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        self.deleted = 0;
        if txn.refusal().is_some_and(|r| !r.growth_only) {
            return;
        }
        for key in &self.keys {
            // A client may have written it anew meanwhile, or a walk before this one has deleted it.
            if matches!(txn.is_past(key), Ok(true)) {
                txn.delete_expired(key.clone());
                self.deleted += 1;
            }
        }
    }

    fn done(self: Box<Self>) {
        self.engine.count_expired(self.deleted);
    }
}
