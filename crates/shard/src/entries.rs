//! Consecutive entries of a group's log, one at least.
//!
//! | bytes | | |
//! |---|---|---|
//! | 0 | 8 | the first entry's index; little-endian, like all numbers |
//! | 8 | 4 | number of entries |
//! | 12 | 13 each | an entry: kind (0 command or office, 2 change of members), term, 8 bytes; bytes, 4; then these |

use raft::eraftpb::{Entry, EntryType};

use crate::fields::{byte, counted, length, number, put_counted, put_length, put_number};

const NORMAL: u8 = 0;
const MEMBERS: u8 = 2;

/// Appends the bytes of the entries; nothing if there are none.
///
/// # Panics
/// An entry of 4 GiB or more.
pub(crate) fn put_entries(bytes: &mut Vec<u8>, entries: &[Entry]) {
    let Some(first) = entries.first() else { return };
    put_number(bytes, first.index);
    put_length(bytes, entries.len());
    for entry in entries {
        bytes.push(if entry.entry_type == EntryType::EntryNormal { NORMAL } else { MEMBERS });
        put_number(bytes, entry.term);
        put_counted(bytes, &entry.data);
    }
}

/// Takes entries from the front of `rest`; `None` if it holds none there.
pub(crate) fn entries(rest: &mut &[u8]) -> Option<Vec<Entry>> {
    let first = number(rest)?;
    let count = length(rest)?;
    let mut entries = Vec::new();
    for place in 0..count as u64 {
        let entry_type = match byte(rest)? {
            NORMAL => EntryType::EntryNormal,
            MEMBERS => EntryType::EntryConfChangeV2,
            _ => return None,
        };
        let (term, data) = (number(rest)?, counted(rest)?.to_vec().into());
        let index = first.checked_add(place)?;
        entries.push(Entry { entry_type, term, index, data, ..Entry::default() });
    }
    (!entries.is_empty()).then_some(entries)
}
