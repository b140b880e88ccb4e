//! A model of the engine above a group: it runs commands over [`shard::GroupStore`], as `kv`'s engine does, one at a time on an object.

use std::collections::BTreeSet;
use std::sync::Arc;

use kv::{Error, Expiry, Overlay, Record, RecordRef, Store};
use parking_lot::Mutex;
use replica::ReplicaId;
use shard::{Group, GroupStore, Refused, Row, Tables};
use units::Driver;
use units::sync::Event;

use super::objects::{Done, Kind, Object, PARTS};
use crate::linear::Value;

/// A client's request for an object: to set it, to read it, or to add one to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// Set parts; `None` leaves a part as it is. With milliseconds after which the keys expire.
    Set([Option<Value>; PARTS], Option<u64>),
    /// Read those parts.
    Read([bool; PARTS]),
    /// Add one to the first part.
    Count,
}

impl Asked {
    /// Read all parts of an object of a kind.
    pub(super) fn read(kind: Kind) -> Asked {
        Asked::Read(if kind == Kind::Pair { [true; PARTS] } else { [true, false] })
    }

    /// The effect of the operation as long as its answer is not known.
    pub(super) fn effect(self) -> Done {
        match self {
            Asked::Set(parts, _) => Done::Set(parts),
            Asked::Read(_) => Done::Saw([None; PARTS]),
            Asked::Count => Done::Counted(None),
        }
    }
}

/// A client's command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub object: Object,
    pub asked: Asked,
    /// The bytes of each value.
    pub value_bytes: usize,
    /// The command goes to the group itself, not through the engine.
    pub is_direct: bool,
}

/// The reason why a command has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unanswered {
    /// Nothing of the command was begun. The leader, if it is known.
    Refused(Option<ReplicaId>),
    /// The group's log is full: nothing was begun.
    Full,
    /// The command may be carried out later, or never.
    Open,
    /// A value is not what any client writes.
    Garbled,
    /// A read is answered without its value.
    WithoutValue,
}

/// The engine of one group on one node.
pub(super) struct Engine {
    group: Arc<Group>,
    store: GroupStore,
    driver: Arc<dyn Driver>,
    /// The objects on which a command runs.
    claimed: Mutex<BTreeSet<Object>>,
    released: Event,
}

impl Engine {
    pub(super) fn new(group: Arc<Group>, tables: Arc<dyn Tables>, driver: Arc<dyn Driver>) -> Engine {
        let store = GroupStore::new(Arc::clone(&group), tables);
        Engine { group, store, driver, claimed: Mutex::default(), released: Event::new() }
    }

    /// Carries out a command.
    pub(super) async fn run(&self, command: Command) -> Result<Done, Unanswered> {
        if command.is_direct {
            return self.run_by_group(command).await;
        }
        let _claim = self.claim(command.object).await;
        let parts = match command.asked {
            Asked::Set(..) => [false; PARTS],
            Asked::Read(parts) => parts,
            Asked::Count => [true, false],
        };
        loop {
            let view = self.store.view().map_err(|error| self.unanswered(&error))?;
            let found = self.read(command.object, parts);
            let (found, expired) = match found {
                Err(Error::Missing(_)) => {
                    let keys = (0..PARTS).filter(|part| parts.get(*part) == Some(&true));
                    let keys = keys.map(|part| kv::RecordId::Key(command.object.key(part).into())).collect();
                    self.store.fetch(keys).await.map_err(|error| self.unanswered(&error))?;
                    continue;
                }
                found => found.map_err(|error| self.unanswered(&error))?,
            };
            let (batch, done) = self.carry_out(command, found, expired)?;
            let ended = if !batch.is_empty() {
                self.store.write(&batch, true, view).await
            } else if let Some(confirmed) = self.store.confirm(view) {
                confirmed.await
            } else {
                Ok(())
            };
            return ended.map(|()| done).map_err(|error| self.unanswered(&error));
        }
    }

    /// The batch of a command, empty if it changes nothing, and what it did. `expired`: the keys whose time is past.
    fn carry_out(
        &self,
        command: Command,
        found: [Option<Vec<u8>>; PARTS],
        expired: Vec<Vec<u8>>,
    ) -> Result<(Overlay, Done), Unanswered> {
        let mut batch = Overlay::default();
        if self.store.expires_by_writes() {
            expired.into_iter().for_each(|key| batch.delete(key.into()));
        }
        let mut values = [None; PARTS];
        for (value, bytes) in values.iter_mut().zip(found) {
            *value = bytes.map(|bytes| decode(&bytes).ok_or(Unanswered::Garbled)).transpose()?;
        }
        let done = match command.asked {
            Asked::Set(parts, milliseconds) => {
                let now = i64::try_from(self.driver.unix_millis()).unwrap_or(i64::MAX);
                let at = |after| Expiry::at(now.saturating_add_unsigned(after));
                let expires = milliseconds.map_or(Expiry::NEVER, at);
                set(&mut batch, command, parts, expires);
                Done::Set(parts)
            }
            Asked::Read(parts) => {
                let [one, two] = values;
                let [first, second] = parts;
                Done::Saw([first.then_some(one), second.then_some(two)])
            }
            Asked::Count => {
                let [before, _] = values;
                let sum = before.unwrap_or_default() + 1;
                set(&mut batch, command, [Some(Some(sum)), None], Expiry::NEVER);
                Done::Counted(Some(sum))
            }
        };
        Ok((batch, done))
    }

    /// The values of parts from one state of the store, and the keys whose time is past.
    #[allow(clippy::type_complexity, reason = "the values, and the keys")]
    fn read(
        &self,
        object: Object,
        parts: [bool; PARTS],
    ) -> kv::Result<([Option<Vec<u8>>; PARTS], Vec<Vec<u8>>)> {
        let now = self.driver.unix_millis();
        let keys = [object.key(0), object.key(1)];
        let wanted: Vec<usize> = (0..PARTS).filter(|part| parts.get(*part) == Some(&true)).collect();
        let names: Vec<&[u8]> = wanted.iter().filter_map(|part| keys.get(*part)).map(Vec::as_slice).collect();
        let (mut values, mut expired) = ([const { None }; PARTS], Vec::new());
        self.store.multi_get(&names, &mut |place, stored| {
            let record = stored.and_then(|stored| RecordRef::decode(stored).ok());
            let part = wanted.get(place).copied().unwrap_or_default();
            match record {
                Some(record) if record.expires.is_past(now) => expired.extend(keys.get(part).cloned()),
                Some(record) => {
                    if let Some(value) = values.get_mut(part) {
                        *value = Some(record.value.to_vec());
                    }
                }
                None => {}
            }
        })?;
        Ok((values, expired))
    }

    /// A command for a register, without an engine between.
    async fn run_by_group(&self, command: Command) -> Result<Done, Unanswered> {
        let refused = |refused| match refused {
            Refused::NotLeader(leader) => Unanswered::Refused(leader),
            Refused::NoCopy | Refused::TooLong(_) => Unanswered::Refused(None),
            Refused::Full => Unanswered::Full,
            Refused::Unknown | Refused::Ended => Unanswered::Open,
        };
        match command.asked {
            Asked::Read(_) => {
                let row = self.group.get(&command.object.key(0)).await.map_err(refused)?;
                let value = match row {
                    None => None,
                    Some(Row { value: None, .. }) => return Err(Unanswered::WithoutValue),
                    Some(Row { value: Some(bytes), .. }) => Some(decode(&bytes).ok_or(Unanswered::Garbled)?),
                };
                Ok(Done::Saw([Some(value), None]))
            }
            asked => {
                let Asked::Set(parts, _) = asked else { return Err(Unanswered::Refused(None)) };
                let mut batch = Overlay::default();
                set(&mut batch, command, parts, Expiry::NEVER);
                self.group.write(&batch).await.map_err(refused)?;
                Ok(Done::Set(parts))
            }
        }
    }

    fn unanswered(&self, error: &Error) -> Unanswered {
        match error {
            Error::NotLeader(_) => Unanswered::Refused(self.group.with_replica(|replica| replica.leader())),
            Error::LogFull(_) => Unanswered::Full,
            Error::Missing(_) | Error::Refused { .. } => Unanswered::Refused(None),
            _ => Unanswered::Open,
        }
    }

    /// Waits until no other command runs on the object.
    async fn claim(&self, object: Object) -> Claim<'_> {
        loop {
            let version = self.released.version();
            if self.claimed.lock().insert(object) {
                return Claim { engine: self, object };
            }
            self.released.changed_since(version).await;
        }
    }
}

/// No other command runs on the object until this is dropped.
struct Claim<'a> {
    engine: &'a Engine,
    object: Object,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.engine.claimed.lock().remove(&self.object);
        self.engine.released.notify();
    }
}

/// Puts the writes of parts into a batch.
fn set(batch: &mut Overlay, command: Command, parts: [Option<Value>; PARTS], expires: Expiry) {
    for (part, value) in parts.into_iter().enumerate() {
        let key = command.object.key(part).into();
        match value {
            Some(Some(value)) => {
                let value = encode(value, command.value_bytes).into();
                batch.put(key, Record { expires, value });
            }
            Some(None) => batch.delete(key),
            None => {}
        }
    }
}

/// The bytes of a value: the number, and its lowest byte again and again.
fn encode(value: u64, bytes: usize) -> Vec<u8> {
    let number = value.to_le_bytes();
    let mut encoded = number.to_vec();
    encoded.resize(bytes.max(number.len()), number[0]);
    encoded
}

/// The number of a value; `None` if no client wrote these bytes.
fn decode(bytes: &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    rest.iter().all(|byte| *byte == number[0]).then(|| u64::from_le_bytes(*number))
}
