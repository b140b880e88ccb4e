//! The turns of a pipeline in a cluster: which commands run together, and where.
//!
//! A turn is a run of commands that need the engine of one group. Commands without keys, and commands whose reply is an error
//! of the cluster, join any turn. EXEC begins a turn, and MULTI, EXEC and the like end one, so that a turn is planned with the
//! transaction that is really open.

use kv::{Args, Command, Keys, Reply, Spec};

use crate::cluster::{Access, KeySlots, Route, Router, parse_slot};
use crate::needs::Needs;
use crate::owned_words::OwnedWords;
use crate::queue::Queue;
use crate::resolved::Resolved;
use crate::session::Session;
use replica::GroupId;

/// Number of commands in a read-only turn, after which other connections' turns run first. Shorter turns cost
/// throughput, longer ones latency: with 50 clients and pipelines of 64 GETs the p99 at 64 commands is a quarter higher
/// than at 16.
pub(crate) const TURN_COMMANDS_MAX: usize = 16;

/// The treatment of a command of a turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The command runs.
    Run,
    /// The reply is this error.
    Refuse(String),
    /// The command runs on a backup; the reply is this error if the backup lacks a value.
    RunOnBackup(String),
    /// The reply is that of the turn's [`Gathering`].
    Gathered,
}

/// A command whose reply is gathered from the engines of groups before its turn.
#[derive(Clone, Debug)]
pub(crate) enum Gathering {
    /// The command runs in every group that this process leads.
    EveryGroup(&'static Command, OwnedWords),
    /// SCAN walks one group after the other.
    Scan(&'static Command, OwnedWords),
    /// CLUSTER COUNTKEYSINSLOT of this slot.
    CountKeysInSlot(u16),
    /// CLUSTER GETKEYSINSLOT of this slot, with the largest number of keys.
    GetKeysInSlot(u16, usize),
}

/// The place where a turn runs.
#[derive(Debug)]
pub(crate) enum Place {
    /// The turn needs no data.
    NoData,
    /// The turn runs in the group's engine of this process, which leads.
    Leader(GroupId),
    /// The turn reads from this process's backup of the group.
    Backup(GroupId),
    /// The reply of the turn's only command is gathered first.
    Gathering(Gathering),
    /// The next command's group has no leader: the turn waits.
    Unled,
}

/// The commands of a pipeline that run next.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Index in the pipeline after the turn's last command.
    pub end: usize,
    /// The turn's needs of the engine.
    pub needs: Needs,
    /// The verdict on each command; none where all commands run.
    verdicts: Vec<Verdict>,
    /// The gathered replies.
    pub gathered: Vec<Reply>,
}

impl Turn {
    /// A turn of all commands of a pipeline.
    pub fn whole(needs: Needs) -> Turn {
        Turn { end: usize::MAX, needs, verdicts: Vec::new(), gathered: Vec::new() }
    }

    /// The verdict on the turn's `n`th command.
    pub fn verdict(&self, n: usize) -> &Verdict {
        self.verdicts.get(n).unwrap_or(&Verdict::Run)
    }
}

/// Plans turns.
#[derive(Debug)]
pub(crate) struct Planner<'a> {
    pub router: &'a Router<'a>,
    /// The client's session and queued commands before the turn.
    pub session: &'a Session,
    pub queue: &'a Queue,
}

impl Planner<'_> {
    /// The turn of the first of `commands`, which begin at index `first` of the pipeline, and where it runs.
    pub fn plan<'w>(
        &self,
        first: usize,
        commands: impl Iterator<Item = (Resolved, Args<'w>)>,
    ) -> (Turn, Place) {
        let mut turn = Turn { end: first, ..Turn::whole(Needs::Nothing) };
        let mut place = Place::NoData;
        for (resolved, args) in commands {
            let is_first = turn.end == first;
            if !is_first
                && (resolved.is_exec() || turn.needs < Needs::Writes && turn.end - first >= TURN_COMMANDS_MAX)
            {
                break;
            }
            if let Some(gathering) = self.gathering(resolved, args) {
                if is_first {
                    turn.verdicts.push(Verdict::Gathered);
                    turn.end += 1;
                    place = Place::Gathering(gathering);
                }
                break;
            }
            let verdict = match self.route(resolved, args) {
                Route::Anywhere => Verdict::Run,
                Route::Refused(text) => Verdict::Refuse(text),
                Route::Leader(group) => {
                    match place {
                        Place::NoData => place = Place::Leader(group),
                        Place::Leader(other) if other == group => {}
                        _ => break,
                    }
                    turn.needs = turn.needs.max(self.needs(resolved));
                    Verdict::Run
                }
                Route::Backup { group, elsewhere } => {
                    match place {
                        Place::NoData => place = Place::Backup(group),
                        Place::Backup(other) if other == group => {}
                        _ => break,
                    }
                    turn.needs = turn.needs.max(self.needs(resolved));
                    Verdict::RunOnBackup(elsewhere)
                }
                Route::Unled => {
                    if is_first {
                        place = Place::Unled;
                    }
                    break;
                }
            };
            turn.verdicts.push(verdict);
            turn.end += 1;
            if resolved.changes_routes() {
                break;
            }
        }
        (turn, place)
    }

    /// The needs of a command that is not queued.
    fn needs(&self, resolved: Resolved) -> Needs {
        // EXEC needs a writer, which holds the claims on the keys, also to read them all in one state.
        if resolved.is_exec() { Needs::Writes } else { resolved.needs() }
    }

    fn route(&self, resolved: Resolved, args: Args<'_>) -> Route {
        let Some(spec) = resolved.spec() else { return Route::Anywhere };
        if !self.session.authenticated || !spec.takes_words(args.len()) {
            return Route::Anywhere;
        }
        if resolved.is_exec() {
            return self.router.route(self.transaction_slots(), Access::Leader, false);
        }
        if self.session.transaction.is_some() {
            return self.route_queued(resolved, spec, args);
        }
        let access =
            if resolved.is_watch() || spec.has(Spec::WRITE) { Access::Leader } else { Access::Backup };
        self.router.route(KeySlots::of_command(spec, args), access, self.session.read_only)
    }

    /// The route of a command within a transaction. Redis checks the keys of each command before it is queued, and the keys of
    /// all together at EXEC. A transaction runs at the leader, whatever it reads.
    fn route_queued(&self, resolved: Resolved, spec: &Spec, args: Args<'_>) -> Route {
        if !resolved.is_queued() {
            return Route::Anywhere;
        }
        if walks_groups(resolved) {
            let name = spec.name;
            return Route::Refused(format!(
                "ERR {name} concerns all groups of this node: send it outside a transaction"
            ));
        }
        match self.router.route(KeySlots::of_command(spec, args), Access::Leader, false) {
            Route::Refused(text) => Route::Refused(text),
            // The command is queued, and EXEC waits for the leader.
            _ => Route::Anywhere,
        }
    }

    /// The slots of the open transaction's commands and of the watched keys. An aborted transaction has none, since none of its
    /// commands runs.
    fn transaction_slots(&self) -> KeySlots {
        let Some(open) = self.session.transaction.filter(|open| !open.aborted) else { return KeySlots::None };
        let queued = (open.start..open.end).filter_map(|index| {
            let (resolved, args) = self.queue.get(index)?;
            Some(KeySlots::of_command(resolved.spec()?, args))
        });
        let watched = KeySlots::of_keys(self.session.watches.iter().map(kv::Watch::key));
        queued.fold(watched, KeySlots::join)
    }

    fn gathering(&self, resolved: Resolved, args: Args<'_>) -> Option<Gathering> {
        let spec = resolved.spec()?;
        let runs = self.session.authenticated && self.session.transaction.is_none();
        if !runs || !spec.takes_words(args.len()) {
            return None;
        }
        let number = |n| kv::parse_integer(args.get(n)).and_then(|count| usize::try_from(count).ok());
        let is = |name: &str, words| args.get(1).eq_ignore_ascii_case(name.as_bytes()) && args.len() == words;
        match resolved {
            Resolved::Key(command) if walks_groups(resolved) => {
                let words = OwnedWords::new(args.rest(0), 0);
                Some(match spec.name {
                    "SCAN" => Gathering::Scan(command, words),
                    _ => Gathering::EveryGroup(command, words),
                })
            }
            Resolved::Server(_) if spec.name == "CLUSTER" && is("COUNTKEYSINSLOT", 3) => {
                Some(Gathering::CountKeysInSlot(parse_slot(args.get(2))?))
            }
            Resolved::Server(_) if spec.name == "CLUSTER" && is("GETKEYSINSLOT", 4) => {
                Some(Gathering::GetKeysInSlot(parse_slot(args.get(2))?, number(3)?))
            }
            _ => None,
        }
    }
}

/// Whether a command without keys concerns the data, and so every group.
fn walks_groups(resolved: Resolved) -> bool {
    let walks = |spec: &Spec| spec.keys == Keys::NONE && !spec.has(Spec::MOVABLE_KEYS);
    matches!(resolved, Resolved::Key(command) if walks(&command.spec))
}

#[cfg(test)]
mod tests;
