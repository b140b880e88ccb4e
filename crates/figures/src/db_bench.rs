//! The machine's own `db_bench` on emulated drives, on the real clock.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use rocks::stock::{Program, StockOptions, prepare};
use units::{Driver, RealDriver, Spawned, block_on, sleep_until, spawn};

use super::{Error, Result};

/// Time between two polls of the db_bench process.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The longest run of db_bench; a process that takes longer is killed.
const MAX_RUN_TIME: Duration = Duration::from_secs(300);

/// The settings of a run of db_bench.
#[derive(Clone, Debug)]
pub struct DbBench {
    /// The URL of the drive, or of the array.
    pub url: String,
    /// The name of the benchmark: `fillrandom`.
    pub benchmark: &'static str,
    /// Further arguments of db_bench.
    pub args: Vec<String>,
    /// Environment variables of the process: the log's settings.
    pub environment: Vec<(&'static str, String)>,
}

/// The numbers that db_bench prints; of a benchmark that reads and writes, those of the reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// The rate in operations a second.
    pub rate: f64,
    /// The 99th percentile of the latencies in us; only with `--histogram`.
    pub p99: Option<f64>,
}

impl DbBench {
    /// Runs db_bench to its end.
    pub fn run(&self) -> Result<Measured> {
        let doing = || format!("db_bench {} on {}", self.benchmark, self.url);
        let failed = |why: String| Error::new(doing(), why);
        let benchmarks = format!("--benchmarks={}", self.benchmark);
        let args: Vec<OsString> =
            std::iter::once(&benchmarks).chain(&self.args).map(OsString::from).collect();
        let options = StockOptions::default();
        let mut command =
            prepare(Program::DbBench, &self.url, &args, &options).map_err(|e| Error::new(doing(), e))?;
        // The environment variables FURROW_* of this process would change the measurement: the child does not get them.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"FURROW_")) {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| failed(e.to_string()))?;
        let (ended, output, complaint) =
            wait_or_kill(child, MAX_RUN_TIME).map_err(|e| failed(e.to_string()))?;
        numbers_or_error(ended, &output, &complaint, self.benchmark).map_err(failed)
    }
}

/// The numbers that db_bench printed, or the error: a program may fail after it printed its numbers.
fn numbers_or_error(
    ended: Option<ExitStatus>,
    output: &str,
    complaint: &str,
    benchmark: &str,
) -> std::result::Result<Measured, String> {
    let last = complaint.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("db_bench printed no error");
    match ended {
        None => Err(format!("no end after {} s; {last}", MAX_RUN_TIME.as_secs())),
        Some(status) if !status.success() => Err(format!("{status}; {last}")),
        Some(_) => parse_output(output, benchmark).ok_or_else(|| last.to_owned()),
    }
}

/// Waits for the end of a process, and kills one that takes longer than `longest`, which then has no status.
fn wait_or_kill(
    mut child: Child,
    longest: Duration,
) -> std::io::Result<(Option<ExitStatus>, String, String)> {
    let driver = RealDriver::new();
    // The pipes are read while the process runs: a process blocks when its pipe is full.
    let (output, complaint) =
        (read_pipe_to_end(&*driver, child.stdout.take()), read_pipe_to_end(&*driver, child.stderr.take()));
    let due = driver.now().after(longest);
    let ended = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        } else if driver.now() >= due {
            child.kill()?;
            child.wait()?;
            break None;
        }
        block_on(&*driver, sleep_until(&*driver, driver.now().after(POLL_INTERVAL)));
    };
    Ok((ended, block_on(&*driver, output)?, block_on(&*driver, complaint)?))
}

/// Reads a pipe to its end in a task.
fn read_pipe_to_end(
    driver: &dyn Driver,
    pipe: Option<impl Read + Send + 'static>,
) -> Spawned<std::io::Result<String>> {
    spawn(driver, "drain", async move {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes)?;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    })
}

/// Parses the output of db_bench: `fillrandom : 1.604 micros/op 623223 ops/sec ...`, and further down `Percentiles: P50: 8.36
/// P75: 9.64 P99: 1156.67 ...`
fn parse_output(output: &str, benchmark: &str) -> Option<Measured> {
    let mut lines = output.lines();
    let line = lines.find(|line| line.split([' ', ':']).next() == Some(benchmark))?;
    let rate = number_in_line(line, |first, second| (second == "ops/sec").then_some(first))?;
    let tail = lines.find(|line| line.starts_with("Percentiles:")).unwrap_or_default();
    Some(Measured { rate, p99: number_in_line(tail, |first, second| (first == "P99:").then_some(second)) })
}

/// The first number in a line that `number` finds in two neighbouring words.
fn number_in_line(line: &str, number: impl for<'a> Fn(&'a str, &'a str) -> Option<&'a str>) -> Option<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.windows(2).find_map(|pair| match pair {
        [first, second] => number(first, second)?.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn a_program_that_writes_more_than_a_pipe_holds_ends() {
        let script = "head -c 300000 /dev/zero >&2; head -c 200000 /dev/zero; echo end";
        let (ended, output, complaint) = wait_or_kill(shell(script), Duration::from_secs(120)).unwrap();
        assert!(ended.is_some_and(|status| status.success()) && output.ends_with("end\n"));
        assert_eq!((output.len(), complaint.len()), (200_004, 300_000));
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_its_output_is_kept() {
        // Waits until the process has printed its line.
        let said = std::env::temp_dir().join(format!("furrow-said-{}", std::process::id()));
        let child = shell(&format!("echo so far; : > '{}'; exec sleep 300", said.display()));
        while !said.exists() {
            std::thread::yield_now();
        }
        std::fs::remove_file(&said).unwrap();
        let (ended, output, _) = wait_or_kill(child, Duration::from_millis(300)).unwrap();
        assert_eq!((ended, output.as_str()), (None, "so far\n"));
    }

    #[test]
    fn the_numbers_of_a_program_that_fails_do_not_count() {
        let script = "echo 'fillseq : 1 micros/op 9 ops/sec'; echo gone >&2; exit 3";
        let (ended, output, complaint) = wait_or_kill(shell(script), MAX_RUN_TIME).unwrap();
        assert_eq!(
            numbers_or_error(ended, &output, &complaint, "fillseq").unwrap_err(),
            "exit status: 3; gone"
        );
        let well = "fillseq : 1 micros/op 9 ops/sec";
        assert_eq!(numbers_or_error(Some(ExitStatus::default()), well, "", "fillseq").unwrap().rate, 9.0);
        assert!(numbers_or_error(None, well, "", "fillseq").unwrap_err().starts_with("no end after"));
    }

    #[test]
    fn the_numbers_are_those_of_the_benchmark() {
        let output = "RocksDB:    version 7.8.3\nPercentiles: P50: 1.00 P99: 2.00\nfillseq      :   1 micros/op 9 ops/sec\n\
                      fillrandom   :      31.604 micros/op 31641 ops/sec 9.481 seconds 300000 operations;  124.1 MB/s\n\
                      Microseconds per write:\nPercentiles: P50: 8.36 P75: 9.64 P99: 1156.67 P99.9: 50000.00\n";
        assert_eq!(parse_output(output, "fillrandom"), Some(Measured { rate: 31641.0, p99: Some(1156.67) }));
        assert_eq!(parse_output(output, "fillseq").unwrap().rate, 9.0);
        assert_eq!(parse_output(output, "readrandom"), None);
        let bare = "fillrandom   :      31.604 micros/op 31641 ops/sec";
        assert_eq!(parse_output(bare, "fillrandom"), Some(Measured { rate: 31641.0, p99: None }));
        assert_eq!(parse_output("fillrandom: failed", "fillrandom"), None);
    }
}
