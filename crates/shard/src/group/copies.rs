//! What other replicas have: requests for values and tables, and the answers to such requests.

use std::collections::BTreeSet;

use replica::{Body, ReplicaId};

use super::{Group, Refused};
use crate::Result;
use crate::batch::Batch;
use crate::peer::{Answer, PeerMessage, RecordName, Request};
use crate::tables::Row;
use crate::wait::within;

impl Group {
    /// Asks another replica. `None` if it does not answer within an election timeout.
    pub(super) async fn ask(&self, to: ReplicaId, request: Request) -> Option<Answer> {
        let (id, answer) = self.requests.begin();
        self.send(to, PeerMessage::Request(id, request));
        let driver = &*self.parts.driver;
        let answer = within(driver, driver.now().after(self.options.settings.election_timeout), answer).await;
        self.requests.give_up(id);
        answer.flatten()
    }

    /// The answer to another replica's request.
    pub(super) fn answer(&self, request: Request) -> Result<Answer> {
        match request {
            Request::Values(names) => {
                let values = names.iter().map(|name| self.value_of(name));
                Ok(Answer::Values(values.collect::<Result<_>>()?))
            }
            Request::Rows { applied, .. } if self.parts.tables.applied() < applied => Ok(Answer::NotNow),
            Request::Rows { from, .. } => Ok(Answer::Rows(self.parts.tables.rows(&from)?)),
        }
    }

    /// The value of a record, by the tables or by the log. What another replica's tables have is committed, and so is an entry here of that index and term.
    fn value_of(&self, RecordName { key, index, term }: &RecordName) -> Result<Option<Vec<u8>>> {
        let own = self.parts.tables.get(key)?.filter(|own| own.index == *index);
        if let Some(value) = own.and_then(|own| own.value) {
            return Ok(Some(value));
        }
        let entry = self.look(|replica| replica.entry(*index)).filter(|(of, _)| of == term);
        let Some((_, Body::Command(command))) = entry else { return Ok(None) };
        let Some(batch) = Batch::of(&command) else { return Ok(None) };
        let write = batch.writes.into_iter().find(|write| write.key == *key);
        Ok(write.and_then(|write| write.put).and_then(|put| put.value))
    }

    /// The record of a key, with its value, which is pulled where these tables lack it.
    pub(super) async fn get_with_value(&self, key: &[u8]) -> std::result::Result<Option<Row>, Refused> {
        loop {
            let row = self.parts.tables.get(key).map_err(|error| self.failed(&error))?;
            let Some(row) = row.filter(|row| row.value.is_none()) else {
                return self.parts.tables.get(key).map_err(|error| self.failed(&error));
            };
            let Row { index, term, .. } = row;
            let pulled = self.pull(vec![(RecordName { key: key.to_vec(), index, term }, row)]).await;
            // A record that another entry wrote meanwhile is looked at again.
            let is_same = |now: Option<Row>| now.is_some_and(|now| (now.index, now.value) == (index, None));
            let now = self.parts.tables.get(key).map_err(|error| self.failed(&error))?;
            if !pulled.map_err(|error| self.failed(&error))? && is_same(now) {
                return Err(Refused::NoCopy);
            }
        }
    }

    fn failed(&self, error: &crate::Error) -> Refused {
        self.end(error.to_string());
        Refused::Ended
    }

    /// Gets values from the replicas that keep all of them, and puts them into the tables. False if some are missing.
    pub(super) async fn pull(&self, mut lacking: Vec<(RecordName, Row)>) -> Result<bool> {
        let copies: BTreeSet<ReplicaId> = self.look(|replica| {
            let holders = replica.offices().standing().iter().map(|office| office.holder);
            replica.members().current().backups().chain(holders).collect()
        });
        for copy in copies.into_iter().filter(|copy| *copy != self.place.replica) {
            if lacking.is_empty() {
                break;
            }
            let names: Vec<RecordName> = lacking.iter().map(|(name, _)| name.clone()).collect();
            let asked = names.len();
            let Some(Answer::Values(values)) = self.ask(copy, Request::Values(names)).await else { continue };
            if values.len() != asked {
                continue;
            }
            let mut left = Vec::new();
            for ((name, row), value) in lacking.into_iter().zip(values) {
                match value {
                    Some(value) => self.parts.tables.give(&name.key, Row { value: Some(value), ..row })?,
                    None => left.push((name, row)),
                }
            }
            lacking = left;
        }
        Ok(lacking.is_empty())
    }
}
