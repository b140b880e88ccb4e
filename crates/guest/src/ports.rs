//! The virtio-serial ports to the harness.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use xtask::guest::job::Event;

use crate::{clock, text};

/// Opens the port of this name.
pub fn open(name: &str) -> Result<File> {
    let path = clock::wait_for(&format!("port {name}"), || find(name))?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))
}

fn find(name: &str) -> Option<PathBuf> {
    text::list("/sys/class/virtio-ports")
        .into_iter()
        .filter(|port| text::get(port.join("name")).as_deref() == Some(name))
        .map(|port| PathBuf::from("/dev").join(text::name(&port)))
        .find(|path| path.exists())
}

/// Tells the harness.
pub fn say(control: &mut File, event: &Event) -> Result<()> {
    let mut line = serde_json::to_string(event).context("an event is JSON")?;
    line.push('\n');
    control.write_all(line.as_bytes()).context("cannot write to the control port")
}
