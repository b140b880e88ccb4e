//! File systems that programs mount by URL: one mount per URL and process, shared by all requests for the URL.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;

use array::Array;
use fs::{FormatOptions, Fs, MountOptions};
use parking_lot::Mutex;
use units::{Driver, RealDriver, block_on, sleep_until};
use zoned::{DeviceUrl, ZoneKind, ZoneState, ZonedDevice};

use crate::counters::{ArrayTally, COUNTERS_VARIABLE, CountersFile};
use crate::error::{Error, ErrorKind, Result};
use crate::fork;
use crate::open_logs::OpenLogs;
use crate::settings::{FORMAT_VARIABLE, asks_for_format, cache, check_names, log_options};

struct MountEntry {
    mounted: Mounted,
    users: usize,
}

struct Mounted {
    fs: Fs,
    logs: OpenLogs,
    /// The count of the array's writes, if `FURROW_COUNTERS` is set and the device is an array.
    tally: Option<ArrayTally>,
}

/// The mounts of this process by URL. The lock is held during a mount and an unmount, so that one URL is not mounted
/// twice.
static MOUNTS: Mutex<BTreeMap<String, MountEntry>> = Mutex::new(BTreeMap::new());

/// How long an unmount waits for ending tasks of the file system to release the device.
const DEVICE_RELEASE: Duration = Duration::from_secs(5);
const DEVICE_RELEASE_PAUSE: Duration = Duration::from_millis(1);

/// A share in a mounted file system. Dropping the last share unmounts the file system and closes the device.
#[derive(Debug)]
pub struct Mount {
    /// The mounted file system; `None` only while the share is dropped.
    fs: Option<Fs>,
    logs: OpenLogs,
    url: String,
}

impl Mount {
    /// The logs of the mount that are being written.
    pub fn logs(&self) -> &OpenLogs {
        &self.logs
    }

    /// The mounted file system.
    pub fn fs(&self) -> &Fs {
        self.fs.as_ref().expect("a share has its file system until it is dropped")
    }
}

/// Mounts the file system on the device `url`, or shares the mount of the same URL.
///
/// A device with empty zones only (new memory, a new drive file) is formatted first. A device with other content is
/// refused, unless `FURROW_FORMAT=1` says to format it. `parallel_logs`: the program's write-ahead logs keep room for their own flush, and the mount keeps none for recoveries.
pub fn mount(url: &str, parallel_logs: bool) -> Result<Mount> {
    fork::watch();
    let mut mounts = MOUNTS.lock();
    let entry = match mounts.entry(url.to_owned()) {
        std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
        std::collections::btree_map::Entry::Vacant(slot) => {
            slot.insert(MountEntry { mounted: mount_device(url, parallel_logs)?, users: 0 })
        }
    };
    entry.users += 1;
    let Mounted { fs, logs, .. } = &entry.mounted;
    Ok(Mount { fs: Some(fs.clone()), logs: logs.clone(), url: url.to_owned() })
}

impl Drop for Mount {
    fn drop(&mut self) {
        let mut mounts = MOUNTS.lock();
        self.fs = None;
        let last = mounts.get_mut(&self.url).is_some_and(|entry| {
            entry.users -= 1;
            entry.users == 0
        });
        if last && let Some(entry) = mounts.remove(&self.url) {
            unmount(&self.url, entry.mounted, Until::Closed);
        }
    }
}

/// Unmounts every mount at the end of the process, because programs may leave through `exit` without releasing their file system.
pub fn unmount_all() {
    let mut mounts = MOUNTS.lock();
    while let Some((url, entry)) = mounts.pop_first() {
        // Files that the program still has open keep the device open until the process is gone.
        unmount(&url, entry.mounted, Until::Unmounted);
    }
}

/// How long an unmount waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Until all is durable.
    Unmounted,
    /// Until the device is closed too, so that the next mount of the URL can open it.
    Closed,
}

/// Unmounts the file system of `url` on a thread of its own: at the end of a process the calling thread's thread-local
/// state may be destroyed already.
fn unmount(url: &str, Mounted { fs, logs, tally }: Mounted, until: Until) {
    let (done, wait) = mpsc::channel();
    let driver = Arc::clone(fs.driver());
    let (device, of_the_task) = (Arc::downgrade(fs.device()), Arc::clone(&driver));
    driver.spawn(
        "unmount",
        Box::pin(async move {
            let synced = logs.sync().await;
            let ended = fs.unmount().await.and(synced);
            if let Some(tally) = tally {
                tally.append_line();
            }
            drop(fs);
            if until == Until::Closed {
                wait_until_closed(&*of_the_task, &device).await;
            }
            let _nobody_waits = done.send(ended);
        }),
    );
    if let Ok(Err(error)) = wait.recv() {
        eprintln!("furrow: unmounting {url}: {error}");
    }
}

/// Waits until the last task that uses the device has dropped its reference.
async fn wait_until_closed(driver: &dyn Driver, device: &Weak<dyn ZonedDevice>) {
    let deadline = driver.now().after(DEVICE_RELEASE);
    while device.strong_count() > 0 && driver.now() < deadline {
        sleep_until(driver, driver.now().after(DEVICE_RELEASE_PAUSE)).await;
    }
}

fn driver() -> Arc<dyn Driver> {
    static DRIVER: OnceLock<Arc<RealDriver>> = OnceLock::new();
    Arc::clone(DRIVER.get_or_init(RealDriver::new)) as Arc<dyn Driver>
}

fn mount_device(url: &str, parallel_logs: bool) -> Result<Mounted> {
    check_names()?;
    let asked = asks_for_format()?;
    let counters = CountersFile::open()?;
    let options = MountOptions {
        log: log_options()?,
        cache: cache()?,
        recovery_reserve: !parallel_logs,
        ..MountOptions::default()
    };
    let driver = driver();
    let (device, array) = open_when_released(url, &driver)?;
    if counters.is_some() && array.is_none() {
        let text = format!("mounting {url}: {COUNTERS_VARIABLE} is set, and only an array counts: unset it");
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    let format = |force: bool| {
        let options = FormatOptions { force, ..FormatOptions::default() };
        block_on(&*driver, Fs::format(&device, &options))
            .map_err(|e| Error::fs(format!("formatting {url}"), &e))
    };
    let blank = is_blank(&*device)?;
    if (asked || blank) && !array::url::is_emulated(url) {
        let why = if blank { "it is blank" } else { "it is not formatted here" };
        let text = format!("mounting {url}: {why}; a real drive is formatted by `furrow fs mkfs` alone");
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    if asked || blank {
        format(asked)?;
    }
    let fs = block_on(&*driver, Fs::mount(Arc::clone(&device), &options)).map_err(|e| {
        let mut error = Error::fs(format!("mounting {url}"), &e);
        // Formatting helps where the device holds another content or a damaged one, and not where a setting asks for what is not there. `furrow fs mkfs` alone
        // formats real drives.
        let is_content = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid)
            && e.kind() != fs::ErrorKind::Unsupported;
        if array::url::is_emulated(url) && is_content {
            error.add(&format!("; {FORMAT_VARIABLE}=1 formats it, and what it holds is lost"));
        }
        error
    })?;
    Ok(Mounted {
        fs,
        logs: OpenLogs::default(),
        tally: array.zip(counters).map(|(array, file)| ArrayTally::new(array, file)),
    })
}

/// A device, and the array behind it if the device is an array.
type Opened = (Arc<dyn ZonedDevice>, Option<Arc<Array>>);

/// Opens the device of `url`. Waits while an earlier mount of this process still closes it.
fn open_when_released(url: &str, driver: &Arc<dyn Driver>) -> Result<Opened> {
    let deadline = driver.now().after(DEVICE_RELEASE);
    loop {
        match open_device(url, driver) {
            Err(error) if error.is_retryable() && driver.now() < deadline => {
                let at = driver.now().after(DEVICE_RELEASE_PAUSE);
                block_on(&**driver, sleep_until(&**driver, at));
            }
            opened => return opened,
        }
    }
}

/// Opens the device of `url`. Creates the drive file if it does not exist and can be formatted.
fn open_device(url: &str, driver: &Arc<dyn Driver>) -> Result<Opened> {
    let failed = |e: zoned::Error| Error::device_error(url, &e);
    let parsed: DeviceUrl = url.parse().map_err(failed)?;
    if !parsed.exists() {
        let geometry = parsed.options().and_then(|settings| settings.geometry()).map_err(failed)?;
        Fs::check_format(&geometry, &FormatOptions::default())
            .map_err(|e| Error::fs(format!("formatting {url}"), &e))?;
    }
    if let DeviceUrl::Array(members) = &parsed {
        let opened = array::url::assemble(members, driver).map_err(failed)?;
        return Ok((opened.device, Some(opened.array)));
    }
    Ok((parsed.open_or_create(Arc::clone(driver)).map_err(failed)?, None))
}

/// Whether no zone of the device was ever written: a formatted device has at least a superblock in a zone.
fn is_blank(device: &dyn ZonedDevice) -> Result<bool> {
    let zones = device.report_all().map_err(|e| Error::device_error("the device", &e))?;
    let mut sequential = zones.iter().filter(|zone| zone.kind == ZoneKind::Sequential).peekable();
    Ok(sequential.peek().is_some() && sequential.all(|zone| zone.state == ZoneState::Empty))
}

impl Error {
    fn device_error(url: &str, error: &zoned::Error) -> Error {
        let text = format!("opening {url}: {error}");
        match error.kind() {
            // A device held by this process is a retryable error, because an earlier mount may still be closing the
            // device.
            zoned::ErrorKind::Held { pid } if pid == std::process::id() => Error::retryable(
                ErrorKind::Io,
                format!(
                    "{text}; this process has the device mounted by another URL: use one URL for one device"
                ),
            ),
            zoned::ErrorKind::Held { pid } => Error::new(
                ErrorKind::Io,
                format!("{text}; one process holds a device at a time: stop process {pid} or wait for it"),
            ),
            _ => Error::new(ErrorKind::Io, text),
        }
    }
}
