//! Which databases of a mount recover their logs: from the lock of the database's directory, which RocksDB takes first, until RocksDB
//! renames the file of its options, which it does last before it takes writes and starts compactions.

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

    /// Notes that the file `from` was renamed: the new options of a database end its recovery.
    pub(super) fn note_rename(&self, from: &str) {
        let Some((dir, name)) = from.rsplit_once('/') else { return };
        if name.starts_with("OPTIONS-") && name.ends_with(".dbtmp") {
            self.end(dir);
        }
    }

    /// Ends the recovery of the database in `dir`, if one is under way.
    pub(super) fn end(&self, dir: &str) {
        self.0.lock().remove(dir);
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
        recoveries.note_rename("/other/OPTIONS-000007.dbtmp");
        recoveries.note_rename("/db/000008.dbtmp");
        assert_eq!(recoveries.0.lock().len(), 1);
        recoveries.note_rename("/db/OPTIONS-000007.dbtmp");
        assert_eq!(recoveries.0.lock().len(), 0);
        recoveries.end(&dir);
        block_on(&*driver, fs.unmount()).unwrap();
    }
}
