//! Requests to other replicas for values and tables, and the answers to such requests.

use std::collections::{BTreeMap, BTreeSet};

use replica::{Base, Body, Index, Replica, ReplicaId};

use super::{Answered, Group, Refused};
use crate::Result;
use crate::batch::Batch;
use crate::peer::{Answer, PeerMessage, RecordName, Request};
use crate::row_key::is_row_key;
use crate::tables::Row;
use crate::wait::within;

/// The most records in a request for values, and about the most bytes of values in an answer.
const MAX_NAMES: usize = 64;
const MAX_ANSWER_BYTES: usize = 1 << 20;

impl Group {
    /// Asks another replica. `None` if it does not answer within an election timeout.
    pub(super) async fn ask(&self, to: ReplicaId, request: Request) -> Option<Answer> {
        let mut asked = self.requests.begin(to);
        self.send(to, PeerMessage::Request(asked.id, request));
        let driver = &*self.parts.driver;
        let due = driver.now().after(self.options.settings.election_timeout);
        within(driver, due, &mut asked.answer).await?.ok().filter(|_| !self.has_ended())
    }

    /// Asks members whether the group has left this replica out: those of the group's plan, `others`, and those that they name, one after the other.
    ///
    /// The group has left this replica out once a majority of its members has applied, durably, a change of members without this replica that is not earlier than the last change that this replica has applied. The answer is final, since no later replica gets this one's number.
    ///
    /// Members that lose their power forget what they know to be committed beyond what is durable, and need the votes of the members before the change again: one member that knows of it durably may be lost.
    ///
    /// Returns the index of the earliest such change, `None` also where too few answer: the answers count as long as the replica has applied no later one. A replica that joins and knows no members is not to ask while a plan has it: a member that lags behind has not heard of it.
    pub async fn left_out_at(&self, others: &[ReplicaId]) -> Option<Index> {
        let own = self.place.replica;
        let mut asked: Vec<ReplicaId> = others.iter().copied().filter(|other| *other != own).collect();
        let mut confirmed_by: BTreeMap<ReplicaId, Index> = BTreeMap::new();
        let mut at = 0;
        while let Some(other) = asked.get(at).copied() {
            at += 1;
            let since = self.with_replica(|replica| replica.members().since());
            if let Some(Answer::Members(base)) = self.ask(other, Request::Members).await
                && base.state.since >= since.max(Index(1))
                && base.state.members.member(own).is_none()
            {
                let members = base.state.members;
                confirmed_by.insert(other, base.state.since);
                if members.is_majority(|id| confirmed_by.contains_key(&id)) {
                    return confirmed_by.into_values().min();
                }
                asked.extend(members.voters().map(|(id, _)| id));
                let mut known = BTreeSet::new();
                asked.retain(|id| known.insert(*id));
            }
        }
        None
    }

    /// The group's state, if this replica would know the last change of members there after a power cut, too.
    fn durable_state(&self) -> Option<Base> {
        let state = self.with_replica(Replica::state);
        let committed = self.with_stored(|stored| stored.vote.commit.max(stored.base.index.0));
        (committed >= state.state.since.0).then_some(state)
    }

    /// The answer to another replica's request.
    pub(super) fn answer(&self, request: Request) -> Result<Answer> {
        match request {
            Request::Values(names) => {
                let (mut values, mut bytes) = (Vec::new(), 0);
                for name in names.iter().take(MAX_NAMES) {
                    let value = self.value_of(name)?;
                    bytes += value.as_ref().map_or(0, Vec::len);
                    if bytes > MAX_ANSWER_BYTES && !values.is_empty() {
                        break;
                    }
                    values.push(value);
                }
                Ok(Answer::Values(values))
            }
            Request::Members => {
                let state = self.durable_state();
                Ok(state.map_or(Answer::NotNow, |state| Answer::Members(Box::new(state))))
            }
            Request::Rows { applied, .. } if self.parts.tables.applied() < applied => Ok(Answer::NotNow),
            Request::Rows { from, .. } => Ok(Answer::Rows(self.parts.tables.rows(&from)?)),
        }
    }

    /// The value of a record, by the tables or by the log. What another replica's tables have is committed, and so is an entry here of that index and term.
    fn value_of(&self, RecordName { key, index, term }: &RecordName) -> Result<Option<Vec<u8>>> {
        if !is_row_key(key) {
            return Ok(None);
        }
        let is_named = |own: &Row| own.index == *index || self.rules().pulls_without_index();
        let own = self.parts.tables.get(key)?.filter(is_named);
        if let Some(value) = own.and_then(|own| own.value) {
            return Ok(Some(value));
        }
        let entry = self.with_replica(|replica| replica.entry(*index)).filter(|(of, _)| of == term);
        let Some((_, Body::Command(command))) = entry else { return Ok(None) };
        let Some(batch) = Batch::of(&command) else { return Ok(None) };
        let write = batch.writes.into_iter().find(|write| write.key == *key);
        Ok(write.and_then(|write| write.put).and_then(|put| put.value))
    }

    /// The record of a row key, with its value, which is pulled where these tables lack it.
    pub(super) async fn get_with_value(&self, key: &[u8]) -> Answered<Option<Row>> {
        let get = || self.parts.tables.get(key).map_err(|error| self.failed(&error));
        let mut row = get()?;
        loop {
            let lacking = match row {
                Some(row) if row.value.is_none() => row,
                row => return Ok(row),
            };
            let Row { index, term, .. } = lacking;
            let name = RecordName { key: key.to_vec(), index, term };
            let pulled = self.pull(vec![(name, lacking)]).await.map_err(|error| self.failed(&error))?;
            if self.has_ended() {
                return Err(Refused::Ended);
            }
            row = get()?;
            // A record that another entry wrote meanwhile is looked at again.
            let lacks_still = row.as_ref().is_some_and(|now| now.index == index && now.value.is_none());
            if !pulled && lacks_still {
                return Err(Refused::NoCopy);
            }
        }
    }

    fn failed(&self, error: &crate::Error) -> Refused {
        self.end(error.to_string());
        Refused::Ended
    }

    /// Gets values from the replicas that keep all of them, the one that answered last first, and puts them into the tables. False if some are missing.
    pub(super) async fn pull(&self, mut lacking: Vec<(RecordName, Row)>) -> Result<bool> {
        let copies: BTreeSet<ReplicaId> = self.with_replica(|replica| {
            let holders = replica.offices().standing().iter().map(|office| office.holder);
            replica.members().current().backups().chain(holders).collect()
        });
        let mut copies: Vec<ReplicaId> =
            copies.into_iter().filter(|copy| *copy != self.place.replica).collect();
        let answered = self.requests.answered_last();
        copies.sort_by_key(|copy| Some(*copy) != answered);
        for copy in copies {
            lacking = self.pull_from(copy, lacking).await?;
        }
        Ok(lacking.is_empty())
    }

    /// Gets values from a replica. Returns the records whose values it does not have, or does not send.
    async fn pull_from(
        &self,
        copy: ReplicaId,
        mut lacking: Vec<(RecordName, Row)>,
    ) -> Result<Vec<(RecordName, Row)>> {
        let mut left = Vec::new();
        while !lacking.is_empty() {
            let names: Vec<RecordName> =
                lacking.iter().take(MAX_NAMES).map(|(name, _)| name.clone()).collect();
            let asked = names.len();
            let values = match self.ask(copy, Request::Values(names)).await {
                Some(Answer::Values(values)) if (1..=asked).contains(&values.len()) => values,
                _ => break,
            };
            let rest = lacking.split_off(values.len());
            for ((name, row), value) in lacking.into_iter().zip(values) {
                match value {
                    Some(value) => self.parts.tables.give(&name.key, Row { value: Some(value), ..row })?,
                    None => left.push((name, row)),
                }
            }
            lacking = rest;
        }
        left.extend(lacking);
        Ok(left)
    }
}
