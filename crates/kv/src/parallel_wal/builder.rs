//! Writing RocksDB's `WriteBatch` serialisation: the other direction of [`parse`](super::parse).

use super::batch::Family;

/// Builds a batch without RocksDB, with the numbers of column families instead of their handles.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    count: u32,
    records: Vec<u8>,
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// Sets a key.
    pub fn put(self, family: Family, key: &[u8], value: &[u8]) -> BatchBuilder {
        self.record(0x05, family, &[key, value])
    }

    /// Removes a key.
    pub fn delete(self, family: Family, key: &[u8]) -> BatchBuilder {
        self.record(0x04, family, &[key])
    }

    /// Removes a key that was put once.
    pub fn single_delete(self, family: Family, key: &[u8]) -> BatchBuilder {
        self.record(0x08, family, &[key])
    }

    /// Removes the keys from `from` to `to`, the end excluded.
    pub fn delete_range(self, family: Family, from: &[u8], to: &[u8]) -> BatchBuilder {
        self.record(0x0e, family, &[from, to])
    }

    /// Adds to a key's value by the family's merge operator.
    pub fn merge(self, family: Family, key: &[u8], operand: &[u8]) -> BatchBuilder {
        self.record(0x06, family, &[key, operand])
    }

    /// The batch, with sequence 0.
    pub fn build(self) -> Vec<u8> {
        let mut batch = vec![0; 8];
        batch.extend(self.count.to_le_bytes());
        batch.extend(self.records);
        batch
    }

    /// Strings are below 4 GiB, as RocksDB has it.
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
