//! Tests of arrays on QEMU's zoned drives: the device contract through both of the kernel's interfaces, and
//! five drives under `redis-benchmark`, one of which is unplugged and replaced while the clients go on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::server::{PORT, Server};
use crate::checks::Checks;
use crate::control::Control;
use crate::{clock, shell, text};

/// The drives of an array; the next one is the spare.
const DRIVES: usize = 5;
/// The smallest array.
const FEWEST_DRIVES: usize = 3;
const SPARE_DRIVE: usize = DRIVES;
/// The drive of the array that is unplugged, and the drive that is left out to verify the rebuild.
const UNPLUGGED_DRIVE: usize = 2;
const LEFT_OUT_DRIVE: usize = 0;

/// Address of the server's web pages.
const HTTP_ADDRESS: &str = "127.0.0.1:9121";
const URL: &str = "http://127.0.0.1:9121";

/// Time limit of the conformance suite on one array.
const CONFORMANCE_LIMIT: Duration = Duration::from_secs(600);
/// Time limit of a drive's failure, the rebuild and the verification.
const FAILURE_AND_REBUILD_LIMIT: Duration = Duration::from_secs(900);
/// Time limit of a single wait.
const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Number of requests of `redis-benchmark` before the drive's failure; afterwards it runs repeatedly with
/// fewer.
const REQUESTS_BEFORE_FAILURE: usize = 3000;
const REQUESTS_PER_LATER_RUN: usize = 800;
/// Number of records before the drive's failure, and the least number between the failure and the end of the
/// load then running.
const RECORDS_BEFORE_FAILURE: usize = 200;
const RECORDS_AFTER_FAILURE: usize = 20;

pub fn run(checks: &mut Checks) -> Result<()> {
    checks.check("the spare is taken out", FAILURE_AND_REBUILD_LIMIT, |control| {
        ensure!((0..=SPARE_DRIVE).all(is_plugged_in), "not all drives are plugged in at first");
        control.ask(&format!("unplug {SPARE_DRIVE}"))?;
        wait_until(|| Ok(!is_plugged_in(SPARE_DRIVE)))
    })?;
    for (drives, interface) in [(FEWEST_DRIVES, "blk"), (DRIVES, "nvme")] {
        checks.check(
            &format!("an array of {drives} drives over {interface}"),
            CONFORMANCE_LIMIT,
            |control| run_conformance_suite(control, &urls(drives, |_| interface), None),
        )?;
    }
    checks.check("an array of five over both that lacks a drive", CONFORMANCE_LIMIT, |control| {
        run_conformance_suite(control, &urls(DRIVES, mixed), Some(1))
    })?;
    checks.check(
        "a drive is unplugged under redis-benchmark, replaced and rebuilt",
        FAILURE_AND_REBUILD_LIMIT,
        array_survives_drive_failure,
    )
}

/// The kernel interface by which a drive of a mixed array is reached.
fn mixed(drive: usize) -> &'static str {
    if drive.is_multiple_of(2) { "nvme" } else { "blk" }
}

fn url(drive: usize, interface: &str) -> String {
    format!("{interface}:serial=ZNS{drive}")
}

fn urls(drives: usize, interface: impl Fn(usize) -> &'static str) -> Vec<String> {
    (0..drives).map(|drive| url(drive, interface(drive))).collect()
}

fn array(urls: &[String]) -> String {
    format!("array:{}", urls.join(","))
}

fn create(urls: &[String]) -> Result<()> {
    let line: Vec<&str> =
        ["furrow", "array", "create", "--force"].into_iter().chain(urls.iter().map(String::as_str)).collect();
    shell::run_successfully(&line, FAILURE_AND_REBUILD_LIMIT)?;
    Ok(())
}

fn run_conformance_suite(control: &mut Control, urls: &[String], without: Option<usize>) -> Result<()> {
    create(urls)?;
    let mut urls = urls.to_vec();
    if let Some(without) = without {
        urls.remove(without);
    }
    let array = array(&urls);
    let text =
        shell::run_successfully(&["furrow", "device", "check", "--force", "-d", &array], CONFORMANCE_LIMIT)?;
    control.note(text.lines().last().unwrap_or_default())?;
    let status = shell::run(&["furrow", "array", "status", "-d", &array], FAILURE_AND_REBUILD_LIMIT)?;
    ensure!(status.code == Some(i32::from(without.is_some())), "status: {}", status.tail());
    Ok(())
}

/// True if the drive with this name is plugged in.
fn is_plugged_in(drive: usize) -> bool {
    let serial = format!("ZNS{drive}");
    text::list("/sys/block")
        .iter()
        .any(|disk| text::get(disk.join("device/serial")).as_deref() == Some(serial.as_str()))
}

fn wait_until(mut there: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = clock::now();
    while !there()? {
        ensure!(start.elapsed() < WAIT_LIMIT, "it does not come to pass");
        clock::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn array_survives_drive_failure(control: &mut Control) -> Result<()> {
    let members = urls(DRIVES, mixed);
    let device = array(&members);
    create(&members)?;
    shell::run_successfully(&["furrow", "fs", "mkfs", "--force", "-d", &device], FAILURE_AND_REBUILD_LIMIT)?;
    let server = Server::start(&device, HTTP_ADDRESS)?;
    ensure!(health()? == "clean", "a new array is not clean");
    let mut records = AcknowledgedRecords::default();
    run_redis_benchmark(REQUESTS_BEFORE_FAILURE)?;
    records.load(RECORDS_BEFORE_FAILURE)?;
    records.verify().context("before the failure")?;

    let (count, figure) = records.under_load(|written| {
        wait_until(|| Ok(written() >= RECORDS_AFTER_FAILURE))?;
        control.ask(&format!("unplug {UNPLUGGED_DRIVE}"))?;
        wait_until(|| Ok(!is_plugged_in(UNPLUGGED_DRIVE)))?;
        wait_until(|| Ok(health()? == "degraded"))?;
        let before = written();
        wait_until(|| Ok(written() >= before + RECORDS_AFTER_FAILURE))
    })?;
    control.note(format!("unplugged: {count} records acknowledged before and after; {figure}"))?;
    records.verify().context("without the drive")?;

    control.ask(&format!("plug {SPARE_DRIVE}"))?;
    wait_until(|| Ok(is_plugged_in(SPARE_DRIVE)))?;
    let spare = url(SPARE_DRIVE, "nvme");
    let mut said = String::new();
    let (count, figure) = records.under_load(|_| {
        let slot = UNPLUGGED_DRIVE.to_string();
        let line = ["furrow", "array", "replace", "--url", URL, "--force", &slot, &spare];
        said = shell::run_successfully(&line, FAILURE_AND_REBUILD_LIMIT)?;
        Ok(())
    })?;
    ensure!(health()? == "clean", "a rebuilt array is {}", health()?);
    control.note(said.trim())?;
    control.note(format!("rebuilt: {count} records acknowledged meanwhile; {figure}"))?;
    records.verify().context("with the new drive")?;
    server.kill()?;

    // Mounting without another drive verifies the content of the rebuilt one.
    let mut left: Vec<String> = members;
    *left.get_mut(UNPLUGGED_DRIVE).context("five drives")? = spare;
    left.remove(LEFT_OUT_DRIVE);
    let device = array(&left);
    let server = Server::start(&device, HTTP_ADDRESS)?;
    ensure!(health()? == "degraded", "an array that lacks a drive is {}", health()?);
    records.verify().context("after a kill, with the new drive and without another")?;
    let all = records.expected.len() + records.keys.len();
    control.note(format!("every value was read back after each step: {all} in the end"))?;
    server.shut_down()?;
    shell::run_successfully(&["furrow", "fs", "check", "-d", &device], FAILURE_AND_REBUILD_LIMIT)?;
    Ok(())
}

/// The array's status as the server reports it.
fn health() -> Result<String> {
    let status =
        shell::run(&["furrow", "array", "status", "--url", URL, "--json"], FAILURE_AND_REBUILD_LIMIT)?;
    let found: Value =
        serde_json::from_str(&status.output).with_context(|| format!("status: {}", status.tail()))?;
    Ok(found.get("health").and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// Acknowledged writes.
#[derive(Default)]
struct AcknowledgedRecords {
    expected: BTreeMap<String, String>,
    /// The keys of `redis-benchmark` that existed before the drive's failure.
    keys: BTreeSet<String>,
}

impl AcknowledgedRecords {
    /// The next record of the load, whose value is derived from its key.
    fn next(number: usize) -> (String, String) {
        let value: String = (0..WORDS_PER_VALUE)
            .map(|part| format!("{:04x}", (number * 7919 + part * 104_729) % 65_536))
            .collect();
        (format!("record:{number}"), value)
    }

    /// A client that writes records one by one, each acknowledged before the next.
    fn load(&mut self, count: usize) -> Result<()> {
        let mut client = RedisCli::start()?;
        for number in self.expected.len()..self.expected.len() + count {
            let (key, value) = AcknowledgedRecords::next(number);
            client.call(&format!("set {key} {value}"), "OK")?;
            self.expected.insert(key, value);
        }
        Ok(())
    }

    /// Writes records and runs `redis-benchmark` while `work` runs. Returns the number of records and the
    /// benchmark's last line. `work` gets a counter of acknowledged records.
    fn under_load(&mut self, work: impl FnOnce(&dyn Fn() -> usize) -> Result<()>) -> Result<(usize, String)> {
        let before = self.expected.len();
        let done = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let loader = std::thread::Builder::new().spawn({
            let (done, acknowledged) = (Arc::clone(&done), Arc::clone(&acknowledged));
            move || -> Result<Vec<(String, String)>> {
                let mut client = RedisCli::start()?;
                let mut written = Vec::new();
                while !done.load(Ordering::Acquire) {
                    let (key, value) = AcknowledgedRecords::next(before + written.len());
                    client.call(&format!("set {key} {value}"), "OK")?;
                    written.push((key, value));
                    acknowledged.store(written.len(), Ordering::Release);
                }
                Ok(written)
            }
        })?;
        let benchmark = std::thread::Builder::new().spawn({
            let done = Arc::clone(&done);
            move || -> Result<String> {
                let mut figure = String::new();
                while !done.load(Ordering::Acquire) {
                    figure = run_redis_benchmark(REQUESTS_PER_LATER_RUN)?;
                }
                Ok(figure)
            }
        })?;
        let worked = work(&|| acknowledged.load(Ordering::Acquire));
        done.store(true, Ordering::Release);
        let written = loader.join().ok().context("the loader panicked")?;
        let figure = benchmark.join().ok().context("the benchmark panicked")?;
        // The client's error is reported first, because it explains a failure of `work`.
        let written = written?;
        let figure = figure?;
        worked?;
        let count = written.len();
        ensure!(count > 0, "no record was written meanwhile");
        self.expected.extend(written);
        Ok((count, figure))
    }

    /// Verifies every record of the load, and that the keys of `redis-benchmark` are present with its value.
    fn verify(&mut self) -> Result<()> {
        let mut client = RedisCli::start()?;
        for (key, value) in &self.expected {
            client.call(&format!("get {key}"), value)?;
        }
        let scan = shell::run_successfully(
            &["redis-cli", "-p", PORT, "--scan", "--pattern", "key:*"],
            FAILURE_AND_REBUILD_LIMIT,
        )?;
        let keys: BTreeSet<String> = scan.lines().map(str::to_owned).collect();
        ensure!(!keys.is_empty(), "redis-benchmark has left no keys");
        if let Some(lost) = self.keys.difference(&keys).next() {
            bail!("{lost} is gone");
        }
        let mut value = None;
        for key in &keys {
            let found = client.ask(&format!("get {key}"))?;
            let value = value.get_or_insert_with(|| found.clone());
            ensure!(
                found == *value && found.len() == REDIS_BENCHMARK_VALUE_BYTES,
                "{key} is '{found}', others are '{value}'"
            );
        }
        self.keys = keys;
        Ok(())
    }
}

/// Bytes of each value of redis-benchmark.
const REDIS_BENCHMARK_VALUE_BYTES: usize = 2000;
/// Number of words of four bytes in each value of a record.
const WORDS_PER_VALUE: usize = 250;

fn run_redis_benchmark(requests: usize) -> Result<String> {
    let (value, requests) = (REDIS_BENCHMARK_VALUE_BYTES.to_string(), requests.to_string());
    let line = [
        "redis-benchmark",
        "-p",
        PORT,
        "-t",
        "set",
        "-d",
        &value,
        "-P",
        "8",
        "-c",
        "8",
        "-n",
        &requests,
        "-r",
        "1000",
        "--csv",
    ];
    let ended = shell::run(&line, FAILURE_AND_REBUILD_LIMIT)?;
    let figure = ended.output.lines().find(|line| line.starts_with("\"SET\""));
    let rate = figure.and_then(|figure| figure.split(',').nth(1));
    let rate = rate.with_context(|| format!("redis-benchmark failed: {}", ended.tail()))?;
    Ok(format!("redis-benchmark SET: {} requests/s", rate.trim_matches('"')))
}

/// A running `redis-cli` that takes commands and gives replies, a line each.
struct RedisCli {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl RedisCli {
    fn start() -> Result<RedisCli> {
        let mut child = Command::new("redis-cli")
            .args(["-p", PORT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run redis-cli")?;
        let to = child.stdin.take().context("no pipe")?;
        let from = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(RedisCli { child, to, from })
    }

    fn ask(&mut self, command: &str) -> Result<String> {
        self.to.write_all(format!("{command}\n").as_bytes())?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn call(&mut self, command: &str, wanted: &str) -> Result<()> {
        let found = self.ask(command)?;
        ensure!(found == wanted, "redis-cli {command}: '{found}', not '{wanted}'");
        Ok(())
    }
}

impl Drop for RedisCli {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
