//! The table of the commands on keys.

use super::call::{Call, Outcome};
use super::spec::{Keys, Spec};
use super::{counters, expire, keys, scan, strings};

/// A command on keys.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The command's name, arity, flags and keys.
    pub spec: Spec,
    pub(super) run: Run,
}

/// The way to execute a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Run {
    /// By this function.
    Keys(fn(&mut Call<'_, '_>) -> Outcome),
    /// As FURROW.ONCE: the command among its words runs once.
    Once,
}

const fn command(
    name: &'static str,
    arity: i16,
    flags: u8,
    keys: (i8, i8, i8),
    run: fn(&mut Call<'_, '_>) -> Outcome,
) -> Command {
    let keys = Keys { first: keys.0, last: keys.1, step: keys.2 };
    Command { spec: Spec { name, arity, flags, keys }, run: Run::Keys(run) }
}

const ONCE: Command = Command {
    spec: Spec { name: "FURROW.ONCE", arity: -3, flags: GROW | Spec::MOVABLE_KEYS, keys: Keys::NONE },
    run: Run::Once,
};

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
    ONCE,
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
