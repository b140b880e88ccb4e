//! One replica of a group with its log and its tables: carries out what [`replica::Replica`] asks for.
//!
//! ```text
//!   clients, peers, clock --event--> Replica --+-- LogQueue ---> task "group log": GroupsLog ---- Persisted --> Replica
//!                                              +-- TableWork --> task "group tables": Tables ---- Applied, Installed --> Replica
//!                                              +-- Send -------> Peers
//!                                              +-- the ends of commands and reads --> Clients
//! ```
//!
//! A new leader's tables lack values: [`Group::get`] pulls the one that is read ([`copies`]), the task "group values" the rest.

mod clients;
mod copies;
mod drive_room;
mod install;
mod log_queue;
mod proposals;
mod requests;
mod room;
mod table_queue;
mod table_work;
#[cfg(test)]
mod tests;
mod values;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kv::Overlay;
use parking_lot::Mutex;
use replica::{Action, Event, GroupStats, Index, Recovered, Replica, ReplicaId, Role, Settings, Term};
use units::sync::Event as Signal;
use units::{Bytes, Driver, Instant, Spawned, sleep_until, spawn};

use self::clients::{Clients, Outcome, Reading};
use self::drive_room::DriveRoom;
use self::log_queue::{LogQueue, Request};
use self::proposals::{Proposals, Waiting};
use self::requests::Requests;
use self::table_queue::TableWork;
use crate::batch::Batch;
use crate::peer::{PeerMessage, Peers};
use crate::row_key::row_key;
use crate::rules::Rules;
use crate::tables::{Row, Tables};
use crate::wait::within;
use crate::{Change, Error, GroupId, GroupsLog, Result, StoredGroup};
use futures_channel::oneshot::{Canceled, channel};

/// The place of a replica: its group, its number and its role there.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The group.
    pub group: GroupId,
    /// The replica.
    pub replica: ReplicaId,
    /// The replica's role, for life.
    pub role: Role,
}

/// The settings of a group, the same on every replica.
#[derive(Clone, Copy, Debug)]
pub struct GroupOptions {
    /// The group's times.
    pub settings: Settings,
    /// Bytes of entries in the group's log above which the leader takes no commands: a backup that is gone keeps values from being stable, and the log from going.
    pub log: Bytes,
    /// The safety rule that is broken.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<crate::BrokenRule>,
}

impl Default for GroupOptions {
    fn default() -> GroupOptions {
        GroupOptions {
            settings: Settings::default(),
            log: Bytes(64 << 20),
            #[cfg(feature = "broken-rules")]
            broken_rule: None,
        }
    }
}

impl GroupOptions {
    fn rules(&self) -> Rules {
        Rules {
            #[cfg(feature = "broken-rules")]
            broken: self.broken_rule,
        }
    }
}

/// The parts of a process that a group uses.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Clock, tasks and random numbers.
    pub driver: Arc<dyn Driver>,
    /// The log of all groups of the process.
    pub log: Arc<GroupsLog>,
    /// The tables of this replica.
    pub tables: Arc<dyn Tables>,
    /// The way to the other replicas.
    pub peers: Arc<dyn Peers>,
}

/// The reason why a group does not answer a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Another replica leads: this one, if it is known. Nothing of the command was begun.
    #[error("another replica leads the group")]
    NotLeader(Option<ReplicaId>),
    /// The command was begun, and may be carried out later or never.
    #[error("the outcome of the command is not known")]
    Unknown,
    /// The group's log is full. Nothing of the command was begun.
    #[error("the group's log is full: a backup is gone, or slow")]
    Full,
    /// The batch is longer than a message to other replicas. Nothing of the command was begun.
    #[error("a batch of {0} is longer than {MAX_COMMAND}, the longest that other replicas take")]
    TooLong(Bytes),
    /// No replica that has the value answered.
    #[error("no replica that has the value answers")]
    NoCopy,
    /// The replica has ended: its drive failed, or it was closed.
    #[error("the replica has ended")]
    Ended,
}

/// The answer to a client, or the reason why there is none.
pub type Answered<T> = std::result::Result<T, Refused>;

/// One replica of a group, with its tasks.
///
/// Crash safety: a command whose [`write`](Group::write) returned `Ok` is in the logs of a majority of the group, durably.
pub struct Group {
    place: Place,
    options: GroupOptions,
    parts: Parts,
    state: Mutex<State>,
    requests: Requests,
    /// The group's state in the groups' log, durable.
    stored: Mutex<StoredGroup>,
    log_work: Signal,
    table_work: Signal,
    clock: Signal,
    applied: Signal,
    tasks: Mutex<Vec<Spawned<()>>>,
    drive: Mutex<Option<DriveRoom>>,
}

struct State {
    replica: Replica,
    log: LogQueue,
    /// Clients' commands that wait while entries wait for the record that is being written.
    proposals: Proposals,
    tables: VecDeque<TableWork>,
    clients: Clients,
    /// The time until which the task "group clock" sleeps.
    sleeps_until: Instant,
    /// The step at which the group is in making room in the groups' log.
    room: Room,
    /// Bytes that all groups had written when this one made room last.
    written: u64,
    /// The drive has no room for the record that is being written.
    lacks_room: bool,
    /// Clients' writes that were refused because the log was full.
    refused_full: u64,
    /// The error that ended the group, for people; empty if it was closed.
    ended: Option<String>,
}

/// The longest batch, in bytes of keys and values. Messages between processes are a little longer at most.
pub const MAX_COMMAND: Bytes = Bytes(12 << 20);

/// One part in so many of a group's log is for batches of deletes alone.
const DELETES_SHARE: u64 = 8;

/// One part in so many of the log is written between two attempts of a group to make room.
const ROOM_SHARE: u64 = 8;

/// The steps in which a group makes room in the groups' log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    /// The group makes no room.
    Enough,
    /// The tables are being flushed, so that entries may go.
    Flushing,
    /// The tables are flushed. The group's state is to be written again, if its records still keep the groups' log from being retired.
    Copying,
}

impl Group {
    /// Starts a replica from what its log and its tables hold. Of a new replica the log holds `StoredGroup::new` already.
    ///
    /// # Errors
    /// The tables', and `Replica` for settings that cannot work or a log that contradicts the tables.
    pub fn start(
        place: Place,
        options: &GroupOptions,
        parts: Parts,
        stored: StoredGroup,
    ) -> Result<Arc<Group>> {
        let Parts { driver, tables, .. } = &parts;
        let is_new = tables.applied() == Index(0) && tables.rows(b"")?.rows.is_empty();
        let StoredGroup { base, entries, vote } = stored.clone();
        if tables.applied() < base.index {
            tables.skip_to(base.index)?;
        }
        let recovered = Recovered {
            base,
            entries,
            vote,
            applied: tables.applied(),
            stable: Index(0),
            is_whole: place.role == Role::Backup || is_new,
        };
        let now = driver.now();
        let replica =
            Replica::new(&options.settings, (place.replica, place.role), recovered, (now, driver.random()))
                .map_err(|why| Error::Replica { group: place.group, why })?;
        let requests = Requests::new(driver.random());
        let state = State {
            replica,
            log: LogQueue::default(),
            proposals: Proposals::default(),
            tables: VecDeque::new(),
            clients: Clients::default(),
            sleeps_until: now,
            room: Room::Enough,
            written: 0,
            lacks_room: false,
            refused_full: 0,
            ended: None,
        };
        let group = Arc::new(Group {
            place,
            options: *options,
            parts,
            state: Mutex::new(state),
            requests,
            stored: Mutex::new(stored),
            log_work: Signal::new(),
            table_work: Signal::new(),
            clock: Signal::new(),
            applied: Signal::new(),
            tasks: Mutex::default(),
            drive: Mutex::default(),
        });
        let driver = &group.parts.driver;
        let tasks = vec![
            spawn(&**driver, "group log", Arc::clone(&group).write_log()),
            spawn(&**driver, "group tables", Arc::clone(&group).work_on_tables()),
            spawn(&**driver, "group values", Arc::clone(&group).get_all_values()),
            spawn(&**driver, "group clock", Arc::clone(&group).keep_time()),
        ];
        *group.tasks.lock() = tasks;
        Ok(group)
    }

    /// The replica's place.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The group's safety rules.
    pub(crate) fn rules(&self) -> Rules {
        self.options.rules()
    }

    /// Calls `then` with the replica.
    pub fn with_replica<R>(&self, then: impl FnOnce(&Replica) -> R) -> R {
        then(&self.state.lock().replica)
    }

    /// The time by which this backup's tables may be behind the leader: a read that begins now finds every write that was acknowledged earlier than so long ago. `None` where that is not known.
    pub fn behind(&self) -> Option<Duration> {
        let state = self.state.lock();
        // The clock is read with the replica in hand, so that no answer is younger.
        state.replica.behind(self.parts.driver.now()).filter(|_| state.ended.is_none())
    }

    /// True if this replica led, and lost its majority two election timeouts ago or earlier: see [`Replica::is_cut_off`].
    pub fn is_cut_off(&self) -> bool {
        let state = self.state.lock();
        state.ended.is_none() && state.replica.is_cut_off(self.parts.driver.now())
    }

    /// True if this replica leads, and could hand over at once: see [`Replica::could_hand_over_to`].
    pub fn could_hand_over_to(&self, successor: ReplicaId, led_for: Duration) -> bool {
        let state = self.state.lock();
        let now = self.parts.driver.now();
        state.ended.is_none() && state.replica.could_hand_over_to(successor, now, led_for)
    }

    /// The replica in numbers.
    pub fn stats(&self) -> GroupStats {
        let state = self.state.lock();
        GroupStats {
            group: self.place.group,
            replica: state.replica.stats(self.parts.driver.now()),
            log_limit: self.options.log.0,
            unfinished: state.clients.commands() as u64,
            refused_full: state.refused_full,
            has_ended: state.ended.is_some(),
        }
    }

    /// Calls `then` with the group's state in the groups' log, which is durable.
    pub fn with_stored<R>(&self, then: impl FnOnce(&StoredGroup) -> R) -> R {
        then(&self.stored.lock())
    }

    /// The error that ended the replica, for people: empty if it was closed, `None` while it lives.
    pub fn ended(&self) -> Option<String> {
        self.state.lock().ended.clone()
    }

    /// Ends the replica: its tasks end with what they are at.
    pub fn close(&self) {
        self.end(String::new());
    }

    /// Waits until the tasks of a replica that has ended are over, at most about an election timeout: nothing uses its log and its tables afterwards.
    pub async fn finished(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.await;
        }
    }

    /// A message from another replica of the group.
    pub fn receive(&self, from: ReplicaId, message: PeerMessage) {
        if self.has_ended() {
            return;
        }
        match message {
            PeerMessage::Replica(message) => self.handle(Event::Message(message)),
            PeerMessage::Answer(id, answer) => self.requests.answer(from, id, answer),
            PeerMessage::Request(id, request) => match self.answer(request) {
                Ok(answer) => self.send(from, PeerMessage::Answer(id, answer)),
                Err(error) => self.end(error.to_string()),
            },
        }
    }

    /// Gives the replica an event of its process: `HandOver`, `HandOverTo`, `Change` or `Raise`.
    pub fn tell(&self, event: Event) {
        self.handle(event);
    }

    /// Makes the tables durable, and lets the log go as far as it may.
    pub fn flush(&self) {
        match self.parts.tables.flush() {
            Ok(index) => self.handle(Event::Flushed(index)),
            Err(error) => self.end(error.to_string()),
        }
    }

    /// Carries out a batch of writes: `Ok` once it is committed and in this replica's tables.
    ///
    /// # Errors
    /// `NotLeader` and `Full` where nothing was begun. After `Unknown` and `Ended` the batch may be carried out later, or never.
    pub async fn write(&self, batch: &Overlay) -> Answered<Index> {
        self.propose(batch, None).await
    }

    /// Like [`write`](Group::write), for a batch that follows from what was read in a term ([`view`](Group::view)): in another term nothing is begun. The call begins the write; the future does not borrow the batch.
    pub(crate) fn write_in<'s>(
        &'s self,
        term: Term,
        batch: &Overlay,
    ) -> impl Future<Output = Answered<Index>> + use<'s> {
        self.propose(batch, Some(term))
    }

    fn propose<'s>(
        &'s self,
        batch: &Overlay,
        term: Option<Term>,
    ) -> impl Future<Output = Answered<Index>> + use<'s> {
        let command = Batch::command(batch);
        let bytes = Bytes((command.record.len() + command.value.as_ref().map_or(0, Vec::len)) as u64);
        let begun = {
            let mut state = self.state.lock();
            let leader = state.replica.leader();
            let leads = leader == Some(self.place.replica);
            if term.is_some_and(|term| state.replica.serves_in().is_none_or(|(of, _)| of != term)) {
                Err(Refused::NotLeader(leader))
            } else if bytes > MAX_COMMAND {
                Err(Refused::TooLong(bytes))
            } else if leads
                && (state.lacks_room
                    || state.replica.log_bytes() + state.proposals.bytes() >= self.most_log_bytes(batch))
            {
                state.refused_full += 1;
                Err(Refused::Full)
            } else {
                let (id, ended) = state.clients.begin_command();
                state.proposals.add(bytes.0, Waiting { id, command, term });
                self.propose_waiting(&mut state, false);
                Ok(ended)
            }
        };
        async move {
            match begun?.await {
                Ok(Outcome::Committed(index)) => self.has_applied(index).await.map(|()| index),
                Ok(Outcome::Refused(leader)) => Err(Refused::NotLeader(leader)),
                Ok(Outcome::Unknown) => Err(Refused::Unknown),
                Err(Canceled) => Err(Refused::Ended),
            }
        }
    }

    /// Proposes the commands that wait, unless entries wait already for the record that is being written and the commands are few: those that come meanwhile go together. `at_once`: in any case.
    fn propose_waiting(&self, state: &mut State, at_once: bool) {
        while at_once || state.log.has_no_writes() || state.proposals.are_many() {
            let waiting = state.proposals.take();
            if waiting.is_empty() {
                return;
            }
            let serves_in = state.replica.serves_in().map(|(term, _)| term);
            let leader = state.replica.leader();
            let mut commands = Vec::with_capacity(waiting.len());
            for Waiting { id, command, term } in waiting {
                if term.is_some() && term != serves_in {
                    state.clients.end_command(id, Outcome::Refused(leader));
                } else {
                    commands.push((id, command));
                }
            }
            self.step(state, Event::Propose(commands));
        }
    }

    /// Bytes of the group's log from which on a batch is refused. Batches of deletes have a part of their own: they free room elsewhere.
    fn most_log_bytes(&self, batch: &Overlay) -> u64 {
        let most = self.options.log.0;
        let grows = batch.entries().any(|(_, put)| put.is_some()) || !batch.once().is_empty();
        if grows { most } else { most + most / DELETES_SHARE }
    }

    /// The term in which this replica leads, if its tables hold every command of earlier terms: commands may run over the tables.
    ///
    /// # Errors
    /// `NotLeader`, also while the tables lack something; `Ended`.
    pub fn view(&self) -> Answered<Term> {
        let state = self.state.lock();
        if state.ended.is_some() {
            return Err(Refused::Ended);
        }
        let serves = state.replica.serves_in();
        let serves = serves.filter(|(_, office)| self.parts.tables.applied() >= *office);
        serves.map(|(term, _)| term).ok_or_else(|| Refused::NotLeader(state.replica.leader()))
    }

    /// True if everything that was read from the tables in a term was current until now, by the leader's lease.
    pub(crate) fn may_answer(&self, term: Term) -> bool {
        let state = self.state.lock();
        let now = self.parts.driver.now();
        state.ended.is_none() && state.replica.term() == term && state.replica.may_answer(now)
    }

    /// Waits until it is certain that everything that was read from the tables in a term was current when this call began.
    ///
    /// # Errors
    /// `NotLeader`: the term is over, and what was read does not count.
    pub(crate) async fn confirm(&self, term: Term) -> Answered<()> {
        while !self.may_answer(term) {
            let (_, by_lease) = self.read_index().await?;
            let state = self.state.lock();
            if state.replica.term() != term {
                return Err(Refused::NotLeader(state.replica.leader()));
            }
            if !by_lease {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Gets the values of row keys that the tables lack from other replicas.
    ///
    /// # Errors
    /// `NoCopy` where nobody who has a value answers.
    pub(crate) async fn fetch(&self, keys: &[Vec<u8>]) -> Answered<()> {
        for key in keys {
            self.get_with_value(key).await?;
        }
        Ok(())
    }

    /// The index up to which tables must hold the log to answer a read of now, and whether the answer needs the lease still.
    async fn read_index(&self) -> Answered<(Index, bool)> {
        let asked = {
            let mut state = self.state.lock();
            let (id, asked) = state.clients.begin_read();
            self.step(&mut state, Event::Read(id));
            asked
        };
        match asked.await {
            Ok(Reading::Answer { index, by_lease }) => Ok((index, by_lease)),
            Ok(Reading::Refused(leader)) => Err(Refused::NotLeader(leader)),
            Err(Canceled) => Err(Refused::Ended),
        }
    }

    /// The record of a client's key, linearizable.
    ///
    /// # Errors
    /// `NotLeader`; `NoCopy` where this leader lacks the value, and nobody answers who has it.
    pub async fn get(&self, key: &[u8]) -> Answered<Option<Row>> {
        loop {
            let (index, by_lease) = self.read_index().await?;
            self.has_applied(index).await?;
            let row = self.get_with_value(&row_key(key)).await?;
            let now = self.parts.driver.now();
            if !by_lease || self.with_replica(|replica| replica.may_answer(now)) {
                return Ok(row);
            }
        }
    }

    /// Waits until the tables hold the log up to `index`.
    async fn has_applied(&self, index: Index) -> Answered<()> {
        loop {
            let version = self.applied.version();
            if self.parts.tables.applied() >= index {
                return Ok(());
            }
            if self.has_ended() {
                return Err(Refused::Ended);
            }
            self.applied.changed_since(version).await;
        }
    }

    fn has_ended(&self) -> bool {
        self.state.lock().ended.is_some()
    }

    /// Ends the replica for good. `why`: an error, for people.
    fn end(&self, why: String) {
        self.end_in(&mut self.state.lock(), why);
    }

    fn end_in(&self, state: &mut State, why: String) {
        state.ended.get_or_insert(why);
        state.clients.end();
        state.tables.clear();
        state.proposals.clear();
        self.requests.end();
        for signal in [&self.log_work, &self.table_work, &self.clock, &self.applied] {
            signal.notify();
        }
    }

    fn send(&self, to: ReplicaId, message: PeerMessage) {
        self.parts.peers.send(self.place.group, self.place.replica, to, message);
    }

    fn handle(&self, event: Event) {
        self.step(&mut self.state.lock(), event);
    }

    fn step(&self, state: &mut State, event: Event) {
        if state.ended.is_some() {
            state.clients.end();
            return;
        }
        // The clock is read with the replica in hand: its promises count from then.
        let now = self.parts.driver.now();
        for action in state.replica.step(now, event) {
            self.begin(state, action);
        }
        if state.replica.wakes_at() < state.sleeps_until {
            self.clock.notify();
        }
    }

    /// Begins an action of the replica.
    fn begin(&self, state: &mut State, action: Action) {
        match action {
            Action::Send(to, message) => self.send(to, PeerMessage::Replica(message)),
            Action::Persist { number, base, entries, vote } => {
                state.log.persist(number, base, entries, vote);
                self.log_work.notify();
            }
            Action::Retire(base) => {
                state.log.retire(base);
                self.log_work.notify();
            }
            Action::Apply(entries) => self.add_table_work(state, TableWork::Apply(entries)),
            Action::DropValues(upto) => self.add_table_work(state, TableWork::DropValues(upto)),
            Action::Install { index, sources, values_above } => {
                self.add_table_work(state, TableWork::Install { index, sources, values_above });
            }
            Action::Acknowledge(id, index) => state.clients.end_command(id, Outcome::Committed(index)),
            Action::RefuseProposal(id, leader) => state.clients.end_command(id, Outcome::Refused(leader)),
            Action::LoseProposal(id) => state.clients.end_command(id, Outcome::Unknown),
            Action::Answer { read, index, by_lease } => {
                state.clients.end_read(read, Reading::Answer { index, by_lease });
            }
            Action::RefuseRead(read, leader) => state.clients.end_read(read, Reading::Refused(leader)),
            Action::End(why) => self.end_in(state, why.to_string()),
            Action::RefuseChange(why) => {
                tracing::warn!(group = %self.place.group, %why, "the group's members stay as they are");
            }
        }
    }

    /// Queues work on the tables. Of a replica that has ended nobody would take it: who waits for the work hears so at once.
    fn add_table_work(&self, state: &mut State, work: TableWork) {
        if state.ended.is_some() {
            return;
        }
        state.tables.push_back(work);
        self.table_work.notify();
    }

    /// The task that tells the replica of the time.
    async fn keep_time(self: Arc<Self>) {
        let driver = &*self.parts.driver;
        while !self.has_ended() {
            let version = self.clock.version();
            let due = {
                let mut state = self.state.lock();
                state.sleeps_until = state.replica.wakes_at();
                state.sleeps_until
            };
            if driver.now() >= due {
                self.handle(Event::Tick);
                // A drive may never answer, and another replica lead by now: no command waits for it longer than for a tick.
                self.propose_waiting(&mut self.state.lock(), true);
            } else {
                within(driver, due, self.clock.changed_since(version)).await;
            }
            self.update_room();
            self.make_room();
        }
    }

    fn is_pinning(&self) -> bool {
        self.parts.log.pinning() == Some(self.place.group)
    }

    /// Begins to make room in the log, if the group keeps the groups' log from being retired, or its own log is half full: the tables are flushed, then the group's state is written again where that is needed. The next attempt comes once more records were written.
    fn make_room(&self) {
        let mut state = self.state.lock();
        let log = &self.parts.log;
        let is_large = state.replica.log_bytes() > self.options.log.0 / 2;
        let more = log.written().saturating_sub(state.written);
        let least = (self.options.log.0.min(log.size().0) / ROOM_SHARE).max(1);
        let is_due = more >= least && (is_large || self.is_pinning());
        if state.room == Room::Enough && is_due {
            state.room = Room::Flushing;
            state.written = log.written();
            self.add_table_work(&mut state, TableWork::Flush);
        }
    }

    /// Waits until the work on the tables that was asked for so far is done. `None` if the replica ends before.
    async fn table_work_before(&self) -> Option<()> {
        let (sender, reached) = channel();
        self.add_table_work(&mut self.state.lock(), TableWork::Reached(sender));
        reached.await.ok()
    }

    /// The tables were flushed, and the requests that followed from it come first.
    fn flushed_for_room(&self) {
        self.state.lock().room = Room::Copying;
        self.log_work.notify();
    }

    /// The record that the groups' log is to take next; `None` if there is nothing to write.
    fn next_request(&self) -> Option<Request> {
        let mut state = self.state.lock();
        let next = self.next_of(&mut state);
        self.propose_waiting(&mut state, false);
        next
    }

    fn next_of(&self, state: &mut State) -> Option<Request> {
        if state.room == Room::Copying {
            if let Some(request) = state.log.take_retirement() {
                return Some(request);
            }
            if !state.log.is_to_retire() {
                state.room = Room::Enough;
                if self.is_pinning() && self.parts.log.may_copy() {
                    let change = Change::State(self.stored.lock().clone());
                    return Some(Request { change, numbers: None });
                }
            }
        }
        state.log.take()
    }

    /// The task that writes the replica's requests to the groups' log.
    async fn write_log(self: Arc<Self>) {
        while !self.has_ended() {
            let version = self.log_work.version();
            let Some(Request { change, numbers }) = self.next_request() else {
                self.log_work.changed_since(version).await;
                continue;
            };
            if let Err(error) = self.write_record(&change).await {
                return self.end(error.to_string());
            }
            let base = if let Change::Write { base, .. } = &change { base.clone() } else { None };
            change.carry_out(&mut self.stored.lock());
            if let Some(base) = base {
                if let Err(error) = self.parts.tables.skip_to(base.index) {
                    return self.end(error.to_string());
                }
                self.applied.notify();
            }
            if let Some((_, last)) = numbers {
                self.handle(Event::Persisted(last));
            }
            self.make_room();
        }
    }

    /// Writes a record, again and again while the drive has no room for it: nothing was written then. Other groups may let their records go meanwhile.
    async fn write_record(&self, change: &Change) -> Result<()> {
        let driver = &*self.parts.driver;
        loop {
            let written = self.parts.log.write(self.place.group, change).await;
            let lacks_room = written.as_ref().is_err_and(Error::lacks_room);
            self.state.lock().lacks_room = lacks_room;
            if !lacks_room || self.has_ended() {
                return written;
            }
            sleep_until(driver, driver.now().after(self.options.settings.heartbeat)).await;
        }
    }

    /// The entry's batch, if it is a command; an error if no engine wrote it.
    fn batch(&self, command: Option<&replica::Command>, index: Index) -> Result<Option<Batch>> {
        let Some(command) = command else { return Ok(None) };
        let why = || format!("the command of entry {} is no batch of writes", index.0);
        let batch = Batch::of(command);
        batch.map(Some).ok_or_else(|| Error::Replica { group: self.place.group, why: why() })
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, replica {}", self.place.group, self.place.replica.0)
    }
}
