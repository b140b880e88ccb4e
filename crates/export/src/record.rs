//! Records of exports in /run, which say what the kernel does not keep: the device behind a block device.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sys::ublk::UblkId;

/// Directory of the records, which a reboot empties, as it ends the block devices.
const DIRECTORY: &str = "/run/furrow/exports";

/// The device behind an export.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The device's URL.
    pub(crate) url: String,
    /// The device's name in messages, which does not depend on how the URL was written. An array's is its UUID.
    pub(crate) device: String,
}

impl Record {
    /// Keeps the record of export `id`, replacing that of an earlier one.
    pub(crate) fn keep(&self, id: UblkId) -> io::Result<()> {
        self.keep_in(Path::new(DIRECTORY), id)
    }

    fn keep_in(&self, directory: &Path, id: UblkId) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        let text = serde_json::to_string(self).map_err(io::Error::from)?;
        let new = directory.join(format!(".{id}.{}", std::process::id()));
        fs::write(&new, text)?;
        fs::rename(&new, path(directory, id))
    }

    /// The record of export `id`; `None` if there is none, or it cannot be read.
    pub(crate) fn read(id: UblkId) -> Option<Record> {
        Record::read_in(Path::new(DIRECTORY), id)
    }

    fn read_in(directory: &Path, id: UblkId) -> Option<Record> {
        serde_json::from_slice(&fs::read(path(directory, id)).ok()?).ok()
    }

    /// Removes the record of export `id`.
    pub(crate) fn remove(id: UblkId) {
        // A record that stays is replaced by that of the next export of this number.
        let _not_there = fs::remove_file(path(Path::new(DIRECTORY), id));
    }
}

fn path(directory: &Path, id: UblkId) -> PathBuf {
    directory.join(format!("{id}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_that_of_the_last_server_of_its_number() {
        let root = tempfile::tempdir().expect("a directory");
        let directory = root.path().join("exports");
        let record = |zones| Record { url: format!("emu:a?zones={zones}"), device: "emu:a".into() };
        assert_eq!(Record::read_in(&directory, UblkId(3)), None);
        for zones in [10, 11] {
            record(zones).keep_in(&directory, UblkId(3)).expect("a record");
        }
        assert_eq!(Record::read_in(&directory, UblkId(3)), Some(record(11)));
        assert_eq!(Record::read_in(&directory, UblkId(30)), None);
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 1);
    }

    #[test]
    fn a_damaged_record_is_none() {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("1.json"), "{\"url\":").expect("a file");
        assert_eq!(Record::read_in(root.path(), UblkId(1)), None);
    }
}
