//! The stored form of a group's records and of its tables' state.
//!
//! | key | | value |
//! |---|---|---|
//! | group, 8 bytes, big-endian; `m` | the state of the group's tables | version 1, 1 byte; applied index, 8; highest index of a record, 8 |
//! | group; `o`; an id, 24 bytes | the record of the id | as of a key; the value is a `kv::OnceRecord` |
//! | group; `r`; a client's key | the record of the key | index, 8 bytes; term, 8; 1 if the value is there, else 0; a record as `kv` stores it, without its value where that is not there |
//!
//! Numbers in values are little-endian. RocksDB's blocks carry checksums.

use kv::{HEADER_LEN, RecordRef};
use replica::{Index, Term};
use zerocopy::IntoBytes;

use crate::GroupId;
use crate::row_key::{is_row_key, row_key};
use crate::tables::Row;

const VERSION: u8 = 1;
const STATE: u8 = b'm';
const WITHOUT_VALUE: u8 = 0;
const WITH_VALUE: u8 = 1;

/// The state of a group's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct TablesState {
    /// The index up to which the log is in the tables.
    pub applied: Index,
    /// No record of the tables is of a later entry, but for those up to `applied`.
    pub ahead: Index,
}

impl TablesState {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut value = vec![VERSION];
        value.extend(self.applied.0.to_le_bytes());
        value.extend(self.ahead.0.to_le_bytes());
        value
    }

    /// # Errors
    /// The fault of the value, for people.
    pub(super) fn decode(value: &[u8]) -> Result<TablesState, String> {
        let (version, rest) = value.split_first().ok_or("the state is empty")?;
        if *version != VERSION {
            return Err(format!("they are of version {version}, and this program reads version {VERSION}"));
        }
        let numbers = || {
            let (applied, ahead) = rest.split_first_chunk()?;
            Some((u64::from_le_bytes(*applied), u64::from_le_bytes(ahead.try_into().ok()?)))
        };
        let (applied, ahead) = numbers().ok_or("the state has another length")?;
        Ok(TablesState { applied: Index(applied), ahead: Index(ahead) })
    }
}

/// The stored keys of one group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupKeys([u8; 8]);

impl GroupKeys {
    pub(super) fn of(group: GroupId) -> GroupKeys {
        GroupKeys(group.0.to_be_bytes())
    }

    /// The key of the group's state, which comes before the keys of its records.
    pub(super) fn state(self) -> Vec<u8> {
        [&self.0[..], &[STATE]].concat()
    }

    /// The stored key of a row key, or of the place in the order of row keys where a walk begins.
    pub(super) fn row(self, row_key: &[u8]) -> Vec<u8> {
        [&self.0[..], row_key].concat()
    }

    /// The stored keys before and behind all records of the group, of every kind.
    pub(super) fn records(self) -> (Vec<u8>, Vec<u8>) {
        ([&self.0[..], &[STATE + 1]].concat(), [&self.0[..], &[u8::MAX]].concat())
    }

    /// The stored keys before and behind those of all clients' keys of the group.
    pub(super) fn clients(self) -> (Vec<u8>, Vec<u8>) {
        let from = self.row(&row_key(b""));
        let mut to = from.clone();
        if let Some(kind) = to.last_mut() {
            *kind += 1;
        }
        (from, to)
    }

    /// The row key of a stored key; `None` if the stored key is not one of the group's records.
    pub(super) fn row_key(self, stored: &[u8]) -> Option<&[u8]> {
        stored.strip_prefix(&self.0).filter(|key| is_row_key(key))
    }
}

/// The stored form of a record.
pub(super) fn encode_row(row: &Row) -> Vec<u8> {
    let Row { index, term, expires, value } = row;
    let mut stored = Vec::with_capacity(8 + 8 + 1 + HEADER_LEN + value.as_ref().map_or(0, Vec::len));
    stored.extend(index.0.to_le_bytes());
    stored.extend(term.0.to_le_bytes());
    stored.push(if value.is_some() { WITH_VALUE } else { WITHOUT_VALUE });
    let record = RecordRef { expires: *expires, value: value.as_deref().unwrap_or_default() };
    stored.extend_from_slice(record.header().as_bytes());
    stored.extend_from_slice(record.value);
    stored
}

/// The record of a stored form; `None` for bytes that are none.
pub(super) fn decode_row(stored: &[u8]) -> Option<Row> {
    let (index, rest) = stored.split_first_chunk()?;
    let (term, rest) = rest.split_first_chunk()?;
    let (has_value, record) = rest.split_first()?;
    let RecordRef { expires, value } = RecordRef::decode(record).ok()?;
    let value = match (*has_value, value) {
        (WITH_VALUE, value) => Some(value.to_vec()),
        (WITHOUT_VALUE, []) => None,
        _ => return None,
    };
    Some(Row {
        index: Index(u64::from_le_bytes(*index)),
        term: Term(u64::from_le_bytes(*term)),
        expires,
        value,
    })
}

#[cfg(test)]
mod tests {
    use kv::{Expiry, OnceId};
    use proptest::prelude::*;

    use super::*;
    use crate::row_key::once_row_key;

    #[test]
    fn records_and_state_are_the_bytes_of_the_golden_file() {
        let row = Row {
            index: Index(7),
            term: Term(2),
            expires: Expiry::at(1_795_294_357_811),
            value: Some(b"v".to_vec()),
        };
        let bare = Row { value: None, expires: Expiry::NEVER, ..row.clone() };
        let state = TablesState { applied: Index(5), ahead: Index(7) };
        for row in [&row, &bare] {
            assert_eq!(decode_row(&encode_row(row)).as_ref(), Some(row));
        }
        assert_eq!(TablesState::decode(&state.encode()), Ok(state));
        let keys = GroupKeys::of(GroupId(3));
        let (key, id) = (row_key(b"k"), once_row_key(OnceId { group: 3, view: 2, number: 5 }));
        let records = [keys.row(&key), encode_row(&row), encode_row(&bare), keys.row(&id)];
        let parts = [&[keys.state(), state.encode()][..], &records].concat();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tables-v1.bin");
        if std::env::var_os("FURROW_BLESS").is_some() {
            std::fs::write(path, parts.concat()).expect("writes");
        }
        assert_eq!(std::fs::read(path).expect("reads"), parts.concat());
    }

    #[test]
    fn another_version_of_the_state_is_refused_in_words() {
        let mut value = TablesState::default().encode();
        value[0] = 2;
        assert!(TablesState::decode(&value).unwrap_err().contains("version 2"));
        assert!(TablesState::decode(&value[..3]).is_err() && TablesState::decode(b"").is_err());
    }

    #[test]
    fn a_group_s_records_lie_between_its_keys() {
        let (keys, next) = (GroupKeys::of(GroupId(3)), GroupKeys::of(GroupId(4)));
        let id = once_row_key(OnceId { group: u64::MAX, view: u64::MAX, number: u64::MAX });
        let ((from, to), key) = (keys.clients(), row_key(&[0xff; 40]));
        let in_order = [&keys.state(), &keys.row(&id), &from, &keys.row(&key), &to, &next.state()];
        assert!(in_order.is_sorted_by(|one, next| one < next));
        assert_eq!(from, keys.row(&row_key(b"")));
        assert_eq!(keys.row_key(&keys.row(&id)), Some(&id[..]));
        assert_eq!((keys.row_key(&keys.state()), keys.row_key(&next.row(&key))), (None, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_that_encodes_to_them_or_none(stored: Vec<u8>) {
            if let Some(row) = decode_row(&stored) {
                prop_assert_eq!(encode_row(&row), stored);
            }
        }
    }
}
