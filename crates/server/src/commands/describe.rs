//! The command COMMAND, which describes commands.

use kv::{Answer, Spec};

use super::call::{Call, Outcome, reply_help, subcommand_arity, unknown_subcommand};
use crate::resp::Encoder;

const HELP: &[(&str, &str)] = &[
    ("(no subcommand)", "Describes all commands."),
    ("COUNT", "Prints the number of commands."),
    ("DOCS [<name> ...]", "Prints an empty map: the server has no texts of commands."),
    ("GETKEYS <command> [<argument> ...]", "Prints the keys among the words of a command."),
    ("INFO [<name> ...]", "Describes the named commands, or all."),
    ("LIST", "Prints the names of all commands."),
];

pub(super) fn command(call: &mut Call<'_>) -> Outcome {
    let table = call.table;
    let specs = || kv::COMMANDS.iter().map(|c| c.spec).chain(table.iter().map(|c| c.spec));
    let spec_of = |name: &[u8]| specs().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()));
    let args = call.args;
    let out = &mut *call.out;
    if args.len() == 1 {
        out.array(specs().count());
        specs().for_each(|spec| describe_command(out, &spec));
        return Ok(());
    }
    match args.get(1).to_ascii_uppercase().as_slice() {
        b"COUNT" if args.len() == 2 => out.integer(specs().count() as i64),
        b"LIST" if args.len() == 2 => {
            out.array(specs().count());
            specs().for_each(|spec| out.bulk(spec.name.to_ascii_lowercase().as_bytes()));
        }
        b"INFO" if args.len() == 2 => {
            out.array(specs().count());
            specs().for_each(|spec| describe_command(out, &spec));
        }
        b"INFO" => {
            out.array(args.len() - 2);
            for name in args.rest(2) {
                match spec_of(name) {
                    Some(spec) => describe_command(out, &spec),
                    None => out.null(),
                }
            }
        }
        // redis-cli sends COMMAND DOCS when it starts; with an empty reply it shows no hints.
        b"DOCS" => out.map(0),
        b"GETKEYS" if args.len() >= 4 => {
            let spec = spec_of(args.get(2)).ok_or("ERR Invalid command specified")?;
            let words = args.tail(2);
            if !spec.takes_words(words.len()) {
                return Err("ERR Invalid number of arguments specified for command".into());
            }
            let places: Vec<usize> = kv::key_places(&spec, words).collect();
            if places.is_empty() {
                return Err("ERR The command has no key arguments".into());
            }
            out.array(places.len());
            places.iter().for_each(|n| out.bulk(words.get(*n)));
        }
        b"HELP" if args.len() == 2 => reply_help(out, "COMMAND", HELP),
        b"COUNT" | b"HELP" | b"LIST" | b"GETKEYS" => return Err(subcommand_arity(args)),
        _ => return Err(unknown_subcommand(args, "COMMAND")),
    }
    Ok(())
}

fn describe_command(out: &mut Encoder, spec: &Spec) {
    const FLAGS: [(u8, &str); 7] = [
        (Spec::WRITE, "write"),
        (Spec::READ, "readonly"),
        (Spec::NEEDS_ROOM, "denyoom"),
        (Spec::ADMIN, "admin"),
        (Spec::FAST, "fast"),
        (Spec::NO_AUTH, "no_auth"),
        (Spec::MOVABLE_KEYS, "movablekeys"),
    ];
    out.array(10);
    out.bulk(spec.name.to_ascii_lowercase().as_bytes());
    out.integer(i64::from(spec.arity));
    let flags = || FLAGS.iter().filter(|(flag, _)| spec.has(*flag));
    out.set(flags().count());
    flags().for_each(|(_, name)| out.simple(name));
    out.integer(i64::from(spec.keys.first));
    out.integer(i64::from(spec.keys.last));
    out.integer(i64::from(spec.keys.step));
    // Empty lists of ACL categories, tips, key specifications and subcommands.
    out.set(0);
    (0..3).for_each(|_| out.array(0));
}
