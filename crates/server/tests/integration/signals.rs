//! Tests of signals to a server in a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use kv::{Engine, EngineOptions};
use server::{ServeOptions, Server};
use units::RealDriver;

/// Environment variable with the milliseconds that the child server's store takes to close.
const CLOSE_MS_VARIABLE: &str = "FURROW_TEST_CLOSE_MS";

/// The child process of this file's tests: serves until a signal comes. Without the variable the test does nothing.
#[test]
fn a_child_serves_until_a_signal() {
    let Ok(close) = std::env::var(CLOSE_MS_VARIABLE) else { return };
    let close = Duration::from_millis(close.parse().unwrap());
    let store = SlowStore { close, ..SlowStore::default() };
    let engine = Engine::start(Arc::new(store), RealDriver::new(), EngineOptions::default());
    let server = match Server::start(engine, ServeOptions { max_clients: 500, ..options() }) {
        Ok(server) => server,
        Err(error) => {
            println!("refused {error}");
            std::process::exit(1);
        }
    };
    server.stop_on_signals().unwrap();
    println!("ready {}", server.address());
    server.wait().unwrap();
    std::process::exit(0);
}

struct ChildServer {
    child: KillOnDrop,
    out: BufReader<ChildStdout>,
    first: String,
}

impl ChildServer {
    /// Starts a child server from a shell; `exec` is the command that becomes the child.
    fn start(close_ms: u64, exec: &str) -> ChildServer {
        let own = std::env::current_exe().unwrap();
        let script =
            format!("{exec} {} --exact signals::a_child_serves_until_a_signal --nocapture", own.display());
        let mut child = Command::new("/bin/sh")
            .args(["-c", &script])
            .env(CLOSE_MS_VARIABLE, close_ms.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut serving = ChildServer { child: KillOnDrop(child), out, first: String::new() };
        serving.first = serving.read_until(|line| line.contains("ready ") || line.contains("refused "));
        serving
    }

    /// Reads the child's output up to the first line that `wanted` accepts, or to its end; returns all lines read.
    fn read_until(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).unwrap() == 0 || wanted(&line) {
                return all + &line;
            }
            all.push_str(&line);
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.0.id().to_string();
        assert!(
            Command::new("/bin/sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap().success()
        );
    }

    /// The child's exit code, and whether its store was closed.
    fn wait_for_exit(&mut self) -> (Option<i32>, bool) {
        let until = Instant::now() + TEST_TIMEOUT;
        let closed = self.read_until(|line| line.contains("closed")).contains("closed");
        loop {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                return (status.code(), closed);
            }
            assert!(Instant::now() < until, "the child does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn two_signals_within_a_second_are_one_clean_shutdown() {
    let mut serving = ChildServer::start(500, "exec");
    serving.signal("TERM");
    std::thread::sleep(Duration::from_millis(8));
    serving.signal("TERM");
    assert_eq!(serving.wait_for_exit(), (Some(0), true));
}

#[test]
fn a_signal_that_is_repeated_later_ends_the_process_at_once() {
    let mut serving = ChildServer::start(60_000, "exec");
    serving.signal("INT");
    std::thread::sleep(Duration::from_millis(1200));
    serving.signal("TERM");
    assert_eq!(serving.wait_for_exit(), (Some(130), false));
}

#[test]
fn a_hangup_is_a_clean_shutdown_unless_it_was_ignored_at_the_start() {
    // `env` restores the default action of SIGHUP, since the tests may run under nohup themselves.
    let mut serving = ChildServer::start(0, "exec env --default-signal=HUP");
    serving.signal("HUP");
    assert_eq!(serving.wait_for_exit(), (Some(0), true));

    let mut ignoring = ChildServer::start(0, "trap '' HUP; exec");
    ignoring.signal("HUP");
    std::thread::sleep(Duration::from_millis(200));
    let address = ignoring.first.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(Client::connect(address).line("PING").text(), "PONG");
    ignoring.signal("TERM");
    assert_eq!(ignoring.wait_for_exit(), (Some(0), true));
}

#[test]
fn more_clients_than_descriptors_are_refused_and_a_low_soft_limit_is_raised() {
    let refused = ChildServer::start(0, "ulimit -n 300; exec");
    assert!(
        refused.first.contains("refused --max-clients 500 takes 628 file descriptors"),
        "{}",
        refused.first
    );
    let mut raised = ChildServer::start(0, "ulimit -S -n 300; exec");
    assert!(raised.first.contains("ready "), "{}", raised.first);
    raised.signal("TERM");
    assert_eq!(raised.wait_for_exit(), (Some(0), true));
}
