//! Runs other programs in the guest, with a time limit.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::clock;

/// Result of a program.
#[derive(Debug)]
pub struct Ended {
    /// The program's exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub error: String,
}

impl Ended {
    /// The last lines of the program's output, for messages.
    pub fn tail(&self) -> String {
        const LINES: usize = 25;
        let text = format!("{}\n{}", self.output, self.error);
        // db_bench overwrites its progress line with carriage returns.
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains('\r')).collect();
        lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n")
    }
}

/// Starts a program in the background.
pub fn start(line: &[&str]) -> Result<Child> {
    let (program, arguments) = line.split_first().context("no program")?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))
}

/// Runs a program to its end.
pub fn run(line: &[&str], limit: Duration) -> Result<Ended> {
    let mut child = start(line)?;
    let output = reader(child.stdout.take())?;
    let error = reader(child.stderr.take())?;
    let start = clock::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limit {
            child.kill().ok();
            child.wait().ok();
            let ended = Ended { code: None, output: text(output), error: text(error) };
            bail!("{} has not ended after {} s:\n{}", line.join(" "), limit.as_secs(), ended.tail());
        }
        clock::sleep(Duration::from_millis(10));
    };
    Ok(Ended { code: status.code(), output: text(output), error: text(error) })
}

/// Runs a program that must succeed; returns its standard output.
pub fn good(line: &[&str], limit: Duration) -> Result<String> {
    let ended = run(line, limit)?;
    ensure!(ended.code == Some(0), "{} ended with {:?}:\n{}", line.join(" "), ended.code, ended.tail());
    Ok(ended.output)
}

/// Discards the further output of a background program, which would block on a full pipe.
pub fn ignore(child: &mut Child) -> Result<()> {
    drop((reader(child.stdout.take())?, reader(child.stderr.take())?));
    Ok(())
}

type Reading = std::thread::JoinHandle<String>;

fn reader(from: Option<impl Read + Send + 'static>) -> Result<Reading> {
    let mut from = from.context("no pipe")?;
    Ok(std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).ok();
        String::from_utf8_lossy(&bytes).into_owned()
    })?)
}

fn text(reading: Reading) -> String {
    reading.join().unwrap_or_default()
}
