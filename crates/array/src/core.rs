//! What the parts of an assembled array share.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};
use units::sync::Turnstile;
use zoned::{
    Blocks, Completer, Done, Driver, Error, ErrorKind, Geometry, Io, Op, Resources, Result, ZoneId, ZoneInfo,
    ZoneKind,
};

use crate::Sabotage;
use crate::admin::status::WornZone;
use crate::background::jobs::Jobs;
use crate::background::runner::Watch;
use crate::events::Bus;
use crate::format::superblock::Superblock;
use crate::layout::{Layout, Slot};
use crate::member::Member;
use crate::metrics::Tally;
use crate::zone::{Work, Zone};

/// A zone, alone on its cache lines.
#[repr(align(128))]
pub(crate) struct Place(pub Mutex<Zone>);

/// An assembled array.
pub(crate) struct Core {
    pub geometry: Geometry,
    pub layout: Layout,
    pub driver: Arc<dyn Driver>,
    pub members: Box<[Member]>,
    pub zones: Box<[Place]>,
    /// Open and active zones. Locked before any zone.
    pub limits: Mutex<Resources>,
    /// The newest superblock.
    pub config: Mutex<Superblock>,
    /// One failure at a time is written to the superblocks.
    pub persisting: Turnstile,
    /// Failures that are not in the superblocks yet.
    pub unpersisted: AtomicU32,
    /// A second drive failed: nothing is written any more.
    pub broken: AtomicBool,
    /// Zones that became full, with their generations and ends: these are recorded after the next flush.
    pub filled: Mutex<Vec<(ZoneId, u64, Blocks)>>,
    pub sabotage: Option<Sabotage>,
    pub tally: Arc<Tally>,
    pub events: Bus,
    /// What runs beside the clients: a rebuild, a scrub.
    pub jobs: Jobs,
    pub watch: Watch,
    /// One place is mended at a time.
    pub mending: Turnstile,
    /// Physical zones that wore out.
    pub worn: Mutex<Vec<WornZone>>,
}

/// What is left to do once the locks are released.
#[derive(Default)]
pub(crate) struct After {
    ready: Vec<(Completer, Result<Done>)>,
    tasks: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl After {
    pub(crate) fn complete(&mut self, completer: Completer, result: Result<Done>) {
        self.ready.push((completer, result));
    }

    pub(crate) fn run(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(Box::pin(task));
    }

    pub(crate) fn finish(self, core: &Core) {
        for (completer, result) in self.ready {
            completer.complete(result);
        }
        for task in self.tasks {
            core.driver.drive(task);
        }
    }
}

impl Core {
    pub(crate) fn zone(&self, id: ZoneId) -> MutexGuard<'_, Zone> {
        self.zones.get(id.index()).expect("checked where the operation came in").0.lock()
    }

    pub(crate) fn member(&self, slot: Slot) -> &Member {
        self.members.get(slot.index()).expect("the layout knows the number of drives")
    }

    pub(crate) fn bytes(&self, blocks: u64) -> usize {
        usize::try_from(blocks * u64::from(self.geometry.block_size)).expect("fits memory")
    }

    pub(crate) fn error(&self, kind: ErrorKind, name: &'static str) -> Error {
        Error::new(kind, &self.geometry.name, name)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// The members that work.
    pub(crate) fn good(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_good())
    }

    /// Begins a client's operation.
    pub(crate) fn submit(self: &Arc<Core>, op: Op) -> Io {
        if self.watch.is_on() { self.submit_watched(op) } else { self.route(op) }
    }

    /// Checks an operation as far as no zone needs to be locked, and hands it to its zone.
    pub(crate) fn route(self: &Arc<Core>, op: Op) -> Io {
        let name = op.name();
        match op {
            Op::Flush => self.flush(),
            Op::Report { zones } => {
                let end = zones.end.min(self.geometry.zones);
                Io::ready(Ok(Done::Zones((zones.start..end).map(|z| self.info(ZoneId(z))).collect())))
            }
            Op::Read { at, into } => match self.locate(name, at, into.len()) {
                Ok((zone, offset)) => self.enter(zone, Work::Read { offset, into }),
                Err(e) => Io::ready(Err(e.with_buffer(into))),
            },
            Op::Write { at, data, how } => match self.locate(name, at, data.len()) {
                Ok((zone, offset)) => self.enter(zone, Work::Write { offset: Some(offset), data, how }),
                Err(e) => Io::ready(Err(e)),
            },
            Op::Append { zone, data, how } => {
                let checked = self.length(name, data.len(), self.geometry.max_append);
                match checked.and_then(|_| self.known(name, zone)) {
                    Ok(()) => self.enter(zone, Work::Write { offset: None, data, how }),
                    Err(e) => Io::ready(Err(e)),
                }
            }
            Op::Zone { zone, action } => match self.known(name, zone) {
                Ok(()) => self.enter(zone, Work::Act(action)),
                Err(e) => Io::ready(Err(e)),
            },
        }
    }

    /// Begins `work`, or queues it behind what must come first.
    pub(crate) fn enter(self: &Arc<Core>, id: ZoneId, work: Work) -> Io {
        let (completer, io) = Io::pair(&self.driver, &self.geometry.name);
        let mut after = After::default();
        {
            let mut zone = self.zone(id);
            if zone.must_wait(&work) {
                zone.queue.push_back((work, completer));
                return io;
            }
            if self.changes_no_state(&zone, &work) {
                self.begin(&mut zone, id, None, work, completer, &mut after);
            } else {
                drop(zone);
                let mut limits = self.limits.lock();
                let mut zone = self.zone(id);
                if zone.must_wait(&work) {
                    zone.queue.push_back((work, completer));
                    return io;
                }
                self.begin(&mut zone, id, Some(&mut limits), work, completer, &mut after);
            }
        }
        after.finish(self);
        io
    }

    /// Begins what waits in the queue of a zone, as far as it may.
    pub(crate) fn pump(self: &Arc<Core>, id: ZoneId) {
        let mut after = After::default();
        {
            let mut limits = self.limits.lock();
            let mut zone = self.zone(id);
            while zone.queue.front().is_some_and(|(work, _)| !zone.holds_back(work)) {
                let Some((work, completer)) = zone.queue.pop_front() else { break };
                self.begin(&mut zone, id, Some(&mut limits), work, completer, &mut after);
            }
        }
        after.finish(self);
    }

    /// Whether `work` leaves the zone's state as it is: the common case, in which no other zone is concerned.
    fn changes_no_state(&self, zone: &Zone, work: &Work) -> bool {
        match work {
            Work::Read { .. } => true,
            Work::Write { data, .. } => {
                let blocks = data.len() as u64 / u64::from(self.geometry.block_size);
                zone.state.is_open() && zone.pointer.0 + blocks < self.layout.capacity().0
            }
            Work::Act(_) => false,
            Work::Pause => true,
        }
    }

    fn begin(
        self: &Arc<Core>,
        zone: &mut Zone,
        id: ZoneId,
        limits: Option<&mut Resources>,
        work: Work,
        completer: Completer,
        after: &mut After,
    ) {
        match work {
            Work::Read { offset, into } => self.begin_read(zone, id, offset, into, completer, after),
            Work::Write { offset, data, how } => {
                let name = if offset.is_some() { "write" } else { "append" };
                self.begin_write(zone, id, limits, name, offset, data, how, completer, after);
            }
            Work::Pause => {
                zone.busy = true;
                after.complete(completer, Ok(Done::Unit));
            }
            Work::Act(action) => {
                let limits = limits.expect("a command changes the state");
                self.begin_action(zone, id, limits, action, completer, after);
            }
        }
    }

    fn info(&self, id: ZoneId) -> ZoneInfo {
        let zone = self.zone(id);
        let capacity = self.layout.capacity();
        let pointer = if zone.state == zoned::ZoneState::Full { capacity } else { zone.pointer };
        ZoneInfo { zone: id, kind: ZoneKind::Sequential, state: zone.state, pointer, capacity }
    }

    fn length(&self, name: &'static str, bytes: usize, most: Blocks) -> Result<u64> {
        let size = u64::from(self.geometry.block_size);
        let bytes = bytes as u64;
        if bytes == 0 || !bytes.is_multiple_of(size) {
            let error = self.error(ErrorKind::BadLength, name);
            return Err(error.because(format!("{bytes} bytes in blocks of {size}")));
        }
        let blocks = bytes / size;
        if blocks > most.0 {
            let error = self.error(ErrorKind::TooLarge, name);
            return Err(error.because(format!("{blocks} blocks, at most {}", most.0)));
        }
        Ok(blocks)
    }

    fn known(&self, name: &'static str, id: ZoneId) -> Result<()> {
        if id.0 < self.geometry.zones {
            return Ok(());
        }
        let last = self.geometry.zones - 1;
        let error = self.error(ErrorKind::OutOfRange, name).in_zone(id);
        Err(error.because(format!("the last zone is {last}")))
    }

    /// Zone and offset of a transfer.
    fn locate(&self, name: &'static str, at: zoned::Lba, bytes: usize) -> Result<(ZoneId, Blocks)> {
        let blocks = self.length(name, bytes, self.geometry.max_transfer).map_err(|e| e.at(at))?;
        let Some(id) = self.geometry.zone_of(at) else {
            let blocks = u64::from(self.geometry.zones) * self.geometry.zone_size.0;
            let error = self.error(ErrorKind::OutOfRange, name).at(at);
            return Err(error.because(format!("the device has {blocks} blocks")));
        };
        let offset = at.since(self.geometry.start(id));
        if offset.0 + blocks > self.geometry.zone_size.0 {
            let error = self.error(ErrorKind::CrossesZone, name).in_zone(id).at(at);
            return Err(
                error.because(format!("{blocks} blocks, {} left", self.geometry.zone_size.0 - offset.0))
            );
        }
        Ok((id, offset))
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.geometry.name)
    }
}
