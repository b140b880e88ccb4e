//! Counts what an array wrote while its file system was mounted, for measurements of unmodified programs.
//!
//! `FURROW_COUNTERS=FILE` appends a line of JSON to a file of the host at the end of each mount: the array's counters
//! ([`array::Counters`]) since the mount, without the writes of assembling the array and of mounting.

use std::env;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use array::{Array, Counters};

use crate::error::{Error, ErrorKind, Result};

/// Environment variable that names the file for the array's counters.
pub(crate) const COUNTERS_VARIABLE: &str = "FURROW_COUNTERS";

/// Opens the file that `FURROW_COUNTERS` names, if the variable is set. A file that cannot be opened is an error before
/// the mount begins.
pub(crate) fn open_counters_file() -> Result<Option<(PathBuf, File)>> {
    let Some(path) = env::var_os(COUNTERS_VARIABLE).map(PathBuf::from) else { return Ok(None) };
    let file = File::options().append(true).create(true).open(&path).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("{COUNTERS_VARIABLE}: opening {}: {error}", path.display()))
    })?;
    Ok(Some((path, file)))
}

/// The array's counters at the mount, and the file that gets the difference at the unmount.
#[derive(Debug)]
pub(crate) struct ArrayTally {
    array: Arc<Array>,
    before: Counters,
    path: PathBuf,
    file: File,
}

impl ArrayTally {
    /// Starts the count of a mounted array.
    pub(crate) fn new(array: Arc<Array>, (path, file): (PathBuf, File)) -> ArrayTally {
        let before = array.counters();
        ArrayTally { array, before, path, file }
    }

    /// Appends the line with the array's counters to the file. The program's work is done by now, so an error is only
    /// printed to stderr.
    pub(crate) fn append_line(mut self) {
        let line = counters_line(&self.before, &self.array.counters());
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            eprintln!("furrow: {COUNTERS_VARIABLE}: writing {}: {error}", self.path.display());
        }
    }
}

fn counters_line(before: &Counters, after: &Counters) -> String {
    let counted = before.each().zip(after.each());
    let fields: Vec<String> =
        counted.map(|((name, from), (_, to))| format!("\"{name}\":{}", to.saturating_sub(from))).collect();
    format!("{{{}}}\n", fields.join(","))
}

#[cfg(test)]
mod tests {
    use array::{CreateOptions, OpenOptions};
    use units::{Blocks, Driver, VirtualDriver, block_on};
    use zoned::emu::{Emu, EmuOptions};
    use zoned::{Buf, Durability, ZonedDevice};

    use super::*;

    #[test]
    fn each_mount_appends_a_line_with_the_writes_since_it_began() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("counters");
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let drive = |n| {
            let options = EmuOptions { zones: 8, name: format!("emu:{n}"), seed: n, ..EmuOptions::default() };
            Emu::memory(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>
        };
        let drives: Vec<_> = (0..3).map(drive).collect();
        block_on(&*driver, async {
            array::create(&drives, &CreateOptions::default()).await.expect("an array");
            let array = Array::open(drives, OpenOptions::default()).await.expect("it opens");
            let device = Arc::clone(&array) as Arc<dyn ZonedDevice>;
            for n in 0..2 {
                let file = File::options().append(true).create(true).open(&path).expect("a file");
                let tally = ArrayTally::new(Arc::clone(&array), (path.clone(), file));
                for _ in 0..=n {
                    let data = Buf::copy_from(&[7; 4096]);
                    let at = device
                        .geometry()
                        .start(units::ZoneId(0))
                        .plus(Blocks(array.counters().data_bytes / 4096));
                    device.write(at, data, Durability::Cached).await.expect("written");
                }
                tally.append_line();
            }
        });
        let lines = std::fs::read_to_string(&path).expect("the file");
        let data: Vec<&str> = lines.lines().map(|line| line.split(',').next().unwrap_or_default()).collect();
        assert_eq!(data, ["{\"data_bytes\":4096", "{\"data_bytes\":8192"]);
    }

    #[test]
    fn a_line_has_the_differences_of_the_counters() {
        let before = Counters { data_bytes: 10, flushes: 7, ..Counters::default() };
        let after = Counters { data_bytes: 4106, flushes: 7, metadata_bytes: 3, ..before };
        let line = counters_line(&before, &after);
        assert!(
            line.starts_with("{\"data_bytes\":4096,\"parity_bytes\":0,") && line.ends_with("}\n"),
            "{line}"
        );
        assert!(line.contains("\"metadata_bytes\":3,") && line.contains("\"flushes\":0,"), "{line}");
    }
}
