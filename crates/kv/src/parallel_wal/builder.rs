//! Writes RocksDB's `WriteBatch` serialisation, which [`parse`](super::parse) reads.

use super::batch::Family;

/// Builds a `WriteBatch` without RocksDB, with the numbers of column families instead of their handles.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    count: u32,
    records: Vec<u8>,
}

impl BatchBuilder {
    /// A builder of a batch without records.
    pub fn new() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// Adds a record that sets a key.
    pub fn put(self, family: Family, key: &[u8], value: &[u8]) -> BatchBuilder {
        self.record(0x05, family, &[key, value])
    }

    /// Adds a record that removes a key.
    pub fn delete(self, family: Family, key: &[u8]) -> BatchBuilder {
        self.record(0x04, family, &[key])
    }

    /// Adds a record that removes a key that was put only once.
    pub fn single_delete(self, family: Family, key: &[u8]) -> BatchBuilder {
        self.record(0x08, family, &[key])
    }

    /// Adds a record that removes the keys from `from` to `to`, `to` excluded.
    pub fn delete_range(self, family: Family, from: &[u8], to: &[u8]) -> BatchBuilder {
        self.record(0x0e, family, &[from, to])
    }

    /// Adds a record that merges `operand` into a key's value.
    pub fn merge(self, family: Family, key: &[u8], operand: &[u8]) -> BatchBuilder {
        self.record(0x06, family, &[key, operand])
    }

    /// The serialised batch, with sequence 0.
    pub fn build(self) -> Vec<u8> {
        let mut batch = vec![0; 8];
        batch.extend(self.count.to_le_bytes());
        batch.extend(self.records);
        batch
    }

    /// Adds a record. RocksDB's strings are below 4 GiB.
    fn record(mut self, tag: u8, family: Family, strings: &[&[u8]]) -> BatchBuilder {
        self.count += 1;
        self.records.push(tag);
        self.varint(family.0);
        for string in strings {
            self.varint(u32::try_from(string.len()).expect("keys and values are below 4 GiB"));
            self.records.extend_from_slice(string);
        }
        self
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.records.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.records.push(value as u8);
    }
}
