//! Runs other programs in the guest, with a time limit.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::clock;

/// Result of a program.
#[derive(Debug)]
pub struct ProgramResult {
    /// The program's exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub error: String,
}

impl ProgramResult {
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
pub fn run(line: &[&str], limit: Duration) -> Result<ProgramResult> {
    let mut child = start(line)?;
    let output = read_output(child.stdout.take())?;
    let error = read_output(child.stderr.take())?;
    let start = clock::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limit {
            child.kill().ok();
            child.wait().ok();
            let ended = ProgramResult {
                code: None,
                output: collected_output(output),
                error: collected_output(error),
            };
            bail!("{} has not ended after {} s:\n{}", line.join(" "), limit.as_secs(), ended.tail());
        }
        clock::sleep(Duration::from_millis(10));
    };
    Ok(ProgramResult {
        code: status.code(),
        output: collected_output(output),
        error: collected_output(error),
    })
}

/// Runs a program that must succeed; returns its standard output.
pub fn run_successfully(line: &[&str], limit: Duration) -> Result<String> {
    let ended = run(line, limit)?;
    ensure!(ended.code == Some(0), "{} ended with {:?}:\n{}", line.join(" "), ended.code, ended.tail());
    Ok(ended.output)
}

/// Discards the further output of a background program, which would block on a full pipe.
pub fn ignore(child: &mut Child) -> Result<()> {
    drop((read_output(child.stdout.take())?, read_output(child.stderr.take())?));
    Ok(())
}

type OutputThread = std::thread::JoinHandle<String>;

fn read_output(from: Option<impl Read + Send + 'static>) -> Result<OutputThread> {
    let mut from = from.context("no pipe")?;
    Ok(std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).ok();
        String::from_utf8_lossy(&bytes).into_owned()
    })?)
}

fn collected_output(reading: OutputThread) -> String {
    reading.join().unwrap_or_default()
}
