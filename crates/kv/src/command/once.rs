//! FURROW.ONCE: an id and a number make a command run once, and its answer is repeated.
//!
//! ```text
//!   FURROW.ONCE NEW key            makes an id in the group of the key's slot
//!   FURROW.ONCE id n COMMAND ...   runs COMMAND if n is above the id's last number; repeats the last answer if n is that number
//! ```
//!
//! The number and the answer go into the batch that has the command's writes. An error of FURROW.ONCE itself changes nothing, and the number can be used again.

use std::cmp::Ordering;

use super::call::{Call, Failure, Outcome, SYNTAX};
use super::spec::{Keys, Spec};
use super::table::{Command, Run, find};
use crate::Claims;
use crate::answer::Answer as _;
use crate::args::Args;
use crate::once::{ANSWER_MAX, IDS_MAX, OnceId, OnceRecord, RecordedAnswer};
use crate::parse_integer;
use crate::txn::Txn;

/// The commands that can run once, in the order of their names: each reads and writes the keys among its words and nothing else. A command that is not here is refused.
const CAN_RUN_ONCE: [&str; 33] = [
    "APPEND",
    "DECR",
    "DECRBY",
    "DEL",
    "EXISTS",
    "EXPIRE",
    "EXPIREAT",
    "EXPIRETIME",
    "GET",
    "GETDEL",
    "GETEX",
    "GETRANGE",
    "GETSET",
    "INCR",
    "INCRBY",
    "INCRBYFLOAT",
    "MGET",
    "MSET",
    "MSETNX",
    "PERSIST",
    "PEXPIRE",
    "PEXPIREAT",
    "PEXPIRETIME",
    "PSETEX",
    "PTTL",
    "SET",
    "SETEX",
    "SETNX",
    "STRLEN",
    "TOUCH",
    "TTL",
    "TYPE",
    "UNLINK",
];

/// Index of the word with the key of `FURROW.ONCE NEW`.
const NEW_KEY: i8 = 2;

/// Index of the first word of the command that runs once.
const COMMAND: usize = 3;

const NO_TABLE: &str = "ERR FURROW.ONCE needs a cluster: this server keeps no answers of commands";

/// Adds claims on the records that the command with these words reads or writes: its keys, an id, or all records.
pub fn claim(spec: &Spec, args: Args<'_>, claims: &mut Claims) {
    let is_once = spec.has(Spec::MOVABLE_KEYS);
    // A new id may make any other id expire.
    if is_once && makes_id(args) || !is_once && spec.keys == Keys::NONE {
        return claims.claim_all_keys();
    }
    if is_once && let Some(id) = OnceId::parse(args.get(1)) {
        claims.key(&id.to_bytes());
    }
    for place in key_places(spec, args) {
        claims.key(args.get(place));
    }
}

/// The indices of the keys among the words of a command.
pub fn key_places(spec: &Spec, args: Args<'_>) -> impl Iterator<Item = usize> + use<> {
    let (keys, from) = if !spec.has(Spec::MOVABLE_KEYS) {
        (spec.keys, 0)
    } else if makes_id(args) {
        (Keys { first: NEW_KEY, last: NEW_KEY, step: 1 }, 0)
    } else {
        command_of(args.tail(COMMAND)).map_or((Keys::NONE, 0), |command| (command.spec.keys, COMMAND))
    };
    keys.places(args.len().saturating_sub(from)).map(move |place| place + from)
}

/// Whether the words are those of `FURROW.ONCE NEW key`.
fn makes_id(args: Args<'_>) -> bool {
    args.get(1).eq_ignore_ascii_case(b"NEW")
}

/// The command with these words, if it can run once.
fn command_of(args: Args<'_>) -> Result<&'static Command, String> {
    let command = find(args.get(0)).filter(|command| CAN_RUN_ONCE.binary_search(&command.spec.name).is_ok());
    let Some(command) = command else {
        let name: String = String::from_utf8_lossy(args.get(0)).chars().take(128).collect();
        return Err(format!("ERR FURROW.ONCE does not run the command '{name}'"));
    };
    if command.spec.takes_words(args.len()) { Ok(command) } else { Err(command.spec.arity_error()) }
}

/// FURROW.ONCE.
pub(super) fn once(call: &mut Call<'_, '_>) -> Outcome {
    if makes_id(call.args) {
        return make_id(call);
    }
    let Call { args, txn, out } = call;
    let id = OnceId::parse(args.get(1)).ok_or_else(|| unknown(args.get(1)))?;
    let number = parse_integer(args.get(2)).and_then(|number| u64::try_from(number).ok());
    let number = number.filter(|number| *number > 0);
    let number = number.ok_or("ERR the number of a command is an integer from 1 on")?;
    let args = args.tail(COMMAND);
    let command = command_of(args)?;
    let group = txn.once_group().ok_or(NO_TABLE)?;
    if id.group != group {
        return Err(format!(
            "ERR id {id} belongs to group {}, the command's keys to group {group}: make an id for each group",
            id.group
        )
        .into());
    }
    let record = txn.once_record(id)?.ok_or_else(|| unknown(id.to_string().as_bytes()))?;
    match number.cmp(&record.last) {
        Ordering::Less => {
            Err(format!("ONCEOLD the last command of id {id} has number {}, this one {number}", record.last)
                .into())
        }
        Ordering::Equal => {
            record.answer.repeat(&mut **out);
            Ok(())
        }
        Ordering::Greater => {
            check_room(txn)?;
            run(&mut Call { args, txn, out: &mut **out }, command, (id, number))
        }
    }
}

/// An error while writes are refused: every command that runs once takes room.
fn check_room(txn: &Txn<'_>) -> Result<(), Failure> {
    txn.refusal().map_or(Ok(()), |refusal| Err(refusal.text.to_string().into()))
}

fn unknown(id: &[u8]) -> Failure {
    let id: String = String::from_utf8_lossy(id).chars().take(128).collect();
    format!("ONCEUNKNOWN no id '{id}': ids come from FURROW.ONCE NEW, and the longest idle one of {IDS_MAX} expires").into()
}

fn make_id(call: &mut Call<'_, '_>) -> Outcome {
    if call.args.len() != 3 {
        return Err(SYNTAX.into());
    }
    check_room(call.txn)?;
    let group = call.txn.once_group().ok_or(NO_TABLE)?;
    let id = call.txn.make_once(group, IDS_MAX)?;
    let id = id.ok_or("ERR every id of the group is in use at this moment; try again")?;
    call.out.bulk(id.to_string().as_bytes());
    Ok(())
}

/// Runs a command and records its answer.
fn run(call: &mut Call<'_, '_>, command: &Command, (id, number): (OnceId, u64)) -> Outcome {
    let Call { args, txn, out } = call;
    let Run::Keys(run) = command.run else { return Err(SYNTAX.into()) };
    let places = key_places(&command.spec, *args);
    let before = txn.savepoint(places.map(|place| args.bytes(place)));
    let mut answer = RecordedAnswer::default();
    match run(&mut Call { args: *args, txn, out: &mut answer }) {
        Ok(()) => {}
        Err(Failure::Told(text)) => {
            answer.rollback(0);
            answer.error(&text);
        }
        // The command has not run: a value is on another replica, or the store has failed.
        Err(failure) => {
            txn.restore(before);
            return Err(failure);
        }
    }
    if answer.is_full() {
        // The writes are in a batch that nobody has seen.
        txn.restore(before);
        return Err(format!("ERR the answer is longer than {ANSWER_MAX} bytes, the most that FURROW.ONCE records; nothing was changed").into());
    }
    answer.repeat(&mut **out);
    txn.put_once(id, &OnceRecord { last: number, answer });
    Ok(())
}
