//! AUTH, HELLO and RESET: passwords, protocol versions and client names.

use kv::Answer;

use super::call::{Call, Outcome, SYNTAX};
use crate::session::Session;

/// The version of Redis whose commands and error texts this server follows.
pub(super) const COMPATIBLE_VERSION: &str = "7.0.15";

/// Longest client name in bytes.
const NAME_LIMIT: usize = 1024;

pub(super) fn auth(call: &mut Call<'_>) -> Outcome {
    let (user, password) = match call.args.len() {
        2 => (&b"default"[..], call.args.get(1)),
        3 => (call.args.get(1), call.args.get(2)),
        _ => return Err(SYNTAX.into()),
    };
    if call.shared.password.is_none() && call.args.len() == 2 {
        return Err(
            "ERR AUTH <password> called without any password configured for the default user. Are you \
                    sure your configuration is correct?"
                .into(),
        );
    }
    check_password(call, user, password)?;
    call.out.simple("OK");
    Ok(())
}

fn check_password(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Outcome {
    let open = call.shared.password.is_none();
    if user != b"default" || !(open || call.shared.is_password(password)) {
        return Err("WRONGPASS invalid username-password pair or user is disabled.".into());
    }
    call.session.authenticated = true;
    Ok(())
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`.
pub(super) fn hello(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    let mut resp3 = None;
    if args.len() > 1 {
        resp3 = Some(match kv::parse_integer(args.get(1)) {
            Some(2) => false,
            Some(3) => true,
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
            None => return Err("ERR Protocol version is not an integer or out of range".into()),
        });
    }
    let (mut n, mut name) = (2, None);
    let before = call.session.authenticated;
    while n < args.len() {
        let word = args.get(n);
        if word.eq_ignore_ascii_case(b"auth") && n + 2 < args.len() {
            check_password(call, args.get(n + 1), args.get(n + 2))?;
            n += 3;
        } else if word.eq_ignore_ascii_case(b"setname") && n + 1 < args.len() {
            name = Some(args.get(n + 1));
            n += 2;
        } else {
            call.session.authenticated = before;
            let shown: String = String::from_utf8_lossy(word).chars().take(128).collect();
            return Err(format!("ERR Syntax error in HELLO option '{shown}'"));
        }
    }
    if !call.session.authenticated {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                    AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                    version at the same time"
            .into());
    }
    if let Some(name) = name {
        set_name(call.session, name)?;
    }
    if let Some(resp3) = resp3 {
        call.session.resp3 = resp3;
        call.out.set_resp3(resp3);
    }
    let out = &mut *call.out;
    out.map(7);
    out.bulk(b"server");
    out.bulk(b"furrow");
    out.bulk(b"version");
    out.bulk(COMPATIBLE_VERSION.as_bytes());
    out.bulk(b"proto");
    out.integer(if call.session.resp3 { 3 } else { 2 });
    out.bulk(b"id");
    out.integer(i64::try_from(call.session.id).unwrap_or(i64::MAX));
    out.bulk(b"mode");
    out.bulk(call.shared.engines.redis_mode().as_bytes());
    out.bulk(b"role");
    out.bulk(b"master");
    out.bulk(b"modules");
    out.array(0);
    Ok(())
}

/// RESET: gives the session the state of a new connection.
pub(super) fn reset(call: &mut Call<'_>) -> Outcome {
    *call.session = Session::new(call.session.id, call.shared.password.is_none());
    call.out.set_resp3(false);
    call.out.simple("RESET");
    Ok(())
}

/// Sets the client's name, which must not have characters that would break a line of CLIENT LIST.
pub(super) fn set_name(session: &mut Session, name: &[u8]) -> Outcome {
    let text =
        printable(name).ok_or("ERR Client names cannot contain spaces, newlines or special characters.")?;
    session.name = text.into();
    Ok(())
}

/// The name as text, if it has only printable characters and no blanks.
pub(super) fn printable(name: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(name).ok()?;
    (name.len() <= NAME_LIMIT && name.iter().all(|b| (b'!'..=b'~').contains(b))).then_some(text)
}
