//! The model of md's array as a device, for the loads that also run on Furrow's array. The device stores no data.
//!
//! Reads go to the drives as they are, cut at chunks. Writes, and reads while a drive is lost, go through the [cache of
//! stripes](super::stripes), which handles requests [`GATHER_TIME`] after the first of them arrived.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use units::{Driver, Instant, VirtualDriver, sleep_until};
use zoned::{
    Blocks, BufMut, Bytes, Completer, Done, Error, ErrorKind, Geometry, Io, Lba, Op, Result, ZonedDevice,
};

use super::drive::{Drive, drives};
use super::published::DRIVES;
use super::stripes::{Command, Rows, Stripes, place};

/// Requests that arrive within this time are handled together: the time until md's thread wakes up.
const GATHER_TIME: Duration = Duration::from_micros(1);

const DATA_DRIVES: u64 = DRIVES as u64 - 1;

/// The settings of the model of md's array.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Number of zones of each drive, so that the model's drives are as large as those of Furrow's array.
    pub zones: u32,
    pub chunk: Bytes,
    /// The slot of a lost drive.
    pub lost: Option<usize>,
    /// Whether the drives collect garbage once they are full.
    pub collects: bool,
}

/// md's RAID-5 over five conventional drives, as a model.
#[derive(Debug)]
pub struct Md {
    me: Weak<Md>,
    geometry: Geometry,
    driver: Arc<dyn Driver>,
    drives: Arc<[Drive]>,
    lost: Option<usize>,
    /// Number of blocks of a chunk.
    chunk: u64,
    state: Mutex<ArrayState>,
}

#[derive(Debug)]
struct ArrayState {
    stripes: Stripes,
    /// Whether a task that handles waiting requests is scheduled.
    woken: bool,
    requests: HashMap<u64, Request>,
    next: u64,
}

/// A request to md's array that a client awaits.
struct Request {
    pieces: usize,
    completer: Completer,
    done: Done,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("pieces", &self.pieces).finish_non_exhaustive()
    }
}

/// The part of a request that lies within one chunk.
struct ChunkPart {
    stripe: u64,
    drive: usize,
    row: u64,
    rows: u64,
}

impl Setup {
    /// A new model of md's array, on a virtual clock of its own.
    pub fn build(self) -> Arc<Md> {
        let Setup { zones, chunk, lost, collects } = self;
        let drives = drives(DRIVES, zones, collects);
        let drive = drives.first().expect("there are five").geometry();
        let geometry = Geometry {
            name: Arc::from("md (model)"),
            conventional: zones,
            zone_size: Blocks(drive.zone_size.0 * DATA_DRIVES),
            zone_capacity: Blocks(drive.zone_capacity.0 * DATA_DRIVES),
            ..drive.clone()
        };
        let chunk = chunk.0 / u64::from(geometry.block_size);
        let rows = u32::try_from(chunk).expect("a chunk is 128 KiB at most");
        assert!(rows <= Rows::BITS && geometry.zone_capacity.0.is_multiple_of(chunk * DATA_DRIVES));
        let stripes = Stripes::new(rows, lost);
        let state = ArrayState { stripes, woken: false, requests: HashMap::new(), next: 0 };
        Arc::new_cyclic(|me| Md {
            me: me.clone(),
            geometry,
            driver: VirtualDriver::new(1),
            drives,
            lost,
            chunk,
            state: Mutex::new(state),
        })
    }
}

impl ZonedDevice for Md {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    fn submit(&self, op: Op) -> Io {
        match op {
            Op::Read { at, into } if self.lost.is_none() => self.read(at, into),
            Op::Read { at, into } => {
                let bytes = into.len();
                self.request(at, bytes, false, Done::Read(into))
            }
            Op::Write { at, data, .. } => self.request(at, data.len(), true, Done::Unit),
            Op::Flush => Io::ready(Ok(Done::Unit)),
            other => {
                let error = Error::new(ErrorKind::Unsupported, &self.geometry.name, other.name());
                Io::ready(Err(error.because("md's drives have no zones")))
            }
        }
    }
}

impl Md {
    /// The parts of a request, each within one chunk.
    fn parts(&self, at: Lba, bytes: usize) -> impl Iterator<Item = ChunkPart> + use<> {
        let zone = self.geometry.zone_of(at).expect("within the array");
        let per_zone = self.geometry.zone_capacity.0 / (self.chunk * DATA_DRIVES);
        let mut from = at.since(self.geometry.start(zone)).0;
        let end = from + bytes as u64 / u64::from(self.geometry.block_size);
        let chunk = self.chunk;
        std::iter::from_fn(move || {
            let rows = (chunk - from % chunk).min(end - from);
            let stripe = u64::from(zone.0) * per_zone + from / (chunk * DATA_DRIVES);
            let drive = place(stripe, Some(from / chunk % DATA_DRIVES));
            let part = ChunkPart { stripe, drive, row: from % chunk, rows };
            from += rows;
            (rows > 0).then_some(part)
        })
    }

    /// The address on its drive of a block that lies in a row of a stripe.
    fn block(&self, stripe: u64, row: u64) -> Lba {
        let drive = self.drives.first().expect("there are five").geometry();
        let per_zone = drive.zone_capacity.0 / self.chunk;
        let zone = stripe / per_zone;
        Lba(zone * drive.zone_size.0 + stripe % per_zone * self.chunk + row)
    }

    fn drive(&self, drive: usize) -> &Drive {
        self.drives.get(drive).expect("one of five")
    }

    fn bytes(&self, rows: u64) -> u64 {
        rows * u64::from(self.geometry.block_size)
    }

    fn read(&self, at: Lba, into: BufMut) -> Io {
        let now = self.driver.now();
        let ends = self.parts(at, into.len()).map(|part| {
            let at = self.block(part.stripe, part.row);
            self.drive(part.drive).read(now, at, self.bytes(part.rows))
        });
        let end = ends.max().unwrap_or(now);
        Io::due(end, Ok(Done::Read(into)), &self.driver)
    }

    fn request(&self, at: Lba, bytes: usize, write: bool, done: Done) -> Io {
        let (completer, io) = Io::pair(&self.driver, &self.geometry.name);
        let state = &mut *self.state.lock();
        let (id, mut pieces) = (state.next, 0);
        state.next += 1;
        for part in self.parts(at, bytes) {
            let rows = ((1_u64 << part.rows) - 1) << part.row;
            let rows = Rows::try_from(rows).expect("a chunk has no more rows than that");
            state.stripes.request(id, write, part.stripe, part.drive, rows);
            pieces += 1;
        }
        state.requests.insert(id, Request { pieces, completer, done });
        self.schedule_handler(state);
        io
    }

    fn schedule_handler(&self, state: &mut ArrayState) {
        if std::mem::replace(&mut state.woken, true) {
            return;
        }
        let (me, at) = (self.me.clone(), self.driver.now().after(GATHER_TIME));
        let driver = Arc::clone(&self.driver);
        self.driver.drive(Box::pin(async move {
            sleep_until(&*driver, at).await;
            if let Some(md) = me.upgrade() {
                md.handle_requests();
            }
        }));
    }

    /// Handles the requests that arrived while the task waited.
    fn handle_requests(&self) {
        let mut over = Vec::new();
        {
            let state = &mut *self.state.lock();
            state.woken = false;
            let outcome = state.stripes.handle();
            outcome.commands.into_iter().for_each(|command| self.start_command(command));
            remove_finished(state, outcome.finished, &mut over);
        }
        complete_requests(over);
    }

    fn start_command(&self, command: Command) {
        let end = self.submit_to_drive(&command);
        let (me, driver) = (self.me.clone(), Arc::clone(&self.driver));
        self.driver.drive(Box::pin(async move {
            sleep_until(&*driver, end).await;
            let Some(md) = me.upgrade() else { return };
            let mut over = Vec::new();
            {
                let state = &mut *md.state.lock();
                let finished = state.stripes.done(&command);
                remove_finished(state, finished, &mut over);
                md.schedule_handler(state);
            }
            complete_requests(over);
        }));
    }

    fn submit_to_drive(&self, command: &Command) -> Instant {
        let Command { stripe, drive, rows, write } = *command;
        let at = self.block(stripe, u64::from(rows.trailing_zeros()));
        let (now, drive, bytes) =
            (self.driver.now(), self.drive(drive), self.bytes(u64::from(rows.count_ones())));
        if write { drive.write(now, at, bytes) } else { drive.read(now, at, bytes) }
    }

    /// Resyncs the first zones of a new drive in `slot`: reads the remaining drives and writes the new one, `window` stripes in
    /// flight. Returns the time in seconds.
    pub fn resync(&self, slot: usize, zones: u32, window: usize) -> f64 {
        let drive = self.drive(slot).geometry();
        let stripes = u64::from(zones) * (drive.zone_capacity.0 / self.chunk);
        let bytes = self.bytes(self.chunk);
        let mut ends = std::collections::VecDeque::new();
        let mut now = Instant::ORIGIN;
        for stripe in 0..stripes {
            if ends.len() >= window {
                now = now.max(ends.pop_front().unwrap_or(now));
            }
            let at = self.block(stripe, 0);
            let others = self.drives.iter().enumerate().filter(|(other, _)| *other != slot);
            let read = others.map(|(_, other)| other.read(now, at, bytes)).max().unwrap_or(now);
            ends.push_back(self.drive(slot).write(read, at, bytes));
        }
        ends.into_iter().max().unwrap_or(now).since(Instant::ORIGIN).as_secs_f64()
    }
}

/// Removes and gives the requests all of whose pieces are done.
fn remove_finished(state: &mut ArrayState, finished: Vec<u64>, over: &mut Vec<(Completer, Result<Done>)>) {
    for id in finished {
        if let Some(request) = state.requests.get_mut(&id) {
            request.pieces -= 1;
            if request.pieces == 0
                && let Some(request) = state.requests.remove(&id)
            {
                over.push((request.completer, Ok(request.done)));
            }
        }
    }
}

fn complete_requests(over: Vec<(Completer, Result<Done>)>) {
    over.into_iter().for_each(|(completer, result)| completer.complete(result));
}
