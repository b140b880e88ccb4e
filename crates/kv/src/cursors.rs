//! SCAN's cursors.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use parking_lot::Mutex;

/// Cursors remembered at a time, over all clients; then the one longest unused goes.
const CURSOR_LIMIT: usize = 4096;

/// The key at which each cursor goes on.
///
/// Keys are visited in their order, so a scan returns each key that is there throughout exactly once, whatever is
/// written meanwhile: more than the protocol asks for. The price is this table; a cursor that fell out of it, or
/// was given by an earlier run of the server, is answered with an error rather than with a wrong page. A cursor
/// may be used more than once.
#[derive(Debug, Default)]
pub struct Cursors(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    used: u64,
    keys: HashMap<u64, (Bytes, u64)>,
    by_use: BTreeMap<u64, u64>,
}

impl Cursors {
    /// No cursors yet.
    pub fn new() -> Cursors {
        Cursors::default()
    }

    /// Remembers a place: the number to hand out, never 0.
    pub fn put(&self, from: Bytes) -> u64 {
        let mut table = self.0.lock();
        table.last += 1;
        table.used += 1;
        let (id, used) = (table.last, table.used);
        table.keys.insert(id, (from, used));
        table.by_use.insert(used, id);
        if table.keys.len() > CURSOR_LIMIT
            && let Some((_, oldest)) = table.by_use.pop_first()
        {
            table.keys.remove(&oldest);
        }
        id
    }

    /// The first key of the next page.
    pub fn get(&self, id: u64) -> Option<Bytes> {
        let mut table = self.0.lock();
        table.used += 1;
        let now = table.used;
        let (key, used) = table.keys.get_mut(&id)?;
        let before = std::mem::replace(used, now);
        let key = key.clone();
        table.by_use.remove(&before);
        table.by_use.insert(now, id);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_forgets_what_was_longest_unused() {
        let cursors = Cursors::new();
        let first = cursors.put(Bytes::from_static(b"a"));
        let second = cursors.put(Bytes::from_static(b"b"));
        for _ in 0..CURSOR_LIMIT - 2 {
            cursors.put(Bytes::new());
        }
        assert_eq!(cursors.get(first).as_deref(), Some(&b"a"[..]));
        cursors.put(Bytes::new());
        assert!(cursors.get(second).is_none());
        assert!(cursors.get(first).is_some());
    }
}
