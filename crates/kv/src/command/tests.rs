mod once;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::call::*;
use super::table::NAME_LIMIT;
use super::*;
use crate::txn::TxnShared;
use crate::{Args, Limits, MemoryStore, Overlay, Reply, Span, Store, Txn, View};

/// A store, the overlay of a group that is not written to the store yet, and a clock that the test sets.
struct World {
    store: MemoryStore,
    overlay: Overlay,
    shared: TxnShared,
    now_ms: u64,
}

impl World {
    fn new() -> World {
        World {
            store: MemoryStore::new(),
            overlay: Overlay::default(),
            shared: TxnShared::default(),
            now_ms: 1_000_000,
        }
    }

    fn run(&mut self, words: &[&[u8]]) -> Vec<Reply> {
        let (buffer, spans) = request(words);
        let mut out = Vec::new();
        let command = find(words[0]).expect("a known command");
        let mut txn = Txn::writing(&self.store, &mut self.overlay, &self.shared, self.now_ms, None);
        execute(command, Args::new(&buffer, &spans), &mut txn, &mut out);
        out
    }

    fn run_line(&mut self, line: &str) -> Vec<Reply> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.run(&words)
    }

    /// Writes the overlay to the store, as the end of a group does.
    fn write_overlay(&mut self) {
        let written = self
            .store
            .write(&self.overlay, true, View::default())
            .now_or_never()
            .expect("memory is there at once");
        written.expect("memory takes everything");
        self.overlay.reset();
    }
}

fn request(words: &[&[u8]]) -> (Bytes, Vec<Span>) {
    let mut buffer = Vec::new();
    let spans = words
        .iter()
        .map(|word| {
            let start = buffer.len() as u32;
            buffer.extend_from_slice(word);
            Span { start, end: buffer.len() as u32 }
        })
        .collect();
    (buffer.into(), spans)
}

fn ok() -> Vec<Reply> {
    vec![Reply::Simple("OK".into())]
}

fn int(n: i64) -> Vec<Reply> {
    vec![Reply::Integer(n)]
}

fn bulk(text: &str) -> Vec<Reply> {
    vec![Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()))]
}

fn error(text: &str) -> Vec<Reply> {
    vec![Reply::Error(text.into())]
}

#[test]
fn the_table_is_in_order_and_every_name_is_found_in_any_case() {
    assert!(COMMANDS.is_sorted_by(|a, b| a.spec.name < b.spec.name));
    for command in COMMANDS {
        let lower = command.spec.name.to_ascii_lowercase();
        assert_eq!(find(lower.as_bytes()).map(|c| c.spec), Some(command.spec));
        assert!(command.spec.name.len() <= NAME_LIMIT);
        assert!(command.spec.has(Spec::READ) != command.spec.has(Spec::WRITE));
    }
    assert!(find(b"").is_none() && find(b"GETT").is_none() && find(&[b'A'; 300]).is_none());
}

#[test]
fn a_key_expires_at_its_time_in_overlay_and_store() {
    let mut w = World::new();
    for committed in [false, true] {
        assert_eq!(w.run_line("SET k v PX 100"), ok());
        if committed {
            w.write_overlay();
        }
        w.now_ms += 99;
        assert_eq!(w.run_line("GET k"), bulk("v"));
        assert_eq!(w.run_line("PTTL k"), int(1));
        w.now_ms += 1;
        for (line, reply) in [("EXISTS k", 0), ("TTL k", -2), ("DEL k", 0), ("DBSIZE", 0), ("STRLEN k", 0)] {
            assert_eq!(w.run_line(line), int(reply), "{line}");
        }
        assert_eq!(w.run_line("GET k"), vec![Reply::Null]);
        assert_eq!(w.run_line("KEYS *"), vec![Reply::Array(0)]);
        assert_eq!(w.run_line("SET k w NX"), ok());
        assert_eq!(w.run_line("TTL k"), int(-1));
    }
}

#[test]
fn flushall_hides_stored_keys_and_keeps_later_writes() {
    let mut w = World::new();
    w.run_line("MSET a 1 b 2 c 3");
    w.write_overlay();
    assert_eq!(w.run_line("FLUSHALL ASYNC"), ok());
    assert_eq!(w.run_line("SET b new"), ok());
    for _ in 0..2 {
        assert_eq!(w.run_line("MGET a b"), [vec![Reply::Array(2), Reply::Null], bulk("new")].concat());
        assert_eq!(w.run_line("DBSIZE"), int(1));
        w.write_overlay();
    }
}

#[test]
fn a_failed_command_leaves_one_error_and_no_change() {
    let mut w = World::new();
    w.shared.limits = Limits { key: 8, value: 16 };
    w.run_line("SET k abc");
    for (line, text) in [
        ("INCR k", NOT_AN_INTEGER),
        ("SET k v EX 0", "ERR invalid expire time in 'set' command"),
        ("SET k v EX 1 PX 1", SYNTAX),
        ("SET k v NX XX", SYNTAX),
        ("SET k v EX", SYNTAX),
        ("EXPIRE k 9223372036854775807", "ERR invalid expire time in 'expire' command"),
        ("MSET k 1 j", "ERR wrong number of arguments for 'mset' command"),
        ("MSET k 1 longer-than-8 2", "ERR a key is longer than the limit of 8 bytes"),
        (
            "APPEND k 0123456789abcdef",
            "ERR string exceeds maximum allowed size (proto-max-bulk-len): the limit is 16 bytes, set by --max-value",
        ),
        ("GET", "ERR wrong number of arguments for 'get' command"),
        ("SCAN x", "ERR invalid cursor"),
        ("DECRBY k -9223372036854775808", "ERR decrement would overflow"),
    ] {
        assert_eq!(w.run_line(line), error(text), "{line}");
        assert_eq!(w.run_line("MGET k"), [vec![Reply::Array(1)], bulk("abc")].concat());
    }
}

#[test]
fn a_damaged_record_is_an_error_to_its_reader_alone() {
    #[derive(Debug)]
    struct DamagedStore(MemoryStore);
    impl Store for DamagedStore {
        fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> crate::Result<()> {
            if key == b"bad" {
                found(Some(b"short"));
                return Ok(());
            }
            self.0.get(key, found)
        }
        fn multi_get(
            &self,
            keys: &[&[u8]],
            found: &mut dyn FnMut(usize, Option<&[u8]>),
        ) -> crate::Result<()> {
            for (n, key) in keys.iter().enumerate() {
                self.get(key, &mut |r| found(n, r))?;
            }
            Ok(())
        }
        fn scan(&self, from: &[u8], visit: &mut crate::Visit<'_>) -> crate::Result<()> {
            self.0.scan(from, visit)
        }
        fn write(&self, batch: &Overlay, sync: bool, _view: View) -> crate::Writing<'_> {
            self.0.write(batch, sync, View::default())
        }
        fn key_estimate(&self) -> u64 {
            self.0.key_estimate()
        }
        fn sync(&self) -> crate::Result<()> {
            Ok(())
        }
        fn close(&self) -> crate::Result<()> {
            Ok(())
        }
    }
    let (store, shared) = (DamagedStore(MemoryStore::new()), TxnShared::default());
    let mut txn = Txn::reading(&store, &shared, 5);
    let mut out = Vec::new();
    let (buffer, spans) = request(&[b"MGET", b"good", b"bad", b"good"]);
    execute(find(b"MGET").expect("known"), Args::new(&buffer, &spans), &mut txn, &mut out);
    assert!(
        matches!(&out[..], [Reply::Error(text)] if text.starts_with("ERR the record of key \"bad\"")),
        "{out:?}"
    );
}

#[test]
fn scan_returns_every_key_once_while_other_keys_are_added_and_deleted() {
    let mut w = World::new();
    for n in 0..500 {
        w.run_line(&format!("SET key:{n} v"));
        if n == 250 {
            w.write_overlay();
        }
    }
    let (mut cursor, mut seen, mut round) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let reply = w.run_line(&format!("SCAN {cursor} MATCH key:* COUNT 7"));
        let Reply::Bulk(next) = &reply[1] else { panic!("{reply:?}") };
        cursor = String::from_utf8(next.to_vec()).expect("digits");
        seen.extend(reply[3..].iter().map(|r| match r {
            Reply::Bulk(key) => key.clone(),
            other => panic!("{other:?}"),
        }));
        if cursor == "0" {
            break;
        }
        round += 1;
        w.run_line(&format!("SET key:new{round} v"));
        w.run_line(&format!("DEL key:new{}", round - 1));
        if round % 5 == 0 {
            w.write_overlay();
        }
    }
    let once: BTreeSet<Bytes> = seen.iter().cloned().collect();
    assert_eq!(once.len(), seen.len(), "a key came twice");
    for n in 0..500 {
        assert!(once.contains(format!("key:{n}").as_bytes()), "key:{n} is missing");
    }
}

/// Reads SCAN's pages from `cursor` on; calls `between` after each page. Gives the keys.
fn scan_on(w: &mut World, cursor: &str, mut between: impl FnMut(&mut World)) -> Vec<Bytes> {
    let (mut cursor, mut seen) = (cursor.to_owned(), Vec::new());
    loop {
        let reply = w.run_line(&format!("SCAN {cursor} COUNT 7"));
        let Reply::Bulk(next) = &reply[1] else { panic!("{reply:?}") };
        cursor = String::from_utf8(next.to_vec()).expect("digits");
        seen.extend(reply[3..].iter().map(|r| match r {
            Reply::Bulk(key) => key.clone(),
            other => panic!("{other:?}"),
        }));
        if cursor == "0" {
            return seen;
        }
        between(w);
    }
}

#[test]
fn a_scan_continues_at_its_place_after_the_server_forgot_every_cursor() {
    let mut w = World::new();
    for n in 0..300 {
        w.run_line(&format!("SET {}key:{n} v", ["", "a", "z:"][n % 3]));
    }
    w.write_overlay();
    let seen = scan_on(&mut w, "0", |w| w.shared = TxnShared::default());
    let once: BTreeSet<&Bytes> = seen.iter().collect();
    assert_eq!((seen.len(), once.len()), (300, 300));
}

#[test]
fn a_scan_whose_next_key_was_deleted_repeats_keys_rather_than_miss_one() {
    let mut w = World::new();
    for n in 100..200 {
        w.run_line(&format!("SET key:{n} v"));
    }
    w.write_overlay();
    let page = w.run_line("SCAN 0 COUNT 50");
    let Reply::Bulk(cursor) = &page[1] else { panic!("{page:?}") };
    let cursor = String::from_utf8(cursor.to_vec()).expect("digits");
    w.run_line("DEL key:150");
    let known = scan_on(&mut w, &cursor, |_| ());
    assert_eq!((known.len(), &known[0][..]), (49, &b"key:151"[..]), "the cache knows where key:150 was");
    w.shared = TxnShared::default();
    let forgotten = scan_on(&mut w, &cursor, |_| ());
    assert_eq!((forgotten.len(), &forgotten[0][..]), (99, &b"key:100"[..]));
}

#[test]
fn any_number_is_a_cursor() {
    let mut w = World::new();
    w.run_line("SET k v");
    for cursor in [1, 77, 1 << 52, u64::MAX] {
        let reply = w.run_line(&format!("SCAN {cursor}"));
        assert!(matches!(&reply[1], Reply::Bulk(next) if next == "0"), "{reply:?}");
    }
    assert_eq!(w.run_line("SCAN 18446744073709551616"), error("ERR invalid cursor"));
}

/// A model of the commands as a map from key to value and expiry, without overlays, records or stores.
#[derive(Default)]
struct Model(BTreeMap<String, (String, Option<u64>)>);

#[derive(Clone, Debug)]
enum Step {
    Set(String, String, Option<u64>),
    SetNx(String, String),
    KeepTtl(String, String),
    Get(String),
    GetDel(String),
    Del(String, String),
    Incr(String, i64),
    Append(String, String),
    Expire(String, i64),
    Persist(String),
    Pttl(String),
    MsetNx(String, String),
    Keys,
    Flush,
    Pass(u64),
    Commit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || "[a-e]";
    let value = || "[0-9]{1,3}|[x-z]{1,2}";
    let step = prop_oneof![
        4 => (key(), value(), proptest::option::of(1u64..60)).prop_map(|(k, v, t)| Step::Set(k, v, t)),
        2 => (key(), value()).prop_map(|(k, v)| Step::SetNx(k, v)),
        2 => (key(), value()).prop_map(|(k, v)| Step::KeepTtl(k, v)),
        4 => key().prop_map(Step::Get),
        1 => key().prop_map(Step::GetDel),
        2 => (key(), key()).prop_map(|(a, b)| Step::Del(a, b)),
        3 => (key(), -9i64..9).prop_map(|(k, n)| Step::Incr(k, n)),
        2 => (key(), value()).prop_map(|(k, v)| Step::Append(k, v)),
        2 => (key(), -5i64..60).prop_map(|(k, t)| Step::Expire(k, t)),
        1 => key().prop_map(Step::Persist),
        2 => key().prop_map(Step::Pttl),
        1 => (key(), key()).prop_map(|(a, b)| Step::MsetNx(a, b)),
        2 => Just(Step::Keys),
        1 => Just(Step::Flush),
        3 => (1u64..30).prop_map(Step::Pass),
        3 => Just(Step::Commit),
    ];
    proptest::collection::vec(step, 0..80)
}

impl Model {
    /// Applies a step to the model: gives the command's words and the reply that the model expects.
    fn step(&mut self, step: &Step, now: u64) -> (Vec<String>, Vec<Reply>) {
        self.0.retain(|_, (_, at)| at.is_none_or(|at| at > now));
        let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let null = || vec![Reply::Null];
        let map = &mut self.0;
        match step {
            Step::Set(k, v, ttl) => {
                map.insert(k.clone(), (v.clone(), ttl.map(|t| now + t)));
                let tail = ttl.map_or(String::new(), |t| format!(" PX {t}"));
                (words(format!("SET {k} {v}{tail}")), ok())
            }
            Step::SetNx(k, v) => {
                let fresh = !map.contains_key(k);
                if fresh {
                    map.insert(k.clone(), (v.clone(), None));
                }
                (words(format!("SET {k} {v} NX")), if fresh { ok() } else { null() })
            }
            Step::KeepTtl(k, v) => {
                let old = map.get(k).cloned();
                let reply = old.as_ref().map_or_else(null, |(v, _)| bulk(v));
                map.insert(k.clone(), (v.clone(), old.and_then(|o| o.1)));
                (words(format!("SET {k} {v} KEEPTTL GET")), reply)
            }
            Step::Get(k) => (words(format!("GET {k}")), map.get(k).map_or_else(null, |(v, _)| bulk(v))),
            Step::GetDel(k) => {
                (words(format!("GETDEL {k}")), map.remove(k).map_or_else(null, |(v, _)| bulk(&v)))
            }
            Step::Del(a, b) => {
                let count = i64::from(map.remove(a).is_some()) + i64::from(map.remove(b).is_some());
                (words(format!("DEL {a} {b}")), int(count))
            }
            Step::Incr(k, by) => {
                let (old, at) = map.get(k).cloned().unwrap_or(("0".into(), None));
                let canonical = old.parse::<i64>().ok().filter(|n| n.to_string() == old);
                let reply = match canonical {
                    Some(n) => {
                        map.insert(k.clone(), ((n + by).to_string(), at));
                        int(n + by)
                    }
                    None => error(NOT_AN_INTEGER),
                };
                (words(format!("INCRBY {k} {by}")), reply)
            }
            Step::Append(k, v) => {
                let entry = map.entry(k.clone()).or_default();
                entry.0.push_str(v);
                (words(format!("APPEND {k} {v}")), int(entry.0.len() as i64))
            }
            Step::Expire(k, t) => {
                let there = map.contains_key(k);
                if *t <= 0 {
                    map.remove(k);
                } else if let Some(entry) = map.get_mut(k) {
                    entry.1 = Some(now + t.unsigned_abs());
                }
                (words(format!("PEXPIRE {k} {t}")), int(i64::from(there)))
            }
            Step::Persist(k) => {
                let had = map.get_mut(k).and_then(|entry| entry.1.take()).is_some();
                (words(format!("PERSIST {k}")), int(i64::from(had)))
            }
            Step::Pttl(k) => {
                let left = map.get(k).map_or(-2, |(_, at)| at.map_or(-1, |at| (at - now) as i64));
                (words(format!("PTTL {k}")), int(left))
            }
            Step::MsetNx(a, b) => {
                let fresh = !map.contains_key(a) && !map.contains_key(b);
                if fresh {
                    map.insert(a.clone(), ("1".into(), None));
                    map.insert(b.clone(), ("2".into(), None));
                }
                (words(format!("MSETNX {a} 1 {b} 2")), int(i64::from(fresh)))
            }
            Step::Keys => {
                let mut reply = vec![Reply::Array(map.len())];
                reply.extend(map.keys().flat_map(|k| bulk(k)));
                (words("KEYS *".into()), reply)
            }
            Step::Flush => {
                map.clear();
                (words("FLUSHDB".into()), ok())
            }
            Step::Pass(_) | Step::Commit => (Vec::new(), Vec::new()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn commands_give_the_replies_and_contents_of_the_model(steps in steps()) {
        let (mut w, mut model) = (World::new(), Model::default());
        for step in &steps {
            match step {
                Step::Pass(ms) => w.now_ms += ms,
                Step::Commit => w.write_overlay(),
                step => {
                    let (words, expected) = model.step(step, w.now_ms);
                    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
                    prop_assert_eq!(w.run(&words), expected, "{:?}", step);
                }
            }
        }
    }

    #[test]
    fn any_words_give_exactly_one_reply(
        command in 0..COMMANDS.len(),
        words in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..6), 0..5),
    ) {
        let mut w = World::new();
        let name = COMMANDS[command].spec.name.as_bytes();
        let all: Vec<&[u8]> = std::iter::once(name).chain(words.iter().map(Vec::as_slice)).collect();
        let reply = w.run(&all);
        // Replies are well-formed if each array has as many elements as it announces.
        let mut expected = 1usize;
        for part in &reply {
            prop_assert!(expected > 0);
            expected -= 1;
            if let Reply::Array(n) = part {
                expected += n;
            }
        }
        prop_assert_eq!(expected, 0, "{:?}", reply);
    }
}
