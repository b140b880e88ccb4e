//! The contents of the modelled tables, and the file that holds them.

use std::collections::{BTreeMap, BTreeSet};

use kv::parallel_wal::{BatchBuilder, BatchError, Family, RecordKind, parse};

/// Versions of a key that the tables keep: a single delete takes the newest away, and the older one is seen again.
const KEPT_VERSIONS: usize = 2;
/// The family of an encoded [`Contents`] that holds the family numbers and the sequence.
const HEADER_FAMILY: Family = Family(u32::MAX - 1);
const SEQUENCE_KEY: &[u8] = b"sequence";

/// One record of a write batch, with its sequence.
#[derive(Clone, Debug)]
pub(super) struct SequencedRecord {
    pub sequence: u64,
    pub kind: RecordKind,
    pub family: u32,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// Column families of the modelled tables and their keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Contents {
    pub families: BTreeSet<u32>,
    /// The last sequence that the modelled tables used.
    pub sequence: u64,
    versions: BTreeMap<(u32, Vec<u8>), Vec<Vec<u8>>>,
}

impl Contents {
    /// Modelled tables with the given families, without keys.
    pub(super) fn with_families(families: impl IntoIterator<Item = u32>) -> Contents {
        Contents { families: families.into_iter().collect(), ..Contents::default() }
    }

    /// Applies one record to the modelled tables.
    pub(super) fn apply(&mut self, entry: &SequencedRecord) {
        self.sequence = self.sequence.max(entry.sequence);
        let at = (entry.family, entry.key.clone());
        match entry.kind {
            RecordKind::Put => {
                let versions = self.versions.entry(at).or_default();
                versions.push(entry.value.clone());
                versions.drain(..versions.len().saturating_sub(KEPT_VERSIONS));
            }
            RecordKind::Delete => drop(self.versions.remove(&at)),
            RecordKind::SingleDelete => {
                let older = self.versions.get_mut(&at).is_some_and(|v| v.pop().is_some() && !v.is_empty());
                if !older {
                    self.versions.remove(&at);
                }
            }
            RecordKind::DeleteRange => {
                self.versions.retain(|(family, key), _| {
                    *family != entry.family || *key < entry.key || *key >= entry.value
                });
            }
            RecordKind::Merge => {
                let sum =
                    counter_value(self.get(at.0, &at.1)).wrapping_add(counter_value(Some(&entry.value)));
                let versions = self.versions.entry(at).or_default();
                versions.pop();
                versions.push(sum.to_le_bytes().to_vec());
            }
            RecordKind::LogData => {}
        }
    }

    /// The newest version of a key in the modelled tables.
    pub(super) fn get(&self, family: u32, key: &[u8]) -> Option<&Vec<u8>> {
        self.versions.get(&(family, key.to_vec())).and_then(|versions| versions.last())
    }

    /// Every key with its newest version.
    pub(super) fn newest_values(&self) -> impl Iterator<Item = (&(u32, Vec<u8>), &Vec<u8>)> {
        self.versions.iter().filter_map(|(key, versions)| Some((key, versions.last()?)))
    }

    /// Removes a family of modelled tables and its keys.
    pub(super) fn drop_family(&mut self, family: u32) {
        self.families.remove(&family);
        self.versions.retain(|(of, _), _| *of != family);
    }

    /// The contents of the modelled tables as a write batch of puts.
    pub(super) fn encode(&self) -> Vec<u8> {
        let header = BatchBuilder::new().put(HEADER_FAMILY, SEQUENCE_KEY, &self.sequence.to_le_bytes());
        let families = self.families.iter().map(|family| family.to_le_bytes());
        let header = families.fold(header, |batch, family| batch.put(HEADER_FAMILY, &family, &[]));
        let versions =
            self.versions.iter().flat_map(|(key, versions)| versions.iter().map(move |v| (key, v)));
        let put = |batch: BatchBuilder, ((family, key), value): (&(u32, Vec<u8>), &Vec<u8>)| {
            batch.put(Family(*family), key, value)
        };
        versions.fold(header, put).build()
    }

    /// Reads the contents of modelled tables back from a write batch made by [`encode`](Contents::encode).
    pub(super) fn decode(bytes: &[u8]) -> Result<Contents, BatchError> {
        let mut contents = Contents::default();
        for record in parse(bytes)? {
            let record = record?;
            if record.family != HEADER_FAMILY {
                let at = (record.family.0, record.key.to_vec());
                contents.versions.entry(at).or_default().push(record.value.to_vec());
            } else if record.key == SEQUENCE_KEY {
                contents.sequence = counter_value(Some(record.value));
            } else {
                contents.families.extend(record.key.first_chunk().map(|family| u32::from_le_bytes(*family)));
            }
        }
        Ok(contents)
    }
}

/// The number in a counter's value, to which a merge adds; 0 for a key without a value.
fn counter_value(value: Option<impl AsRef<[u8]>>) -> u64 {
    value.and_then(|value| value.as_ref().first_chunk().copied()).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64, kind: RecordKind, key: &[u8], value: &[u8]) -> SequencedRecord {
        SequencedRecord { sequence, kind, family: 1, key: key.to_vec(), value: value.to_vec() }
    }

    #[test]
    fn contents_read_back_as_they_were_written() {
        let mut contents = Contents::with_families([0, 1, 7]);
        contents.apply(&entry(1, RecordKind::Put, b"a", b"old"));
        contents.apply(&entry(2, RecordKind::Put, b"a", b"new"));
        contents.apply(&entry(3, RecordKind::Merge, b"c", &5_u64.to_le_bytes()));
        contents.apply(&entry(4, RecordKind::Merge, b"c", &2_u64.to_le_bytes()));
        assert_eq!(Contents::decode(&contents.encode()), Ok(contents.clone()));
        assert_eq!(contents.get(1, b"c"), Some(&7_u64.to_le_bytes().to_vec()));
        contents.apply(&entry(5, RecordKind::SingleDelete, b"a", b""));
        assert_eq!(contents.get(1, b"a"), Some(&b"old".to_vec()), "a put that was applied twice shows");
        contents.apply(&entry(6, RecordKind::DeleteRange, b"a", b"c"));
        assert_eq!(
            (contents.get(1, b"a"), contents.newest_values().count(), contents.sequence),
            (None, 1, 6)
        );
        contents.drop_family(1);
        assert_eq!((contents.newest_values().count(), contents.families.len()), (0, 2));
    }
}
