//! Counts what an array wrote while its file system was mounted, for measurements of unmodified programs.
//!
//! `FURROW_COUNTERS=FILE` appends a line of JSON to a file of the host at the end of each mount: the array's counters
//! ([`array::Counters`]) since the mount, without the writes of assembling the array and of mounting, and its space ([`array::Space`]).
//! With `FURROW_COUNTERS_EVERY=SECONDS` a line is appended that often, too.

use std::env;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use array::{Array, Counters, Space};
use units::sleep_until;
use zoned::ZonedDevice;

use crate::error::{Error, ErrorKind, Result};

/// Environment variable that names the file for the array's counters.
pub(crate) const COUNTERS_VARIABLE: &str = "FURROW_COUNTERS";
/// Environment variable: seconds between two lines of one mount.
pub(crate) const EVERY_VARIABLE: &str = "FURROW_COUNTERS_EVERY";

/// A file of the host that gets lines of counters.
#[derive(Debug)]
pub(crate) struct CountersFile {
    path: PathBuf,
    file: File,
    /// Time between two lines of a mount; `None` for one line at its end.
    every: Option<Duration>,
}

impl CountersFile {
    /// Opens the file that `FURROW_COUNTERS` names, if the variable is set. A file that cannot be opened is an error before
    /// the mount begins.
    pub(crate) fn open() -> Result<Option<CountersFile>> {
        let invalid = |what: String| Error::new(ErrorKind::Invalid, what);
        let Some(path) = env::var_os(COUNTERS_VARIABLE).map(PathBuf::from) else {
            if env::var_os(EVERY_VARIABLE).is_some() {
                return Err(invalid(format!(
                    "{EVERY_VARIABLE} is set, and {COUNTERS_VARIABLE}, the file for the lines, is not"
                )));
            }
            return Ok(None);
        };
        let file =
            File::options().append(true).create(true).open(&path).map_err(|error| {
                invalid(format!("{COUNTERS_VARIABLE}: opening {}: {error}", path.display()))
            })?;
        let every = env::var_os(EVERY_VARIABLE).map(|text| {
            let text = text.to_string_lossy();
            let seconds = text.parse::<f64>().ok().filter(|seconds| (0.001..=1e6).contains(seconds));
            let wrong = || {
                invalid(format!("{EVERY_VARIABLE}: {text:?} is no number of seconds from 0.001 to 1000000"))
            };
            seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
        });
        Ok(Some(CountersFile { path, file, every: every.transpose()? }))
    }

    fn duplicate(&self) -> std::io::Result<CountersFile> {
        Ok(CountersFile { path: self.path.clone(), file: self.file.try_clone()?, every: self.every })
    }

    /// Appends a line. An error is only printed to stderr: the program's own work is not concerned.
    fn append(&mut self, line: &str) {
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            eprintln!("furrow: {COUNTERS_VARIABLE}: writing {}: {error}", self.path.display());
        }
    }
}

/// The array's counters at the mount, and the file that gets the difference.
#[derive(Debug)]
pub(crate) struct ArrayTally {
    array: Arc<Array>,
    before: Counters,
    file: CountersFile,
    is_over: Arc<AtomicBool>,
}

impl ArrayTally {
    /// Starts the count of a mounted array.
    pub(crate) fn new(array: Arc<Array>, file: CountersFile) -> ArrayTally {
        let before = array.counters();
        let is_over = Arc::new(AtomicBool::new(false));
        if let Some(every) = file.every {
            match file.duplicate() {
                Ok(file) => append_every(&array, before, file, every, &is_over),
                Err(error) => eprintln!("furrow: {EVERY_VARIABLE}: {error}"),
            }
        }
        ArrayTally { array, before, file, is_over }
    }

    /// Appends the last line of the mount to the file.
    pub(crate) fn append_line(mut self) {
        self.is_over.store(true, Ordering::Release);
        let line = counters_line(&self.before, &self.array.counters(), self.array.space());
        self.file.append(&line);
    }
}

/// Appends a line each time that `every` has passed, until the mount is over. The task keeps no array open.
fn append_every(
    array: &Arc<Array>,
    before: Counters,
    mut file: CountersFile,
    every: Duration,
    is_over: &Arc<AtomicBool>,
) {
    let (watched, is_over) = (Arc::downgrade(array), Arc::clone(is_over));
    let (driver, of_the_task) = (Arc::clone(array.driver()), Arc::clone(array.driver()));
    let task = async move {
        loop {
            sleep_until(&*of_the_task, of_the_task.now().after(every)).await;
            let Some(array) = watched.upgrade().filter(|_| !is_over.load(Ordering::Acquire)) else { return };
            file.append(&counters_line(&before, &array.counters(), array.space()));
        }
    };
    driver.spawn("counters", Box::pin(task));
}

fn counters_line(before: &Counters, after: &Counters, space: Option<Space>) -> String {
    let counted =
        before.each().zip(after.each()).map(|((name, from), (_, to))| (name, to.saturating_sub(from)));
    let space = space.map(|space| [("live_bytes", space.live.0), ("committed_bytes", space.committed.0)]);
    let fields: Vec<String> = counted
        .chain(space.into_iter().flatten())
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}\n", fields.join(","))
}

#[cfg(test)]
mod tests {
    use array::{CreateOptions, OpenOptions};
    use units::{Blocks, Bytes, Driver, VirtualDriver, block_on};
    use zoned::emu::{Emu, EmuOptions};
    use zoned::{Buf, Durability};

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
                let every = (n == 1).then_some(Duration::from_millis(1));
                let file = File::options().append(true).create(true).open(&path).expect("a file");
                let file = CountersFile { path: path.clone(), file, every };
                let tally = ArrayTally::new(Arc::clone(&array), file);
                for _ in 0..=n {
                    let data = Buf::copy_from(&[7; 4096]);
                    let at = device
                        .geometry()
                        .start(units::ZoneId(0))
                        .plus(Blocks(array.counters().data_bytes / 4096));
                    device.write(at, data, Durability::Cached).await.expect("written");
                    sleep_until(&*driver, driver.now().after(Duration::from_micros(1400))).await;
                }
                tally.append_line();
            }
            sleep_until(&*driver, driver.now().after(Duration::from_millis(5))).await;
        });
        let lines = std::fs::read_to_string(&path).expect("the file");
        let data: Vec<&str> = lines.lines().map(|line| line.split(',').next().unwrap_or_default()).collect();
        let expected = [4096, 4096, 8192, 8192].map(|bytes| format!("{{\"data_bytes\":{bytes}"));
        assert_eq!(data, expected, "a line at the end of each mount, and each millisecond of the second one");
    }

    #[test]
    fn a_line_has_the_differences_of_the_counters() {
        let before = Counters { data_bytes: 10, flushes: 7, ..Counters::default() };
        let after = Counters { data_bytes: 4106, flushes: 7, metadata_bytes: 3, ..before };
        let space = Space { live: Bytes(5), committed: Bytes(6), ..Space::default() };
        let line = counters_line(&before, &after, Some(space));
        assert!(
            line.starts_with("{\"data_bytes\":4096,\"parity_bytes\":0,")
                && line.ends_with(",\"live_bytes\":5,\"committed_bytes\":6}\n"),
            "{line}"
        );
        assert!(line.contains("\"metadata_bytes\":3,") && line.contains("\"flushes\":0,"), "{line}");
    }
}
