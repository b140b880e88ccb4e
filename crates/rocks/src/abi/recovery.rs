//! Which databases of a mount recover their logs: from the lock of the database's directory, which RocksDB takes first, until RocksDB
//! has written the file of its options, or failed to: the last file before the database takes writes and starts compactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use fs::{Fs, Recovery};
use parking_lot::Mutex;

/// The recoveries under way, by the database's directory. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Recoveries(Arc<Mutex<BTreeMap<String, Recovery>>>);

impl Recoveries {
    /// Notes that the file `locked` was locked: the lock of a database begins its recovery. Returns the database's directory.
    pub(super) fn begin(&self, fs: &Fs, locked: &str) -> Option<String> {
        let dir = locked.strip_suffix("/LOCK")?.to_owned();
        self.0.lock().insert(dir.clone(), fs.begin_recovery());
        Some(dir)
    }

    /// The end of a recovery, if the file `created` holds the new options of a database: dropped with the file's writer, or where the
    /// file cannot be created.
    pub(super) fn end_with(&self, created: &str) -> Option<RecoveryEnd> {
        let (dir, name) = created.rsplit_once('/')?;
        let options = name.starts_with("OPTIONS-") && name.ends_with(".dbtmp");
        options.then(|| RecoveryEnd { recoveries: self.clone(), dir: dir.to_owned() })
    }

    /// Ends the recovery of the database in `dir`, if one is under way.
    pub(super) fn end(&self, dir: &str) {
        self.0.lock().remove(dir);
    }
}

/// Ends a recovery when it is dropped.
#[derive(Debug)]
pub(super) struct RecoveryEnd {
    recoveries: Recoveries,
    dir: String,
}

impl Drop for RecoveryEnd {
    fn drop(&mut self) {
        self.recoveries.end(&self.dir);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use fs::{FormatOptions, MountOptions};
    use units::{VirtualDriver, block_on};
    use zoned::emu::{Emu, EmuOptions};

    use super::*;

    #[test]
    fn a_recovery_lasts_from_the_lock_to_the_new_options() {
        let driver = VirtualDriver::new(1);
        let device = Emu::memory(EmuOptions::default(), driver.clone()) as Arc<dyn zoned::ZonedDevice>;
        let fs = block_on(&*driver, async {
            Fs::format(&device, &FormatOptions::default()).await.unwrap();
            Fs::mount(device, &MountOptions::default()).await.unwrap()
        });
        let recoveries = Recoveries::default();
        assert_eq!(recoveries.begin(&fs, "/db/LOCKED"), None);
        let dir = recoveries.begin(&fs, "/db/LOCK").unwrap();
        drop(recoveries.end_with("/other/OPTIONS-000007.dbtmp"));
        assert!(
            recoveries.end_with("/db/000008.dbtmp").is_none()
                && recoveries.end_with("/db/OPTIONS-000007").is_none()
        );
        let end = recoveries.end_with("/db/OPTIONS-000007.dbtmp").unwrap();
        assert_eq!(recoveries.0.lock().len(), 1);
        drop(end);
        assert_eq!(recoveries.0.lock().len(), 0);
        recoveries.end(&dir);
        block_on(&*driver, fs.unmount()).unwrap();
    }
}
