//! A fake kernel over an emulated drive. Requests take effect in any order, at any time between submission and
//! completion.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sys::{Buf, Finish, Finished, Priority, Request};
use units::sleep_until;

use crate::emu::{Emu, EmuOptions};
use crate::kernel::Kernel;
use crate::{
    BufMut, DeviceUrl, Done, Driver, Durability, ErrorKind, Geometry, Lba, Op, Result, ZoneId, ZonedDevice,
};

/// Geometries that the conformance suite runs over.
pub(crate) const SHAPES: &[&str] = &[
    "zones=32&zone-size=64KiB&zone-capacity=56KiB&max-open=6&max-active=8",
    "zones=32&zone-size=64KiB&zone-capacity=56KiB&max-open=6&max-active=8&cache=none",
    "zones=20&zone-size=1MiB&max-open=none&max-active=none",
    "zones=40&zone-size=128KiB&block-size=512&max-append=8KiB",
    "zones=20&zone-size=8MiB&zone-capacity=5MiB&max-open=2&max-active=2",
    "zones=4&zone-size=4KiB",
];

/// Settings of an emulated drive from the parameters of its URL.
pub(crate) fn options(shape: &str) -> EmuOptions {
    let url = format!("emu:mem?{shape}").parse::<DeviceUrl>().expect(shape);
    EmuOptions { seed: 1, ..url.options().expect(shape) }
}

/// Kinds of requests in flight in a zone; the fake asserts which kinds may be in flight together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum InFlight {
    Write,
    Append,
    Command,
}

#[derive(Clone)]
pub(crate) struct Fake(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) emu: Arc<Emu>,
    driver: Arc<dyn Driver>,
    /// Longest delay in microseconds before and after a request takes effect.
    delay: u64,
    flying: Mutex<BTreeMap<(ZoneId, InFlight), u32>>,
    /// Zones whose pointer the kernel has lost: writes fail until a report. The value says whether the kernel has noticed,
    /// without which a report does not help.
    pub(crate) lost_pointers: Mutex<BTreeMap<ZoneId, bool>>,
    /// True if the kernel notices a lost pointer only when a blocking write fails.
    pub(crate) notices_blocking: AtomicBool,
    /// True if only a reset restores a lost pointer, as on a drive with several paths.
    pub(crate) several_paths: AtomicBool,
    pub(crate) gone: AtomicBool,
    /// True if every refusal of the drive is an "internal error", as from an NVMe target in the kernel.
    pub(crate) internal_errors: AtomicBool,
    /// True if appends return an address of the zone before.
    pub(crate) wrong_append_address: AtomicBool,
    /// Number of requests that the fake kernel got.
    pub(crate) requests: AtomicU64,
    /// Largest number of appends that one zone had in flight.
    pub(crate) most_appends: AtomicU64,
    pub(crate) flushes: AtomicU64,
    /// Priorities of the reads and writes that the fake kernel got, in order.
    pub(crate) priorities: Mutex<Vec<Priority>>,
    file: Arc<File>,
}

impl std::ops::Deref for Fake {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Fake {
    pub(crate) fn new(options: EmuOptions, driver: &Arc<dyn Driver>) -> Fake {
        let emu = Emu::memory(options, units::VirtualDriver::new(1));
        let file = Arc::new(File::open("/dev/null").expect("it is everywhere"));
        Fake(Arc::new(Inner {
            emu,
            driver: Arc::clone(driver),
            delay: 100,
            flying: Mutex::default(),
            lost_pointers: Mutex::default(),
            several_paths: AtomicBool::new(false),
            notices_blocking: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            internal_errors: AtomicBool::new(false),
            wrong_append_address: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            most_appends: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            priorities: Mutex::default(),
            file,
        }))
    }

    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }
}

impl Inner {
    pub(crate) fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Executes an operation on the emulated drive at once.
    pub(crate) fn apply(&self, op: Op) -> Result<Done> {
        self.flushes.fetch_add(u64::from(matches!(op, Op::Flush)), Ordering::Relaxed);
        self.emu.submit(op).wait()
    }

    /// The zone and the kind of a request that changes a zone.
    fn changed_zone(&self, request: &Request) -> Option<(ZoneId, InFlight)> {
        let zone = |at: u64| self.geometry().zone_of(Lba(at));
        match request {
            Request::Write { at, .. } => {
                Some((zone(at / u64::from(self.geometry().block_size))?, InFlight::Write))
            }
            Request::NvmeOut { command, .. } => {
                let at = u64::from(command.cdw10) | u64::from(command.cdw11) << 32;
                let kind = match command.opcode {
                    0x01 => InFlight::Write,
                    0x7d => InFlight::Append,
                    0x79 => InFlight::Command,
                    _ => return None,
                };
                Some((zone(at)?, kind))
            }
            _ => None,
        }
    }

    fn begin(&self, zone: ZoneId, kind: InFlight) {
        let mut flying = self.flying.lock();
        let conventional = self.geometry().is_conventional(zone);
        let others: Vec<_> = flying.range((zone, InFlight::Write)..=(zone, InFlight::Command)).collect();
        for ((_, other), count) in others {
            let beside = conventional || (kind, *other) == (InFlight::Append, InFlight::Append);
            assert!(beside || *count == 0, "{kind:?} beside {count} {other:?} in zone {zone}");
        }
        let count = flying.entry((zone, kind)).or_default();
        *count += 1;
        if kind == InFlight::Append {
            self.most_appends.fetch_max(u64::from(*count), Ordering::Relaxed);
        }
    }

    fn perform(&self, request: Request, blocking: bool) -> Finished {
        if self.is_gone() {
            let buffer = match request {
                Request::Read { into, .. } | Request::NvmeIn { into, .. } => Some(into),
                _ => None,
            };
            // EIO, the block layer's error for a removed disk.
            return Finished { result: Err(io::Error::from_raw_os_error(5)), status: 0, buffer };
        }
        let size = u64::from(self.geometry().block_size);
        if let Request::Read { priority, .. } | Request::Write { priority, .. } = &request {
            self.priorities.lock().push(*priority);
        }
        match request {
            Request::Read { at, into, .. } => {
                let len = into.len() as u64;
                match self.apply(Op::Read { at: Lba(at / size), into }) {
                    Ok(Done::Read(into)) => Finished { result: Ok(len), status: 0, buffer: Some(into) },
                    Ok(_) => unreachable!("a read"),
                    Err(mut e) => {
                        let buffer = e.take_buffer();
                        Finished { result: Err(errno(e.kind())), status: 0, buffer }
                    }
                }
            }
            Request::Write { at, data, durable, .. } => {
                let at = Lba(at / size);
                let zone = self.geometry().zone_of(at).expect("checked");
                if let Some(noticed) = self.lost_pointers.lock().get_mut(&zone) {
                    *noticed |= blocking || !self.notices_blocking.load(Ordering::Relaxed);
                    return finished_without_buffer(Err(io::Error::from_raw_os_error(5)));
                }
                let data = gather(&data);
                let len = data.len() as u64;
                let how = if durable { Durability::Durable } else { Durability::Cached };
                let result = self.apply(Op::Write { at, data, how });
                if result.is_err() && self.several_paths.load(Ordering::Relaxed) {
                    self.lost_pointers.lock().insert(zone, true);
                }
                finished_without_buffer(result.map(|_| len).map_err(|e| errno(e.kind())))
            }
            Request::Sync { .. } => {
                finished_without_buffer(self.apply(Op::Flush).map(|_| 0).map_err(|e| errno(e.kind())))
            }
            Request::Call(call) => finished_without_buffer(call()),
            Request::NvmeOut { command, data, .. } => crate::nvme::fake::perform_out(self, command, &data),
            Request::NvmeIn { command, into, .. } => crate::nvme::fake::perform_in(self, command, into),
        }
    }
}

pub(crate) fn finished_without_buffer(result: io::Result<u64>) -> Finished {
    Finished { result, status: 0, buffer: None }
}

pub(crate) fn gather(parts: &[Buf]) -> Buf {
    Buf::copy_from(&parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>())
}

/// The block layer's error number for a drive's refusal of `kind`.
pub(crate) fn errno(kind: ErrorKind) -> io::Error {
    io::Error::from_raw_os_error(match kind {
        ErrorKind::TooManyActive => 75,
        ErrorKind::TooManyOpen => 109,
        _ => 5,
    })
}

/// The fake kernel by blocking system calls.
pub(crate) struct Blocking(pub(crate) Fake);

impl Kernel for Blocking {
    fn submit(&self, request: Request, finish: Finish) {
        self.0.start(request, finish, true);
    }
}

impl Kernel for Fake {
    fn submit(&self, request: Request, finish: Finish) {
        self.start(request, finish, false);
    }
}

impl Fake {
    fn start(&self, request: Request, finish: Finish, blocking: bool) {
        let inner = Arc::clone(&self.0);
        inner.requests.fetch_add(1, Ordering::Relaxed);
        let change = inner.changed_zone(&request);
        if let Some((zone, kind)) = change {
            inner.begin(zone, kind);
        }
        let driver = Arc::clone(&self.0.driver);
        self.0.driver.drive(Box::pin(async move {
            let some_time = || Duration::from_micros(driver.random() % inner.delay);
            sleep_until(&*driver, driver.now().after(some_time())).await;
            let finished = inner.perform(request, blocking);
            sleep_until(&*driver, driver.now().after(some_time())).await;
            if let Some(change) = change {
                *inner.flying.lock().get_mut(&change).expect("it took off") -= 1;
            }
            finish(finished);
        }));
    }
}

/// A block of data whose bytes are all `tag`.
pub(crate) fn block(size: u32, tag: u64) -> Buf {
    let bytes: Vec<u8> = tag.to_le_bytes().iter().copied().cycle().take(size as usize).collect();
    Buf::copy_from(&bytes)
}

/// A zeroed buffer of one block.
pub(crate) fn zeroed_block(size: u32) -> BufMut {
    BufMut::zeroed(size as usize)
}
