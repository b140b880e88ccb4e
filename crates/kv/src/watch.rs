//! WATCH: tells whether a key was written since a client began to watch it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::record::Expiry;
use crate::store::View;

/// Counts the writes of watched keys. A write of a key that no client watches costs one atomic load.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Number of keys in `keys`.
    watched: AtomicUsize,
    keys: Mutex<HashMap<Bytes, Watched>>,
}

/// A key that a client watches.
#[derive(Debug, Default)]
struct Watched {
    /// Number of registrations of the key; the entry is removed with the last one.
    watchers: usize,
    /// Writes of the key since this entry was made.
    writes: u64,
}

impl Watches {
    /// Begins to watch `key`, whose claim the caller holds. `expires`: the expiry of the key's present record in `view`.
    pub fn watch(self: &Arc<Watches>, key: Bytes, expires: Option<Expiry>, view: View) -> Watch {
        let mut keys = self.keys.lock();
        let entry = keys.entry(key.clone()).or_default();
        entry.watchers += 1;
        let writes = entry.writes;
        self.watched.store(keys.len(), Ordering::Release);
        drop(keys);
        Watch(Arc::new(Registration {
            watches: Arc::clone(self),
            key,
            writes,
            expires,
            view,
            changed: OnceLock::new(),
        }))
    }

    /// Counts a write of `key`, by the holder of the key's claim.
    pub fn note_write(&self, key: &[u8]) {
        if self.watched.load(Ordering::Acquire) > 0
            && let Some(entry) = self.keys.lock().get_mut(key)
        {
            entry.writes += 1;
        }
    }

    /// Counts a write of every watched key.
    pub fn note_write_of_all_keys(&self) {
        self.keys.lock().values_mut().for_each(|entry| entry.writes += 1);
    }

    fn writes(&self, key: &[u8]) -> u64 {
        self.keys.lock().get(key).map_or(0, |entry| entry.writes)
    }

    fn unwatch(&self, key: &[u8]) {
        let mut keys = self.keys.lock();
        if let Some(entry) = keys.get_mut(key) {
            entry.watchers -= 1;
            if entry.watchers == 0 {
                keys.remove(key);
            }
        }
        self.watched.store(keys.len(), Ordering::Release);
    }
}

/// A key that a client watches, from [`Txn::watch`](crate::Txn::watch). Clones share one registration; dropping the last of
/// them ends it.
#[derive(Clone)]
pub struct Watch(Arc<Registration>);

struct Registration {
    watches: Arc<Watches>,
    key: Bytes,
    /// Writes of the key when the watch began.
    writes: u64,
    expires: Option<Expiry>,
    /// The view of the store when the watch began. Writes of other views are not counted here.
    view: View,
    /// The first answer of `has_changed`: a work that runs again after a failed write gets the same one.
    changed: OnceLock<bool>,
}

impl Watch {
    /// The watched key. A work that calls [`Txn::has_changed`](crate::Txn::has_changed) claims it.
    pub fn key(&self) -> &[u8] {
        &self.0.key
    }

    pub(crate) fn has_changed(&self, now_ms: u64, in_view: View) -> bool {
        let Registration { watches, key, writes, expires, view, changed } = &*self.0;
        in_view != *view
            || *changed.get_or_init(|| {
                watches.writes(key) != *writes || expires.is_some_and(|expires| expires.is_past(now_ms))
            })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.watches.unwatch(&self.key);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch(\"{}\")", self.0.key.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_key_counts_as_written_in_every_other_view() {
        let watches = Arc::new(Watches::default());
        let watch = watches.watch(Bytes::from_static(b"key"), None, View(1));
        assert!(!watch.has_changed(0, View(1)));
        assert!(watch.has_changed(0, View(2)), "also after an answer in the watch's own view");
        assert!(!watch.has_changed(0, View(1)));
    }
}
