//! Tests of `/metrics` of a server over a drive: space, zones, build, and the two text formats.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Instant;

use fs::{Fs, MountOptions, StatFs};
use server::ServeOptions;
use tempfile::TempDir;
use units::{RealDriver, block_on};

use crate::common::*;

const ZONE_COUNT: f64 = 64.0;

const STATES: [&str; 8] =
    ["conventional", "empty", "implicit-open", "explicit-open", "closed", "full", "read-only", "offline"];

/// A server over an emulated drive, as `furrow serve` runs it.
struct DriveServer {
    folder: TempDir,
    address: SocketAddr,
    http: SocketAddr,
    ended: JoinHandle<server::Result<()>>,
}

impl DriveServer {
    fn start() -> DriveServer {
        DriveServer::start_with("")
    }

    /// A server over a drive with more parameters in the drive's URL.
    fn start_with(parameters: &str) -> DriveServer {
        let folder = TempDir::new().unwrap();
        let [address, http] = free_addresses();
        let options = ServeOptions {
            device: url(&folder) + parameters,
            port: address.port(),
            http: Some(http),
            ..ServeOptions::default()
        };
        let ended = std::thread::Builder::new().spawn(|| server::run(options)).unwrap();
        let until = Instant::now() + TEST_TIMEOUT;
        while std::net::TcpStream::connect(http).is_err() || !try_http(http).starts_with("HTTP/1.1 200") {
            assert!(!ended.is_finished() && Instant::now() < until, "the server does not start");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        DriveServer { folder, address, http, ended }
    }

    fn metrics(&self, headers: &str) -> String {
        http_get(self.http, "/metrics", headers)
    }

    /// Ends the server; returns the file system's space after a new mount.
    fn shut_down(self) -> StatFs {
        Client::connect(self.address).send(&["SHUTDOWN"]);
        self.ended.join().unwrap().unwrap();
        let driver = RealDriver::new();
        let device = zoned::open(&url(&self.folder), driver.clone()).unwrap();
        block_on(&*driver, async {
            let fs = Fs::mount(device, &MountOptions::default()).await.unwrap();
            let space = fs.statfs();
            fs.unmount().await.unwrap();
            space
        })
    }
}

fn url(folder: &TempDir) -> String {
    format!("emu:{}?zones={ZONE_COUNT}&zone-size=4MiB", folder.path().join("drive.img").display())
}

fn try_http(at: SocketAddr) -> String {
    http_get(at, "/healthz", "")
}

/// Two addresses with free ports.
fn free_addresses() -> [SocketAddr; 2] {
    let listeners = [0, 0].map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

/// The values in an answer of `/metrics`, by the metric's name and labels.
fn samples(answer: &str) -> BTreeMap<String, f64> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

#[test]
fn capacity_used_bytes_and_zones_by_state_are_those_of_the_drive() {
    let server = DriveServer::start();
    let before = samples(&server.metrics(""));
    let zones = |samples: &BTreeMap<String, f64>| -> Vec<f64> {
        STATES.iter().map(|state| samples[&format!("furrow_zones{{state=\"{state}\"}}")]).collect()
    };
    assert_eq!(before.keys().filter(|name| name.starts_with("furrow_zones")).count(), STATES.len());
    assert_eq!(zones(&before).iter().sum::<f64>(), ZONE_COUNT);

    const VALUE: usize = 1 << 20;
    let mut client = Client::connect(server.address);
    for n in 0..8 {
        assert_eq!(
            client.ask(&[b"SET".as_slice(), format!("k{n}").as_bytes(), &vec![n; VALUE]]).text(),
            "OK"
        );
    }
    let after = samples(&server.metrics(""));
    let grown = after["furrow_fs_used_bytes"] - before["furrow_fs_used_bytes"];
    assert!(
        grown >= (8 * VALUE) as f64,
        "8 values of 1 MiB were acknowledged as durable: {grown} bytes more"
    );
    assert!(after["furrow_fs_used_bytes"] < after["furrow_fs_capacity_bytes"]);
    assert!(after["furrow_fs_free_bytes"] < after["furrow_fs_capacity_bytes"]);
    assert!(after.contains_key("furrow_fs_garbage_bytes"));
    assert_eq!(zones(&after).iter().sum::<f64>(), ZONE_COUNT);
    let empty = |samples: &BTreeMap<String, f64>| samples["furrow_zones{state=\"empty\"}"];
    assert!(empty(&after) < empty(&before), "8 MiB take two zones at least");
    assert!(empty(&after) > 0.0);

    let space = server.shut_down();
    assert_eq!(after["furrow_fs_capacity_bytes"], space.capacity.0 as f64);
    assert!(space.capacity.0 < ZONE_COUNT as u64 * (4 << 20));
}

#[test]
fn operations_of_the_scheduler_are_counted_by_class_in_metrics_info_and_the_page() {
    // A drive without times has a scheduler only if one is asked for.
    let server = DriveServer::start_with("&log-target=120");
    let share = |samples: &BTreeMap<String, f64>, name: &str, class: &str| {
        samples[&format!("furrow_share_{name}{{class=\"{class}\"}}")]
    };
    let before = samples(&server.metrics(""));
    let mut client = Client::connect(server.address);
    const VALUE: usize = 1 << 20;
    for n in 0..8 {
        let answer = client.ask(&[b"SET".as_slice(), format!("k{n}").as_bytes(), &vec![n; VALUE]]);
        assert_eq!(answer.text(), "OK");
    }
    let after = samples(&server.metrics(""));
    let grown = |name: &str, class| share(&after, name, class) - share(&before, name, class);
    assert!(grown("operations_total", "log") >= 8.0, "each value was acknowledged as durable: {after:?}");
    assert!(grown("bytes_total", "log") >= (8 * VALUE) as f64, "{after:?}");
    for class in ["log", "metadata", "read", "flush", "compaction", "reclaim", "rebuild", "scrub"] {
        for name in ["operations_total", "bytes_total", "held_operations_total", "held_seconds_total"] {
            assert!(share(&after, name, class) >= 0.0, "{name} of {class}");
        }
    }
    assert_eq!(share(&after, "held_operations_total", "log"), 0.0);
    assert!(after.contains_key("furrow_share_waiting_operations"));

    let info = client.ask(&["INFO", "scheduler"]).text();
    let log =
        info.lines().find_map(|line| line.strip_prefix("class_log:operations=")).expect("the class log");
    let operations: f64 = log.split(',').next().and_then(|number| number.parse().ok()).expect("a number");
    assert!(operations >= share(&after, "operations_total", "log"), "{info}");
    let page = http_get(server.http, "/", "");
    assert!(page.contains("Scheduler") && page.contains("class compaction"), "{page}");
    server.shut_down();
}

#[test]
fn the_build_is_an_info_with_the_version() {
    let server = DriveServer::start();
    let text = server.metrics("");
    let build = format!("furrow_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(samples(&text).get(&build), Some(&1.0), "{text}");
    server.shut_down();
}

#[test]
fn the_accept_header_chooses_the_format() {
    let server = DriveServer::start();
    let (open, text) = ("application/openmetrics-text; version=1.0.0", "text/plain; version=0.0.4");
    for (accept, kind) in [
        ("", text),
        ("Accept: */*\r\n", text),
        ("Accept: text/plain;version=0.0.4;q=0.9,application/openmetrics-text;q=0.2\r\n", text),
        ("Accept: application/openmetrics-text;q=0\r\n", text),
        ("Accept: application/openmetrics-text\r\n", open),
        (
            "Accept: application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n",
            open,
        ),
    ] {
        let answer = server.metrics(accept);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-type: {kind}")), "{accept}: {head}");
        assert!(head.contains("vary: accept"), "a cache must not give one format for the other: {head}");
        assert_eq!(body.ends_with("# EOF\n"), kind == open, "{accept}");
        assert_eq!(body.contains("# TYPE furrow_build info"), kind == open, "{accept}");
        assert_eq!(body.contains("# TYPE furrow_build_info gauge"), kind == text, "{accept}");
        assert!(body.contains("# TYPE furrow_zones gauge"), "{accept}");
        assert!(samples(&answer).contains_key("furrow_fs_capacity_bytes"), "{accept}");
    }
    server.shut_down();
}
