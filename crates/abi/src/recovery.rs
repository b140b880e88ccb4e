//! Which databases of a mount recover their logs: from the lock of the database's directory, which an engine takes first, until the
//! engine's shim says that the last file of the recovery is written, or the lock is released.

use std::collections::BTreeMap;
use std::sync::Arc;

use fs::{Fs, Recovery};
use parking_lot::Mutex;

/// The recoveries under way, by the database's directory. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recoveries(Arc<Mutex<BTreeMap<String, Recovery>>>);

impl Recoveries {
    /// Notes that the file `locked` was locked: the lock of a database begins its recovery. Returns the database's directory.
    pub fn begin(&self, fs: &Fs, locked: &str) -> Option<String> {
        let dir = locked.strip_suffix("/LOCK")?.to_owned();
        self.0.lock().insert(dir.clone(), fs.begin_recovery());
        Some(dir)
    }

    /// Ends the recovery of the database in `dir`, if one is under way. The root is `/` or, as [`begin`](Recoveries::begin) returns it,
    /// empty.
    pub fn end(&self, dir: &str) {
        self.0.lock().remove(dir.trim_end_matches('/'));
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
    fn a_recovery_lasts_from_the_lock_until_it_is_ended() {
        let driver = VirtualDriver::new(1);
        let device = Emu::memory(EmuOptions::default(), driver.clone()) as Arc<dyn zoned::ZonedDevice>;
        let fs = block_on(&*driver, async {
            Fs::format(&device, &FormatOptions::default()).await.unwrap();
            Fs::mount(device, &MountOptions::default()).await.unwrap()
        });
        let recoveries = Recoveries::default();
        assert_eq!(recoveries.begin(&fs, "/db/LOCKED"), None);
        let dir = recoveries.begin(&fs, "/db/LOCK").unwrap();
        recoveries.end("/other");
        assert_eq!(recoveries.0.lock().len(), 1);
        recoveries.end(&dir);
        assert_eq!(recoveries.0.lock().len(), 0);
        recoveries.end(&dir);
        assert_eq!(recoveries.begin(&fs, "/LOCK").as_deref(), Some(""));
        recoveries.end("/");
        assert_eq!(recoveries.0.lock().len(), 0, "a database in the root");
        block_on(&*driver, fs.unmount()).unwrap();
    }
}
