//! Tests of engines over a replicated store: views, values that are on other replicas, keys that expire.

use std::collections::BTreeSet;

use super::*;
use crate::{OnceId, OnceIds, OnceTable};

/// A store that leads or does not, and lacks the values of some keys until they are fetched.
#[derive(Debug, Default)]
struct Replicated {
    memory: MemoryStore,
    /// The leader's term; 0 while another replica leads.
    term: AtomicU64,
    lacking: Mutex<BTreeSet<Vec<u8>>>,
    /// The keys whose values no replica has.
    lost: Mutex<BTreeSet<Vec<u8>>>,
    fetched: AtomicU64,
    /// A view that begins while commands run: their view is over then.
    next_term_at_read: AtomicU64,
    expires_by_clocks: bool,
}

impl Replicated {
    fn leading() -> Arc<Replicated> {
        let memory = MemoryStore::new().with_once(7);
        Arc::new(Replicated { memory, term: AtomicU64::new(1), ..Replicated::default() })
    }

    /// Begins the view that a test has set for the next read, and refuses a record that is not here.
    fn begin_read(&self, name: &[u8]) -> Result<()> {
        match self.next_term_at_read.swap(0, Ordering::SeqCst) {
            0 => {}
            term => self.term.store(term, Ordering::SeqCst),
        }
        if self.lacking.lock().contains(name) || self.lost.lock().contains(name) {
            return Err(Error::Missing("no replica has the value".into()));
        }
        Ok(())
    }

    fn lack(&self, key: &str) {
        self.lacking.lock().insert(key.as_bytes().to_vec());
    }

    fn not_leader<T>(&self) -> Result<T> {
        Err(Error::NotLeader("another replica leads".into()))
    }
}

impl OnceTable for Replicated {
    fn group(&self) -> u64 {
        self.memory.group()
    }

    fn record(&self, id: OnceId, found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.begin_read(&id.to_bytes())?;
        self.memory.record(id, found)
    }

    fn ids(&self, most: usize) -> Result<OnceIds> {
        self.memory.ids(most)
    }
}

impl Store for Replicated {
    fn once(&self) -> Option<&dyn OnceTable> {
        Some(self)
    }

    fn view(&self) -> Result<View> {
        match self.term.load(Ordering::SeqCst) {
            0 => self.not_leader(),
            term => Ok(View(term)),
        }
    }

    fn confirm(&self, view: View) -> Option<Writing<'_>> {
        let lasts = self.view().is_ok_and(|now| now == view);
        (!lasts).then(|| Box::pin(std::future::ready(self.not_leader())) as Writing<'_>)
    }

    fn fetch(&self, records: Vec<RecordId>) -> Writing<'_> {
        let key = |record| match record {
            RecordId::Key(key) => key,
            RecordId::Once(id) => Bytes::copy_from_slice(&id.to_bytes()),
        };
        let keys: Vec<Bytes> = records.into_iter().map(key).collect();
        let lost = keys.iter().any(|key| self.lost.lock().contains(&key[..]));
        self.fetched.fetch_add(1, Ordering::SeqCst);
        self.lacking.lock().retain(|lacking| !keys.iter().any(|key| key[..] == lacking[..]));
        let missing = || Error::Missing("no replica has the value".into());
        Box::pin(std::future::ready(if lost { Err(missing()) } else { Ok(()) }))
    }

    fn expires_by_writes(&self) -> bool {
        !self.expires_by_clocks
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.begin_read(key)?;
        self.memory.get(key, found)
    }

    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.memory.multi_get(keys, found)
    }

    fn scan(&self, from: &[u8], visit: &mut crate::Visit<'_>) -> Result<()> {
        self.memory.scan(from, visit)
    }

    fn write(&self, batch: &Overlay, sync: bool, view: View) -> Writing<'_> {
        if self.view().is_ok_and(|now| now == view) {
            return self.memory.write(batch, sync, view);
        }
        Box::pin(std::future::ready(self.not_leader()))
    }

    fn key_estimate(&self) -> u64 {
        self.memory.key_estimate()
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

fn engine_at(store: &Arc<Replicated>, day: &Arc<DayClock>) -> Engine {
    Engine::start(
        Arc::clone(store) as Arc<dyn Store>,
        Arc::clone(day) as Arc<dyn Driver>,
        EngineOptions::default(),
    )
}

/// The end of a pipeline that may be given back.
enum End {
    Replies(Vec<Reply>),
    NotLeader,
}

struct Returned(LinePipeline, mpsc::Sender<End>);

impl Work for Returned {
    fn claims(&self, claims: &mut Claims) {
        self.0.claims(claims);
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        self.0.run(txn);
    }

    fn writes_are_durable(self: Box<Self>) {
        let _gone = self.1.send(End::Replies(self.0.replies));
    }

    fn not_leader(self: Box<Self>) {
        let _gone = self.1.send(End::NotLeader);
    }
}

fn end_of(engine: &Engine, line: &str) -> End {
    let (to, from) = mpsc::channel();
    let lines =
        LinePipeline { lines: vec![line.into()], replies: Vec::new(), runs: 0, to: mpsc::channel().0 };
    assert!(engine.submit(Box::new(Returned(lines, to))).is_ok());
    from.recv_timeout(TEST_TIMEOUT).expect("an end in time")
}

fn value(engine: &Engine, driver: &DayClock, key: &str) -> Option<Bytes> {
    loop {
        let (value, reading) = engine.read_in_view(|txn| txn.value(key.as_bytes())).expect("it leads");
        if units::block_on(driver, engine.settle(reading)).expect("it leads") {
            return value.expect("reads").map(|record| record.value);
        }
    }
}

/// The value that a leader with a slow clock reads behind one with a fast clock, to which the key had expired.
fn read_behind_a_faster_clock(expires_by_clocks: bool) -> Option<Bytes> {
    let store = Replicated { term: AtomicU64::new(1), expires_by_clocks, ..Replicated::default() };
    let store = Arc::new(store);
    let (slow, fast) = (DayClock::new(), DayClock::new());
    fast.advance_day(60_000);
    let (first, second) = (engine_at(&store, &slow), engine_at(&store, &fast));
    ask(&first, &["SET a 1 EX 30"]);
    assert_eq!(value(&second, &fast, "a"), None);
    let read = value(&first, &slow, "a");
    first.close().expect("closes");
    second.close().expect("closes");
    read
}

#[test]
fn a_key_that_one_leader_has_seen_expire_does_not_come_back_with_the_next() {
    assert_eq!(read_behind_a_faster_clock(false), None);
    // With each leader's clock alone it does.
    assert_eq!(read_behind_a_faster_clock(true), Some("1".into()));
}

#[test]
fn a_write_that_found_a_key_expired_deletes_it() {
    let store = Replicated::leading();
    let (slow, fast) = (DayClock::new(), DayClock::new());
    fast.advance_day(60_000);
    let (first, second) = (engine_at(&store, &slow), engine_at(&store, &fast));
    ask(&first, &["SET a 1 EX 30", "SET b 1 EX 30"]);
    assert_eq!(ask(&second, &["SET a 2 XX"]), [Reply::Null]);
    assert_eq!(ask(&second, &["INCR b"]), [Reply::Integer(1)]);
    assert_eq!(ask(&first, &["EXISTS a", "GET b"]), [Reply::Integer(0), Reply::Bulk("1".into())]);
    first.close().expect("closes");
    second.close().expect("closes");
}

#[test]
fn a_pipeline_runs_once_the_values_that_it_reads_are_here() {
    let store = Replicated::leading();
    let day = DayClock::new();
    let engine = engine_at(&store, &day);
    ask(&engine, &["SET a 41", "SET b x", "SET c y"]);
    store.lack("a");
    store.lack("b");
    assert_eq!(
        ask(&engine, &["SET c z", "INCR a", "APPEND b y"])[1..],
        [Reply::Integer(42), Reply::Integer(2)]
    );
    store.lack("a");
    assert_eq!(value(&engine, &day, "a"), Some("42".into()));
    assert!(store.fetched.load(Ordering::SeqCst) >= 2);
    // A value that no replica has is an error of its command alone, and never nil.
    store.lost.lock().insert(b"b".to_vec());
    let replies = ask(&engine, &["SET c 1", "GET b", "INCR c"]);
    assert!(matches!(&replies[..], [_, Reply::Error(_), Reply::Integer(2)]), "{replies:?}");
    engine.close().expect("closes");
}

#[test]
fn what_was_read_in_a_view_that_is_over_has_no_effect() {
    let store = Replicated::leading();
    let day = DayClock::new();
    let engine = engine_at(&store, &day);
    ask(&engine, &["SET n 5"]);
    store.next_term_at_read.store(7, Ordering::SeqCst);
    assert!(matches!(end_of(&engine, "INCR n"), End::NotLeader));
    store.next_term_at_read.store(8, Ordering::SeqCst);
    assert!(matches!(end_of(&engine, "SET n 9 NX"), End::NotLeader), "it read, and wrote nothing");
    let (_, reading) = engine.read_in_view(|txn| txn.value(b"n")).expect("it leads");
    store.term.store(0, Ordering::SeqCst);
    assert!(units::block_on(&*day, engine.settle(reading)).is_err());
    assert!(matches!(end_of(&engine, "INCR n"), End::NotLeader));
    assert!(engine.read_in_view(|_| ()).is_err());
    store.term.store(9, Ordering::SeqCst);
    assert!(matches!(end_of(&engine, "INCR n"), End::Replies(replies) if replies == [Reply::Integer(6)]));
    engine.close().expect("closes");
}

#[test]
fn an_answer_is_repeated_in_a_view_that_lasts_and_once_it_is_here() {
    let store = Replicated::leading();
    let day = DayClock::new();
    let engine = engine_at(&store, &day);
    let id = match &ask(&engine, &["FURROW.ONCE NEW n"])[..] {
        [Reply::Bulk(id)] => String::from_utf8_lossy(id).into_owned(),
        other => panic!("no id: {other:?}"),
    };
    let name = OnceId::parse(id.as_bytes()).expect("an id").to_bytes();
    let line = format!("FURROW.ONCE {id} 1 INCR n");
    assert_eq!(ask(&engine, &[&line]), [Reply::Integer(1)]);
    // Another replica may have led meanwhile, and run the id's next command.
    store.next_term_at_read.store(7, Ordering::SeqCst);
    assert!(matches!(end_of(&engine, &line), End::NotLeader));
    store.lacking.lock().insert(name.to_vec());
    assert_eq!(ask(&engine, &[&line]), [Reply::Integer(1)]);
    // Without the record, or without a value that the command reads, nothing runs, and the number is not used up.
    for lost in [&name[..], b"n"] {
        store.lost.lock().insert(lost.to_vec());
        let next = format!("FURROW.ONCE {id} 2 INCR n");
        let replies = ask(&engine, &[&next, "SET other v"]);
        assert!(
            matches!(&replies[..], [Reply::Error(text), Reply::Simple(_)] if text.starts_with("ERR no replica")),
            "{replies:?}"
        );
        store.lost.lock().clear();
    }
    assert_eq!(ask(&engine, &[&line]), [Reply::Integer(1)]);
    assert_eq!(ask(&engine, &[&format!("FURROW.ONCE {id} 2 INCR n")]), [Reply::Integer(2)]);
    engine.close().expect("closes");
}
