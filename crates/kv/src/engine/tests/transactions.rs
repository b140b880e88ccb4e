//! Tests of WATCH and EXEC on the engine.

use super::*;
use crate::Watch;

/// A step of a client's work.
enum Step {
    Watch(&'static [u8]),
    /// EXEC: runs the queued commands, unless a watched key has changed.
    Exec(Vec<Watch>, Vec<String>),
    Run(String),
}

/// A client's work with transactions: collects the replies, the watches begun, and whether EXEC ran.
struct Client {
    steps: Vec<Step>,
    outcome: Outcome,
    to: mpsc::Sender<Outcome>,
}

#[derive(Default)]
struct Outcome {
    replies: Vec<Reply>,
    watches: Vec<Watch>,
    executed: Option<bool>,
}

fn claim_keys(claims: &mut Claims, line: &str) {
    let (buffer, spans) = words(line);
    let args = Args::new(&buffer, &spans);
    claim(&find(args.get(0)).expect("known").spec, args, claims);
}

impl Client {
    fn execute(&mut self, line: &str, txn: &mut Txn<'_>) {
        let (buffer, spans) = words(line);
        let args = Args::new(&buffer, &spans);
        execute(find(args.get(0)).expect("known"), args, txn, &mut self.outcome.replies);
    }
}

impl Work for Client {
    fn claims(&self, claims: &mut Claims) {
        for step in &self.steps {
            match step {
                Step::Watch(key) => claims.key(key),
                Step::Exec(watches, lines) => {
                    watches.iter().for_each(|watch| claims.key(watch.key()));
                    lines.iter().for_each(|line| claim_keys(claims, line));
                }
                Step::Run(line) => claim_keys(claims, line),
            }
        }
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        self.outcome = Outcome::default();
        let steps = std::mem::take(&mut self.steps);
        for step in &steps {
            match step {
                Step::Watch(key) => {
                    let watch = txn.watch(Bytes::from_static(key)).expect("memory");
                    self.outcome.watches.push(watch);
                }
                Step::Exec(watches, lines) => {
                    let mut all = watches.iter().chain(&self.outcome.watches);
                    let unchanged = all.all(|watch| !txn.has_changed(watch));
                    self.outcome.executed = Some(unchanged);
                    lines.iter().filter(|_| unchanged).for_each(|line| self.execute(line, txn));
                }
                Step::Run(line) => self.execute(line, txn),
            }
        }
        self.steps = steps;
    }

    fn writes_are_durable(self: Box<Self>) {
        let _gone = self.to.send(self.outcome);
    }
}

fn submit(engine: &Engine, steps: Vec<Step>) -> mpsc::Receiver<Outcome> {
    let (to, from) = mpsc::channel();
    let work = Box::new(Client { steps, outcome: Outcome::default(), to });
    if let Err((error, _)) = engine.submit(work) {
        panic!("{error}");
    }
    from
}

fn receive_outcome(from: &mpsc::Receiver<Outcome>) -> Outcome {
    from.recv_timeout(TEST_TIMEOUT).expect("an answer in time")
}

fn run(line: &str) -> Step {
    Step::Run(line.into())
}

fn watch(engine: &Engine, key: &'static [u8]) -> Vec<Watch> {
    receive_outcome(&submit(engine, vec![Step::Watch(key)])).watches
}

fn exec_runs(engine: &Engine, watches: Vec<Watch>) -> bool {
    let exec = Step::Exec(watches, vec!["SET done 1".into()]);
    receive_outcome(&submit(engine, vec![exec])).executed.expect("it was asked")
}

const WAL_MODES: [WalMode; 3] = [WalMode::Group, WalMode::Auto, WalMode::Waltz];

#[test]
fn exec_is_one_batch_and_runs_only_if_no_watched_key_was_written() {
    for wal in WAL_MODES {
        let store = Arc::new(MemoryStore::new().with_wal(wal));
        let engine = engine(&store, EngineOptions::default());
        let watches = watch(&engine, b"a");
        let before = store.write_count();
        let lines = ["SET a 1", "INCR a", "SET b x", "GET b"].map(String::from).to_vec();
        let ran = receive_outcome(&submit(&engine, vec![Step::Exec(watches, lines)]));
        assert_eq!((ran.executed, ran.replies.len(), store.write_count()), (Some(true), 4, before + 1));
        for write in ["SET a 2", "DEL a", "FLUSHALL", "SET a 3"] {
            let watches = watch(&engine, b"a");
            ask(&engine, &[write]);
            assert!(!exec_runs(&engine, watches), "{write}");
        }
        for read in ["GET a", "SET other 1", "DEL nothing"] {
            let watches = watch(&engine, b"a");
            ask(&engine, &[read]);
            assert!(exec_runs(&engine, watches), "{read}");
        }
        engine.close().expect("closes");
    }
}

#[test]
fn the_order_within_one_work_decides_whether_a_write_changes_a_watch() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, EngineOptions::default());
    let exec = || Step::Exec(Vec::new(), vec!["SET done 1".into()]);
    let before = vec![run("SET a 1"), Step::Watch(b"a"), exec()];
    assert_eq!(receive_outcome(&submit(&engine, before)).executed, Some(true));
    let after = vec![Step::Watch(b"a"), run("SET a 1"), exec()];
    assert_eq!(receive_outcome(&submit(&engine, after)).executed, Some(false));
    let own = receive_outcome(&submit(&engine, vec![run("SET a 2"), Step::Watch(b"a")]));
    assert!(exec_runs(&engine, own.watches), "the own write came before the watch");
    engine.close().expect("closes");
}

#[test]
fn a_watch_begins_when_writes_in_flight_of_its_key_have_landed() {
    for wal in WAL_MODES {
        let (store, engine) = slow_engine(wal, 2);
        let write = begin(&engine, &["SET a 1"]);
        store.wait_for(&[&["a"]]);
        let watching = submit(&engine, vec![Step::Watch(b"a")]);
        assert!(watching.recv_timeout(Duration::from_millis(20)).is_err(), "the write is in flight");
        store.let_write_end("*");
        write.recv_timeout(TEST_TIMEOUT).expect("an answer in time");
        let watches = receive_outcome(&watching).watches;
        assert!(engine.read(|txn| txn.exists(b"a")).expect("reads"));
        assert!(exec_runs(&engine, watches));
        engine.close().expect("closes");
    }
}

#[test]
fn a_watched_key_has_changed_if_it_expires_during_the_watch_and_not_if_it_expired_before() {
    let store = Arc::new(MemoryStore::new());
    let day = DayClock::new();
    let engine = Engine::start(Arc::clone(&store) as Arc<dyn Store>, day.clone(), EngineOptions::default());
    ask(&engine, &["SET a v PX 10", "SET b v PX 1"]);
    day.advance_day(5);
    let (lives, expired) = (watch(&engine, b"a"), watch(&engine, b"b"));
    run_expiry_slice(&engine);
    assert!(exec_runs(&engine, expired), "b was gone when the watch began");
    day.advance_day(10);
    assert!(!exec_runs(&engine, lives));
    engine.close().expect("closes");
}

#[test]
fn dropped_watches_are_forgotten() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, EngineOptions::default());
    let watches = [watch(&engine, b"a"), watch(&engine, b"a"), watch(&engine, b"b")];
    let clones = watches.clone();
    drop(watches);
    assert!(format!("{:?}", engine.0.txns.watches).contains("watched: 2"));
    drop(clones);
    assert!(format!("{:?}", engine.0.txns.watches).contains("watched: 0, keys: Mutex { data: {} }"));
    engine.close().expect("closes");
}

#[test]
fn a_failed_write_that_is_repeated_does_not_abort_its_own_exec() {
    let store = Arc::new(MemoryStore::with_capacity(Size(100), Size(0)));
    let engine = engine(&store, EngineOptions::default());
    let watches = watch(&engine, b"a");
    let large = format!("SET large {}", "x".repeat(200));
    // The first runs of both works have no effect, because their group's batch is too large for the store.
    let exec = Step::Exec(watches, vec!["SET a 1".into(), large]);
    let ran = receive_outcome(&submit(&engine, vec![exec]));
    assert_eq!(ran.executed, Some(true));
    assert!(text(&ran.replies[0]).starts_with("OOM no space left"), "{:?}", ran.replies);
    engine.close().expect("closes");
}

#[test]
fn optimistic_increments_of_many_clients_are_all_counted() {
    const CLIENTS: usize = 8;
    const INCREMENTS_EACH: usize = 50;
    for wal in WAL_MODES {
        let store = Arc::new(MemoryStore::new().with_wal(wal));
        let engine = engine(&store, EngineOptions { writers: Some(2), ..EngineOptions::default() });
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    for _ in 0..INCREMENTS_EACH {
                        loop {
                            let watches = watch(&engine, b"n");
                            let value = engine.read(|txn| txn.value(b"n")).expect("reads");
                            let value = value.map_or(0, |r| crate::parse_integer(&r.value).expect("ours"));
                            let exec = Step::Exec(watches, vec![format!("SET n {}", value + 1)]);
                            if receive_outcome(&submit(&engine, vec![exec])).executed == Some(true) {
                                break;
                            }
                        }
                    }
                });
            }
        });
        let value = engine.read(|txn| txn.value(b"n")).expect("reads").expect("there").value;
        assert_eq!(value, (CLIENTS * INCREMENTS_EACH).to_string(), "{wal:?}");
        engine.close().expect("closes");
    }
}
