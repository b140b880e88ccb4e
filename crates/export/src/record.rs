//! Records of exports in /run, which say what the kernel does not keep: the device's URL.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sys::ublk::UblkId;

/// Directory of the records, which a reboot empties.
const DIRECTORY: &str = "/run/furrow/exports";

/// What is known of an export besides its kernel device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The device's URL.
    pub(crate) device: String,
    /// Process id of the server that wrote the record.
    pub(crate) server: u32,
}

impl Record {
    /// Keeps the record of export `id`, replacing that of an earlier one.
    pub(crate) fn keep(&self, id: UblkId) -> io::Result<()> {
        fs::create_dir_all(DIRECTORY)?;
        let text = serde_json::to_string(self).map_err(io::Error::from)?;
        let new = PathBuf::from(format!("{DIRECTORY}/.{id}.{}", self.server));
        fs::write(&new, text)?;
        fs::rename(&new, path(id))
    }

    /// The record of export `id`; `None` if there is none, or it cannot be read.
    pub(crate) fn read(id: UblkId) -> Option<Record> {
        serde_json::from_slice(&fs::read(path(id)).ok()?).ok()
    }

    /// Removes the record of export `id`.
    pub(crate) fn remove(id: UblkId) {
        // A record that stays is replaced by that of the next export of this number.
        let _not_there = fs::remove_file(path(id));
    }
}

fn path(id: UblkId) -> PathBuf {
    PathBuf::from(format!("{DIRECTORY}/{id}.json"))
}
