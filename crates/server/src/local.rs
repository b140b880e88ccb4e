//! The commands that concern the connection and the server rather than keys.

mod client;
mod config;
mod describe;
mod hello;
mod info;

use kv::{Answer, Args, Keys, Spec};

pub(crate) use info::info_text;

use crate::resp::Encoder;
use crate::session::{Ending, Session};
use crate::shared::Shared;

/// One run of such a command.
pub(crate) struct LocalCall<'c> {
    pub args: Args<'c>,
    pub session: &'c mut Session,
    pub shared: &'c Shared,
    pub out: &'c mut Encoder,
}

pub(crate) type Outcome = Result<(), String>;

/// A command on the connection or the server.
pub(crate) struct Local {
    pub spec: Spec,
    pub run: fn(&mut LocalCall<'_>) -> Outcome,
}

pub(crate) const SYNTAX: &str = "ERR syntax error";

const fn local(name: &'static str, arity: i16, flags: u8, run: fn(&mut LocalCall<'_>) -> Outcome) -> Local {
    Local { spec: Spec { name, arity, flags, keys: Keys { first: 0, last: 0, step: 0 } }, run }
}

const FAST: u8 = Spec::FAST;

/// In the order of their names.
pub(crate) static LOCALS: &[Local] = &[
    local("AUTH", -2, FAST | Spec::NO_AUTH, hello::auth),
    local("CLIENT", -2, Spec::ADMIN, client::client),
    local("COMMAND", -1, 0, describe::command),
    local("CONFIG", -2, Spec::ADMIN, config::config),
    local("ECHO", 2, FAST, echo),
    local("HELLO", -1, FAST | Spec::NO_AUTH, hello::hello),
    local("INFO", -1, 0, info::info),
    local("PING", -1, FAST, ping),
    local("QUIT", -1, FAST | Spec::NO_AUTH, quit),
    local("RESET", 1, FAST | Spec::NO_AUTH, hello::reset),
    local("SELECT", 2, FAST, select),
    local("SHUTDOWN", -1, Spec::ADMIN, shutdown),
    local("TIME", 1, FAST, time),
];

/// The command of a name, in whatever case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Local> {
    LOCALS.iter().find(|local| name.eq_ignore_ascii_case(local.spec.name.as_bytes()))
}

/// The error for a subcommand that there is not.
pub(crate) fn unknown_subcommand(args: Args<'_>, parent: &str) -> String {
    let name: String = String::from_utf8_lossy(args.get(1)).chars().take(128).collect();
    format!("ERR unknown subcommand '{name}'. Try {parent} HELP.")
}

/// The error for a wrong number of words of a subcommand.
pub(crate) fn subcommand_arity(args: Args<'_>) -> String {
    let lower = |n| String::from_utf8_lossy(args.get(n)).to_lowercase();
    format!("ERR wrong number of arguments for '{}|{}' command", lower(0), lower(1))
}

fn ping(call: &mut LocalCall<'_>) -> Outcome {
    match call.args.len() {
        1 => call.out.simple("PONG"),
        2 => call.out.bulk(call.args.get(1)),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

fn echo(call: &mut LocalCall<'_>) -> Outcome {
    call.out.bulk(call.args.get(1));
    Ok(())
}

fn quit(call: &mut LocalCall<'_>) -> Outcome {
    call.out.simple("OK");
    call.session.ending = Ending::Close;
    Ok(())
}

fn select(call: &mut LocalCall<'_>) -> Outcome {
    match kv::parse_integer(call.args.get(1)) {
        Some(0) => call.out.simple("OK"),
        Some(_) => return Err("ERR DB index is out of range".into()),
        None => return Err("ERR value is not an integer or out of range".into()),
    }
    Ok(())
}

fn time(call: &mut LocalCall<'_>) -> Outcome {
    let now = call.shared.now_ms();
    call.out.array(2);
    call.out.bulk((now / 1000).to_string().as_bytes());
    call.out.bulk((now % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

/// Everything acknowledged is written out at every stop, so the words on saving change nothing.
fn shutdown(call: &mut LocalCall<'_>) -> Outcome {
    let known = |word: &[u8]| {
        [&b"save"[..], b"nosave", b"now", b"force"].iter().any(|k| word.eq_ignore_ascii_case(k))
    };
    if !call.args.rest(1).all(known) {
        return Err(SYNTAX.into());
    }
    call.session.ending = Ending::Shutdown;
    Ok(())
}
