//! The Redis commands on the connection and the server, such as PING and INFO.

mod call;
mod client;
mod client_filter;
mod cluster;
mod config;
mod describe;
mod hello;
mod info;

use kv::{Answer, Keys, Spec};

use call::SYNTAX;
pub(crate) use call::{Action, Call, Outcome, ServerCommand, TransactionCommand};
pub(crate) use info::info_text;

use crate::session::ConnectionEnding;

const fn server_command(name: &'static str, arity: i16, flags: u8, action: Action) -> ServerCommand {
    ServerCommand { spec: Spec { name, arity, flags, keys: Keys { first: 0, last: 0, step: 0 } }, action }
}

const fn run(name: &'static str, arity: i16, flags: u8, run: fn(&mut Call<'_>) -> Outcome) -> ServerCommand {
    server_command(name, arity, flags, Action::Run(run))
}

const FAST: u8 = Spec::FAST;
const FAST_WITHOUT_AUTH: u8 = Spec::FAST | Spec::NO_AUTH;

/// The commands on the connection and the server, in the order of their names.
pub(crate) static SERVER_COMMANDS: &[ServerCommand] = &[
    run("ASKING", 1, FAST, cluster::asking),
    run("AUTH", -2, FAST_WITHOUT_AUTH, hello::auth),
    run("CLIENT", -2, Spec::ADMIN, client::client),
    run("CLUSTER", -2, 0, cluster::cluster),
    run("COMMAND", -1, 0, describe::command),
    run("CONFIG", -2, Spec::ADMIN, config::config),
    server_command("DISCARD", 1, FAST, Action::Transaction(TransactionCommand::Discard)),
    run("ECHO", 2, FAST, echo),
    server_command("EXEC", 1, 0, Action::Transaction(TransactionCommand::Exec)),
    run("HELLO", -1, FAST_WITHOUT_AUTH, hello::hello),
    run("INFO", -1, 0, info::info),
    server_command("MULTI", 1, FAST, Action::Transaction(TransactionCommand::Multi)),
    run("PING", -1, FAST, ping),
    server_command("QUIT", -1, FAST_WITHOUT_AUTH, Action::RunAtOnce(quit)),
    run("READONLY", 1, FAST, cluster::read_only),
    run("READWRITE", 1, FAST, cluster::read_write),
    server_command("RESET", 1, FAST_WITHOUT_AUTH, Action::RunAtOnce(hello::reset)),
    run("SELECT", 2, FAST, select),
    server_command("SHUTDOWN", -1, Spec::ADMIN, Action::RunOutside(shutdown)),
    run("TIME", 1, FAST, time),
    server_command("UNWATCH", 1, FAST, Action::Transaction(TransactionCommand::Unwatch)),
    ServerCommand {
        spec: Spec { name: "WATCH", arity: -2, flags: FAST, keys: Keys { first: 1, last: -1, step: 1 } },
        action: Action::Transaction(TransactionCommand::Watch),
    },
];

/// Finds a command on the connection or the server by name, in upper or lower case.
pub(crate) fn find(name: &[u8]) -> Option<&'static ServerCommand> {
    SERVER_COMMANDS.iter().find(|command| name.eq_ignore_ascii_case(command.spec.name.as_bytes()))
}

/// The names of all commands, those on keys included.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    kv::COMMANDS.iter().map(|c| c.spec.name).chain(SERVER_COMMANDS.iter().map(|c| c.spec.name))
}

fn ping(call: &mut Call<'_>) -> Outcome {
    match call.args.len() {
        1 => call.out.simple("PONG"),
        2 => call.out.bulk(call.args.get(1)),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

fn echo(call: &mut Call<'_>) -> Outcome {
    call.out.bulk(call.args.get(1));
    Ok(())
}

fn quit(call: &mut Call<'_>) -> Outcome {
    call.out.simple("OK");
    call.session.ending = ConnectionEnding::Close;
    Ok(())
}

fn select(call: &mut Call<'_>) -> Outcome {
    match kv::parse_integer(call.args.get(1)) {
        Some(0) => call.out.simple("OK"),
        Some(_) if call.shared.engines.cluster().is_some() => {
            return Err("ERR SELECT is not allowed in cluster mode".into());
        }
        Some(_) => return Err("ERR DB index is out of range".into()),
        None => return Err("ERR value is not an integer or out of range".into()),
    }
    Ok(())
}

fn time(call: &mut Call<'_>) -> Outcome {
    let now = call.shared.now_ms();
    call.out.array(2);
    call.out.bulk((now / 1000).to_string().as_bytes());
    call.out.bulk((now % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

/// SHUTDOWN. Every shutdown makes all acknowledged writes durable, so SAVE and NOSAVE change nothing.
fn shutdown(call: &mut Call<'_>) -> Outcome {
    let known = |word: &[u8]| {
        [&b"save"[..], b"nosave", b"now", b"force"].iter().any(|k| word.eq_ignore_ascii_case(k))
    };
    if !call.args.rest(1).all(known) {
        return Err(SYNTAX.into());
    }
    call.session.ending = ConnectionEnding::Shutdown;
    Ok(())
}
