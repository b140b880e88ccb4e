//! A block device of the kernel that this process serves.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use sys::ublk::{CharDevice, Control, DeviceInfo, DeviceState, NewDevice, Params, UblkId};
use units::{Driver, block_on, sleep_until};
use zoned::{Bytes, Error, ErrorKind, Result, ZonedDevice};

use crate::record::Record;
use crate::served::Served;
use crate::{block_device, driver, limits, queue};

/// Pause between two attempts to take over a device whose server is still ending.
const RECOVERY_RETRY: Duration = Duration::from_millis(50);
/// Pause between two looks at queues that end.
const QUEUE_LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Longest time that the kernel is given to end a server's requests.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);

/// The driver has cancelled a new server's commands after this time, if it does.
const CANCELLED_WITHIN: Duration = Duration::from_millis(100);
/// Attempts of a takeover whose commands the driver cancels.
const TAKEOVERS: u32 = 3;

/// Settings of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportOptions {
    /// The device's URL, for lists of exports and for whoever takes over.
    pub url: String,
    /// Number of queues, each with a thread: the kernel gives no more than there are processors. Default: 2.
    pub queues: u16,
    /// Most requests of a queue in flight, from 1 to 1024. Default: 128.
    pub depth: u16,
    /// True if another server may take over when this one is killed: false for a device that forgets with its process.
    pub recoverable: bool,
}

impl ExportOptions {
    /// Largest depth of a queue.
    pub const MAX_DEPTH: u16 = 1024;
    /// Largest number of queues.
    pub const MAX_QUEUES: u16 = 64;

    fn check(&self, device: &dyn ZonedDevice) -> Result<()> {
        let refuse =
            |why: String| Err(Error::new(ErrorKind::Invalid, &device.geometry().name, "export").because(why));
        if !(1..=ExportOptions::MAX_DEPTH).contains(&self.depth) {
            return refuse(format!("a depth of {}: from 1 to {}", self.depth, ExportOptions::MAX_DEPTH));
        }
        if !(1..=ExportOptions::MAX_QUEUES).contains(&self.queues) {
            return refuse(format!("{} queues: from 1 to {}", self.queues, ExportOptions::MAX_QUEUES));
        }
        Ok(())
    }
}

/// A block device of the kernel that this process serves, one thread for each queue.
///
/// Dropping an export ends neither its threads nor the block device: [`stop`](Export::stop) does.
pub struct Export {
    control: Control,
    info: DeviceInfo,
    device: Arc<dyn ZonedDevice>,
    /// The queues that are served.
    served: Arc<Served>,
}

impl Export {
    /// Makes `device` a block device of the kernel.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without ublk (Linux 6.6 or newer), or for a geometry that kernels do not take;
    /// [`ErrorKind::Denied`] without root's rights; [`ErrorKind::Host`] with the kernel's words.
    pub fn start(device: &Arc<dyn ZonedDevice>, options: &ExportOptions) -> Result<Export> {
        options.check(&**device)?;
        let params = limits::params(device.geometry())?;
        let control = driver::control("export")?;
        let new = NewDevice {
            queues: options.queues,
            depth: options.depth,
            max_io: params.max_io,
            recoverable: options.recoverable,
            mark: driver::MARK,
        };
        let info = control.add(&new).map_err(|error| driver::failed("adding a device", error))?;
        let started = Export::start_added(control, info, device, &params, options);
        if started.is_err()
            && let Ok(control) = driver::control("export")
        {
            let _stopped = control.stop(info.id);
            let _deleted = control.delete(info.id);
            Record::remove(info.id);
        }
        started
    }

    fn start_added(
        control: Control,
        info: DeviceInfo,
        device: &Arc<dyn ZonedDevice>,
        params: &Params,
        options: &ExportOptions,
    ) -> Result<Export> {
        control.set_params(info.id, params).map_err(|error| driver::failed("setting parameters", error))?;
        keep_record(info.id, device, options);
        let char_device = CharDevice::open(info.id).map_err(serving_failed)?;
        let export = Export::serve(control, info, device, params.max_io, char_device)?;
        export.control.start(info.id).map_err(|error| driver::failed("starting the block device", error))?;
        Ok(export)
    }

    /// Takes over the block device `id`, whose server was killed: requests that were in flight have failed, those that came
    /// later are served now.
    ///
    /// # Errors
    /// [`ErrorKind::Held`] while a server is alive; [`ErrorKind::Invalid`] if the block device is not one that can be taken
    /// over, or `device` is another one than its server had, or has another geometry; those of [`start`](Export::start).
    pub fn recover(id: UblkId, device: &Arc<dyn ZonedDevice>, options: &ExportOptions) -> Result<Export> {
        let params = limits::params(device.geometry())?;
        let control = driver::control("recover")?;
        let refuse = |kind, why: String| Error::new(kind, &driver::name(id), "recover").because(why);
        let info = driver::find(&control, id, "recover")?;
        if !options.recoverable {
            return Err(refuse(
                ErrorKind::Invalid,
                "the device loses what its cache holds, or everything, with the process that has it open: a power cut, after \
                 which nothing goes on"
                    .to_owned(),
            ));
        }
        let had = control.params(id).map_err(|error| driver::failed("reading parameters", error))?;
        if had != Some(params) {
            let why = format!("{} has other zones or limits than the block device", device.geometry().name);
            return Err(refuse(ErrorKind::Invalid, why));
        }
        let name = &*device.geometry().name;
        if let Some(record) = Record::read(id).filter(|record| record.device != name) {
            return Err(refuse(ErrorKind::Invalid, format!("its device is {}, not {name}", record.device)));
        }
        keep_record(id, device, options);
        for _ in 0..TAKEOVERS {
            let char_device = begin_recovery(&control, id, &**device.driver())?;
            let export =
                Export::serve(driver::control("recover")?, info, device, params.max_io, char_device)?;
            if export.is_cancelled_soon() {
                continue;
            }
            export
                .control
                .end_recovery(id)
                .map_err(|error| driver::failed("taking over the block device", error))?;
            return Ok(export);
        }
        let why = format!("the driver cancelled {TAKEOVERS} takeovers; try again");
        Err(refuse(ErrorKind::Host, why))
    }

    /// Waits for a moment; true if the driver has ended the queues' commands meanwhile.
    ///
    /// Linux up to 6.14 cancels a killed server's commands in work that is not over when the driver takes the begin of a takeover: on a busy machine the work cancelled the
    /// commands of the new server, which then served nothing, and requests of the block device waited for ever.
    fn is_cancelled_soon(&self) -> bool {
        let clock = self.device.driver();
        block_on(&**clock, sleep_until(&**clock, clock.now().after(CANCELLED_WITHIN)));
        if !self.is_over() {
            return false;
        }
        // The other queues' commands are cancelled by the same work.
        let end = clock.now().after(RECOVERY_LIMIT);
        while self.served.count() > 0 && clock.now() < end {
            block_on(&**clock, sleep_until(&**clock, clock.now().after(QUEUE_LOOK_INTERVAL)));
        }
        true
    }

    /// Starts the threads of the queues. Returns when the kernel has all their commands.
    fn serve(
        control: Control,
        info: DeviceInfo,
        device: &Arc<dyn ZonedDevice>,
        max_io: Bytes,
        data: CharDevice,
    ) -> Result<Export> {
        if let Err(error) = sys::ublk::set_io_flusher() {
            tracing::warn!(%error, "memory for requests may be freed by writing to the exported device itself");
        }
        let data = Arc::new(data);
        let served = Arc::new(Served::default());
        let (tell, told) = channel();
        for number in 0..info.queues {
            let (device, data, tell) = (Arc::clone(device), Arc::clone(&data), tell.clone());
            let (driver, turn) = (Arc::clone(device.driver()), served.begin());
            driver.spawn(
                "ublk",
                Box::pin(async move {
                    turn.end(queue::serve(device, data, number, info.depth, max_io, tell).await);
                }),
            );
        }
        drop((data, tell));
        let asked: io::Result<Vec<()>> = told.into_iter().collect();
        asked.map_err(serving_failed)?;
        Ok(Export { control, info, device: Arc::clone(device), served })
    }

    /// Number of the block device.
    pub fn id(&self) -> UblkId {
        self.info.id
    }

    /// Path of the block device.
    pub fn path(&self) -> PathBuf {
        block_device::path(self.info.id)
    }

    /// Number of queues.
    pub fn queues(&self) -> u16 {
        self.info.queues
    }

    /// True if the block device is no longer served: somebody else stopped it, or a queue failed.
    pub fn is_over(&self) -> bool {
        self.served.count() < usize::from(self.info.queues)
    }

    /// Uses of the block device, in words: mounts, swap, stacked devices, processes that have it open.
    pub fn users(&self) -> Vec<String> {
        block_device::users(self.info.id)
    }

    /// Stops the block device, makes what was written durable, and deletes the device. `even_if_used`: take the device
    /// away from its users.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`], and the export goes on, if the block device is used; those of the flush.
    pub fn stop(&self, even_if_used: bool) -> Result<()> {
        let id = self.info.id;
        // Nobody can mount the device while it is claimed.
        let (claimed, is_taken) = match block_device::claim(id) {
            Ok(file) => (Some(file), false),
            Err(error) => (None, error.raw_os_error() == Some(libc::EBUSY)),
        };
        let users = self.users();
        if !even_if_used && !self.is_over() && (is_taken || !users.is_empty()) {
            return Err(block_device::in_use(id, "stop", &users));
        }
        unless_gone(self.control.stop(id))
            .map_err(|error| driver::failed("stopping the block device", error))?;
        let clock = self.device.driver();
        while self.served.count() > 0 {
            block_on(&**clock, sleep_until(&**clock, clock.now().after(QUEUE_LOOK_INTERVAL)));
        }
        drop(claimed);
        let flushed = self.device.flush().wait();
        Record::remove(id);
        let deleted = unless_gone(self.control.delete(id))
            .map_err(|error| driver::failed("deleting the block device", error));
        flushed.and(deleted).and(self.served.failure().map_or(Ok(()), Err))
    }
}

/// Begins to take over the block device `id`; returns its character device, which one server at a time has open.
///
/// A server that is killed between the begin of its takeover and its first queue's requests leaves the driver without a queue that
/// is ready. The driver refuses a second begin then (`EINVAL`), and needs none: the queues are as the first one made them.
fn begin_recovery(control: &Control, id: UblkId, clock: &dyn Driver) -> Result<CharDevice> {
    let failed = |error| driver::failed("taking over the block device", error);
    let is_begun =
        || control.info(id).is_ok_and(|info| info.recoverable && info.state == DeviceState::Quiesced);
    until_not_busy(clock, || match control.start_recovery(id) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) && is_begun() => Ok(()),
        begun => begun,
    })
    .map_err(failed)?;
    until_not_busy(clock, || CharDevice::open(id)).map_err(failed)
}

/// Attempts what the kernel refuses while it still ends another server's requests.
fn until_not_busy<T>(clock: &dyn Driver, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let end = clock.now().after(RECOVERY_LIMIT);
    loop {
        match attempt() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && clock.now() < end => {
                block_on(clock, sleep_until(clock, clock.now().after(RECOVERY_RETRY)));
            }
            attempted => return attempted,
        }
    }
}

fn serving_failed(error: io::Error) -> Error {
    driver::failed("serving the block device's queues", error)
}

/// Keeps the record of an export. Without one, lists do not say the device's URL, and whoever takes over has to.
fn keep_record(id: UblkId, device: &Arc<dyn ZonedDevice>, options: &ExportOptions) {
    let device = device.geometry().name.to_string();
    let record = Record { url: options.url.clone(), device };
    if let Err(error) = record.keep(id) {
        tracing::warn!(%error, "the export's URL is not kept in /run");
    }
}

/// A command on a device that somebody else deleted has nothing left to do.
fn unless_gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        done => done,
    }
}
