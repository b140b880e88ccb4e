//! CLIENT.

use std::sync::Arc;

use kv::Answer;

use super::hello::set_name;
use super::{LocalCall, Outcome, SYNTAX, subcommand_arity, unknown_subcommand};
use crate::clients::Client;
use crate::session::Ending;

pub(super) fn client(call: &mut LocalCall<'_>) -> Outcome {
    let args = call.args;
    let words = args.len();
    let own = || call.shared.clients.get(call.session.id);
    let now = call.shared.now_ms();
    match args.get(1).to_ascii_uppercase().as_slice() {
        b"ID" if words == 2 => call.out.integer(i64::try_from(call.session.id).unwrap_or(i64::MAX)),
        b"GETNAME" if words == 2 => match call.session.name.is_empty() {
            true => call.out.null(),
            false => call.out.bulk(call.session.name.as_bytes()),
        },
        b"SETNAME" if words == 3 => {
            set_name(call.session, args.get(2))?;
            call.out.simple("OK");
        }
        b"SETINFO" if words == 4 => call.out.simple("OK"),
        b"NO-EVICT" if words == 3 => on_or_off(call)?,
        b"NO-TOUCH" if words == 3 => on_or_off(call)?,
        b"INFO" if words == 2 => {
            let line = own().map_or(String::new(), |c| c.line(now));
            call.out.bulk(format!("{line}\n").as_bytes());
        }
        b"LIST" => {
            let mut text = String::new();
            for client in call.shared.clients.list() {
                text.push_str(&client.line(now));
                text.push('\n');
            }
            call.out.bulk(text.as_bytes());
        }
        b"KILL" if words >= 3 => kill(call)?,
        b"ID" | b"GETNAME" | b"SETNAME" | b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH" | b"INFO" | b"KILL" => {
            return Err(subcommand_arity(args));
        }
        _ => return Err(unknown_subcommand(args, "CLIENT")),
    }
    Ok(())
}

/// Accepted, as clients send these unasked; nothing is evicted here anyway.
fn on_or_off(call: &mut LocalCall<'_>) -> Outcome {
    let word = call.args.get(2);
    if !word.eq_ignore_ascii_case(b"on") && !word.eq_ignore_ascii_case(b"off") {
        return Err(SYNTAX.into());
    }
    call.out.simple("OK");
    Ok(())
}

/// `KILL addr:port`, or `KILL [ID n] [ADDR a] [LADDR a] [SKIPME yes|no]`.
fn kill(call: &mut LocalCall<'_>) -> Outcome {
    let args = call.args;
    let address = |n: usize| String::from_utf8_lossy(args.get(n)).into_owned();
    let (old_form, mut skip_me) = (args.len() == 3, true);
    let mut victims = call.shared.clients.list();
    let keep = |victims: &mut Vec<Arc<Client>>, f: &dyn Fn(&Client) -> bool| victims.retain(|c| f(c));
    if old_form {
        keep(&mut victims, &|c| c.address.to_string() == address(2));
        skip_me = false;
    } else {
        if args.len() % 2 == 1 {
            return Err(SYNTAX.into());
        }
        for n in (2..args.len()).step_by(2) {
            match args.get(n).to_ascii_uppercase().as_slice() {
                b"ID" => {
                    let id = kv::parse_integer(args.get(n + 1)).filter(|id| *id > 0);
                    let id = id.ok_or("ERR client-id should be greater than 0")?.unsigned_abs();
                    keep(&mut victims, &|c| c.id == id);
                }
                b"ADDR" => keep(&mut victims, &|c| c.address.to_string() == address(n + 1)),
                b"LADDR" => keep(&mut victims, &|c| c.local.to_string() == address(n + 1)),
                b"TYPE" | b"USER" => {}
                b"SKIPME" => skip_me = !args.get(n + 1).eq_ignore_ascii_case(b"no"),
                _ => return Err(SYNTAX.into()),
            }
        }
    }
    if skip_me {
        victims.retain(|c| c.id != call.session.id);
    }
    for client in &victims {
        if client.id == call.session.id {
            call.session.ending = Ending::Close;
        } else {
            client.kill.notify_one();
        }
    }
    match (old_form, victims.len()) {
        (true, 0) => return Err("ERR No such client".into()),
        (true, _) => call.out.simple("OK"),
        (false, n) => call.out.integer(n as i64),
    }
    Ok(())
}
