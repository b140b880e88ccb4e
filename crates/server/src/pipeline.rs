//! The commands of one read from a socket, run in turns, and their replies.
//!
//! A turn ends after the last command, or earlier: when the replies must be written to the client, after a bounded
//! number of reads, or when a reply needs a reservation of memory.

use std::sync::Arc;

use bytes::Bytes;
use kv::{Answer, Args, Claims, Reply, Spec, Txn, Work};
use tokio::sync::oneshot;

use crate::cluster::Router;
use crate::commands::{Action, Call, Outcome, SERVER_COMMANDS, TransactionCommand};
use crate::needs::Needs;
use crate::output::{FLUSH_REPLY_BYTES, Reservation, UNRESERVED_REPLY_BYTES};
use crate::queue::Queue;
use crate::resolved::Resolved;
use crate::resp::{Encoder, Requests};
use crate::session::{ConnectionEnding, Session, Transaction};
use crate::shared::Shared;
use crate::turn::{Place, Planner, TURN_COMMANDS_MAX, Turn, Verdict};

/// Largest number of keys that a client watches.
const WATCHED_KEYS_MAX: usize = 4096;

/// Why a pipeline's turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TurnEnd {
    /// All commands of the pipeline have run.
    Done,
    /// Other connections' turns run before the next command.
    Yield,
    /// The replies must be written before the next command.
    Flush,
    /// The next command waits for a reservation of [`ServeOptions::max_output`](crate::ServeOptions::max_output) bytes.
    Reserve,
}

/// Whether a command has run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunOutcome {
    Yes,
    /// The command has no effect yet: its reply needs a reservation of memory.
    NeedsReservation,
}

/// A connection's pipeline. The same value serves a connection to its end, so that its buffers are kept.
pub(crate) struct Pipeline {
    shared: Arc<Shared>,
    requests: Requests,
    resolved: Vec<Resolved>,
    /// The needs of all commands.
    needs: Needs,
    turn: Turn,
    /// Index of the next command to run, before this turn and after it.
    next: (usize, usize),
    /// The session before this turn.
    before: Session,
    pub session: Session,
    queue: Queue,
    /// Number of commands in the queue, and of bytes in `out`, before this turn.
    queued_before: usize,
    out_before: usize,
    /// Whether this turn has run, so that another run begins with the state before the turn.
    has_run: bool,
    pub out: Encoder,
    /// The memory for a reply that exceeds [`UNRESERVED_REPLY_BYTES`].
    reservation: Option<Reservation>,
    /// The memory that replies of writes took beyond [`UNRESERVED_REPLY_BYTES`].
    overdraft: Option<Reservation>,
    stop: TurnEnd,
    return_to: Option<oneshot::Sender<Box<Pipeline>>>,
    /// Whether the engine gave the pipeline back, and the turn has no effect.
    was_given_back: bool,
    /// Whether the engine has ever given the turn back. The claims on the watched keys have ended since the watches were asked.
    watches_are_void: bool,
}

impl Pipeline {
    pub fn new(shared: Arc<Shared>, session: Session, queue_bytes: usize) -> Box<Pipeline> {
        Box::new(Pipeline {
            shared,
            requests: Requests::default(),
            resolved: Vec::new(),
            needs: Needs::Nothing,
            turn: Turn::whole(Needs::Nothing),
            next: (0, 0),
            before: session.clone(),
            session,
            queue: Queue::new(queue_bytes),
            queued_before: 0,
            out_before: 0,
            has_run: false,
            out: Encoder::new(UNRESERVED_REPLY_BYTES),
            reservation: None,
            overdraft: None,
            stop: TurnEnd::Done,
            return_to: None,
            was_given_back: false,
            watches_are_void: false,
        })
    }

    /// Takes the last requests, whose memory can be used for the next ones.
    pub fn take_used_requests(&mut self) -> Requests {
        std::mem::take(&mut self.requests)
    }

    /// Loads the requests of the next pipeline, as one turn; returns the name of the last command.
    pub fn load(&mut self, requests: Requests) -> &'static str {
        let (mut last, mut has_exec) = ("NULL", false);
        self.needs = Needs::Nothing;
        self.resolved.clear();
        for args in requests.iter() {
            let resolved = Resolved::of(args.get(0));
            if let Some(spec) = resolved.spec() {
                last = spec.name;
                self.shared.counters.count(spec.name);
            }
            has_exec |= resolved.is_exec();
            self.needs = self.needs.max(resolved.needs());
            self.resolved.push(resolved);
        }
        let queued = self.queue.resolved().map(Resolved::needs).max().unwrap_or(Needs::Nothing);
        if has_exec && (self.needs.max(queued) > Needs::Nothing || !self.session.watches.is_empty()) {
            // A transaction needs a writer, which holds the claims on its keys, also to read them all in one state.
            self.needs = Needs::Writes;
        }
        self.requests = requests;
        self.next = (0, 0);
        self.turn = Turn::whole(self.needs);
        last
    }

    /// The needs of the turn's commands.
    pub fn needs(&self) -> Needs {
        self.turn.needs
    }

    /// The needs of all commands of the pipeline.
    pub fn all_needs(&self) -> Needs {
        self.needs
    }

    /// Plans the next turn in a cluster; returns where it runs. A turn that had no effect may be planned again.
    pub fn plan_turn(&mut self, router: &Router<'_>) -> Place {
        let rest = self.resolved.get(self.next.0..).unwrap_or_default();
        let commands = rest.iter().copied().zip(self.requests.iter_from(self.next.0));
        let planner = Planner { router, session: &self.before, queue: &self.queue };
        let (turn, place) = planner.plan(self.next.0, commands);
        self.turn = turn;
        place
    }

    /// Sets the replies that were gathered for the turn's command.
    pub fn set_gathered(&mut self, replies: Vec<Reply>) {
        self.turn.gathered = replies;
    }

    /// Ends the turn that ran, and notes the state before the next one; returns why the turn ended.
    pub fn end_turn(&mut self) -> TurnEnd {
        self.watches_are_void &= self.next.1 == self.next.0;
        self.next.0 = self.next.1;
        match &mut self.session.transaction {
            Some(open) => {
                self.queue.remove_first(open.start);
                (open.start, open.end) = (0, open.end - open.start);
            }
            None => self.queue.truncate(0),
        }
        self.before = self.session.clone();
        self.queued_before = self.queue.len();
        self.out_before = self.out.bytes().len();
        self.has_run = false;
        self.stop
    }

    /// Restores the state before the turn, if the turn has run.
    fn undo_turn(&mut self) {
        if std::mem::take(&mut self.has_run) {
            self.session = self.before.clone();
            self.queue.truncate(self.queued_before);
            self.next.1 = self.next.0;
            self.out.rollback(self.out_before);
        }
    }

    /// Ends a turn that had no effect without any command, if replies of earlier turns can be written before the turn waits. False
    /// if there are none.
    pub fn flushes_before_waiting(&mut self) -> bool {
        self.undo_turn();
        self.stop = TurnEnd::Flush;
        self.out_before > 0
    }

    /// Frees the replies, after they were written to the client.
    pub fn note_replies_written(&mut self) {
        self.out.clear();
        self.out_before = 0;
        (self.reservation, self.overdraft) = (None, None);
    }

    /// Gives the pipeline the memory that its next command's reply needs.
    pub fn reserve(&mut self, reservation: Reservation) {
        self.reservation = Some(reservation);
    }

    /// Sets the channel to which [`Work::writes_are_durable`] and [`Work::not_leader`] send the pipeline.
    pub fn return_to(&mut self, to: oneshot::Sender<Box<Pipeline>>) {
        self.was_given_back = false;
        self.return_to = Some(to);
    }

    /// Whether the engine gave the pipeline back: the turn has no effect, since the engine's replica does not lead.
    pub fn was_given_back(&self) -> bool {
        self.was_given_back
    }

    /// Runs commands until the turn ends; returns why it ended.
    fn run_turn(&mut self, requests: &Requests, txn: &mut Txn<'_>) -> TurnEnd {
        for args in requests.iter_from(self.next.0) {
            let done = self.next.1 - self.next.0;
            if self.out.bytes().len() >= FLUSH_REPLY_BYTES || self.reservation.is_some() && done > 0 {
                return TurnEnd::Flush;
            }
            if self.next.1 >= self.turn.end || self.turn.needs < Needs::Writes && done >= TURN_COMMANDS_MAX {
                return TurnEnd::Yield;
            }
            let resolved = self.resolved.get(self.next.1).copied().unwrap_or(Resolved::Unknown);
            if self.run_one(resolved, args, txn) == RunOutcome::NeedsReservation {
                return TurnEnd::Reserve;
            }
            self.next.1 += 1;
            if self.session.ending != ConnectionEnding::None {
                break;
            }
        }
        TurnEnd::Done
    }

    /// Runs one command within the limit on its reply's memory.
    fn run_one(&mut self, resolved: Resolved, args: Args<'_>, txn: &mut Txn<'_>) -> RunOutcome {
        let (largest, before) = (self.shared.max_output(), self.out.bytes().len());
        let is_exec = resolved.is_exec();
        self.out.set_limit(if self.reservation.is_some() {
            before.saturating_add(largest)
        } else if (is_exec || resolved.may_return_written_value(args)) && self.shared.output.is_exhausted() {
            return RunOutcome::NeedsReservation;
        } else if is_exec {
            before.saturating_add(largest)
        } else if resolved.needs() == Needs::Writes {
            // No limit: the reply is one stored value at most, and the command cannot be run again.
            usize::MAX
        } else {
            UNRESERVED_REPLY_BYTES
        });
        self.dispatch(resolved, args, txn);
        if self.out.is_full() {
            self.out.rollback(before);
            if self.reservation.is_none() {
                return RunOutcome::NeedsReservation;
            }
            self.out.error(&too_long_error(largest));
        }
        let over = self.out.bytes().len().saturating_sub(UNRESERVED_REPLY_BYTES);
        match &mut self.reservation {
            Some(reservation) => reservation.shrink_to(over),
            None if over > 0 => self.overdraft = Some(self.shared.output.overdraw(over)),
            None => {}
        }
        RunOutcome::Yes
    }

    /// Refuses, queues or runs a command.
    fn dispatch(&mut self, resolved: Resolved, args: Args<'_>, txn: &mut Txn<'_>) {
        if !self.session.authenticated && !resolved.spec().is_some_and(|spec| spec.has(Spec::NO_AUTH)) {
            return self.refuse("NOAUTH Authentication required.");
        }
        let Some(spec) = resolved.spec() else { return self.refuse(&unknown_command_error(args)) };
        if !spec.takes_words(args.len()) {
            return self.refuse(&spec.arity_error());
        }
        match self.turn.verdict(self.next.1 - self.next.0).clone() {
            Verdict::Run => {}
            Verdict::Refuse(error) => return self.refuse_in_cluster(resolved, &error),
            Verdict::RunOnBackup(moved) => return self.run_on_backup(resolved, args, txn, &moved),
            Verdict::Gathered => return put_replies(&self.turn.gathered, &mut self.out),
        }
        let action = match resolved {
            Resolved::Server(command) => Some(command.action),
            _ => None,
        };
        match action {
            Some(Action::Transaction(TransactionCommand::Multi)) => self.multi(),
            Some(Action::Transaction(TransactionCommand::Exec)) => self.exec(txn),
            Some(Action::Transaction(TransactionCommand::Discard)) => self.discard(),
            Some(Action::Transaction(TransactionCommand::Watch)) => self.watch(args, txn),
            Some(Action::RunOutside(_)) if self.session.transaction.is_some() => {
                self.refuse("ERR Command not allowed inside a transaction");
            }
            Some(Action::RunAtOnce(_)) => self.execute(resolved, args, txn),
            _ if self.session.transaction.is_some() => self.enqueue(resolved, args),
            _ => self.execute(resolved, args, txn),
        }
    }

    /// Replies an error; EXEC discards a transaction that is open.
    fn refuse(&mut self, error: &str) {
        if let Some(open) = &mut self.session.transaction {
            open.aborted = true;
        }
        self.out.error(error);
    }

    /// Replies an error of the cluster. EXEC ends its transaction.
    fn refuse_in_cluster(&mut self, resolved: Resolved, error: &str) {
        if resolved.is_exec() {
            self.session.transaction = None;
            self.session.watches.clear();
        }
        self.refuse(error);
    }

    /// Reads from a backup; the reply is `moved`, which names the leader, if the backup lacks a value.
    fn run_on_backup(&mut self, resolved: Resolved, args: Args<'_>, txn: &mut Txn<'_>, moved: &str) {
        let mark = self.out.mark();
        self.execute(resolved, args, txn);
        // A backup's clock makes no key expire: whether the key is there, the leader says.
        let is_expired = !txn.take_expired().is_empty();
        if !txn.take_missing().is_empty() || is_expired {
            self.out.rollback(mark);
            self.out.error(moved);
        }
    }

    fn execute(&mut self, resolved: Resolved, args: Args<'_>, txn: &mut Txn<'_>) {
        let action = match resolved {
            Resolved::Key(command) => return kv::execute(command, args, txn, &mut self.out),
            Resolved::Server(command) => command.action,
            Resolved::Unknown => return self.out.error(&unknown_command_error(args)),
        };
        match action {
            Action::Run(run) | Action::RunAtOnce(run) | Action::RunOutside(run) => {
                self.run_server_command(run, args)
            }
            Action::Transaction(TransactionCommand::Unwatch) => {
                self.session.watches.clear();
                self.out.simple("OK");
            }
            Action::Transaction(_) => {}
        }
    }

    fn run_server_command(&mut self, run: fn(&mut Call<'_>) -> Outcome, args: Args<'_>) {
        let mark = self.out.mark();
        let (session, shared, out) = (&mut self.session, &*self.shared, &mut self.out);
        if let Err(text) = run(&mut Call { args, session, shared, out, table: SERVER_COMMANDS }) {
            self.out.rollback(mark);
            self.out.error(&text);
        }
    }

    fn multi(&mut self) {
        if self.session.transaction.is_some() {
            return self.out.error("ERR MULTI calls can not be nested");
        }
        let start = self.queue.len();
        self.session.transaction = Some(Transaction { start, end: start, aborted: false });
        self.out.simple("OK");
    }

    fn enqueue(&mut self, resolved: Resolved, args: Args<'_>) {
        match self.queue.push(resolved, args) {
            Ok(()) => {
                if let Some(open) = &mut self.session.transaction {
                    open.end = self.queue.len();
                }
                self.out.simple("QUEUED");
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn watch(&mut self, args: Args<'_>, txn: &mut Txn<'_>) {
        if self.session.transaction.is_some() {
            return self.out.error("ERR WATCH inside MULTI is not allowed");
        }
        for key in args.rest(1) {
            let watches = &mut self.session.watches;
            if watches.iter().any(|watch| watch.key() == key) {
                continue;
            }
            if watches.len() >= WATCHED_KEYS_MAX {
                return self.out.error(&format!("ERR a client may watch {WATCHED_KEYS_MAX} keys"));
            }
            match txn.watch(Bytes::copy_from_slice(key)) {
                Ok(watch) => watches.push(watch),
                Err(error) => return self.out.error(&format!("ERR {error}")),
            }
        }
        self.out.simple("OK");
    }

    fn discard(&mut self) {
        match self.session.transaction.take() {
            Some(_) => {
                self.session.watches.clear();
                self.out.simple("OK");
            }
            None => self.out.error("ERR DISCARD without MULTI"),
        }
    }

    /// EXEC: runs the queued commands. All are in this turn, and the engine writes a turn as one batch.
    fn exec(&mut self, txn: &mut Txn<'_>) {
        let Some(open) = self.session.transaction.take() else {
            return self.out.error("ERR EXEC without MULTI");
        };
        let watches = std::mem::take(&mut self.session.watches);
        if open.aborted {
            return self.out.error("EXECABORT Transaction discarded because of previous errors.");
        }
        // An answer of a watch holds while the engine has the turn. A turn that came back may find the keys written meanwhile.
        let is_void = self.watches_are_void && !watches.is_empty();
        if is_void || watches.iter().any(|watch| txn.has_changed(watch)) {
            return self.out.null_array();
        }
        let range = open.start..open.end;
        let refused = |spec: &Spec, growth_only: bool| {
            spec.has(Spec::WRITE) && (!growth_only || spec.has(Spec::NEEDS_ROOM))
        };
        if let Some(refusal) = txn.refusal()
            && range
                .clone()
                .filter_map(|index| self.queue.get(index)?.0.spec())
                .any(|spec| refused(spec, refusal.growth_only))
        {
            let text = format!("EXECABORT Transaction discarded because of: {}", refusal.text);
            return self.out.error(&text);
        }
        let last = self.out.bytes().len().saturating_add(self.shared.max_output());
        self.out.array(range.len());
        // The queue is taken out of the pipeline, so that a command can use the rest of it.
        let queue = std::mem::replace(&mut self.queue, Queue::new(0));
        for (resolved, args) in range.filter_map(|index| queue.get(index)) {
            let mark = self.out.mark();
            let limit = if resolved.needs() == Needs::Writes { usize::MAX } else { last };
            self.out.set_limit(limit);
            self.execute(resolved, args, txn);
            if self.out.is_full() {
                self.out.rollback(mark);
                self.out.error(&too_long_error(self.shared.max_output()));
            }
        }
        self.queue = queue;
    }
}

/// Writes gathered replies.
fn put_replies(replies: &[Reply], out: &mut Encoder) {
    for reply in replies {
        match reply {
            Reply::Simple(text) => out.simple(text),
            Reply::Error(text) => out.error(text),
            Reply::Integer(value) => out.integer(*value),
            Reply::Bulk(value) => out.bulk(value),
            Reply::Null => out.null(),
            Reply::Array(len) => out.array(*len),
            Reply::Map(len) => out.map(*len),
        }
    }
}

/// The error reply for a reply that exceeds the limit of `limit` bytes.
fn too_long_error(limit: usize) -> String {
    format!("ERR the reply exceeds the limit of {limit} bytes (--max-output)")
}

/// The error reply for an unknown command, with the first words that the client sent.
fn unknown_command_error(args: Args<'_>) -> String {
    const WORD_BYTES_SHOWN: usize = 128;
    let cut = |word: &[u8], len: usize| -> String {
        String::from_utf8_lossy(word.get(..len).unwrap_or(word)).into_owned()
    };
    let mut shown = String::new();
    for word in args.rest(1) {
        if shown.len() >= WORD_BYTES_SHOWN {
            break;
        }
        shown.push_str(&format!("'{}' ", cut(word, WORD_BYTES_SHOWN - shown.len())));
    }
    format!("ERR unknown command '{}', with args beginning with: {shown}", cut(args.get(0), WORD_BYTES_SHOWN))
}

impl Work for Pipeline {
    fn claims(&self, claims: &mut Claims) {
        let mut has_exec = false;
        let end = self.turn.end.min(self.resolved.len());
        let rest = self.resolved.get(self.next.0..end).unwrap_or_default();
        for (args, resolved) in self.requests.iter_from(self.next.0).zip(rest) {
            has_exec |= resolved.is_exec();
            resolved.claims(args, claims);
        }
        if has_exec {
            self.queue.claims(claims);
            self.before.watches.iter().for_each(|watch| claims.key(watch.key()));
        }
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        self.undo_turn();
        self.has_run = true;
        self.overdraft = None;
        self.out.set_resp3(self.session.resp3);
        let requests = std::mem::take(&mut self.requests);
        self.stop = self.run_turn(&requests, txn);
        self.requests = requests;
    }

    fn writes_are_durable(mut self: Box<Self>) {
        if let Some(to) = self.return_to.take() {
            // If the connection has ended, nobody receives the pipeline.
            let _ended = to.send(self);
        }
    }

    fn not_leader(mut self: Box<Self>) {
        self.was_given_back = true;
        self.watches_are_void = true;
        self.writes_are_durable();
    }
}
