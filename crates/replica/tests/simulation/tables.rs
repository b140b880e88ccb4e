//! A node's tables: for each key the index of the entry that wrote it, and its value where the node keeps it.

use std::collections::BTreeMap;

use replica::{Command, Index, Term};

/// A key's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub index: Index,
    pub term: Term,
    pub value: Option<u64>,
}

/// Tables in memory, or what of them is durable.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub records: BTreeMap<u64, Record>,
    /// The index up to which the log was applied.
    pub applied: Index,
}

/// The parts of a command: the key, the proposal that is the key's value, and whether the key is deleted.
pub struct Parts {
    pub key: u64,
    pub value: Option<u64>,
    pub deletes: bool,
}

impl Parts {
    pub fn of(command: &Command) -> Parts {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let (deletes, key) = command.record.split_first().expect("nine bytes");
        Parts { key: number(key), value: command.value.as_deref().map(number), deletes: *deletes != 0 }
    }

    pub fn command(key: u64, proposal: u64, deletes: bool) -> Command {
        let record = [&[u8::from(deletes)][..], &key.to_le_bytes()].concat();
        Command { record, value: Some(proposal.to_le_bytes().to_vec()) }
    }
}

impl Tables {
    /// Committed entries are put into the tables, or were before.
    pub fn apply(&mut self, commands: &[(Index, Term, Option<Command>)]) {
        for (index, term, command) in commands {
            if let Some(command) = command {
                let Parts { key, value, deletes } = Parts::of(command);
                if !deletes {
                    self.put(key, Record { index: *index, term: *term, value });
                } else if self.records.get(&key).is_some_and(|present| present.index < *index) {
                    self.records.remove(&key);
                }
            }
            self.applied = self.applied.max(*index);
        }
    }

    /// A record takes the place of an older one; of the same record the one with its value.
    fn put(&mut self, key: u64, record: Record) {
        let present = self.records.entry(key).or_insert(record);
        if present.index < record.index {
            *present = record;
        } else if present.index == record.index {
            present.value = present.value.or(record.value);
        }
    }

    /// Takes the records of another node that are newer, of the keys up to `last`. Values of entries up to `values_above` are left out. A record of an entry up to `index` that the other node does not have goes.
    pub fn merge(
        &mut self,
        records: &BTreeMap<u64, Record>,
        (last, index, values_above): (u64, Index, Index),
    ) {
        self.records.retain(|key, own| *key > last || own.index > index || records.contains_key(key));
        for (key, record) in records.range(..=last) {
            // A record of an entry that these tables hold is here, or was overwritten or deleted.
            if record.index > self.applied || self.records.contains_key(key) {
                let value = record.value.filter(|_| record.index > values_above);
                self.put(*key, Record { value, ..*record });
            }
        }
    }

    /// A pulled value came: it is of the record that it was asked for, or of one that is no more.
    pub fn give(&mut self, key: u64, record: Record) {
        if self.records.get(&key).is_some_and(|present| present.index == record.index) {
            self.put(key, record);
        }
    }

    pub fn drop_values(&mut self, upto: Index) {
        for record in self.records.values_mut().filter(|record| record.index <= upto) {
            record.value = None;
        }
    }

    pub fn is_whole(&self) -> bool {
        self.records.values().all(|record| record.value.is_some())
    }
}
