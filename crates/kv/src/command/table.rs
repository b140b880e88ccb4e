//! The table of the commands on keys, and their execution.

use super::call::{Call, Failure, Outcome};
use super::spec::{Keys, Spec};
use super::{counters, expire, keys, scan, strings};
use crate::answer::Answer;
use crate::args::Args;
use crate::txn::Txn;

/// A command on keys.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The command's name, arity, flags and keys.
    pub spec: Spec,
    run: fn(&mut Call<'_, '_>) -> Outcome,
}

const fn command(
    name: &'static str,
    arity: i16,
    flags: u8,
    keys: (i8, i8, i8),
    run: fn(&mut Call<'_, '_>) -> Outcome,
) -> Command {
    let keys = Keys { first: keys.0, last: keys.1, step: keys.2 };
    Command { spec: Spec { name, arity, flags, keys }, run }
}

const READ: u8 = Spec::READ | Spec::FAST;
const WALK: u8 = Spec::READ | Spec::WALKS;
const WRITE: u8 = Spec::WRITE | Spec::FAST;
const GROW: u8 = Spec::WRITE | Spec::NEEDS_ROOM | Spec::FAST;
const ONE: (i8, i8, i8) = (1, 1, 1);
const ALL: (i8, i8, i8) = (1, -1, 1);
const KEY_VALUE_PAIRS: (i8, i8, i8) = (1, -1, 2);
const NO_KEYS: (i8, i8, i8) = (0, 0, 0);

/// All commands on keys, in the order of their names.
pub static COMMANDS: &[Command] = &[
    command("APPEND", 3, GROW, ONE, strings::append),
    command("DBSIZE", 1, WALK, NO_KEYS, scan::dbsize),
    command("DECR", 2, GROW, ONE, counters::decr),
    command("DECRBY", 3, GROW, ONE, counters::decrby),
    command("DEL", -2, WRITE, ALL, keys::del),
    command("EXISTS", -2, READ, ALL, keys::exists),
    command("EXPIRE", -3, WRITE, ONE, expire::expire),
    command("EXPIREAT", -3, WRITE, ONE, expire::expireat),
    command("EXPIRETIME", 2, READ, ONE, expire::expiretime),
    command("FLUSHALL", -1, WRITE, NO_KEYS, keys::flush_all),
    command("FLUSHDB", -1, WRITE, NO_KEYS, keys::flush_all),
    command("GET", 2, READ, ONE, strings::get),
    command("GETDEL", 2, WRITE, ONE, strings::getdel),
    command("GETEX", -2, WRITE, ONE, expire::getex),
    command("GETRANGE", 4, READ, ONE, strings::getrange),
    command("GETSET", 3, GROW, ONE, strings::getset),
    command("INCR", 2, GROW, ONE, counters::incr),
    command("INCRBY", 3, GROW, ONE, counters::incrby),
    command("INCRBYFLOAT", 3, GROW, ONE, counters::incrbyfloat),
    command("KEYS", 2, WALK, NO_KEYS, scan::keys),
    command("MGET", -2, READ, ALL, strings::mget),
    command("MSET", -3, GROW, KEY_VALUE_PAIRS, strings::mset),
    command("MSETNX", -3, GROW, KEY_VALUE_PAIRS, strings::msetnx),
    command("PERSIST", 2, WRITE, ONE, expire::persist),
    command("PEXPIRE", -3, WRITE, ONE, expire::pexpire),
    command("PEXPIREAT", -3, WRITE, ONE, expire::pexpireat),
    command("PEXPIRETIME", 2, READ, ONE, expire::pexpiretime),
    command("PSETEX", 4, GROW, ONE, strings::psetex),
    command("PTTL", 2, READ, ONE, expire::pttl),
    command("SCAN", -2, Spec::READ, NO_KEYS, scan::scan),
    command("SET", -3, GROW, ONE, strings::set),
    command("SETEX", 4, GROW, ONE, strings::setex),
    command("SETNX", 3, GROW, ONE, strings::setnx),
    command("STRLEN", 2, READ, ONE, strings::strlen),
    command("TOUCH", -2, READ, ALL, keys::exists),
    command("TTL", 2, READ, ONE, expire::ttl),
    command("TYPE", 2, READ, ONE, keys::key_type),
    command("UNLINK", -2, WRITE, ALL, keys::del),
];

/// Length of the longest command name.
pub(super) const NAME_LIMIT: usize = 16;

/// Finds a command by name, in upper or lower case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut upper = [0u8; NAME_LIMIT];
    let upper = upper.get_mut(..name.len())?;
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    let at = COMMANDS.binary_search_by(|c| c.spec.name.as_bytes().cmp(upper)).ok()?;
    COMMANDS.get(at)
}

/// Runs one command and writes exactly one whole reply to `out`. A command that fails writes an error reply
/// and changes nothing.
pub fn execute(command: &Command, args: Args<'_>, txn: &mut Txn<'_>, out: &mut dyn Answer) {
    let spec = &command.spec;
    if !spec.takes_words(args.len()) {
        return out.error(&spec.arity_error());
    }
    if spec.has(Spec::WRITE) {
        if let Some(refusal) = txn.refusal()
            && (!refusal.growth_only || spec.has(Spec::NEEDS_ROOM))
        {
            return out.error(&refusal.text);
        }
        let limit = txn.limits().key;
        if spec.key_places(args.len()).any(|n| args.get(n).len() > limit) {
            return out.error(&format!("ERR a key is longer than the limit of {limit} bytes"));
        }
    }
    let mark = out.mark();
    match (command.run)(&mut Call { args, txn, out }) {
        Ok(()) => {}
        Err(Failure::Told(text)) => {
            out.rollback(mark);
            out.error(&text);
        }
        Err(Failure::Engine(error)) => {
            out.rollback(mark);
            tracing::error!(command = spec.name, %error, "a command failed");
            out.error(&error.to_client());
        }
    }
}
