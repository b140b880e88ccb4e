//! Tests of FURROW.ONCE.

use super::*;
use crate::key_places;
use crate::once::{ANSWER_MAX, OnceId};

/// The commands on keys that cannot run once: they concern all keys, or make a command run once themselves.
const NEVER_ONCE: [&str; 6] = ["DBSIZE", "FLUSHALL", "FLUSHDB", "FURROW.ONCE", "KEYS", "SCAN"];

fn world() -> World {
    World { store: MemoryStore::new().with_once(7), ..World::new() }
}

impl World {
    fn new_id(&mut self) -> String {
        match &self.run_line("FURROW.ONCE NEW k")[..] {
            [Reply::Bulk(id)] => String::from_utf8_lossy(id).into_owned(),
            other => panic!("no id: {other:?}"),
        }
    }

    fn error_of(&mut self, line: &str) -> String {
        match &self.run_line(line)[..] {
            [Reply::Error(text)] => text.clone(),
            other => panic!("no error: {other:?}"),
        }
    }

    /// The error reply to a line that changes nothing.
    fn refusal_of(&mut self, line: &str) -> String {
        let writes = |w: &World| format!("{:?}", w.overlay);
        let before = writes(self);
        let text = self.error_of(line);
        let bytes_apart = |text: String| text.split(", bytes").next().map(str::to_owned);
        assert_eq!(bytes_apart(writes(self)), bytes_apart(before), "{line}");
        text
    }
}

#[test]
fn a_command_runs_once_for_each_number_in_overlay_and_store() {
    let mut w = world();
    let id = w.new_id();
    for committed in [false, true] {
        if committed {
            w.write_overlay();
        }
        for n in [1, 2, 7] {
            let (n, counted) = if committed { (n + 10, n.min(3) + 3) } else { (n, n.min(3)) };
            for repeated in [false, true, true] {
                let reply = w.run_line(&format!("FURROW.ONCE {id} {n} INCR k"));
                assert_eq!(reply, int(counted), "{n}, {repeated}");
                if committed {
                    w.write_overlay();
                }
            }
        }
    }
    assert_eq!(w.run_line("GET k"), bulk("6"));
}

#[test]
fn the_first_answer_is_repeated_whatever_the_keys_hold_now() {
    let mut w = world();
    let id = w.new_id();
    w.run_line("MSET k v n 5");
    let lines = [
        ("GET k", bulk("v"), "SET k other"),
        ("SET k w GET", bulk("other"), "DEL k"),
        ("MGET n k", [vec![Reply::Array(2)], bulk("5"), vec![Reply::Null]].concat(), "SET k x"),
        ("INCR k", error(NOT_AN_INTEGER), "SET k 41"),
        ("GETDEL k", bulk("41"), "FLUSHALL"),
        ("SET k v NX", ok(), "DEL k"),
    ];
    for (n, (line, answer, change)) in (1..).zip(lines) {
        let line = format!("FURROW.ONCE {id} {n} {line}");
        assert_eq!(w.run_line(&line), answer, "{line}");
        w.run_line(change);
        assert_eq!(w.run_line(&line), answer, "{line}, after {change}");
        // The number decides, not the command.
        assert_eq!(w.run_line(&format!("FURROW.ONCE {id} {n} INCR n")), answer);
    }
    assert_eq!(w.run_line("EXISTS k n"), int(0), "INCR n has never run, and n went with FLUSHALL");
}

#[test]
fn an_id_that_is_unknown_of_another_group_or_behind_changes_nothing() {
    let mut w = world();
    let id = w.new_id();
    w.run_line(&format!("FURROW.ONCE {id} 5 SET k v"));
    let parsed = OnceId::parse(id.as_bytes()).expect("an id");
    let unknown = OnceId { number: parsed.number + 1, ..parsed };
    let other_group = OnceId { group: 8, ..parsed };
    let cases = [
        (format!("{unknown} 6"), "ONCEUNKNOWN no id"),
        ("x 6".into(), "ONCEUNKNOWN no id 'x'"),
        (format!("{other_group} 6"), "ERR id 8-"),
        (format!("{id} 4"), "ONCEOLD the last command of id"),
        (format!("{id} 0"), "ERR the number"),
        (format!("{id} -6"), "ERR the number"),
        (format!("{id} 06"), "ERR the number"),
        (format!("{id} 9223372036854775808"), "ERR the number"),
    ];
    for (words, expected) in cases {
        let text = w.refusal_of(&format!("FURROW.ONCE {words} SET k other"));
        assert!(text.starts_with(expected), "{words}: {text}");
    }
    assert!(w.refusal_of("FURROW.ONCE NEW k extra").starts_with("ERR syntax"));
    assert_eq!(w.run_line(&format!("FURROW.ONCE {id} 9223372036854775807 INCR n")), int(1));
    assert_eq!(w.run_line("GET k"), bulk("v"));
}

#[test]
fn a_command_runs_once_only_if_the_table_says_so() {
    let mut w = world();
    let id = w.new_id();
    for command in COMMANDS {
        let name = command.spec.name;
        let refused = "ERR FURROW.ONCE does not run the command";
        let text = w.run_line(&format!("FURROW.ONCE {id} 1 {name}"));
        let is_refused = matches!(&text[..], [Reply::Error(text)] if text.starts_with(refused));
        assert_eq!(is_refused, NEVER_ONCE.contains(&name), "{name}: {text:?}");
    }
    for name in ["PING", "EXEC", "MULTI", "WATCH", "CLUSTER", "SELECT", "NOSUCH", ""] {
        assert!(w.refusal_of(&format!("FURROW.ONCE {id} 1 {name} k")).contains("does not run"), "{name}");
    }
    let nested = w.refusal_of(&format!("FURROW.ONCE {id} 1 FURROW.ONCE {id} 2 INCR k"));
    assert!(nested.contains("does not run the command 'FURROW.ONCE'"), "{nested}");
    assert_eq!(
        w.refusal_of(&format!("FURROW.ONCE {id} 1 GET")),
        "ERR wrong number of arguments for 'get' command"
    );
    assert_eq!(w.run_line(&format!("FURROW.ONCE {id} 1 incr k")), int(1), "no number was used up");
}

#[test]
fn an_answer_that_is_too_long_is_an_error_and_its_command_has_changed_nothing() {
    let mut w = world();
    let id = w.new_id();
    let long = "x".repeat(ANSWER_MAX);
    w.run_line(&format!("SET k {long}"));
    for committed in [false, true] {
        if committed {
            w.write_overlay();
        }
        for line in ["GETDEL k", "GETSET k v", "SET k v GET", "GETEX k EX 9", "MGET k k k"] {
            let text = w.refusal_of(&format!("FURROW.ONCE {id} 1 {line}"));
            assert!(text.contains("longer than 4096 bytes"), "{line}: {text}");
        }
        assert_eq!(w.run_line("STRLEN k"), int(4096));
        assert_eq!(w.run_line("TTL k"), int(-1));
    }
    assert_eq!(w.run_line(&format!("FURROW.ONCE {id} 1 STRLEN k")), int(4096));
}

#[test]
fn clearing_the_database_forgets_no_id_and_no_command_on_keys_sees_one() {
    let mut w = world();
    let id = w.new_id();
    let once = format!("FURROW.ONCE {id} 1 INCR k");
    assert_eq!(w.run_line(&once), int(1));
    for _ in 0..2 {
        w.run_line("FLUSHALL");
        assert_eq!(w.run_line(&once), int(1));
        assert_eq!(w.run_line("DBSIZE"), int(0));
        assert_eq!(w.run_line("KEYS *"), [Reply::Array(0)]);
        w.write_overlay();
    }
    assert_eq!(w.run_line(&once), int(1));
}

#[test]
fn the_longest_idle_id_expires_when_there_are_too_many() {
    let mut w = world();
    let make = |w: &mut World| {
        let mut txn = Txn::writing(&w.store, &mut w.overlay, &w.shared, w.now_ms, None);
        txn.make_once(7, 3).expect("memory does not fail").map(|id| id.to_string())
    };
    let mut ids: Vec<String> = Vec::new();
    for _ in 0..3 {
        ids.push(make(&mut w).expect("there is room"));
        w.write_overlay();
    }
    assert_eq!(w.run_line(&format!("FURROW.ONCE {} 1 INCR k", ids[0])), int(1));
    w.write_overlay();
    // Two new ids in one batch: the second and the third of the old ones are the longest idle.
    let (fourth, fifth) = (make(&mut w).expect("an id expires"), make(&mut w).expect("an id expires"));
    for committed in [false, true] {
        for gone in &ids[1..3] {
            let text = w.error_of(&format!("FURROW.ONCE {gone} 1 INCR k"));
            assert!(text.starts_with("ONCEUNKNOWN"), "{text}, {committed}");
        }
        w.write_overlay();
    }
    for id in [&ids[0], &fourth, &fifth] {
        assert_eq!(w.run_line(&format!("FURROW.ONCE {id} 2 EXISTS k")), int(1));
    }
    // Each id is used by the batch, so that none may go.
    assert_eq!(make(&mut w), None);
    w.write_overlay();
    assert!(make(&mut w).is_some());
    let all: BTreeSet<String> = ids.iter().chain([&fourth, &fifth]).cloned().collect();
    assert_eq!(all.len(), 5, "no id is given twice");
}

#[test]
fn a_store_without_a_table_of_ids_refuses_in_words() {
    let mut w = World::new();
    for line in ["FURROW.ONCE NEW k", "FURROW.ONCE 7-0-1 1 INCR k"] {
        assert!(w.refusal_of(line).starts_with("ERR FURROW.ONCE needs a cluster"), "{line}");
    }
}

#[test]
fn the_keys_are_those_of_the_command_that_runs_once() {
    let places = |line: &str| -> Vec<usize> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let (buffer, spans) = request(&words);
        key_places(&find(words[0]).expect("a command").spec, Args::new(&buffer, &spans)).collect()
    };
    assert_eq!(places("FURROW.ONCE NEW k"), [2]);
    assert_eq!(places("furrow.once new k"), [2]);
    assert_eq!(places("FURROW.ONCE 1-2-3 1 SET k v"), [4]);
    assert_eq!(places("FURROW.ONCE 1-2-3 1 MSET k v l w"), [4, 6]);
    assert_eq!(places("FURROW.ONCE 1-2-3 1 DEL a b c"), [4, 5, 6]);
    for none in
        ["FURROW.ONCE", "FURROW.ONCE NEW", "FURROW.ONCE 1-2-3 1 SET k", "FURROW.ONCE 1-2-3 1 FLUSHALL"]
    {
        assert_eq!(places(none), [0; 0], "{none}");
    }
    assert_eq!(places("MSET k v l w"), [1, 3]);
}
