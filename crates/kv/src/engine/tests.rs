use std::sync::mpsc;

use bytes::Bytes;
use units::{Bytes as Size, RealDriver};

use super::*;
use crate::{Args, MemoryStore, Reply, Span, execute, find};

const PATIENCE: Duration = Duration::from_secs(20);

/// A pipeline of lines, answered through a channel.
struct Lines {
    lines: Vec<String>,
    replies: Vec<Reply>,
    runs: usize,
    to: mpsc::Sender<(Vec<Reply>, usize)>,
}

impl Work for Lines {
    fn run(&mut self, txn: &mut Txn<'_>) {
        self.replies.clear();
        self.runs += 1;
        for line in &self.lines {
            if line == "PANIC" {
                panic!("asked for");
            }
            let buffer = Bytes::from(line.clone());
            let mut start = 0;
            let mut spans = Vec::new();
            for word in line.split(' ') {
                spans.push(Span { start, end: start + word.len() as u32 });
                start += word.len() as u32 + 1;
            }
            let args = Args::new(&buffer, &spans);
            execute(find(args.get(0)).expect("known"), args, txn, &mut self.replies);
        }
    }

    fn done(self: Box<Self>) {
        let _gone = self.to.send((self.replies, self.runs));
    }
}

type Answers = mpsc::Receiver<(Vec<Reply>, usize)>;

fn begin(engine: &Engine, lines: &[&str]) -> Answers {
    let (to, from) = mpsc::channel();
    let lines = lines.iter().map(|l| l.to_string()).collect();
    let work = Box::new(Lines { lines, replies: Vec::new(), runs: 0, to });
    if let Err((error, _)) = engine.submit(work) {
        panic!("{error}");
    }
    from
}

fn ask(engine: &Engine, lines: &[&str]) -> Vec<Reply> {
    begin(engine, lines).recv_timeout(PATIENCE).expect("an answer in time").0
}

fn engine(store: &Arc<MemoryStore>, options: EngineOptions) -> Engine {
    Engine::start(Arc::clone(store) as Arc<dyn Store>, RealDriver::new(), options)
}

fn text(reply: &Reply) -> &str {
    match reply {
        Reply::Error(text) | Reply::Simple(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pipeline_is_one_synced_batch_and_sees_its_own_writes() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, EngineOptions::default());
    let replies = ask(&engine, &["SET a 1", "INCR a", "GET a", "DEL b", "MSET b 1 c 2"]);
    assert_eq!(replies[1..3], [Reply::Integer(2), Reply::Bulk(Bytes::from_static(b"2"))]);
    assert_eq!((store.writes(), store.syncs()), (1, 1));
    engine.close().expect("closes");
}

#[test]
fn pipelines_that_wait_together_share_a_sync_and_lose_no_increment() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, EngineOptions::default());
    let answers: Vec<Answers> = (0..2000).map(|_| begin(&engine, &["INCR n"])).collect();
    let mut seen: Vec<i64> = answers
        .iter()
        .map(|a| match a.recv_timeout(PATIENCE).expect("an answer in time").0[..] {
            [Reply::Integer(n)] => n,
            ref other => panic!("{other:?}"),
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=2000).collect::<Vec<i64>>());
    assert!(store.syncs() < 2000, "{} syncs", store.syncs());
    let stats = engine.stats();
    assert_eq!((stats.pipelines, stats.groups), (2000, store.writes()));
    engine.close().expect("closes");
}

#[test]
fn a_full_drive_refuses_the_writer_alone_and_deletes_free_room() {
    let store = Arc::new(MemoryStore::with_capacity(Size(64), Size(0)));
    let engine = engine(&store, EngineOptions::default());
    assert_eq!(text(&ask(&engine, &["SET a 0123456789012345678901234567890123456789"])[0]), "OK");
    let replies = ask(&engine, &["SET b 0123456789012345678901234567890123456789", "GET a", "PTTL a"]);
    assert!(text(&replies[0]).starts_with("ERR no space left on the device"), "{replies:?}");
    assert!(text(&replies[0]).contains("delete keys"), "{replies:?}");
    assert_eq!(replies[2], Reply::Integer(-1));
    assert!(matches!(&replies[1], Reply::Bulk(value) if value.len() == 40));
    assert!(!engine.read(|txn| txn.exists(b"b")).expect("reads"));
    assert_eq!(engine.failure(), None);
    assert_eq!(ask(&engine, &["DEL a"]), [Reply::Integer(1)]);
    assert_eq!(text(&ask(&engine, &["SET b 0123456789012345678901234567890123456789"])[0]), "OK");
    engine.close().expect("closes");
}

#[test]
fn one_that_does_not_fit_does_not_fail_the_others_of_its_group() {
    let store = Arc::new(MemoryStore::with_capacity(Size(200), Size(0)));
    let engine = engine(&store, EngineOptions::default());
    let large = format!("SET large {}", "x".repeat(300));
    let answers: Vec<(Answers, bool)> = (0..60)
        .map(|n| {
            if n % 3 == 1 { (begin(&engine, &[&large]), false) } else { (begin(&engine, &["SET k v"]), true) }
        })
        .collect();
    for (answer, fits) in answers {
        let (replies, _) = answer.recv_timeout(PATIENCE).expect("an answer in time");
        assert_eq!(text(&replies[0]) == "OK", fits, "{replies:?}");
    }
    engine.close().expect("closes");
}

#[test]
fn the_reserve_is_kept_for_deletes() {
    let store = Arc::new(MemoryStore::with_capacity(Size(100), Size(60)));
    let engine = engine(&store, EngineOptions::default());
    assert_eq!(text(&ask(&engine, &["SET a 01234567890123456789012345678901234567890123"])[0]), "OK");
    std::thread::park_timeout(Duration::from_millis(2 * ROOM_AGE_MS));
    assert!(text(&ask(&engine, &["SET b 1"])[0]).starts_with("ERR no space left"));
    assert_eq!(ask(&engine, &["DEL a"]), [Reply::Integer(1)]);
    std::thread::park_timeout(Duration::from_millis(2 * ROOM_AGE_MS));
    assert_eq!(text(&ask(&engine, &["SET b 1"])[0]), "OK");
    engine.close().expect("closes");
}

#[test]
fn a_failed_drive_stops_writes_and_not_reads() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, EngineOptions::default());
    ask(&engine, &["SET a 1"]);
    store.set_broken(true);
    let replies = ask(&engine, &["GET a", "SET a 2"]);
    assert_eq!(replies[0], Reply::Bulk(Bytes::from_static(b"1")));
    assert!(text(&replies[1]).starts_with("MISCONF writing a batch"), "{replies:?}");
    store.set_broken(false);
    assert!(text(&ask(&engine, &["SET a 3"])[0]).starts_with("MISCONF"), "the engine stays read-only");
    assert!(engine.failure().is_some());
    assert_eq!(engine.read(|txn| txn.value(b"a")).expect("reads").expect("there").value, "1");
    engine.close().expect("closes");
}

#[test]
fn a_panic_in_a_command_ends_its_client_and_not_the_engine() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, EngineOptions::default());
    let answer = begin(&engine, &["SET a 1", "PANIC"]);
    assert_eq!(answer.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
    assert!(text(&ask(&engine, &["SET a 1"])[0]).starts_with("MISCONF"));
    assert_eq!(store.writes(), 0);
    engine.close().expect("closes");
}

#[test]
fn async_writes_are_made_durable_within_a_second_or_so() {
    let store = Arc::new(MemoryStore::new());
    let options = EngineOptions { durability: Durability::Async, ..EngineOptions::default() };
    let engine = engine(&store, options);
    ask(&engine, &["SET a 1"]);
    let driver = RealDriver::new();
    while store.syncs() == 0 {
        assert!(driver.now().0 < PATIENCE.as_nanos() as u64, "never synced");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    engine.close().expect("closes");
}

#[test]
fn after_close_nothing_is_taken_and_what_was_queued_is_done() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, EngineOptions::default());
    let answers: Vec<Answers> = (0..100).map(|n| begin(&engine, &[&format!("SET k{n} v")])).collect();
    engine.close().expect("closes");
    for answer in answers {
        answer.recv_timeout(PATIENCE).expect("answered before the close ended");
    }
    let (to, _from) = mpsc::channel();
    let work = Box::new(Lines { lines: Vec::new(), replies: Vec::new(), runs: 0, to });
    assert!(matches!(engine.submit(work), Err((Error::Closed, _))));
    engine.close().expect("again is nothing");
}

#[test]
fn expired_keys_leave_the_store_though_nobody_reads_them() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, EngineOptions::default());
    let now = engine.driver().unix_millis();
    ask(&engine, &[&format!("SET gone v PXAT {}", now + 1), "SET stays v EX 100"]);
    expiry_now(&engine);
    let mut left = Vec::new();
    store
        .scan(b"", &mut |key, _| {
            left.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        })
        .expect("memory");
    assert_eq!(left, [b"stays".to_vec()]);
    assert_eq!(engine.stats().expired, 1);
    engine.close().expect("closes");
}

/// One slice of the background walk, here and now.
fn expiry_now(engine: &Engine) {
    std::thread::park_timeout(Duration::from_millis(5));
    assert!(expiry::slice(&engine.0, &mut Default::default()));
    // A later pipeline is answered after the deletes.
    ask(engine, &["DEL nothing"]);
}
