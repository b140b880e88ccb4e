//! The emulated drive as a [`ZonedDevice`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use units::sleep_until;

use crate::emu::fault::Fault;
use crate::emu::file::flusher::Flusher;
use crate::emu::reorder::Reorder;
use crate::emu::{Choose, EmuOptions, FaultSpec, Latency, Media, OpId, Timing, TimingState, ZoneFacts};
use crate::{
    Action, Blocks, Done, Driver, Durability, Error, ErrorKind, Geometry, Instant, Io, Op, Result, ZoneId,
    ZoneInfo, ZoneState, ZonedDevice,
};

/// An emulated drive.
pub struct Emu {
    pub(super) media: Arc<Media>,
    /// The task that writes the drive file; `None` for a drive in memory.
    flusher: Option<Arc<Flusher>>,
    /// The holder of appends that land in any order; `None` if appends land in order.
    reorder: Option<Arc<Reorder>>,
    geometry: Geometry,
    driver: Arc<dyn Driver>,
    timing: Timing,
    /// State of the drive's time model, if the drive has one.
    clocks: Mutex<TimingState>,
    next: AtomicU64,
    /// Operations that are not completed yet, by completion time; kept only if power cuts are tracked.
    due: Mutex<BinaryHeap<Reverse<(Instant, OpId)>>>,
    faulty: AtomicBool,
    faults: Mutex<Vec<Fault>>,
}

impl Emu {
    /// An emulated drive in memory. Panics if the settings contradict each other (see
    /// [`EmuOptions::geometry`]).
    pub fn memory(options: EmuOptions, driver: Arc<dyn Driver>) -> Arc<Emu> {
        let media = Media::new(&options);
        let timing = Timing::of(&options, media.geometry());
        Arc::new(Emu::over(media, timing, driver))
    }

    /// An emulated drive over a medium, such as an outcome of a power cut.
    pub fn from_media(media: Media, name: &str, latency: Latency, driver: Arc<dyn Driver>) -> Arc<Emu> {
        let mut media = media;
        let mut geometry = media.geometry().clone();
        geometry.name = Arc::from(name);
        media.geometry = Arc::new(geometry);
        Arc::new(Emu::over(media, Timing::new(latency), driver))
    }

    /// An emulated drive over a medium with the zones that `options` describe, with the delays of `options`.
    pub fn on_media(media: Media, options: &EmuOptions, driver: Arc<dyn Driver>) -> Arc<Emu> {
        let timing = Timing::of(options, media.geometry());
        Arc::new(Emu::over(media, timing, driver))
    }

    pub(super) fn over(media: Media, timing: Timing, driver: Arc<dyn Driver>) -> Emu {
        let media = Arc::new(media);
        Emu {
            flusher: media.drive.is_some().then(|| Arc::new(Flusher::start(&media, &*driver))),
            reorder: (media.reorder && !timing.is_instant()).then(|| Arc::new(Reorder::new(&media, &driver))),
            geometry: media.geometry().clone(),
            driver,
            clocks: Mutex::new(timing.rested()),
            timing,
            // An earlier device may have left operations on the medium, whose numbers must not be reused.
            next: AtomicU64::new(media.first_unused_id().0),
            media,
            due: Mutex::default(),
            faulty: AtomicBool::new(false),
            faults: Mutex::default(),
        }
    }

    /// A copy of the drive's medium, which shares data until one of the two is written. The content of a
    /// drive file is read into memory; panics if reading fails.
    pub fn media(&self) -> Media {
        self.acknowledge_due();
        let copy = || self.media.detached().expect("the drive file is readable");
        match &self.reorder {
            Some(reorder) => reorder.with_all_landed(copy),
            None => copy(),
        }
    }

    /// One outcome of a power cut that happens now. Without [`EmuOptions::track_power_cuts`] every submitted
    /// operation survives.
    pub fn power_cut(&self, choose: &mut dyn Choose) -> Media {
        self.media().cut(choose)
    }

    /// The report of all zones, at once: the drive's time model does not count it.
    pub(crate) fn all_zones(&self) -> Vec<ZoneInfo> {
        self.media.report(0..self.geometry.zones)
    }

    /// Puts a zone of the drive into [`ZoneState::ReadOnly`] or [`ZoneState::Offline`].
    pub fn wear(&self, zone: ZoneId, state: ZoneState) {
        self.media.wear(zone, state);
    }

    /// Injects a fault into the drive.
    pub fn fail(&self, spec: FaultSpec) {
        self.faults.lock().push(Fault::new(spec));
        self.faulty.store(true, Ordering::Release);
    }

    /// Factor by which device times are stretched; measured times are to be divided by it.
    pub fn dilation(&self) -> u64 {
        self.timing.dilation()
    }

    /// Removes all injected faults of the drive.
    pub fn clear_faults(&self) {
        self.faults.lock().clear();
        self.faulty.store(false, Ordering::Release);
    }

    /// The error that an injected fault gives `op`, and whether the operation takes effect all the same.
    fn injected_error(&self, op: &Op) -> Option<(Error, bool)> {
        let zone = match op {
            Op::Read { at, .. } | Op::Write { at, .. } => self.geometry.zone_of(*at),
            Op::Append { zone, .. } | Op::Zone { zone, .. } => Some(*zone),
            Op::Flush | Op::Report { .. } => None,
        };
        let landed = self.faults.lock().iter_mut().find_map(|fault| fault.failure_of(op, zone))?;
        let error = Error::new(ErrorKind::Media, &self.geometry.name, op.name()).because("injected");
        let error = match zone {
            Some(zone) => error.in_zone(zone),
            None => error,
        };
        Some((error, landed))
    }

    /// Acknowledges operations whose completion time has passed. Only flushes and power cuts depend on
    /// acknowledgements, so this is called before either.
    fn acknowledge_due(&self) {
        if !self.media.track {
            return;
        }
        let now = self.driver.now();
        let mut due = self.due.lock();
        while due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            if let Some(Reverse((_, id))) = due.pop() {
                if let Some(reorder) = &self.reorder {
                    reorder.land(id);
                }
                self.media.acknowledge(id);
            }
        }
    }

    /// The zone (`None` for all) that must be in the drive file before `op` completes, and the operation's name.
    fn zone_to_store(&self, op: &Op) -> Option<(Option<ZoneId>, &'static str)> {
        let at_once = |how: Durability| how == Durability::Durable || !self.geometry.volatile_cache;
        let zone = match op {
            Op::Flush => return Some((None, op.name())),
            Op::Write { at, how, .. } if at_once(*how) => self.geometry.zone_of(*at),
            Op::Append { zone, how, .. } if at_once(*how) => Some(*zone),
            Op::Zone { zone, action: Action::Reset | Action::Finish } if at_once(Durability::Cached) => {
                Some(*zone)
            }
            _ => None,
        };
        zone.map(|zone| (Some(zone), op.name()))
    }

    /// Completion time of an operation that the drive gets now. Zone facts are read before the operation
    /// takes effect, so two threads that race for one zone may both be charged for opening the zone.
    fn completion_time(&self, op: &Op) -> Instant {
        if !self.timing.has_state() {
            return self.timing.completion(&mut TimingState::default(), self.driver.now(), op, None);
        }
        let zone = match op {
            Op::Write { at, .. } => self.geometry.zone_of(*at),
            Op::Append { zone, .. } | Op::Zone { zone, .. } => Some(*zone),
            Op::Read { .. } | Op::Flush | Op::Report { .. } => None,
        };
        let facts = zone.filter(|zone| zone.0 < self.geometry.zones).map(|zone| {
            let zone = self.media.lock(zone);
            ZoneFacts { state: zone.state, written: Blocks(zone.written) }
        });
        let mut clocks = self.clocks.lock();
        // The clock is read under the lock, so that the time passed to the time model never decreases.
        let now = self.driver.now();
        self.timing.completion(&mut clocks, now, op, facts)
    }

    /// The handle of an append that module `reorder` holds until it lands.
    fn held_append_handle(
        &self,
        at: Instant,
        id: OpId,
        writes: Option<(Option<ZoneId>, &'static str)>,
    ) -> Io {
        let reorder = Arc::clone(self.reorder.as_ref().expect("it holds the append"));
        let (driver, name) = (Arc::clone(&self.driver), Arc::clone(&self.geometry.name));
        // The task holds a weak reference, because the flusher must end when the drive is dropped.
        let flusher = self.flusher.as_ref().map(Arc::downgrade);
        Io::spawn(&self.driver, &self.geometry.name, async move {
            sleep_until(&*driver, at).await;
            let done = reorder.take(id)?;
            let Some((flusher, (zone, operation))) = flusher.zip(writes) else { return Ok(done) };
            let (completer, io) = Io::pair(&driver, &name);
            if let Some(flusher) = flusher.upgrade() {
                flusher.ask(zone, operation, done, completer);
            }
            io.await
        })
    }

    fn apply_to_media(&self, id: OpId, op: Op) -> Result<Done> {
        match op {
            Op::Read { at, into } => self.media.read(at, into).map(Done::Read),
            Op::Append { zone, data, how } => self.media.append(id, zone, &data, how).map(Done::At),
            other => self.media.submit(id, &other),
        }
    }
}

impl ZonedDevice for Emu {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, op: Op) -> Io {
        let instant = self.timing.is_instant();
        let at = if instant { Instant::ORIGIN } else { self.completion_time(&op) };
        let tracked = self.media.track;
        let numbered = tracked || self.reorder.is_some();
        let id = if numbered { OpId(self.next.fetch_add(1, Ordering::Relaxed)) } else { OpId::default() };
        if tracked && matches!(op, Op::Flush) {
            self.acknowledge_due();
        }
        let fault = if self.faulty.load(Ordering::Acquire) { self.injected_error(&op) } else { None };
        let writes = if self.flusher.is_some() { self.zone_to_store(&op) } else { None };
        if let (Some(reorder), None) = (&self.reorder, &fault)
            && reorder.hold_append(id, &op)
        {
            if tracked {
                self.due.lock().push(Reverse((at, id)));
            }
            return self.held_append_handle(at, id, writes);
        }
        let result = match fault {
            Some((error, landed)) => Err(match op {
                Op::Read { into, .. } => error.with_buffer(into),
                // If the fault lets the operation take effect and the drive itself refuses it, the drive's
                // error is returned.
                _ if landed => self.apply_to_media(id, op).err().unwrap_or(error),
                _ => error,
            }),
            None => self.apply_to_media(id, op),
        };
        let result = match (&self.flusher, writes, result) {
            (Some(flusher), Some((zone, name)), Ok(done)) => {
                let (completer, io) = Io::pair(&self.driver, &self.geometry.name);
                flusher.ask(zone, name, done, completer);
                if instant {
                    return io;
                }
                let driver = Arc::clone(&self.driver);
                return Io::spawn(&self.driver, &self.geometry.name, async move {
                    let result = io.await;
                    sleep_until(&*driver, at).await;
                    result
                });
            }
            (_, _, result) => result,
        };
        if instant {
            if tracked {
                self.media.acknowledge(id);
            }
            return Io::ready(result);
        }
        if tracked && result.is_ok() {
            self.due.lock().push(Reverse((at, id)));
        }
        Io::due(at, result, &self.driver)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }
}

impl fmt::Debug for Emu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.geometry.name)
    }
}
