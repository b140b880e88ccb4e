//! A batch of writes as the command of a group's entry: row keys, kinds and expiries in the record, which every replica keeps, and the values beside it, which witnesses drop. The record of an id for commands that run once is such a value: it is written by the entry that has the command's writes.
//!
//! | bytes of the record | | |
//! |---|---|---|
//! | 0 | 1 | version: 1 |
//! | 1 | 1 | 1 if every client's key goes before the writes, else 0 |
//! | 2 | 4 | number of writes; little-endian, like all numbers |
//! | | 4 | bytes of a row key (`row_key.rs`); then these |
//! | | 1 | 0 the row is deleted, 1 it is put |
//! | | 9 | of a put: a record's header (`kv::RecordHeader`) |
//! | | 4 | of a put: bytes of the value |
//!
//! The last four lines come once for each write, in the order of row keys. The command's value is the values of the puts, in their order.

use kv::{Expiry, HEADER_LEN, Overlay, Record, RecordRef};
use replica::Command;
use zerocopy::IntoBytes;

use crate::fields::counted;
use crate::row_key::{is_row_key, once_row_key, row_key};

const VERSION: u8 = 1;
const DELETED: u8 = 0;
const PUT: u8 = 1;

/// A batch of writes: what an entry of a group changes in the tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Every client's key goes before the writes; ids stay.
    pub clears: bool,
    /// The writes, one for each row key.
    pub writes: Vec<Write>,
}

/// A write of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The row key.
    pub key: Vec<u8>,
    /// The new record; `None` if the row is deleted.
    pub put: Option<Put>,
}

/// The record that a write puts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Put {
    /// The key's expiry.
    pub expires: Expiry,
    /// The value; `None` where the entry's value was dropped.
    pub value: Option<Vec<u8>>,
}

impl Batch {
    /// The command that carries out an engine's batch.
    ///
    /// # Panics
    /// A key or value of 4 GiB or more: the engine's bounds are below.
    pub fn command(overlay: &Overlay) -> Command {
        let length = |len: usize| u32::try_from(len).expect("keys and values are shorter than 4 GiB");
        let mut record = vec![VERSION, u8::from(overlay.is_cleared())];
        record.extend(length(overlay.len() + overlay.once().len()).to_le_bytes());
        let mut values = Vec::new();
        let mut write = |key: Vec<u8>, put: Option<RecordRef<'_>>| {
            record.extend(length(key.len()).to_le_bytes());
            record.extend(key);
            record.push(if put.is_some() { PUT } else { DELETED });
            if let Some(put) = put {
                record.extend_from_slice(put.header().as_bytes());
                record.extend(length(put.value.len()).to_le_bytes());
                values.extend_from_slice(put.value);
            }
        };
        for (id, put) in overlay.once().entries() {
            write(once_row_key(id), put.map(|value| RecordRef { expires: Expiry::NEVER, value }));
        }
        for (key, put) in overlay.entries() {
            write(row_key(key), put.map(Record::as_ref));
        }
        Command { record, value: Some(values) }
    }

    /// The batch that a command carries out; `None` if its bytes are no batch's.
    pub fn of(command: &Command) -> Option<Batch> {
        let mut rest = &command.record[..];
        let mut values = command.value.as_deref();
        let ([VERSION, clears @ (0 | 1)], tail) = rest.split_first_chunk()? else { return None };
        let mut batch = Batch { clears: *clears == 1, writes: Vec::new() };
        let (writes, tail) = tail.split_first_chunk()?;
        rest = tail;
        for _ in 0..u32::from_le_bytes(*writes) {
            let key = counted(&mut rest)?.to_vec();
            let (kind, tail) = rest.split_first()?;
            rest = tail;
            let put = match *kind {
                DELETED => None,
                PUT => {
                    let (header, tail) = rest.split_at_checked(HEADER_LEN)?;
                    let expires = RecordRef::decode(header).ok()?.expires;
                    let (len, tail) = tail.split_first_chunk()?;
                    rest = tail;
                    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
                    let value = match &mut values {
                        Some(values) => Some(values.split_off(..len)?.to_vec()),
                        None => None,
                    };
                    Some(Put { expires, value })
                }
                _ => return None,
            };
            batch.writes.push(Write { key, put });
        }
        let is_ordered = batch.writes.is_sorted_by(|one, next| one.key < next.key);
        let has_row_keys = batch.writes.iter().all(|write| is_row_key(&write.key));
        let is_sound = is_ordered && has_row_keys;
        (rest.is_empty() && values.is_none_or(<[u8]>::is_empty) && is_sound).then_some(batch)
    }
}

/// Bytes that decode to a batch are the bytes of that batch.
#[cfg(test)]
fn fuzz_batch(bytes: &[u8]) {
    let Some((cut, rest)) = bytes.split_first() else { return };
    let (record, value) = rest.split_at_checked(usize::from(*cut)).unwrap_or((rest, &[]));
    for value in [None, Some(value.to_vec())] {
        let command = Command { record: record.to_vec(), value };
        let Some(batch) = Batch::of(&command) else { continue };
        let mut overlay = Overlay::default();
        if batch.clears {
            overlay.clear();
        }
        let mut has_expiring_ids = false;
        for Write { key, put } in &batch.writes {
            let put = put.as_ref().map(|Put { expires, value }| {
                let value = value.clone().unwrap_or_default().into();
                Record { expires: *expires, value }
            });
            match (crate::row_key::client_key(key), crate::row_key::once_id(key), put) {
                (Some(key), _, Some(record)) => overlay.put(key.to_vec().into(), record),
                (Some(key), _, None) => overlay.delete(key.to_vec().into()),
                (_, Some(id), Some(record)) => {
                    has_expiring_ids |= record.expires != Expiry::NEVER;
                    overlay.put_once(id, record.value);
                }
                (_, Some(id), None) => overlay.expire_once(id),
                _ => unreachable!("a row key is a key's or an id's"),
            }
        }
        let again = Batch::command(&overlay);
        let values: usize =
            batch.writes.iter().flat_map(|write| &write.put).flat_map(|put| &put.value).map(Vec::len).sum();
        assert_eq!(again.value.map(|all| all.len()), Some(values));
        assert!(command.value.is_none() || has_expiring_ids || again.record == command.record);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kv::OnceId;
    use proptest::prelude::*;

    use super::*;

    const ID: OnceId = OnceId { group: 3, view: 2, number: 5 };

    fn overlay() -> Overlay {
        let mut overlay = Overlay::default();
        overlay.clear();
        let record = |expires, value: &'static [u8]| Record { expires, value: value.into() };
        overlay.put("a".into(), record(Expiry::NEVER, b"first"));
        overlay.delete("b".into());
        overlay.put("c".into(), record(Expiry::at(1_795_294_357_811), b""));
        overlay.put_once(ID, Bytes::from_static(b"answer"));
        overlay.expire_once(OnceId { number: 6, ..ID });
        overlay
    }

    fn batch(has_values: bool) -> Batch {
        let put = |expires, value: &[u8]| Put { expires, value: has_values.then(|| value.to_vec()) };
        let write = |key: &str, put| Write { key: row_key(key.as_bytes()), put };
        let writes = vec![
            Write { key: once_row_key(ID), put: Some(put(Expiry::NEVER, b"answer")) },
            Write { key: once_row_key(OnceId { number: 6, ..ID }), put: None },
            write("a", Some(put(Expiry::NEVER, b"first"))),
            write("b", None),
            write("c", Some(put(Expiry::at(1_795_294_357_811), b""))),
        ];
        Batch { clears: true, writes }
    }

    #[test]
    fn a_batch_is_what_its_command_says_with_its_values_and_without() {
        let command = Batch::command(&overlay());
        assert_eq!(Batch::of(&command), Some(batch(true)));
        assert_eq!(Batch::of(&Command { value: None, ..command.clone() }), Some(batch(false)));
        // A batch of deletes has a value too: none would say that it was dropped.
        let mut deletes = Overlay::default();
        deletes.delete("a".into());
        assert_eq!(Batch::command(&deletes).value, Some(vec![]));
        for len in 0..command.record.len() {
            let cut = Command { record: command.record[..len].to_vec(), ..command.clone() };
            assert_eq!(Batch::of(&cut), None, "{len} bytes");
        }
        for value in [&b"answerfirs"[..], b"answerfirst1"] {
            assert_eq!(Batch::of(&Command { value: Some(value.to_vec()), ..command.clone() }), None);
        }
        for (place, byte) in command.record.iter().enumerate().filter(|(_, byte)| [b'o', b'r'].contains(byte))
        {
            let mut other = command.clone();
            other.record[place] = byte ^ 1;
            assert_eq!(Batch::of(&other), None, "the byte at {place} is no kind of row");
        }
        let other_version = [&[2][..], &command.record[1..]].concat();
        assert_eq!(Batch::of(&Command { record: other_version, ..command }), None);
    }

    #[test]
    fn a_command_is_the_bytes_of_the_golden_file() {
        let Command { record, value } = Batch::command(&overlay());
        let bytes = [&record[..], &value.expect("it has values")].concat();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/batch-v1.bin");
        if std::env::var_os("FURROW_BLESS").is_some() {
            std::fs::write(path, &bytes).expect("writes");
        }
        assert_eq!(std::fs::read(path).expect("reads"), bytes);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_batch_or_none(bytes: Vec<u8>) {
            fuzz_batch(&bytes);
            fuzz_batch(&[&[u8::MAX, VERSION, 0, 1, 0, 0, 0][..], &bytes].concat());
        }
    }
}
