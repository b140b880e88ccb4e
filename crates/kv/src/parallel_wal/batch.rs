//! Parses RocksDB's `WriteBatch` serialisation.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | sequence | little-endian; RocksDB writes it during `Write` |
//! | 8 | 4 | count | little-endian; records that take a sequence |
//! | 12 | - | records | tag (1 byte), family (varint, where the tag has one), then strings with a varint length |
//!
//! The parser is total: any bytes give records or an error. Records that the parallel WAL cannot keep in order are
//! refused by name.

/// Bytes of a `WriteBatch` before its records.
const BATCH_HEADER_LEN: usize = 12;

/// Longest varint of 32 bits in bytes, and the largest value of its last byte.
const VARINT_MAX: usize = 5;
const VARINT_LAST: u8 = 0x0f;

/// The number of a RocksDB column family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Family(pub u32);

impl Family {
    /// The default column family, which every database has.
    pub const DEFAULT: Family = Family(0);
    /// The hidden family of marks, in reports of flushes; no client's batch names it.
    pub const MARKS: Family = Family(u32::MAX);
}

/// The effect of a record in a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// Sets a key to a value.
    Put,
    /// Removes a key.
    Delete,
    /// Removes a key that was put only once since its last removal.
    SingleDelete,
    /// Removes the keys from `key` to `value`, `value` excluded.
    DeleteRange,
    /// Adds an operand to a key's value by the family's merge operator.
    Merge,
    /// Bytes for RocksDB's log alone: no key, no sequence.
    LogData,
}

/// One record of a `WriteBatch`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The record's effect.
    pub kind: RecordKind,
    /// The record's column family.
    pub family: Family,
    /// The record's key, or the beginning of its range.
    pub key: &'a [u8],
    /// The record's value, the end of its range, or its log data.
    pub value: &'a [u8],
}

/// Why a batch is refused before the log has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// The bytes are not a `WriteBatch`.
    #[error("the write batch is damaged at byte {at}: {what}")]
    Damaged {
        /// Offset of the damage in the batch.
        at: usize,
        /// What is wrong with the bytes.
        what: &'static str,
    },
    /// The batch has records of a kind that the parallel WAL does not take.
    #[error("{0} in a write batch: the parallel log does not take them; run with FURROW_WAL=group")]
    Unsupported(&'static str),
}

/// An iterator over the records of a batch, in order.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    all: &'a [u8],
    rest: &'a [u8],
    /// Records that the header counts and the iterator has not returned yet.
    counted: u32,
    failed: bool,
}

/// Reads a batch's header and returns an iterator over the records; it ends after the first error.
pub fn parse(batch: &[u8]) -> Result<Records<'_>, BatchError> {
    let Some((header, rest)) = batch.split_at_checked(BATCH_HEADER_LEN) else {
        return Err(BatchError::Damaged { at: batch.len(), what: "shorter than its header" });
    };
    let counted = header.last_chunk().map_or(0, |count: &[u8; 4]| u32::from_le_bytes(*count));
    Ok(Records { all: batch, rest, counted, failed: false })
}

impl<'a> Records<'a> {
    fn damaged(&self, what: &'static str) -> BatchError {
        BatchError::Damaged { at: self.all.len() - self.rest.len(), what }
    }

    fn read_byte(&mut self) -> Result<u8, BatchError> {
        let Some((&first, rest)) = self.rest.split_first() else {
            return Err(self.damaged("it ends within a number"));
        };
        self.rest = rest;
        Ok(first)
    }

    fn read_varint(&mut self) -> Result<u32, BatchError> {
        let mut value = 0;
        for n in 0..VARINT_MAX {
            let byte = self.read_byte()?;
            if n == VARINT_MAX - 1 && byte > VARINT_LAST {
                break;
            }
            value |= u32::from(byte & 0x7f) << (7 * n);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number has more than 32 bits"))
    }

    fn read_string(&mut self) -> Result<&'a [u8], BatchError> {
        let len = self.read_varint()? as usize;
        let Some((string, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.damaged("it ends within a key or a value"));
        };
        self.rest = rest;
        Ok(string)
    }

    fn read_record(&mut self, tag: u8) -> Result<Option<Record<'a>>, BatchError> {
        let (kind, has_family) = match tag {
            0x00 => (RecordKind::Delete, false),
            0x04 => (RecordKind::Delete, true),
            0x01 => (RecordKind::Put, false),
            0x05 => (RecordKind::Put, true),
            0x02 => (RecordKind::Merge, false),
            0x06 => (RecordKind::Merge, true),
            0x07 => (RecordKind::SingleDelete, false),
            0x08 => (RecordKind::SingleDelete, true),
            0x0f => (RecordKind::DeleteRange, false),
            0x0e => (RecordKind::DeleteRange, true),
            0x03 => (RecordKind::LogData, false),
            0x0d => return Ok(None),
            0x09..=0x0c | 0x12 | 0x13 | 0x15 => {
                return Err(BatchError::Unsupported("records of prepared transactions"));
            }
            0x10 | 0x11 => return Err(BatchError::Unsupported("references to blob files")),
            0x16 | 0x17 => return Err(BatchError::Unsupported("wide-column entities (PutEntity)")),
            0x18 | 0x19 => return Err(BatchError::Unsupported("puts with a write time (TimedPut)")),
            _ => return Err(BatchError::Unsupported("records of a kind that this build does not know")),
        };
        let family = if has_family { Family(self.read_varint()?) } else { Family::DEFAULT };
        if kind == RecordKind::LogData {
            return Ok(Some(Record { kind, family, key: &[], value: self.read_string()? }));
        }
        let key = self.read_string()?;
        let value = match kind {
            RecordKind::Delete | RecordKind::SingleDelete => &[],
            _ => self.read_string()?,
        };
        let Some(left) = self.counted.checked_sub(1) else {
            return Err(self.damaged("it has more records than its header says"));
        };
        self.counted = left;
        Ok(Some(Record { kind, family, key, value }))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            let next = match self.rest.split_first() {
                None if self.counted == 0 => return None,
                None => Err(self.damaged("it has fewer records than its header says")),
                Some((&tag, rest)) => {
                    self.rest = rest;
                    self.read_record(tag)
                }
            };
            match next {
                Ok(None) => {}
                Ok(Some(record)) => return Some(Ok(record)),
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
