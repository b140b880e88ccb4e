//! The guest's virtio-serial ports to the harness.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{clock, text};

/// Opens the virtio-serial port named `name`.
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
