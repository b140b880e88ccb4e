//! An ensemble of three fake AdminServers on the loopback interface, in real time with short settings.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use units::{Bytes, RealDriver};

use super::*;
use crate::ensemble::Credentials;

const LEADER: u64 = 3;

/// How a server treats the command `snapshot`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Snapshots {
    /// Takes one at once.
    Taken,
    /// The connection ends, and no snapshot is begun.
    Dropped,
    /// A gateway answers 504 while the server goes on for ever.
    Gateway,
}

#[derive(Debug)]
struct Fake {
    id: u64,
    snapshots: Mutex<Snapshots>,
    /// Snapshots that were taken.
    taken: Mutex<u64>,
    /// Each connection ends without an answer.
    is_silent: AtomicBool,
    /// The command `voting_view` has no answer.
    hides_voters: AtomicBool,
    /// Requests, by command.
    requests: Mutex<BTreeMap<String, u64>>,
}

impl Fake {
    fn start(id: u64, snapshots: Snapshots) -> (Arc<Fake>, AdminServer) {
        let fake = Arc::new(Fake {
            id,
            snapshots: Mutex::new(snapshots),
            taken: Mutex::default(),
            is_silent: AtomicBool::default(),
            hides_voters: AtomicBool::default(),
            requests: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let serving = Arc::clone(&fake);
        std::thread::Builder::new()
            .spawn(move || listener.incoming().for_each(|stream| serving.answer(stream.unwrap())))
            .unwrap();
        (fake, AdminServer::new(address, Some(Credentials::for_test("super:secret"))))
    }

    fn requests(&self, command: &str) -> u64 {
        self.requests.lock().unwrap().get(command).copied().unwrap_or(0)
    }

    fn answer(&self, mut stream: TcpStream) {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let path = head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
        let command = path.trim_start_matches("/commands/").split('?').next().unwrap_or_default().to_owned();
        *self.requests.lock().unwrap().entry(command.clone()).or_default() += 1;
        let is_hidden = command == "voting_view" && self.hides_voters.load(Ordering::Relaxed);
        if self.is_silent.load(Ordering::Relaxed) || is_hidden {
            return;
        }
        let Some((status, headers, fields)) = self.fields(&command) else { return };
        let body = format!("{{{fields},\"command\":\"{command}\",\"error\":null}}");
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        drop(stream.write_all(answer.as_bytes()));
    }

    fn fields(&self, command: &str) -> Option<(u16, &'static str, String)> {
        let (id, taken) = (self.id, *self.taken.lock().unwrap());
        let state = if id == LEADER { "leader" } else { "follower" };
        // Server 1's log is due until it takes a snapshot.
        let snapshot = if id == 1 && taken == 0 { "0x200000001" } else { "0x200000101" };
        let fields = match command {
            "configuration" => format!(r#""server_id":{id}"#),
            "leader" => format!(r#""is_leader":{},"leader_id":{LEADER}"#, id == LEADER),
            "zabstate" => r#""last_zxid":"0x200000101","zabstate":"broadcast""#.to_owned(),
            "last_snapshot" => format!(r#""zxid":"{snapshot}""#),
            "voting_view" => r#""current_config":{"1":{},"2":{},"3":{}}"#.to_owned(),
            "system_properties" => {
                r#""zookeeper.snapCount":"2000000000","zookeeper.snapSizeLimitInKb":"-1","zookeeper.txnLogSizeLimitInKb":"262144""#
                    .to_owned()
            }
            "monitor" => format!(
                r#""version":"3.9.5-a","server_state":"{state}","cnt_snapshottime":{taken},"cnt_fsynctime":10,"sum_fsynctime":10,
                "znode_count":1,"approximate_data_size":10"#
            ),
            "restore" => return Some((500, "", r#""a":1"#.to_owned())),
            "snapshot" => match *self.snapshots.lock().unwrap() {
                Snapshots::Dropped => return None,
                Snapshots::Gateway => return Some((504, "", r#""a":1"#.to_owned())),
                Snapshots::Taken => {
                    *self.taken.lock().unwrap() += 1;
                    return Some((200, "snapshot_size: 10\r\nlast_zxid: 0x200000101\r\n", r#""a":1"#.to_owned()));
                }
            },
            _ => return None,
        };
        Some((200, "", fields))
    }
}

struct Run {
    fakes: Vec<Arc<Fake>>,
    ensemble: Ensemble,
    settings: Settings,
}

impl Run {
    fn new(snapshots: Snapshots) -> Run {
        let (fakes, servers): (Vec<_>, Vec<_>) = (1..=3).map(|id| Fake::start(id, snapshots)).unzip();
        let settings = Settings {
            longest_snapshot: Duration::from_millis(400),
            sample_age: Duration::from_secs(1),
            settle_time: Duration::ZERO,
            longest_settle_time: Duration::from_millis(400),
            least_log: Bytes(1_000),
            longest_log: Bytes(1 << 30),
            retry_after: Duration::from_millis(200),
        };
        Run { fakes, ensemble: Ensemble::check(servers).unwrap(), settings }
    }

    /// Runs until `is_enough` or the mode's end; `None` for the former.
    fn run(&self, mode: Mode, mut is_enough: impl FnMut(&Notice) -> bool) -> Option<Ended> {
        let driver: Arc<dyn Driver> = RealDriver::new();
        let interval = Duration::from_millis(20);
        let ended = self.ensemble.run(&driver, self.settings, interval, mode, |notice| {
            if is_enough(notice) { Err(()) } else { Ok(()) }
        });
        ended.ok()
    }

    fn commanded(&self) -> Vec<u64> {
        self.fakes.iter().map(|fake| fake.requests("snapshot")).collect()
    }
}

#[test]
fn a_healthy_ensemble_takes_what_is_due_and_the_run_ends() {
    let run = Run::new(Snapshots::Taken);
    assert_eq!(run.run(Mode::Once, |_| false), Some(Ended::NothingDue));
    assert_eq!(run.commanded(), [1, 0, 0]);
}

#[test]
fn a_snapshot_behind_a_gateway_that_gives_up_keeps_all_others_waiting() {
    let run = Run::new(Snapshots::Gateway);
    let mut unanswered = 0;
    run.run(Mode::Watch, |notice| {
        unanswered += u32::from(matches!(notice, Notice::Unanswered { .. }));
        assert!(!matches!(notice, Notice::TurnEnds { .. } | Notice::NoSnapshot { .. }), "{notice:?}");
        unanswered == 3
    });
    assert_eq!(run.commanded()[1..], [0, 0], "server 1 is at it");
}

#[test]
fn a_snapshot_that_never_was_is_commanded_again() {
    let run = Run::new(Snapshots::Dropped);
    let mut events = Vec::new();
    run.run(Mode::Watch, |notice| {
        match notice {
            Notice::Unanswered { .. } => {
                *run.fakes[0].snapshots.lock().unwrap() = Snapshots::Taken;
                events.push("unanswered");
            }
            Notice::CommandedAgain { .. } => events.push("again"),
            Notice::SnapshotTaken { .. } => events.push("taken"),
            Notice::TurnEnds { .. } => events.push("ends"),
            _ => {}
        }
        events.last() == Some(&"ends")
    });
    assert_eq!(events, ["unanswered", "again", "taken", "ends"]);
    assert_eq!(run.commanded(), [2, 0, 0]);
}

#[test]
fn once_ends_in_words_where_no_turn_can_begin() {
    let run = Run::new(Snapshots::Taken);
    run.fakes[1].is_silent.store(true, Ordering::Relaxed);
    match run.run(Mode::Once, |_| false) {
        Some(Ended::Failed(why)) => assert!(why.contains("no turn could begin for 800ms"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(run.commanded(), [0, 0, 0]);
}

#[test]
fn a_dry_run_shows_the_servers_that_answer_and_names_the_others() {
    let run = Run::new(Snapshots::Taken);
    run.fakes[1].is_silent.store(true, Ordering::Relaxed);
    match run.run(Mode::DryRun, |_| false) {
        Some(Ended::DryRun { servers, not_serving, next }) => {
            assert_eq!(servers.iter().map(|server| server.0.0).collect::<Vec<_>>(), [1, 3]);
            assert_eq!((not_serving, next), (vec![ServerId(2)], Some(ServerId(1))));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_view_of_the_voters_that_is_not_answered_is_no_fault_of_the_settings() {
    let run = Run::new(Snapshots::Taken);
    let fake = &run.fakes[1];
    let server = run.ensemble.servers[&ServerId(2)].clone();
    let listed = (1..=3).map(ServerId).collect();
    let driver: Arc<dyn Driver> = RealDriver::new();
    let mut poller = Poller { driver, id: ServerId(2), server, listed, is_checked: false };
    assert!(matches!(poller.poll(), Health::Serving(_)));
    let checks = fake.requests("restore");
    fake.hides_voters.store(true, Ordering::Relaxed);
    assert!(matches!(poller.poll(), Health::Unreachable(_)));
    fake.hides_voters.store(false, Ordering::Relaxed);
    assert!(matches!(poller.poll(), Health::Serving(_)));
    assert_eq!(fake.requests("restore"), checks, "the credentials are not checked again");
}
