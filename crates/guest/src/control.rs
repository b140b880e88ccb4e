//! The connection of a test in the guest to the harness on the host.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};

use anyhow::{Context, Result};
use xtask::guest::job::{CONTROL_PORT, Event};

use crate::ports;

/// The control port.
pub struct Control {
    port: File,
    lines: BufReader<File>,
}

impl Control {
    /// Opens the port to the harness, which only one process at a time may open.
    pub fn open() -> Result<Control> {
        let port = ports::open(CONTROL_PORT)?;
        let lines = BufReader::new(port.try_clone()?);
        Ok(Control { port, lines })
    }

    /// A second handle of the same port to the harness.
    pub fn port(&self) -> Result<File> {
        Ok(self.port.try_clone()?)
    }

    /// Sends an event.
    pub fn say(&mut self, event: &Event) -> Result<()> {
        say(&mut self.port, event)
    }

    /// Sends the harness a message for the log.
    pub fn note(&mut self, text: impl Into<String>) -> Result<()> {
        self.say(&Event::Note { text: text.into() })
    }

    /// Sends the harness a measured value.
    pub fn measured(&mut self, name: &str, value: f64, unit: &str) -> Result<()> {
        self.say(&Event::Measured { name: name.into(), value, unit: unit.into() })
    }

    /// Sends a request to the harness and returns its reply.
    pub fn ask(&mut self, what: &str) -> Result<String> {
        self.say(&Event::Ask { what: what.into() })?;
        let mut line = String::new();
        self.lines.read_line(&mut line).context("the harness does not answer")?;
        Ok(line.trim_end().to_owned())
    }
}

/// Writes an event to a port by a single write, so that events of several threads do not interleave.
pub fn say(port: &mut File, event: &Event) -> Result<()> {
    let mut line = serde_json::to_string(event).context("an event is JSON")?;
    line.push('\n');
    port.write_all(line.as_bytes()).context("cannot write to the control port")
}
