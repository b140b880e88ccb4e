//! The command CLIENT and its subcommands.

use std::fmt::Write;

use kv::Answer;

use super::call::{Call, Outcome, SYNTAX, reply_help, subcommand_arity, unknown_subcommand};
use super::client_filter::{ClientFilter, ClientKind};
use super::hello::{printable, set_name};
use crate::clients::Client;
use crate::session::ConnectionEnding;

const HELP: &[(&str, &str)] = &[
    ("GETNAME", "Prints the connection's name."),
    ("ID", "Prints the connection's number."),
    ("INFO", "Describes the connection."),
    ("KILL <ip:port>", "Closes the connection from an address."),
    (
        "KILL <filter> <value> [<filter> <value> ...]",
        "Closes the connections that all filters accept: ID <number>, ADDR <ip:port>, LADDR <ip:port>, TYPE \
         (normal|master|replica|pubsub), USER <name>, MAXAGE <seconds>, SKIPME (yes|no).",
    ),
    ("LIST [TYPE (normal|master|replica|pubsub) | ID <number> ...]", "Describes all connections, or some."),
    ("NO-EVICT (ON|OFF)", "Sets a flag that LIST shows; the server evicts no client."),
    ("NO-TOUCH (ON|OFF)", "Sets a flag that LIST shows; the server keeps no times of use."),
    ("SETINFO (LIB-NAME <name> | LIB-VER <version>)", "Sets the client library that LIST shows."),
    ("SETNAME <name>", "Sets the connection's name."),
];

pub(super) fn client(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    let words = args.len();
    let subcommand = args.get(1).to_ascii_uppercase();
    match subcommand.as_slice() {
        b"ID" if words == 2 => call.out.integer(i64::try_from(call.session.id).unwrap_or(i64::MAX)),
        b"GETNAME" if words == 2 => match call.session.name.is_empty() {
            true => call.out.null(),
            false => call.out.bulk(call.session.name.as_bytes()),
        },
        b"SETNAME" if words == 3 => {
            set_name(call.session, args.get(2))?;
            call.out.simple("OK");
        }
        b"SETINFO" if words == 4 => set_info(call)?,
        b"NO-EVICT" if words == 3 => call.session.no_evict = parse_on_or_off(call)?,
        b"NO-TOUCH" if words == 3 => call.session.no_touch = parse_on_or_off(call)?,
        b"INFO" if words == 2 => reply_client_lines(call, "client|info", |client, own| client.id == own),
        b"LIST" => list_clients(call)?,
        b"KILL" if words >= 3 => kill_clients(call)?,
        b"HELP" if words == 2 => reply_help(call.out, "CLIENT", HELP),
        b"ID" | b"GETNAME" | b"SETNAME" | b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH" | b"INFO" | b"KILL"
        | b"HELP" => {
            return Err(subcommand_arity(args));
        }
        _ => return Err(unknown_subcommand(args, "CLIENT")),
    }
    Ok(())
}

fn set_info(call: &mut Call<'_>) -> Outcome {
    let (name, value) = (call.args.get(2).to_ascii_lowercase(), call.args.get(3));
    let (library, version) = &mut call.session.library;
    let (field, name) = match name.as_slice() {
        b"lib-name" => (library, "lib-name"),
        b"lib-ver" => (version, "lib-ver"),
        _ => {
            let name = String::from_utf8_lossy(call.args.get(2)).into_owned();
            return Err(format!("ERR Unrecognized option '{name}'"));
        }
    };
    let value = printable(value)
        .ok_or_else(|| format!("ERR {name} cannot contain spaces, newlines or special characters."))?;
    *field = value.into();
    call.out.simple("OK");
    Ok(())
}

fn parse_on_or_off(call: &mut Call<'_>) -> Result<bool, String> {
    let word = call.args.get(2);
    let on = word.eq_ignore_ascii_case(b"on");
    if !on && !word.eq_ignore_ascii_case(b"off") {
        return Err(SYNTAX.into());
    }
    call.out.simple("OK");
    Ok(on)
}

/// CLIENT LIST, CLIENT LIST TYPE kind, or CLIENT LIST ID number ...
fn list_clients(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    match args.get(2).to_ascii_uppercase().as_slice() {
        _ if args.len() == 2 => reply_client_lines(call, "client|list", |_, _| true),
        b"TYPE" if args.len() == 4 => {
            let kind = ClientKind::parse(args.get(3))?;
            reply_client_lines(call, "client|list", |_, _| kind == ClientKind::Normal);
        }
        b"ID" if args.len() > 3 => {
            let ids: Option<Vec<i64>> = args.rest(3).map(kv::parse_integer).collect();
            let ids = ids.ok_or("ERR Invalid client ID")?;
            reply_client_lines(call, "client|list", |client, _| {
                i64::try_from(client.id).is_ok_and(|id| ids.contains(&id))
            });
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(())
}

/// Replies a line for each client that `wanted` accepts; `wanted`'s second argument is the number of the client that
/// asks.
fn reply_client_lines(call: &mut Call<'_>, command: &'static str, wanted: impl Fn(&Client, u64) -> bool) {
    let (own, now) = (call.session.id, call.shared.now_ms());
    if let Some(client) = call.shared.clients.get(own) {
        client.note_session(call.session, command);
    }
    let mut text = String::new();
    for client in call.shared.clients.list().iter().filter(|client| wanted(client, own)) {
        let _infallible = writeln!(text, "{}", client.line(now));
    }
    call.out.verbatim(&text);
}

/// CLIENT KILL addr:port, or CLIENT KILL with filters.
fn kill_clients(call: &mut Call<'_>) -> Outcome {
    let (args, own) = (call.args, call.session.id);
    let old_form = args.len() == 3;
    let filter = match old_form {
        true => ClientFilter::of_address(args.get(2)),
        false => ClientFilter::parse(args, own)?,
    };
    let now = call.shared.now_ms();
    let mut killed = 0;
    for client in call.shared.clients.list().iter().filter(|client| filter.accepts(client, now)) {
        killed += 1;
        if client.id == own {
            call.session.ending = ConnectionEnding::Close;
        } else {
            client.kill();
        }
    }
    match (old_form, killed) {
        (true, 0) => return Err("ERR No such client".into()),
        (true, _) => call.out.simple("OK"),
        (false, n) => call.out.integer(n),
    }
    Ok(())
}
