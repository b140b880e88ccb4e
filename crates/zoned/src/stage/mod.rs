//! A stage before a device: writes ahead of a zone's write pointer wait for the blocks below them (`stage=1MiB` in a device's URL).
//!
//! For programs that write a zone at addresses of their own from several threads. A zoned drive takes writes in the order of addresses
//! only; the threads' writes arrive in any order.
//!
//! ```text
//!   block   0 1 2 3 4 5 6 7 8 9        the pointer is at 2
//!               ^ 2 3: missing
//!                   4 5   7 8          wait; when 2 3 arrives, 2 to 5 go out as one write
//! ```
//!
//! A write waits for the *submission* of what lies below, not for its completion: the device keeps the order of submission in each zone.
//! A write counts as acknowledged when the device has acknowledged it; a power cut loses what waits, as it may lose any write in flight.
//!
//! Waiting writes fail with [`ErrorKind::Gap`], and their errors name the first missing block:
//! - at a finish, a close or a reset of the zone;
//! - when the pointer has not moved for [`PATIENCE`];
//! - when an operation below them fails. A report then tells the pointer. Writes that arrive before the report go on if they follow one another
//!   from the pointer, and fail otherwise.
//!
//! A write that ends further ahead of the pointer than the window is refused at once, as is one that would wait when [`WINDOWS`] windows of
//! writes wait already.

mod rules;
mod zone;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytesize::ByteSize;
use parking_lot::Mutex;
use units::{Instant, sleep_until};

use crate::checks::{check_append, locate_transfer};
use crate::stage::rules::Rules;
#[cfg(feature = "broken-rules")]
pub use crate::stage::rules::StageBrokenRule;
use crate::stage::zone::{Put, Refusal, Run, StagedWrite, StagedZone};
use crate::{
    Action, Blocks, Buf, Bytes, Completer, Done, Driver, Durability, Error, ErrorKind, Geometry, Io, IoClass,
    Lba, Op, Result, ShareStatus, ZoneId, ZonedDevice,
};

/// How long a write waits while the pointer of its zone does not move.
const PATIENCE: Duration = Duration::from_secs(30);

/// Windows of waiting writes that a stage holds, over all zones.
const WINDOWS: u64 = 16;

/// A device whose zones may be written ahead of their write pointers, within a window. See [`stage`](self).
pub struct Stage(Arc<Staged>);

struct Staged {
    device: Arc<dyn ZonedDevice>,
    /// How far ahead of the pointer a write may end, in blocks.
    window: u64,
    zones: Vec<Mutex<StagedZone<Completer>>>,
    /// Blocks of the waiting writes of all zones.
    waiting: AtomicU64,
    rules: Rules,
}

/// The steps after a change of a zone's staged writes, taken without the zone's lock.
#[derive(Default)]
struct Work {
    /// Runs that were submitted to the device, with the completers of their writes.
    runs: Vec<(Vec<Completer>, Io)>,
    /// Writes that were submitted to the device, which is to refuse them.
    refused_by_device: Vec<(Completer, Io)>,
    /// Writes that fail.
    failed: Vec<(Completer, Error)>,
    /// True if a report of the zone is to be submitted.
    reports: bool,
    /// True if a task is to watch the age of the zone's gap.
    watches: bool,
}

impl Stage {
    /// The window that the setting `stage=TEXT` of a URL names.
    ///
    /// # Errors
    /// A text that says why `text` is no size above 0.
    pub fn window(text: &str) -> std::result::Result<Bytes, String> {
        match text.parse::<ByteSize>() {
            Ok(size) if size.as_u64() > 0 => Ok(Bytes(size.as_u64())),
            _ => Err(format!("stage={text}: a size above 0 is needed, as in 1MiB")),
        }
    }

    /// A stage before `device`. Waits on the calling thread for a report of all zones.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the window is shorter than a block, [`ErrorKind::Damaged`] if a report leaves zones out, or the device's
    /// error.
    pub fn over(device: Arc<dyn ZonedDevice>, window: Bytes) -> Result<Arc<dyn ZonedDevice>> {
        Stage::with_rules(device, window, Rules::default())
    }

    /// As [`Stage::over`], with a safety rule broken.
    ///
    /// # Errors
    /// The errors of [`Stage::over`].
    #[cfg(feature = "broken-rules")]
    pub fn with_broken_rule(
        device: Arc<dyn ZonedDevice>,
        window: Bytes,
        broken: Option<StageBrokenRule>,
    ) -> Result<Arc<dyn ZonedDevice>> {
        Stage::with_rules(device, window, Rules { broken })
    }

    fn with_rules(device: Arc<dyn ZonedDevice>, window: Bytes, rules: Rules) -> Result<Arc<dyn ZonedDevice>> {
        let geometry = device.geometry();
        let blocks = window.0 / u64::from(geometry.block_size);
        if blocks == 0 {
            let why = format!("stage={window}: at least a block of {} bytes is needed", geometry.block_size);
            return Err(Error::new(ErrorKind::Invalid, &geometry.name, "open").because(why));
        }
        let zones: Vec<_> =
            device.report_all()?.iter().map(|info| Mutex::new(StagedZone::new(info))).collect();
        if zones.len() != geometry.zones as usize {
            let why = format!("the device reports {} zones of {}", zones.len(), geometry.zones);
            return Err(Error::new(ErrorKind::Damaged, &geometry.name, "open").because(why));
        }
        let waiting = AtomicU64::new(0);
        Ok(Arc::new(Stage(Arc::new(Staged { device, window: blocks, zones, waiting, rules }))))
    }
}

impl ZonedDevice for Stage {
    fn geometry(&self) -> &Geometry {
        self.0.device.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.submit_as(IoClass::default(), op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        let (staged, geometry) = (&self.0, self.0.device.geometry());
        match op {
            Op::Write { at, data, how } => match locate_transfer(geometry, "write", at, data.len()) {
                Ok(to) if !geometry.is_conventional(to.zone) => {
                    let durable = how == Durability::Durable;
                    staged.write(to.zone, |waiter| StagedWrite {
                        offset: to.offset,
                        blocks: to.blocks,
                        data,
                        durable,
                        class,
                        waiter,
                    })
                }
                _ => staged.device.submit_as(class, Op::Write { at, data, how }),
            },
            Op::Append { zone, data, how } => match check_append(geometry, "append", zone, data.len()) {
                Ok(blocks) => staged.append(class, zone, blocks, data, how),
                Err(_) => staged.device.submit_as(class, Op::Append { zone, data, how }),
            },
            Op::Zone { zone, action } if zone.0 < geometry.zones && !geometry.is_conventional(zone) => {
                staged.act(class, zone, action)
            }
            op => staged.device.submit_as(class, op),
        }
    }

    fn raise(&self, class: IoClass, blocks: Range<Lba>) {
        self.0.device.raise(class, blocks);
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.0.device.driver()
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let window = Blocks(self.0.window).bytes(self.0.device.geometry().block_size);
        let mut details = self.0.device.details();
        details.push(("stage", format!("{window} bytes ahead of the write pointer")));
        details
    }

    fn share_status(&self) -> Option<ShareStatus> {
        self.0.device.share_status()
    }
}

impl Staged {
    fn write(self: &Arc<Self>, id: ZoneId, write: impl FnOnce(Completer) -> StagedWrite<Completer>) -> Io {
        let (completer, io) = Io::pair(self.device.driver(), &self.device.geometry().name);
        let write = write(completer);
        let held = self.change(id, |zone, now, work| match self.take(zone, write, now) {
            Put::Held => true,
            Put::Device(write) => {
                work.refused_by_device.push(self.pass(zone, id, write));
                false
            }
            Put::Refused(write, why) => {
                let error = self.refusal(id, &write, why);
                work.failed.push((write.waiter, error));
                false
            }
        });
        if held && self.rules.acknowledges_early() { Io::ready(Ok(Done::Unit)) } else { io }
    }

    /// Puts a write into its zone. A write above the pointer is refused if the stage holds too much.
    fn take(
        &self,
        zone: &mut StagedZone<Completer>,
        write: StagedWrite<Completer>,
        now: Instant,
    ) -> Put<Completer> {
        let room = (self.window * WINDOWS).saturating_sub(self.waiting.load(Ordering::Relaxed));
        zone.put(write, (self.window, room), now)
    }

    fn append(self: &Arc<Self>, class: IoClass, id: ZoneId, blocks: u64, data: Buf, how: Durability) -> Io {
        self.change_and_submit(class, id, Op::Append { zone: id, data, how }, |zone, now| {
            (zone.appended(blocks, now), "an append wrote the block at the write pointer")
        })
    }

    fn act(self: &Arc<Self>, class: IoClass, id: ZoneId, action: Action) -> Io {
        self.change_and_submit(class, id, Op::Zone { zone: id, action }, |zone, _| match action {
            Action::Open => {
                zone.passed();
                (Vec::new(), "")
            }
            Action::Close => {
                zone.passed();
                (zone.take_waiting(), "the zone was closed")
            }
            Action::Finish => {
                let waiting = zone.take_waiting();
                zone.finished();
                (waiting, "the zone was finished")
            }
            Action::Reset => {
                let waiting = zone.take_waiting();
                zone.reset();
                (waiting, "the zone was reset")
            }
        })
    }

    /// Submits an operation that moves the pointer of a zone or ends the wait of its writes. `change` gives the writes that fail, and why.
    fn change_and_submit(
        self: &Arc<Self>,
        class: IoClass,
        id: ZoneId,
        op: Op,
        change: impl FnOnce(&mut StagedZone<Completer>, Instant) -> (Vec<StagedWrite<Completer>>, &'static str),
    ) -> Io {
        // An append writes the block that was missing.
        let is_append = matches!(op, Op::Append { .. });
        let moves_pointer = !matches!(op, Op::Zone { action: Action::Open | Action::Close, .. });
        let submitted = self.change(id, |zone, now, work| {
            let missing = zone.gap().and_then(|(missing, _)| missing).filter(|_| !is_append);
            let (failed, why) = change(zone, now);
            for write in failed {
                let error = self.gap_error(id, &write, missing, why);
                work.failed.push((write.waiter, error));
            }
            self.device.submit_as(class, op)
        });
        let (staged, driver, name) = (Arc::clone(self), self.device.driver(), &self.device.geometry().name);
        Io::spawn(driver, name, async move {
            let result = submitted.await;
            staged.ended(id, result.as_ref().err().filter(|_| moves_pointer));
            drop(staged);
            result
        })
    }

    /// Changes a zone, submits the writes that the change released, and completes the ones that it failed.
    fn change<R>(
        self: &Arc<Self>,
        id: ZoneId,
        change: impl FnOnce(&mut StagedZone<Completer>, Instant, &mut Work) -> R,
    ) -> R {
        let zone =
            self.zones.get(id.index()).expect("the zone is one of the geometry's, and so is in the report");
        let (geometry, mut work) = (self.device.geometry(), Work::default());
        let result = {
            // Operations reach the device under the zone's lock, in the order of the pointer.
            let mut zone = zone.lock();
            let (now, before) = (self.device.driver().now(), zone.waiting_blocks());
            let result = change(&mut zone, now, &mut work);
            while let Some(run) = zone.next_run(geometry.max_transfer.0, now) {
                work.runs.push(self.submit_run(id, run));
            }
            work.reports = zone.begin_report();
            work.watches = zone.gap().is_some() && !zone.watched;
            zone.watched |= work.watches;
            let after = zone.waiting_blocks();
            if after >= before {
                self.waiting.fetch_add(after - before, Ordering::Relaxed);
            } else {
                self.waiting.fetch_sub(before - after, Ordering::Relaxed);
            }
            result
        };
        self.finish(id, work);
        result
    }

    /// Carries out what is left of a change, without the zone's lock: a completion may be there already, and changes the zone again.
    fn finish(self: &Arc<Self>, id: ZoneId, work: Work) {
        let driver = self.device.driver();
        for (completer, error) in work.failed {
            completer.complete(Err(error));
        }
        for (waiters, io) in work.runs {
            let staged = Arc::clone(self);
            driver.drive(Box::pin(async move {
                let result = io.await;
                staged.ended(id, result.as_ref().err());
                // The drive is released before its writes are acknowledged: the client may then open it again.
                drop(staged);
                for waiter in waiters {
                    let result = result.as_ref().map(|_| Done::Unit);
                    waiter.complete(result.map_err(Error::duplicate));
                }
            }));
        }
        for (waiter, io) in work.refused_by_device {
            let staged = Arc::clone(self);
            driver.drive(Box::pin(async move {
                let result = io.await;
                // A write that the device took was at its pointer, and not at the one that the zone knew.
                staged.change(id, |zone, _, work| {
                    let known = result.is_err();
                    staged.fail_above(id, zone.ended(known), None, work);
                });
                drop(staged);
                waiter.complete(result);
            }));
        }
        if work.reports {
            let (staged, report) = (Arc::clone(self), self.device.report(id.0..id.0.saturating_add(1)));
            driver.drive(Box::pin(async move {
                let report = report.await;
                staged.change(id, |zone, _, work| {
                    let info = report.as_ref().ok().and_then(|zones| zones.first());
                    let error = report.as_ref().err();
                    let reported = zone.reported(info);
                    for write in reported.refused {
                        match error {
                            Some(error) => work.failed.push((write.waiter, error.duplicate())),
                            None => work.refused_by_device.push(staged.pass(zone, id, write)),
                        }
                    }
                    for write in reported.above {
                        let why = "an operation below it failed";
                        let error = staged.gap_error(id, &write, Some(reported.missing), why);
                        work.failed.push((write.waiter, error));
                    }
                });
            }));
        }
        if work.watches {
            let (staged, driver) = (Arc::downgrade(self), Arc::clone(driver));
            self.device.driver().drive(Box::pin(watch_gap(staged, driver, id)));
        }
    }

    /// An operation in flight of a zone has ended, perhaps with an error.
    fn ended(self: &Arc<Self>, id: ZoneId, error: Option<&Error>) {
        self.change(id, |zone, _, work| {
            let failed = zone.ended(error.is_none());
            self.fail_above(id, failed, error, work);
        });
    }

    /// Fails writes because of an operation below them.
    fn fail_above(
        &self,
        id: ZoneId,
        writes: Vec<StagedWrite<Completer>>,
        error: Option<&Error>,
        work: &mut Work,
    ) {
        for write in writes {
            let why =
                error.map_or_else(|| "the write pointer moved".into(), |error| format!("below it: {error}"));
            let failed = self.error(ErrorKind::Gap, id, write.offset).because(why);
            work.failed.push((write.waiter, failed));
        }
    }

    fn submit_run(&self, id: ZoneId, Run(writes): Run<Completer>) -> (Vec<Completer>, Io) {
        let offset = writes.first().map_or(0, |write| write.offset);
        let durable = writes.iter().any(|write| write.durable);
        let how = if durable { Durability::Durable } else { Durability::Cached };
        // Somebody waits for the run as for its most urgent write.
        let class = writes.iter().map(|write| write.class).min().unwrap_or_default();
        let (mut parts, mut waiters) = (Vec::with_capacity(writes.len()), Vec::with_capacity(writes.len()));
        for write in writes {
            parts.push(write.data);
            waiters.push(write.waiter);
        }
        let at = self.address(id, offset);
        (waiters, self.device.submit_as(class, Op::Write { at, data: Buf::joined(parts), how }))
    }

    /// Submits a write that the device is to refuse.
    fn pass(
        &self,
        zone: &mut StagedZone<Completer>,
        id: ZoneId,
        write: StagedWrite<Completer>,
    ) -> (Completer, Io) {
        zone.passed();
        let how = if write.durable { Durability::Durable } else { Durability::Cached };
        let at = self.address(id, write.offset);
        let io = self.device.submit_as(write.class, Op::Write { at, data: write.data, how });
        (write.waiter, io)
    }

    fn address(&self, id: ZoneId, offset: u64) -> Lba {
        self.device.geometry().start(id).plus(Blocks(offset))
    }

    fn error(&self, kind: ErrorKind, id: ZoneId, offset: u64) -> Error {
        Error::new(kind, &self.device.geometry().name, "write").in_zone(id).at(self.address(id, offset))
    }

    fn refusal(&self, id: ZoneId, write: &StagedWrite<Completer>, why: Refusal) -> Error {
        let kind = match why {
            Refusal::NoRoom | Refusal::PointerUnknown => ErrorKind::Busy,
            Refusal::BeyondWindow { .. } | Refusal::Overlaps => ErrorKind::NotAtWritePointer,
        };
        self.error(kind, id, write.offset).because(match why {
            Refusal::BeyondWindow { pointer } => format!(
                "the pointer is at block {pointer}, and the stage takes {} blocks ahead of it",
                self.window
            ),
            Refusal::NoRoom => format!("{} blocks wait in all zones", self.waiting.load(Ordering::Relaxed)),
            Refusal::PointerUnknown => {
                "an operation failed, and a window of writes waits for a report of the zone".into()
            }
            Refusal::Overlaps => "another write of these blocks waits".into(),
        })
    }

    fn gap_error(
        &self,
        id: ZoneId,
        write: &StagedWrite<Completer>,
        missing: Option<u64>,
        why: &str,
    ) -> Error {
        let error = self.error(ErrorKind::Gap, id, write.offset);
        error.because(match missing {
            Some(missing) => format!("{why}; the first missing block is {}", self.address(id, missing)),
            None => why.to_owned(),
        })
    }
}

/// Watches the writes that wait in a zone, until none waits: they fail once the pointer has not moved for [`PATIENCE`].
async fn watch_gap(staged: Weak<Staged>, driver: Arc<dyn Driver>, id: ZoneId) {
    let mut due = driver.now().after(PATIENCE);
    loop {
        sleep_until(&*driver, due).await;
        let Some(staged) = staged.upgrade() else { return };
        let next = staged.change(id, |zone, now, work| {
            zone.watched = false;
            let (missing, since) = zone.gap()?;
            let until = since.after(PATIENCE);
            if until > now {
                zone.watched = true;
                return Some(until);
            }
            let why = format!("the write pointer has not moved for {} s", PATIENCE.as_secs());
            for write in zone.take_waiting() {
                let error = staged.gap_error(id, &write, missing, &why);
                work.failed.push((write.waiter, error));
            }
            None
        });
        match next {
            Some(next) => due = next,
            None => return,
        }
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stage({:?})", self.0.device)
    }
}

#[cfg(test)]
mod tests;
