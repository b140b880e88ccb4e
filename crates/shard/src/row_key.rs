//! Row keys: the keys of the rows of a group's tables, those of clients and of ids for commands that run once.
//!
//! | bytes | | |
//! |---|---|---|
//! | 0 | 1 | `o` for an id, `r` for a client's key |
//! | 1 | - | the id (`kv::OnceId`), 24 bytes; or the client's key |

use kv::OnceId;

/// The first byte of a row key: a row of the table of ids, or a client's key.
const ONCE: u8 = b'o';
const KEY: u8 = b'r';

/// The row key of a client's key.
pub fn row_key(key: &[u8]) -> Vec<u8> {
    [&[KEY], key].concat()
}

/// The row key of an id for commands that run once: before those of all clients' keys.
pub fn once_row_key(id: OnceId) -> Vec<u8> {
    [&[ONCE][..], &id.to_bytes()].concat()
}

/// The client's key of a row key; `None` for another row.
pub fn client_key(row_key: &[u8]) -> Option<&[u8]> {
    row_key.strip_prefix(&[KEY])
}

/// The id of a row key; `None` for another row.
pub(crate) fn once_id(row_key: &[u8]) -> Option<OnceId> {
    OnceId::from_bytes(row_key.strip_prefix(&[ONCE])?)
}

/// True if rows can have that key.
pub(crate) fn is_row_key(key: &[u8]) -> bool {
    client_key(key).is_some() || once_id(key).is_some()
}
