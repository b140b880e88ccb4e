//! QEMU's monitor: JSON, one line for each command and answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// How long QEMU has for an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// A connection to the monitor.
pub struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects.
    pub fn connect(socket: &Path) -> Result<Monitor> {
        let stream = UnixStream::connect(socket).context("cannot reach QEMU's monitor")?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut monitor = Monitor { lines: BufReader::new(stream) };
        monitor.line()?;
        monitor.execute("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// Runs a command; what it returned.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        self.lines.get_mut().write_all(line.as_bytes())?;
        loop {
            let mut answer = self.line()?;
            if let Some(error) = answer.get("error") {
                bail!("QEMU refuses {command}: {error}");
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            // Anything else is an event that happened in between.
        }
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        let count = self.lines.read_line(&mut line).context("QEMU's monitor does not answer")?;
        if count == 0 {
            bail!("QEMU's monitor is closed");
        }
        serde_json::from_str(&line).with_context(|| format!("QEMU's monitor said {line}"))
    }
}
