mod replicated;
mod transactions;

use std::sync::mpsc;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use units::{Bytes as Size, Driver, RealDriver};

use super::refusals::ROOM_AGE_MS;
use super::*;
use crate::parallel_wal::WalMode;
use crate::{
    Args, Error, MemoryStore, Overlay, RecordId, Reply, Result, Span, Store, Txn, View, Writing, claim,
    execute, find,
};

const TEST_TIMEOUT: Duration = Duration::from_secs(600);

/// The real driver, but with a time of day that the test advances.
#[derive(Debug)]
struct DayClock {
    real: Arc<RealDriver>,
    millis: AtomicU64,
}

impl DayClock {
    fn new() -> Arc<DayClock> {
        Arc::new(DayClock { real: RealDriver::new(), millis: AtomicU64::new(1_700_000_000_000) })
    }

    fn advance_day(&self, millis: u64) {
        self.millis.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Driver for DayClock {
    fn now(&self) -> units::Instant {
        self.real.now()
    }

    fn wake_at(&self, due: units::Instant, waker: &Waker) {
        self.real.wake_at(due, waker);
    }

    fn park(&self, me: &units::Parker) {
        self.real.park(me);
    }

    fn spawn(&self, name: &'static str, task: units::BoxFuture) {
        self.real.spawn(name, task);
    }

    fn drive(&self, task: units::BoxFuture) {
        self.real.drive(task);
    }

    fn random(&self) -> u64 {
        self.real.random()
    }

    fn unix_millis(&self) -> u64 {
        self.millis.load(Ordering::SeqCst)
    }

    fn enter(&self) {
        self.real.enter();
    }

    fn leave(&self) {
        self.real.leave();
    }
}

/// A pipeline of command lines, whose replies go to a channel.
struct LinePipeline {
    lines: Vec<String>,
    replies: Vec<Reply>,
    runs: usize,
    to: mpsc::Sender<(Vec<Reply>, usize)>,
}

impl Work for LinePipeline {
    fn claims(&self, claims: &mut Claims) {
        for line in &self.lines {
            let (buffer, spans) = words(line);
            let args = Args::new(&buffer, &spans);
            if let Some(command) = find(args.get(0)) {
                claim(&command.spec, args, claims);
            }
        }
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        self.replies.clear();
        self.runs += 1;
        for line in &self.lines {
            if line == "PANIC" {
                panic!("asked for");
            }
            let (buffer, spans) = words(line);
            let args = Args::new(&buffer, &spans);
            execute(find(args.get(0)).expect("known"), args, txn, &mut self.replies);
        }
    }

    fn writes_are_durable(self: Box<Self>) {
        let _gone = self.to.send((self.replies, self.runs));
    }
}

fn words(line: &str) -> (Bytes, Vec<Span>) {
    let mut start = 0;
    let mut spans = Vec::new();
    for word in line.split(' ') {
        spans.push(Span { start, end: start + word.len() as u32 });
        start += word.len() as u32 + 1;
    }
    (Bytes::from(line.to_owned()), spans)
}

type Answers = mpsc::Receiver<(Vec<Reply>, usize)>;

fn begin(engine: &Engine, lines: &[&str]) -> Answers {
    let (to, from) = mpsc::channel();
    let lines = lines.iter().map(|l| l.to_string()).collect();
    let work = Box::new(LinePipeline { lines, replies: Vec::new(), runs: 0, to });
    if let Err((error, _)) = engine.submit(work) {
        panic!("{error}");
    }
    from
}

fn ask(engine: &Engine, lines: &[&str]) -> Vec<Reply> {
    begin(engine, lines).recv_timeout(TEST_TIMEOUT).expect("an answer in time").0
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
    assert_eq!((store.write_count(), store.sync_count()), (1, 1));
    engine.close().expect("closes");
}

#[test]
fn pipelines_that_wait_together_share_a_sync_and_lose_no_increment() {
    let (store, engine) = slow_engine(WalMode::Group, 1);
    let mut answers = vec![begin(&engine, &["INCR n"])];
    store.wait_for(&[&["n"]]);
    // The other 1999 pipelines arrive while the first batch is in flight.
    answers.extend((1..2000).map(|_| begin(&engine, &["INCR n"])));
    store.let_write_end("*");
    let mut seen: Vec<i64> = answers
        .iter()
        .map(|a| match a.recv_timeout(TEST_TIMEOUT).expect("an answer in time").0[..] {
            [Reply::Integer(n)] => n,
            ref other => panic!("{other:?}"),
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=2000).collect::<Vec<i64>>());
    assert_eq!((store.memory.sync_count(), store.memory.write_count()), (2, 2));
    let stats = engine.stats();
    assert_eq!((stats.pipelines, stats.groups), (2000, 2));
    engine.close().expect("closes");
}

#[test]
fn a_full_drive_refuses_the_writer_alone_and_deletes_free_room() {
    let store = Arc::new(MemoryStore::with_capacity(Size(64), Size(0)));
    let engine = engine(&store, EngineOptions::default());
    assert_eq!(text(&ask(&engine, &["SET a 0123456789012345678901234567890123456789"])[0]), "OK");
    let replies = ask(&engine, &["SET b 0123456789012345678901234567890123456789", "GET a", "PTTL a"]);
    assert!(text(&replies[0]).starts_with("OOM no space left on the device"), "{replies:?}");
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
fn a_pipeline_that_does_not_fit_does_not_fail_the_rest_of_its_group() {
    let store = Arc::new(MemoryStore::with_capacity(Size(200), Size(0)));
    let engine = engine(&store, EngineOptions::default());
    let large = format!("SET large {}", "x".repeat(300));
    let answers: Vec<(Answers, bool)> = (0..60)
        .map(|n| {
            if n % 3 == 1 { (begin(&engine, &[&large]), false) } else { (begin(&engine, &["SET k v"]), true) }
        })
        .collect();
    for (answer, fits) in answers {
        let (replies, _) = answer.recv_timeout(TEST_TIMEOUT).expect("an answer in time");
        assert_eq!(text(&replies[0]) == "OK", fits, "{replies:?}");
    }
    engine.close().expect("closes");
}

#[test]
fn the_reserve_is_kept_for_deletes() {
    let store = Arc::new(MemoryStore::with_capacity(Size(100), Size(60)));
    let day = DayClock::new();
    let engine = Engine::start(store, day.clone(), EngineOptions::default());
    assert_eq!(text(&ask(&engine, &["SET a 01234567890123456789012345678901234567890123"])[0]), "OK");
    day.advance_day(ROOM_AGE_MS);
    assert!(text(&ask(&engine, &["SET b 1"])[0]).starts_with("OOM no space left"));
    assert_eq!(ask(&engine, &["DEL a"]), [Reply::Integer(1)]);
    day.advance_day(ROOM_AGE_MS);
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
    assert_eq!(answer.recv_timeout(TEST_TIMEOUT), Err(mpsc::RecvTimeoutError::Disconnected));
    assert!(text(&ask(&engine, &["SET a 1"])[0]).starts_with("MISCONF"));
    assert_eq!(store.write_count(), 0);
    engine.close().expect("closes");
}

#[test]
fn async_writes_are_made_durable_within_about_a_second() {
    let store = Arc::new(MemoryStore::new());
    let options = EngineOptions { durability: Durability::Async, ..EngineOptions::default() };
    let engine = engine(&store, options);
    ask(&engine, &["SET a 1"]);
    let driver = RealDriver::new();
    while store.sync_count() == 0 {
        assert!(driver.now().0 < TEST_TIMEOUT.as_nanos() as u64, "never synced");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    engine.close().expect("closes");
}

#[test]
fn a_closed_engine_refuses_pipelines_and_finishes_the_queued_ones() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, EngineOptions::default());
    let answers: Vec<Answers> = (0..100).map(|n| begin(&engine, &[&format!("SET k{n} v")])).collect();
    engine.close().expect("closes");
    for answer in answers {
        answer.recv_timeout(TEST_TIMEOUT).expect("answered before the close ended");
    }
    let (to, _from) = mpsc::channel();
    let work = Box::new(LinePipeline { lines: Vec::new(), replies: Vec::new(), runs: 0, to });
    assert!(matches!(engine.submit(work), Err((Error::Closed, _))));
    engine.close().expect("again is nothing");
}

#[test]
fn expired_keys_that_no_client_reads_leave_the_store() {
    let store = Arc::new(MemoryStore::new());
    let day = DayClock::new();
    let engine = Engine::start(Arc::clone(&store) as Arc<dyn Store>, day.clone(), EngineOptions::default());
    ask(&engine, &["SET gone v PX 1", "SET stays v EX 100"]);
    day.advance_day(5);
    run_expiry_slice(&engine);
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

#[test]
fn many_keys_are_counted_by_the_background_walk_and_few_at_once() {
    const MANY_KEYS: u64 = 100_001;
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, EngineOptions::default());
    ask(&engine, &["SET a 1", "SET a 2", "SET b 1 PX 1000000000"]);
    let few = engine.keyspace_counts().expect("reads");
    assert_eq!((few.keys, few.expires, few.age_ms), (2, 1, Some(0)));
    assert!((999_000_000..=1_000_000_000).contains(&few.avg_ttl_ms), "{few:?}");
    let mut overlay = Overlay::default();
    for n in 0..MANY_KEYS {
        let value = Bytes::from_static(b"v");
        overlay.put(Bytes::from(format!("key:{n}")), crate::Record { expires: crate::Expiry::NEVER, value });
    }
    futures_util::FutureExt::now_or_never(store.write(&overlay, true, View::default()))
        .expect("memory")
        .expect("memory");
    assert_eq!(engine.keyspace_counts().expect("reads").age_ms, None, "never counted");
    let mut walk = expiry::Walk::default();
    while expiry::visit_slice(&engine, &mut walk) || engine.0.counted.lock().is_none() {
        if engine.0.counted.lock().is_some() {
            break;
        }
    }
    let many = engine.keyspace_counts().expect("reads");
    assert_eq!((many.keys, many.expires), (MANY_KEYS + 2, 1));
    assert!(many.age_ms.is_some());
    engine.close().expect("closes");
}

/// Runs one slice of the expiry walk at once, and waits for its deletes.
fn run_expiry_slice(engine: &Engine) {
    assert!(expiry::visit_slice(engine, &mut Default::default()));
    // DEL is answered after the slice's deletes, because its pipeline comes after theirs.
    ask(engine, &["DEL nothing"]);
}

/// A store in memory whose writes end when the test says so, in any order.
#[derive(Debug)]
struct SlowStore {
    memory: MemoryStore,
    wal: WalMode,
    /// Keys of the batches in flight.
    flying: Mutex<Vec<Vec<String>>>,
    /// Keys of the writes that the test lets end; `*` stands for all.
    landing: Mutex<Vec<String>>,
    /// Whether the store takes no batch beside those in flight.
    full: AtomicBool,
    moved: units::sync::Event,
}

impl SlowStore {
    fn new(wal: WalMode) -> Arc<SlowStore> {
        let (flying, landing) = (Mutex::default(), Mutex::default());
        Arc::new(SlowStore {
            memory: MemoryStore::new(),
            wal,
            flying,
            landing,
            full: AtomicBool::new(false),
            moved: units::sync::Event::new(),
        })
    }

    /// Lets the write of `key` end; with `*`, every write from now on.
    fn let_write_end(&self, key: &str) {
        self.landing.lock().push(key.to_owned());
        self.moved.notify();
    }

    fn may_write_end(&self, keys: &[String]) -> bool {
        self.landing.lock().iter().any(|key| key == "*" || keys.contains(key))
    }

    fn note_write_ended(&self, keys: &[String]) {
        let mut flying = self.flying.lock();
        let at = flying.iter().position(|other| *other == keys).expect("it flies");
        flying.remove(at);
    }

    /// Waits until exactly the batches `expected` are in flight. Keys are in order within a batch; batches
    /// are in any order.
    fn wait_for(&self, expected: &[&[&str]]) {
        let mut expected: Vec<Vec<String>> =
            expected.iter().map(|batch| batch.iter().map(|k| k.to_string()).collect()).collect();
        expected.sort();
        let driver = RealDriver::new();
        loop {
            let mut flying = self.flying.lock().clone();
            flying.sort();
            if flying == expected {
                return;
            }
            assert!(driver.now().0 < TEST_TIMEOUT.as_nanos() as u64, "{flying:?} instead of {expected:?}");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

impl Store for SlowStore {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.memory.get(key, found)
    }

    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.memory.multi_get(keys, found)
    }

    fn scan(&self, from: &[u8], visit: &mut crate::Visit<'_>) -> Result<()> {
        self.memory.scan(from, visit)
    }

    fn write(&self, batch: &Overlay, sync: bool, _view: View) -> Writing<'_> {
        let mut keys: Vec<String> =
            batch.entries().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect();
        if batch.is_cleared() {
            keys.insert(0, "FLUSH".into());
        }
        let batch = batch.clone();
        Box::pin(async move {
            self.flying.lock().push(keys.clone());
            loop {
                let seen = self.moved.version();
                if self.may_write_end(&keys) {
                    break;
                }
                self.moved.changed_since(seen).await;
            }
            self.note_write_ended(&keys);
            self.memory.write(&batch, sync, View::default()).await
        })
    }

    fn wal(&self) -> WalMode {
        self.wal
    }

    fn takes_more_batches(&self) -> bool {
        !self.full.load(Ordering::SeqCst)
    }

    fn key_estimate(&self) -> u64 {
        self.memory.key_estimate()
    }

    fn sync(&self) -> Result<()> {
        self.memory.sync()
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

fn slow_engine(wal: WalMode, writers: usize) -> (Arc<SlowStore>, Engine) {
    let store = SlowStore::new(wal);
    let options = EngineOptions { writers: Some(writers), ..EngineOptions::default() };
    let engine = Engine::start(Arc::clone(&store) as Arc<dyn Store>, RealDriver::new(), options);
    (store, engine)
}

fn replies(answers: &Answers) -> Vec<Reply> {
    answers.recv_timeout(TEST_TIMEOUT).expect("an answer in time").0
}

fn is_waiting(answers: &Answers) -> bool {
    answers.try_recv() == Err(mpsc::TryRecvError::Empty)
}

#[test]
fn an_expired_key_that_two_walks_find_is_counted_once() {
    let (store, day) = (SlowStore::new(WalMode::Auto), DayClock::new());
    let engine = Engine::start(Arc::clone(&store) as Arc<dyn Store>, day.clone(), EngineOptions::default());
    store.let_write_end("other");
    ask(&engine, &["SET gone v PX 1", "SET other v"]);
    day.advance_day(5);
    // The first walk's delete is still in flight when the second walk reads the key.
    expiry::visit_slice(&engine, &mut Default::default());
    store.wait_for(&[&["gone"]]);
    expiry::visit_slice(&engine, &mut Default::default());
    store.let_write_end("*");
    engine.close().expect("closes");
    assert_eq!(engine.stats().expired, 1);
}

#[test]
fn writes_of_other_keys_overtake_a_slow_one_and_writes_of_its_key_wait() {
    for writers in [1, 3] {
        let (store, engine) = slow_engine(WalMode::Auto, writers);
        let first = begin(&engine, &["INCR a"]);
        store.wait_for(&[&["a"]]);
        let other = begin(&engine, &["INCR b"]);
        store.wait_for(&[&["a"], &["b"]]);
        let second = begin(&engine, &["INCR a"]);
        let third = begin(&engine, &["APPEND a 0", "SET c 1"]);
        store.let_write_end("b");
        assert_eq!(replies(&other), [Reply::Integer(1)]);
        // This pipeline claims c, which an earlier pipeline claims too while it waits for a.
        let behind = begin(&engine, &["SET c 2", "GET b"]);
        store.wait_for(&[&["a"]]);
        assert!(is_waiting(&first) && is_waiting(&second) && is_waiting(&third) && is_waiting(&behind));
        assert!(!engine.read(|txn| txn.exists(b"a")).expect("reads"), "not written, not seen");
        store.let_write_end("a");
        assert_eq!(replies(&first), [Reply::Integer(1)]);
        // The waiting pipelines become one batch, and each reads the writes of the earlier ones.
        assert_eq!(replies(&second), [Reply::Integer(2)]);
        assert_eq!(replies(&third)[0], Reply::Integer(2), "20 has two digits");
        assert_eq!(replies(&behind)[1], Reply::Bulk(Bytes::from_static(b"1")));
        let value = |key: &[u8]| engine.read(|txn| txn.value(key)).expect("reads").expect("there").value;
        assert_eq!((&value(b"a")[..], &value(b"c")[..]), (&b"20"[..], &b"2"[..]));
        store.let_write_end("*");
        engine.close().expect("closes");
    }
}

#[test]
fn pipelines_that_wait_for_the_store_become_one_batch_when_a_batch_is_written() {
    for writers in [1, 3] {
        let (store, engine) = slow_engine(WalMode::Auto, writers);
        store.full.store(true, Ordering::SeqCst);
        let first = begin(&engine, &["SET a 1"]);
        store.wait_for(&[&["a"]]);
        let waiting: Vec<_> = ["SET b 1", "SET c 1"].iter().map(|set| begin(&engine, &[set])).collect();
        std::thread::park_timeout(Duration::from_millis(5));
        store.wait_for(&[&["a"]]);
        store.let_write_end("a");
        replies(&first);
        store.wait_for(&[&["b", "c"]]);
        store.full.store(false, Ordering::SeqCst);
        let beside = begin(&engine, &["SET d 1"]);
        store.wait_for(&[&["b", "c"], &["d"]]);
        store.let_write_end("*");
        waiting.iter().chain([&beside]).for_each(|answers| drop(replies(answers)));
        engine.close().expect("closes");
    }
}

#[test]
fn a_pipeline_that_claims_all_keys_runs_alone_and_is_not_starved() {
    let (store, engine) = slow_engine(WalMode::Auto, 2);
    let before = begin(&engine, &["SET a 1"]);
    store.wait_for(&[&["a"]]);
    let flush = begin(&engine, &["FLUSHALL", "DBSIZE"]);
    let after = begin(&engine, &["SET b 1"]);
    // The later pipeline must not overtake the pipeline that claims all keys, though its own key is free.
    std::thread::park_timeout(Duration::from_millis(5));
    store.wait_for(&[&["a"]]);
    store.let_write_end("a");
    replies(&before);
    store.wait_for(&[&["FLUSH", "b"]]);
    store.let_write_end("b");
    assert_eq!(replies(&flush)[1], Reply::Integer(0));
    replies(&after);
    assert!(engine.read(|txn| txn.exists(b"b")).expect("reads"));
    assert!(!engine.read(|txn| txn.exists(b"a")).expect("reads"));
    store.let_write_end("*");
    engine.close().expect("closes");
}

#[test]
fn under_waltz_each_pipeline_is_a_batch_except_pipelines_that_waited_for_one_key() {
    let (store, engine) = slow_engine(WalMode::Waltz, 1);
    let answers: Vec<Answers> =
        ["SET a 1", "SET b 1", "SET c 1"].iter().map(|line| begin(&engine, &[line])).collect();
    store.wait_for(&[&["a"], &["b"], &["c"]]);
    let waiting: Vec<Answers> = (0..9).map(|_| begin(&engine, &["INCR a"])).collect();
    let both = begin(&engine, &["MSET a 0 d 1"]);
    let other = begin(&engine, &["SET e 1"]);
    store.wait_for(&[&["a"], &["b"], &["c"], &["e"]]);
    store.let_write_end("a");
    assert_eq!(replies(&answers[0]).len(), 1);
    // The batch with these pipelines has the key a as well.
    for (n, answer) in waiting.iter().enumerate() {
        assert_eq!(replies(answer), [Reply::Integer(n as i64 + 2)]);
    }
    assert_eq!(text(&replies(&both)[0]), "OK");
    assert_eq!(store.memory.write_count(), 2, "one, and all that waited");
    store.let_write_end("*");
    replies(&other);
    engine.close().expect("closes");
}

#[test]
fn a_failed_write_fails_its_pipelines_and_a_full_store_fails_only_pipelines_that_do_not_fit() {
    let (store, engine) = slow_engine(WalMode::Auto, 1);
    let good = begin(&engine, &["SET a 1"]);
    store.wait_for(&[&["a"]]);
    let bad = begin(&engine, &["SET b 1"]);
    store.wait_for(&[&["a"], &["b"]]);
    store.let_write_end("a");
    assert_eq!(text(&replies(&good)[0]), "OK");
    store.memory.set_broken(true);
    store.let_write_end("b");
    assert!(text(&replies(&bad)[0]).starts_with("MISCONF"));
    assert!(text(&replies(&begin(&engine, &["SET a 2"]))[0]).starts_with("MISCONF"));
    assert_eq!(engine.read(|txn| txn.value(b"a")).expect("reads").expect("there").value, "1");
    engine.close().expect("closes");
}

#[test]
fn increments_of_many_threads_over_few_keys_are_all_counted() {
    for (wal, writers) in [(WalMode::Group, 1), (WalMode::Auto, 1), (WalMode::Auto, 3), (WalMode::Waltz, 3)] {
        let (store, engine) = slow_engine(wal, writers);
        store.let_write_end("*");
        std::thread::scope(|scope| {
            for t in 0..4 {
                let engine = &engine;
                scope.spawn(move || {
                    let answers: Vec<Answers> = (0..300)
                        .map(|n| match (n + t) % 50 {
                            0 => begin(engine, &["DBSIZE", "INCR k0"]),
                            _ => begin(engine, &[&format!("INCR k{}", n % 5), &format!("INCR k{}", n % 3)]),
                        })
                        .collect();
                    answers.iter().for_each(|answer| drop(replies(answer)));
                });
            }
        });
        let sum: i64 = (0..5)
            .map(|n| {
                let value =
                    engine.read(|txn| txn.value(format!("k{n}").as_bytes())).expect("reads").expect("there");
                crate::parse_integer(&value.value).expect("a number")
            })
            .sum();
        assert_eq!(sum, 4 * (6 + 294 * 2), "{wal:?}, {writers} writers");
        engine.close().expect("closes");
    }
}
