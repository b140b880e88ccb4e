//! CONFIG shows the server's settings, which are set when the server is started.

use kv::{Answer, glob};

use super::call::{Call, Outcome, reply_help, subcommand_arity, unknown_subcommand};
use crate::shared::Shared;

/// The server's settings, under Redis's names for them.
fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let options = &shared.options;
    vec![
        ("appendfsync", if options.durability.is_sync() { "always" } else { "everysec" }.into()),
        ("appendonly", "yes".into()),
        ("bind", options.bind.to_string()),
        ("databases", "1".into()),
        ("durability", options.durability.to_string()),
        ("maxclients", options.max_clients.to_string()),
        ("maxmemory", "0".into()),
        ("maxmemory-policy", "noeviction".into()),
        ("port", if shared.tls.is_some() { 0 } else { shared.port }.to_string()),
        ("proto-max-bulk-len", options.max_value.to_string()),
        ("save", String::new()),
        ("timeout", options.idle_seconds.to_string()),
        ("tls-port", if shared.tls.is_some() { shared.port } else { 0 }.to_string()),
        ("wal", options.wal.to_string()),
    ]
}

const HELP: &[(&str, &str)] = &[
    ("GET <pattern> [<pattern> ...]", "Prints the settings whose names match."),
    ("SET <name> <value>", "Is refused: settings are given when the server is started."),
    ("RESETSTAT", "Sets the totals of INFO to zero; those of /metrics go on."),
    ("REWRITE", "Is refused: the server has no file of settings."),
];

pub(super) fn config(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    match args.get(1).to_ascii_uppercase().as_slice() {
        b"GET" if args.len() >= 3 => {
            let mut found = settings(call.shared);
            found.retain(|(name, _)| {
                args.rest(2).any(|pattern| glob(&pattern.to_ascii_lowercase(), name.as_bytes()))
            });
            call.out.map(found.len());
            for (name, value) in found {
                call.out.bulk(name.as_bytes());
                call.out.bulk(value.as_bytes());
            }
            Ok(())
        }
        b"SET" if args.len() >= 4 => {
            let name = String::from_utf8_lossy(args.get(2)).into_owned();
            Err(format!(
                "ERR CONFIG SET {name}: settings are given when the server is started; see furrow serve --help"
            ))
        }
        b"RESETSTAT" if args.len() == 2 => {
            call.shared.reset_totals();
            call.out.simple("OK");
            Ok(())
        }
        b"HELP" if args.len() == 2 => {
            reply_help(call.out, "CONFIG", HELP);
            Ok(())
        }
        b"REWRITE" if args.len() == 2 => Err("ERR The server is running without a config file".into()),
        b"GET" | b"HELP" | b"SET" | b"RESETSTAT" | b"REWRITE" => Err(subcommand_arity(args)),
        _ => Err(unknown_subcommand(args, "CONFIG")),
    }
}
