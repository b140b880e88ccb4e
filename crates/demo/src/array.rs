//! `furrow demo-array`: a server on five drives. A drive fails during a load and is replaced while clients write; the
//! server is killed during the rebuild; then another drive fails, so that reads need the rebuilt data.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::load::{self, Write};
use crate::own_files::OwnFiles;
use crate::packages;
use crate::program::Program;
use crate::report::{Report, rate, seconds, size};
use crate::server::Server;

/// Number of drives of the demonstration's array.
const DRIVES: usize = 5;
/// The slot of the drive that fails and is replaced.
const REPLACED_SLOT: usize = 2;
/// The slot of the drive that fails after the rebuild.
const SECOND_FAILED_SLOT: usize = 0;
/// The rebuild's rate until the server is killed, in bytes a second: slow enough to be killed halfway.
const REBUILD_RATE: &str = "8MiB";
/// The share of the rebuild that is done when the server is killed.
const REBUILT_SHARE_AT_KILL: f64 = 0.4;
/// Time between two reports of the rebuild's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// The longest time that a rebuild may take.
const REBUILD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two polls of the count of acknowledged writes.
const LOAD_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Time between two polls of the rebuild's progress.
const REBUILD_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of records between two pauses of the second load (`RECORDS_BETWEEN_PAUSES`), and the length of a pause.
const RECORDS_BETWEEN_PAUSES: usize = 1024;
const LOAD_PAUSE: Duration = Duration::from_millis(50);
/// The file that lists the array's members.
const MEMBER_LIST: &str = "demo.array";
const WAL: &str = "auto";

/// The settings of the array demonstration.
#[derive(Clone, Debug)]
pub struct ArrayDemo {
    /// The path of the `furrow` program.
    pub program: PathBuf,
    /// The directory of the drive files.
    pub directory: PathBuf,
    /// The parameters of each drive: `zones=96&zone-size=8MiB`.
    pub drive: String,
}

/// The result of the array demonstration.
#[derive(Clone, Debug)]
pub struct ArrayOutcome {
    /// Number of records of each load.
    pub records: usize,
    /// Number of acknowledged writes of both loads.
    pub acknowledged: usize,
    /// Descriptions of acknowledged records that do not read back as written.
    pub lost: Vec<String>,
    /// The array's counters, as `furrow array status --json` prints them.
    pub counters: Value,
    /// How long the demonstration took.
    pub time: Duration,
}

/// A running array demonstration.
struct RunningDemo<'a> {
    demo: &'a ArrayDemo,
    program: Program,
    files: OwnFiles,
    report: &'a dyn Report,
}

impl ArrayDemo {
    /// Runs the array demonstration.
    ///
    /// # Errors
    ///
    /// A file in the directory that no demo made; a machine without package lists; a server or a rebuild that fails.
    pub fn run(&self, report: &dyn Report) -> Result<ArrayOutcome> {
        let program = Program::new(self.program.clone());
        let files = OwnFiles::in_directory(self.directory.clone())?;
        RunningDemo { demo: self, program, files, report }.run()
    }
}

impl RunningDemo<'_> {
    fn run(&self) -> Result<ArrayOutcome> {
        let began = self.program.now();
        let device = self.create()?;
        let records = packages::load()?;
        let bytes: u64 = records.values().map(|record| record.len() as u64).sum();
        self.say(format!("{} records, {}, in the package lists of this machine", records.len(), size(bytes)));
        let mut first: Vec<Write> =
            records.into_iter().map(|(key, value)| Write { key, value, acknowledged: false }).collect();
        let mut second: Vec<Write> = first
            .iter()
            .map(|write| Write { key: format!("again:{}", write.key), ..write.clone() })
            .collect();
        let mut server = self.start(&device)?;
        self.say(format!(
            "server started on {} (pid {}), its data on {device}",
            server.address,
            server.pid()
        ));

        self.load_while_a_drive_fails(&server, &mut first)?;
        let mut lost = self.verify(&server, "without the drive", &[&first])?;
        self.kill_during_the_rebuild(&mut server, &mut second)?;
        drop(server);
        let start = self.program.now();
        let server = self.start(&device)?;
        self.say(format!("server started again in {}", seconds(self.program.now().since(start))));
        self.finish_rebuild(&server)?;
        lost.extend(self.verify(&server, "with the new drive", &[&first, &second])?);
        let loaded = self.load(&server, &mut second, |_| Ok(()))?;
        ensure!(loaded == second.len(), "the server ended during the second load");

        // The array now reconstructs a quarter of all data with the rebuilt drive.
        self.fail(&server, SECOND_FAILED_SLOT)?;
        self.say(format!(
            "drive {SECOND_FAILED_SLOT} failed, and its file is gone: reads need the rebuilt data now"
        ));
        lost.extend(self.verify(&server, "without another drive", &[&first, &second])?);
        let counters = self.status(&server)?.get("counters").cloned().unwrap_or_default();
        server.shut_down(&self.program)?;
        let server = self.start(&device)?;
        lost.extend(self.verify(&server, "the same after a restart", &[&first, &second])?);
        server.shut_down(&self.program)?;
        Ok(ArrayOutcome {
            records: first.len(),
            acknowledged: first.len() + second.len(),
            lost,
            counters,
            time: self.program.now().since(began),
        })
    }

    fn say(&self, sentence: String) {
        self.report.say(&sentence);
    }

    fn start(&self, device: &str) -> Result<Server> {
        Server::start(&self.program, device, WAL)
    }

    /// Makes the demonstration's array; returns its URL.
    fn create(&self) -> Result<String> {
        for drive in 0..=DRIVES {
            self.files.claim(&drive_file(drive))?;
        }
        let list = self.files.claim(MEMBER_LIST)?.display().to_string();
        let drives: Vec<String> = (0..DRIVES).map(|drive| self.url(drive)).collect();
        let args = ["array", "create", "--label", "demo", "--save", &list];
        let args: Vec<&str> = args.into_iter().chain(drives.iter().map(String::as_str)).collect();
        self.program.run(&args)?;
        for drive in 0..DRIVES {
            self.files.made(&drive_file(drive))?;
        }
        self.files.made(MEMBER_LIST)?;
        self.say(format!("array of {DRIVES} drives made; {list} lists them"));
        Ok(format!("array:{list}"))
    }

    /// The URL with which a drive of the array is made.
    fn url(&self, drive: usize) -> String {
        format!("emu:{}?{}", self.files.path(&drive_file(drive)).display(), self.demo.drive)
    }

    /// Runs the first load; a drive fails halfway.
    fn load_while_a_drive_fails(&self, server: &Server, writes: &mut [Write]) -> Result<()> {
        let start = self.program.now();
        let loaded = self.load(server, writes, |acknowledged| {
            self.fail(server, REPLACED_SLOT)?;
            self.say(format!(
                "drive {REPLACED_SLOT} failed after {acknowledged} writes, and its file is gone; the load goes on"
            ));
            Ok(())
        })?;
        ensure!(loaded == writes.len(), "the server ended during the first load");
        self.say(format!(
            "first load: {loaded} acknowledged as durable, {}",
            rate(loaded, self.program.now().since(start))
        ));
        Ok(())
    }

    /// Sends the writes that are not acknowledged yet, and calls `halfway` when half of them are. Returns the number of all
    /// writes that are acknowledged at the end.
    fn load(
        &self,
        server: &Server,
        writes: &mut [Write],
        halfway: impl FnOnce(u64) -> Result<()>,
    ) -> Result<usize> {
        let mut rest: Vec<Write> = writes.iter().filter(|write| !write.acknowledged).cloned().collect();
        let acknowledged = AtomicU64::new(0);
        let ended = AtomicBool::new(false);
        let half = rest.len() as u64 / 2;
        self.report.begin("load   ", rest.len() as u64);
        let done = std::thread::scope(|scope| {
            let loader = scope.spawn(|| {
                let loaded = load::set(server.address, &mut rest, self.report, &acknowledged);
                ended.store(true, Ordering::Release);
                loaded
            });
            while acknowledged.load(Ordering::Relaxed) < half && !ended.load(Ordering::Acquire) {
                self.program.sleep(LOAD_POLL_INTERVAL);
            }
            let done = halfway(acknowledged.load(Ordering::Relaxed));
            loader.join().expect("the loader does not panic").and(done)
        });
        self.report.end();
        done?;
        let pending = writes.iter_mut().filter(|write| !write.acknowledged);
        for (write, sent) in pending.zip(&rest) {
            write.acknowledged = sent.acknowledged;
        }
        Ok(writes.iter().filter(|write| write.acknowledged).count())
    }

    /// Fails a drive of the array and removes the drive's file.
    fn fail(&self, server: &Server, drive: usize) -> Result<()> {
        self.program.run(&["array", "fail", "--url", &server.pages, &drive.to_string()])?;
        self.files.remove(&drive_file(drive))
    }

    /// Replaces the failed drive, and kills the server during the rebuild and the second load.
    fn kill_during_the_rebuild(&self, server: &mut Server, writes: &mut [Write]) -> Result<()> {
        let (slot, new) = (REPLACED_SLOT.to_string(), self.url(DRIVES));
        let order = [
            "array",
            "replace",
            "--url",
            &server.pages,
            &slot,
            &new,
            "--max-rate",
            REBUILD_RATE,
            "--no-wait",
        ];
        self.program.run(&order)?;
        self.files.made(&drive_file(DRIVES))?;
        self.say(format!(
            "drive {REPLACED_SLOT} is replaced by {new}; the rebuild writes {REBUILD_RATE}/s, clients go on"
        ));
        let address = server.address;
        let acknowledged = AtomicU64::new(0);
        let killed = AtomicBool::new(false);
        self.report.begin("load   ", writes.len() as u64);
        let done = std::thread::scope(|scope| {
            let loader = scope.spawn(|| {
                // Pauses keep the load from ending before the server is killed.
                for part in writes.chunks_mut(RECORDS_BETWEEN_PAUSES) {
                    match load::set(address, part, self.report, &acknowledged) {
                        // The server was killed between two parts of the load: no connection can be made.
                        Err(_) if killed.load(Ordering::Acquire) => break,
                        set => set?,
                    }
                    if part.iter().any(|write| !write.acknowledged) {
                        break;
                    }
                    self.program.sleep(LOAD_PAUSE);
                }
                anyhow::Ok(())
            });
            let done = self.wait_for_rebuild(server, REBUILT_SHARE_AT_KILL).and_then(|_| {
                killed.store(true, Ordering::Release);
                server.kill()
            });
            done.and(loader.join().expect("the loader does not panic"))
        });
        self.report.end();
        done?;
        let acknowledged = writes.iter().filter(|write| write.acknowledged).count();
        self.say(format!(
            "SIGKILL to pid {} during the rebuild, after {acknowledged} of {} writes of the second load",
            server.pid(),
            writes.len()
        ));
        Ok(())
    }

    /// Waits for the end of the rebuild, which the restarted server resumed.
    fn finish_rebuild(&self, server: &Server) -> Result<()> {
        let status = self.status(server)?;
        let resumed =
            ["rebuild", "last_rebuild"].iter().any(|job| status.get(job).is_some_and(|job| !job.is_null()));
        ensure!(resumed || health(&status) == "clean", "the restarted server did not resume the rebuild");
        let status = self.wait_for_rebuild(server, f64::INFINITY)?;
        ensure!(health(&status) == "clean", "the array is {} after the rebuild", health(&status));
        self.say("the rebuild was resumed and is complete: the array is clean".to_owned());
        Ok(())
    }

    /// Waits until a share of the rebuild is done, or, for a share above 1, until it has ended. Returns the status.
    fn wait_for_rebuild(&self, server: &Server, share: f64) -> Result<Value> {
        let give_up = self.program.now().after(REBUILD_TIMEOUT);
        let mut next = self.program.now();
        loop {
            let status = self.status(server)?;
            let Some(rebuild) = status.get("rebuild").filter(|rebuild| !rebuild.is_null()) else {
                ensure!(share > 1.0, "the rebuild had ended before the server was killed");
                return Ok(status);
            };
            let bytes = |name: &str| rebuild.get(name).and_then(Value::as_u64).unwrap_or_default();
            let (done, total) = (bytes("bytes"), bytes("total"));
            if total > 0 && self.program.now() >= next {
                self.say(format!(
                    "  rebuild: {:.0} %, {} of {}",
                    done as f64 * 100.0 / total as f64,
                    size(done),
                    size(total)
                ));
                next = self.program.now().after(PROGRESS_INTERVAL);
            }
            if total > 0 && done as f64 >= share * total as f64 {
                return Ok(status);
            }
            ensure!(self.program.now() < give_up, "the rebuild has not ended after {REBUILD_TIMEOUT:?}");
            self.program.sleep(REBUILD_POLL_INTERVAL);
        }
    }

    fn status(&self, server: &Server) -> Result<Value> {
        self.program.json(&["array", "status", "--url", &server.pages, "--json"])
    }

    /// Reads every record of the loads back; returns the problems.
    fn verify(&self, server: &Server, when: &str, loads: &[&[Write]]) -> Result<Vec<String>> {
        let start = self.program.now();
        let writes: Vec<&Write> = loads.iter().copied().flatten().collect();
        let verdict = |write: &&Write, found: Option<&[u8]>| {
            let fits = match found {
                Some(found) => found == write.value.as_bytes(),
                None => !write.acknowledged,
            };
            let what = if found.is_none() { "is gone" } else { "has another value" };
            (!fits).then(|| format!("{} {what} ({when})", write.key))
        };
        self.report.begin("reading", writes.len() as u64);
        let lost = load::check(server.address, &writes, |write| &write.key, verdict, self.report);
        self.report.end();
        let lost = lost?;
        let acknowledged = writes.iter().filter(|write| write.acknowledged).count();
        self.say(format!(
            "{when}: {acknowledged} acknowledged records read back, {} lost, {}",
            lost.len(),
            rate(writes.len(), self.program.now().since(start))
        ));
        Ok(lost)
    }
}

/// The name of the file that a drive of the array is in.
fn drive_file(drive: usize) -> String {
    format!("drive{drive}.img")
}

fn health(status: &Value) -> &str {
    status.get("health").and_then(Value::as_str).unwrap_or("unknown")
}
