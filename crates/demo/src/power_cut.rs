//! `furrow demo`: loads this machine's package lists, kills the server halfway through a second load, and reads every
//! acknowledged record back.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::load::{self, Write};
use crate::own_files::OwnFiles;
use crate::packages;
use crate::program::Program;
use crate::report::{Report, rate, seconds, size};
use crate::server::Server;

/// Time between two polls of the count of acknowledged writes.
const LOAD_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The drive file, in the demo's directory.
const DRIVE_FILE: &str = "demo.img";

/// The settings of the power cut demonstration.
#[derive(Clone, Debug)]
pub struct PowerCutDemo {
    /// The path of the `furrow` program.
    pub program: PathBuf,
    /// The directory of the drive file.
    pub directory: PathBuf,
    /// The drive's parameters: `zones=128&zone-size=16MiB`.
    pub drive: String,
    /// The value of the server's option `--wal`.
    pub wal: String,
}

/// The result of the power cut demonstration.
#[derive(Clone, Debug)]
pub struct PowerCutOutcome {
    /// Number of records of the first load, all of them acknowledged.
    pub records: usize,
    /// Number of writes of the second load that were acknowledged before the server was killed.
    pub second_load_acknowledged: usize,
    /// Number of keys that were read back.
    pub checked: usize,
    /// Descriptions of acknowledged records that do not read back as written.
    pub lost: Vec<String>,
    /// How long the demonstration took.
    pub time: Duration,
    /// The drive's URL.
    pub device: String,
}

impl PowerCutDemo {
    /// Runs the power cut demonstration.
    ///
    /// # Errors
    ///
    /// A file in the directory that no demo made; a machine without package lists; a server that does not run.
    pub fn run(&self, report: &dyn Report) -> Result<PowerCutOutcome> {
        let program = Program::new(self.program.clone());
        let began = program.now();
        let files = OwnFiles::in_directory(self.directory.clone())?;
        let device = format!("emu:{}?{}", files.claim(DRIVE_FILE)?.display(), self.drive);

        let records = packages::load()?;
        let bytes: u64 = records.values().map(|record| record.len() as u64).sum();
        report.say(&format!(
            "{} records, {}, in the package lists of this machine",
            records.len(),
            size(bytes)
        ));

        let mut server = Server::start(&program, &device, &self.wal)?;
        files.made(DRIVE_FILE)?;
        report.say(&format!(
            "server started on {} (pid {}), its data on {device}",
            server.address,
            server.pid()
        ));

        let mut first: Vec<Write> =
            records.into_iter().map(|(key, value)| Write { key, value, acknowledged: false }).collect();
        let start = program.now();
        report.begin("first load ", first.len() as u64);
        let loaded = load::set(server.address, &mut first, report, &AtomicU64::new(0));
        report.end();
        loaded?;
        let acknowledged = first.iter().filter(|write| write.acknowledged).count();
        ensure!(acknowledged == first.len(), "the server ended during the first load");
        report.say(&format!(
            "first load: {acknowledged} records acknowledged as durable, {}",
            rate(acknowledged, program.now().since(start))
        ));

        let mut second: Vec<Write> =
            first.iter().enumerate().map(|(index, write)| write_of_second_load(index, write)).collect();
        let acknowledged = kill_halfway(&program, report, &mut server, &mut second)?;
        report.say(&format!(
            "second load: SIGKILL to pid {} after {acknowledged} of {} writes were acknowledged",
            server.pid(),
            second.len()
        ));
        drop(server);

        let start = program.now();
        let server = Server::start(&program, &device, &self.wal)?;
        report.say(&format!("server started again in {}", seconds(program.now().since(start))));
        let start = program.now();
        let (checked, lost) = verify(&server, report, &first, &second)?;
        report.say(&format!("{checked} keys read back, {}", rate(checked, program.now().since(start))));
        server.shut_down(&program)?;
        Ok(PowerCutOutcome {
            records: first.len(),
            second_load_acknowledged: acknowledged,
            checked,
            lost,
            time: program.now().since(began),
            device,
        })
    }
}

/// Makes a write of the second load: every second record gets a new value, and every other record a companion under a new key.
fn write_of_second_load(index: usize, write: &Write) -> Write {
    if index.is_multiple_of(2) {
        Write { key: write.key.clone(), value: format!("Revision: 2\n{}", write.value), acknowledged: false }
    } else {
        Write { key: format!("seen:{}", write.key), value: write.key.clone(), acknowledged: false }
    }
}

/// Sends the writes, and kills the server when half of them are acknowledged; returns the number of writes that were
/// acknowledged in the end.
fn kill_halfway(
    program: &Program,
    report: &dyn Report,
    server: &mut Server,
    writes: &mut [Write],
) -> Result<usize> {
    let half = writes.len() as u64 / 2;
    let acknowledged = AtomicU64::new(0);
    let ended = AtomicBool::new(false);
    let address = server.address;
    report.begin("second load", writes.len() as u64);
    let loaded = std::thread::scope(|scope| {
        let loader = scope.spawn(|| {
            let loaded = load::set(address, writes, report, &acknowledged);
            ended.store(true, Ordering::Release);
            loaded
        });
        while acknowledged.load(Ordering::Relaxed) < half && !ended.load(Ordering::Acquire) {
            program.sleep(LOAD_POLL_INTERVAL);
        }
        let killed = server.kill();
        loader.join().expect("the loader does not panic").and(killed)
    });
    report.end();
    loaded?;
    let count = writes.iter().filter(|write| write.acknowledged).count();
    ensure!(count < writes.len(), "the second load ended before the server was killed");
    Ok(count)
}

/// The values that a key may have after the server was killed.
struct ExpectedValues<'a> {
    key: &'a str,
    /// The value acknowledged last; `None` if no write of the key was acknowledged.
    acknowledged: Option<&'a str>,
    /// A later value of the key that was sent and not acknowledged.
    sent: Option<&'a str>,
}

/// Reads every key back; returns the number of keys and the problems.
fn verify(
    server: &Server,
    report: &dyn Report,
    first: &[Write],
    second: &[Write],
) -> Result<(usize, Vec<String>)> {
    let mut expected: Vec<ExpectedValues<'_>> = first
        .iter()
        .zip(second)
        .map(|(first, second)| {
            let is_rewritten = second.key == first.key;
            let last = if is_rewritten && second.acknowledged { second } else { first };
            let sent = (is_rewritten && !second.acknowledged).then_some(second.value.as_str());
            ExpectedValues { key: &first.key, acknowledged: Some(&last.value), sent }
        })
        .collect();
    let companions = first.iter().zip(second).filter(|(first, second)| first.key != second.key);
    expected.extend(companions.map(|(_, second)| ExpectedValues {
        key: &second.key,
        acknowledged: second.acknowledged.then_some(&second.value),
        sent: (!second.acknowledged).then_some(&second.value),
    }));
    let verdict = |expected: &ExpectedValues<'_>, found: Option<&[u8]>| {
        let is = |value: Option<&str>| found == value.map(str::as_bytes);
        let fits = is(expected.acknowledged) || (expected.sent.is_some() && is(expected.sent));
        let what = if found.is_none() { "is gone" } else { "has another value" };
        (!fits).then(|| format!("{} {what}", expected.key))
    };
    report.begin("reading    ", expected.len() as u64);
    let lost = load::check(server.address, &expected, |expected| expected.key, verdict, report);
    report.end();
    Ok((expected.len(), lost?))
}
