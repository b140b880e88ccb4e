//! The [`ZonedDevice`] over a drive that the kernel serves.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::checks::{self, Transfer};
use crate::kernel::flushes::Flushes;
use crate::kernel::zone_counts::ZoneCounts;
use crate::kernel::zone_queue::{Claims, QueueRules, Reply, Step, ZoneQueue, ZoneTask};
use crate::kernel::{Backend, DriveOp, Failure, ShortVec};
use crate::{
    Action, Blocks, Completer, Done, Driver, Durability, Error, ErrorKind, Geometry, Io, IoClass, Lba, Op,
    Result, ZoneId, ZoneInfo, ZonedDevice,
};

/// An opened device of a backend, and its properties.
pub(crate) struct OpenedDevice<B> {
    pub(crate) geometry: Geometry,
    pub(crate) rules: QueueRules,
    /// A report of all zones of the device.
    pub(crate) report: Vec<ZoneInfo>,
    pub(crate) backend: B,
    pub(crate) details: Vec<(&'static str, String)>,
}

/// A zoned device of the kernel, or one that orders the operations of a zone alike.
///
/// Dropping the device with operations in flight is safe: queued operations are still executed, and the device is
/// released after the last completion.
pub(crate) struct QueuedDevice<B> {
    shared: Arc<Shared<B>>,
    driver: Arc<dyn Driver>,
    details: Vec<(&'static str, String)>,
}

struct Shared<B> {
    geometry: Geometry,
    rules: QueueRules,
    queues: Box<[QueueSlot]>,
    backend: B,
    zone_counts: ZoneCounts,
    flushes: Flushes,
    gone: AtomicBool,
}

/// A zone's queue on cache lines of its own, so that locks of neighbouring zones do not share a line.
#[repr(align(128))]
struct QueueSlot(Mutex<ZoneQueue<Waiter>>);

// The queues of a drive with 75,000 zones take 10 MB.
const _: () = assert!(size_of::<QueueSlot>() == 128);

/// An operation's name, its address for errors, and its class.
#[derive(Clone, Copy)]
struct Submitted {
    name: &'static str,
    at: Option<Lba>,
    class: Option<IoClass>,
}

/// The receiver of a zone operation's result.
#[derive(Debug)]
enum Waiter {
    Caller { completer: Completer, name: &'static str, at: Option<Lba>, class: Option<IoClass> },
    Report(Arc<PendingReport>),
}

impl Waiter {
    /// The class of the operation; `None` if its submitter gave none.
    fn class(&self) -> Option<IoClass> {
        match self {
            Waiter::Caller { class, .. } => *class,
            Waiter::Report(_) => None,
        }
    }
}

/// A zone report that is sent after the changes submitted before it have completed.
#[derive(Debug)]
struct PendingReport {
    zones: Range<u32>,
    missing: AtomicUsize,
    completer: Mutex<Option<Completer>>,
}

impl<B: Backend> QueuedDevice<B> {
    pub(crate) fn new(parts: OpenedDevice<B>, driver: Arc<dyn Driver>) -> Arc<QueuedDevice<B>> {
        let OpenedDevice { geometry, rules, report, backend, details } = parts;
        assert_eq!(report.len(), geometry.zones as usize, "a backend counts the zones that it reports");
        let queues: Box<[QueueSlot]> =
            report.iter().map(|info| QueueSlot(Mutex::new(ZoneQueue::new(info)))).collect();
        let zone_counts = ZoneCounts::default();
        for slot in &queues {
            zone_counts.update(Claims::default(), slot.0.lock().claims());
        }
        let (flushes, gone) = (Flushes::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { geometry, rules, queues, backend, zone_counts, flushes, gone });
        Arc::new(QueuedDevice { shared, driver, details })
    }

    fn pair(&self) -> (Completer, Io) {
        Io::pair(&self.driver, &self.shared.geometry.name)
    }

    /// Submits an operation to its zone's queue.
    fn submit_to_zone(&self, zone: ZoneId, of: Submitted, task: ZoneTask) -> Io {
        let (completer, io) = self.pair();
        let Submitted { name, at, class } = of;
        let waiter = Waiter::Caller { completer, name, at, class };
        let answers =
            self.shared.handle_event(zone, |queue, rules, steps| queue.submit(rules, task, waiter, steps));
        answers.deliver();
        io
    }

    fn flush(&self, name: &'static str) -> Io {
        // Without a volatile cache every acknowledged write is durable, so that the block layer sends no
        // flush.
        if !self.shared.geometry.volatile_cache {
            return Io::ready(Ok(Done::Unit));
        }
        let (completer, io) = self.pair();
        self.shared.flush(move |shared, result| {
            let result = result.map(|()| Done::Unit);
            Completions::one(completer, result.map_err(|failure| shared.error(failure, name, None, None)))
        });
        io
    }

    fn report(&self, zones: Range<u32>) -> Io {
        let shared = &self.shared;
        let end = zones.end.min(shared.geometry.zones);
        let zones = zones.start.min(end)..end;
        if zones.is_empty() {
            return Io::ready(Ok(Done::Zones(Vec::new())));
        }
        let (completer, io) = self.pair();
        let pending = Arc::new(PendingReport {
            zones: zones.clone(),
            missing: AtomicUsize::new(1),
            completer: Mutex::new(Some(completer)),
        });
        for zone in zones.map(ZoneId) {
            let answers = shared.handle_event(zone, |queue, rules, steps| {
                if !queue.is_quiet() {
                    pending.missing.fetch_add(1, Ordering::Relaxed);
                    queue.submit(rules, ZoneTask::Fence, Waiter::Report(Arc::clone(&pending)), steps);
                }
            });
            answers.deliver();
        }
        shared.zone_caught_up(&pending);
        io
    }
}

/// Results of operations to be delivered to their submitters, after the reference to the device is dropped:
/// the receiver of the last result may open the device again at once.
#[must_use]
struct Completions(ShortVec<(Completer, Result<Done>)>);

impl Completions {
    fn one(completer: Completer, result: Result<Done>) -> Completions {
        let mut answers = ShortVec::new();
        answers.push((completer, result));
        Completions(answers)
    }

    /// Turns successful results into the failure `error`.
    fn failed(self, error: &dyn Fn() -> Error) -> Completions {
        let mut answers = ShortVec::new();
        for (completer, result) in self.0 {
            answers.push((completer, result.and_then(|_| Err(error()))));
        }
        Completions(answers)
    }

    fn deliver(self) {
        for (completer, result) in self.0 {
            completer.complete(result);
        }
    }
}

impl<B: Backend> Shared<B> {
    fn queue(&self, zone: ZoneId) -> &Mutex<ZoneQueue<Waiter>> {
        &self.queues.get(zone.index()).expect("checked against the geometry").0
    }

    fn address(&self, zone: ZoneId, offset: u64) -> Lba {
        self.geometry.start(zone).plus(Blocks(offset))
    }

    /// Passes an event to a zone's queue, then executes the resulting steps without the queue's lock.
    fn handle_event(
        self: &Arc<Shared<B>>,
        zone: ZoneId,
        apply: impl FnOnce(&mut ZoneQueue<Waiter>, &QueueRules, &mut ShortVec<Step<Waiter>>),
    ) -> Completions {
        let mut steps = ShortVec::new();
        {
            let mut queue = self.queue(zone).lock();
            let before = queue.claims();
            apply(&mut queue, &self.rules, &mut steps);
            self.zone_counts.update(before, queue.claims());
        }
        let mut answers = Completions(ShortVec::new());
        for step in steps {
            self.execute(zone, step, &mut answers);
        }
        answers
    }

    fn execute(self: &Arc<Shared<B>>, zone: ZoneId, step: Step<Waiter>, answers: &mut Completions) {
        match step {
            Step::Answer { waiter, result } => self.answer(zone, waiter, result, answers),
            Step::Read { at, into, past, waiter } => {
                let blocks = (into.len() / self.rules.block) as u64;
                let op = DriveOp::Read { at: self.address(zone, at), into, class: waiter.class() };
                self.send(op, move |shared, result| {
                    let result = join_read(result, past);
                    let ok = result.is_ok();
                    let mut answers = shared.handle_event(zone, |queue, rules, steps| {
                        queue.read_done(rules, at, blocks, ok, steps)
                    });
                    shared.answer(zone, waiter, result, &mut answers);
                    answers
                });
            }
            Step::Write(write) => {
                let at = self.address(zone, write.at);
                let (data, durable) = (write.data(), self.needs_fua(write.durable));
                let class = highest_class(write.waiters().map(Waiter::class));
                let op = DriveOp::Write { at, data, durable, repeated: write.is_repeated(), class };
                self.send(op, move |shared, result| {
                    let result = result.map(drop).map_err(|failure| shared.name_reached_limit(zone, failure));
                    shared.write_completed(zone, durable, result.is_ok(), |queue, rules, steps| {
                        queue.write_done(rules, write, result, steps);
                    })
                });
            }
            Step::Append { data, durable, waiter } => {
                let blocks = (data.len() / self.rules.block) as u64;
                let durable = self.needs_fua(durable);
                self.send(DriveOp::Append { zone, data, durable }, move |shared, result| {
                    let result = result.and_then(|done| shared.offset(zone, done));
                    let result = result.map_err(|failure| shared.name_reached_limit(zone, failure));
                    shared.write_completed(zone, durable, result.is_ok(), |queue, rules, steps| {
                        queue.append_done(rules, blocks, waiter, result, steps);
                    })
                });
            }
            Step::Zone { action, waiter } => {
                self.send(DriveOp::Zone { zone, action }, move |shared, result| {
                    let result = result.map(drop).map_err(|failure| match action {
                        Action::Open => shared.name_reached_limit(zone, failure),
                        _ => failure,
                    });
                    shared.handle_event(zone, |queue, rules, steps| {
                        queue.command_done(rules, action, waiter, result, steps)
                    })
                })
            }
            Step::Report => {
                self.send(DriveOp::Report { zones: zone.0..zone.0 + 1 }, move |shared, result| {
                    let info = result.and_then(|done| {
                        let info = match done {
                            Done::Zones(zones) => zones.into_iter().find(|info| info.zone == zone),
                            _ => None,
                        };
                        info.ok_or_else(|| shared.no_report())
                    });
                    shared.handle_event(zone, |queue, rules, steps| queue.report_done(rules, info, steps))
                })
            }
        }
    }

    /// Handles the completion of a write or append. If it is durable and cached blocks lie below it, its
    /// completion waits for a flush: by the contract a durable block makes the blocks below it durable, but
    /// FUA covers only the write itself, and the block layer flushes after blocking writes only.
    fn write_completed(
        self: &Arc<Shared<B>>,
        zone: ZoneId,
        durable: bool,
        ok: bool,
        apply: impl FnOnce(&mut ZoneQueue<Waiter>, &QueueRules, &mut ShortVec<Step<Waiter>>),
    ) -> Completions {
        let mut below = 0;
        let answers = self.handle_event(zone, |queue, rules, steps| {
            let counts = ok && self.geometry.volatile_cache;
            if counts {
                match durable {
                    true => below = queue.cached_until(),
                    false => queue.record_cached(self.flushes.next()),
                }
                if queue.needs_flush_below() {
                    below = self.flushes.next();
                }
            }
            apply(queue, rules, steps);
            if counts {
                queue.record_acknowledged(durable);
            }
        });
        if below <= self.flushes.done() {
            return answers;
        }
        self.flush(move |shared, result| match result {
            Ok(()) => answers,
            Err(failure) => answers.failed(&|| shared.error(failure.duplicate(), "flush", Some(zone), None)),
        });
        Completions(ShortVec::new())
    }

    /// Flushes the drive's cache.
    fn flush(
        self: &Arc<Shared<B>>,
        then: impl FnOnce(&Arc<Shared<B>>, Result<(), Failure>) -> Completions + Send + 'static,
    ) {
        let number = self.flushes.start();
        self.send(DriveOp::Flush, move |shared, result| {
            if result.is_ok() {
                shared.flushes.end(number);
            }
            then(shared, result.map(drop))
        });
    }

    /// True if a durable write needs FUA on the device.
    fn needs_fua(&self, durable: bool) -> bool {
        durable && self.geometry.volatile_cache
    }

    /// Converts an append's address to an offset in its zone.
    fn offset(&self, zone: ZoneId, done: Done) -> Result<u64, Failure> {
        match done {
            Done::At(at) if self.geometry.zone_of(at) == Some(zone) => {
                Ok(at.since(self.geometry.start(zone)).0)
            }
            other => {
                let why = format!("the drive answered an append to zone {zone} with {other:?}");
                Err(Failure::new(ErrorKind::Host, why))
            }
        }
    }

    /// Sends an operation to the backend. `then` is called once with the result, on the thread that reaps the
    /// completion.
    fn send(
        self: &Arc<Shared<B>>,
        op: DriveOp,
        then: impl FnOnce(&Arc<Shared<B>>, Result<Done, Failure>) -> Completions + Send + 'static,
    ) {
        let shared = Arc::clone(self);
        self.backend.send(op, move |reply| {
            let result = shared.backend.interpret(reply).map_err(|failure| shared.check_gone(failure));
            let answers = then(&shared, result);
            drop(shared);
            answers.deliver();
        });
    }

    /// Changes the failure to [`ErrorKind::Gone`] if the device has been removed, which the kernel reports in many ways.
    fn check_gone(&self, mut failure: Failure) -> Failure {
        if failure.kind == ErrorKind::Gone || self.gone.load(Ordering::Relaxed) || self.backend.is_gone() {
            failure.kind = ErrorKind::Gone;
            self.gone.store(true, Ordering::Relaxed);
        }
        failure
    }

    /// The failure for a short report, which the kernel returns for a disk that is being removed.
    fn no_report(&self) -> Failure {
        let why = "the report lacks zones that were asked for";
        self.check_gone(Failure::new(ErrorKind::Host, why.into()))
    }

    /// Names the limit behind a drive's refusal to open a zone, because not every drive returns an error for the limits.
    fn name_reached_limit(&self, zone: ZoneId, mut failure: Failure) -> Failure {
        if matches!(failure.kind, ErrorKind::Media | ErrorKind::Host) {
            let state = self.queue(zone).lock().state();
            if let Some(kind) = self.zone_counts.limit_reached(state, &self.geometry) {
                failure.kind = kind;
            }
        }
        failure
    }

    fn answer(
        self: &Arc<Shared<B>>,
        zone: ZoneId,
        waiter: Waiter,
        result: Result<Reply, Failure>,
        answers: &mut Completions,
    ) {
        match waiter {
            Waiter::Caller { completer, name, at, .. } => {
                let result = match result {
                    Ok(Reply::Unit) => Ok(Done::Unit),
                    Ok(Reply::At(offset)) => Ok(Done::At(self.address(zone, offset))),
                    Ok(Reply::Read(into)) => Ok(Done::Read(into)),
                    Err(failure) => Err(self.error(failure, name, Some(zone), at)),
                };
                answers.0.push((completer, result));
            }
            // The report is sent whether or not the changes before it succeeded.
            Waiter::Report(pending) => self.zone_caught_up(&pending),
        }
    }

    /// Counts a zone of a report whose earlier changes have completed; sends the report after the last zone.
    fn zone_caught_up(self: &Arc<Shared<B>>, pending: &PendingReport) {
        if pending.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let Some(completer) = pending.completer.lock().take() else { return };
        let zones = pending.zones.clone();
        let count = zones.len();
        self.send(DriveOp::Report { zones }, move |shared, result| {
            let result = result.and_then(|done| match done {
                Done::Zones(zones) if zones.len() == count => Ok(Done::Zones(zones)),
                _ => Err(shared.no_report()),
            });
            Completions::one(completer, result.map_err(|failure| shared.error(failure, "report", None, None)))
        });
    }

    fn error(&self, failure: Failure, name: &'static str, zone: Option<ZoneId>, at: Option<Lba>) -> Error {
        let mut error = Error::new(failure.kind, &self.geometry.name, name);
        if let Some(zone) = zone {
            error = error.in_zone(zone);
        }
        let inside = failure.at.zip(zone).map(|(offset, zone)| self.address(zone, offset));
        if let Some(at) = at.or(inside) {
            error = error.at(at);
        }
        let limits = || {
            let limit = |most: Option<u32>| most.map_or("any number".into(), |most| most.to_string());
            let (open, active) = (limit(self.geometry.max_open), limit(self.geometry.max_active));
            format!("{open} may be open, {active} active: close or finish another zone first")
        };
        match failure.kind {
            ErrorKind::TooManyOpen | ErrorKind::TooManyActive => error = error.because(limits()),
            _ if !failure.detail.is_empty() => error = error.because(failure.detail),
            _ => {}
        }
        match failure.buffer {
            Some(buffer) => error.with_buffer(buffer),
            None => error,
        }
    }

    /// The error for an operation on a removed device.
    fn gone_error(&self, op: Op) -> Error {
        let zone = match &op {
            Op::Read { at, .. } | Op::Write { at, .. } => self.geometry.zone_of(*at),
            Op::Append { zone, .. } | Op::Zone { zone, .. } => Some(*zone),
            Op::Flush | Op::Report { .. } => None,
        };
        let mut error = Error::new(ErrorKind::Gone, &self.geometry.name, op.name());
        if let Some(zone) = zone {
            error = error.in_zone(zone);
        }
        match op {
            Op::Read { at, into } => error.at(at).with_buffer(into),
            Op::Write { at, .. } => error.at(at),
            _ => error,
        }
    }
}

/// The highest of some operations' classes. An operation without a class stands between those of logs and metadata and the others.
fn highest_class(classes: impl Iterator<Item = Option<IoClass>>) -> Option<IoClass> {
    let rank = |class: &Option<IoClass>| {
        class.map_or((1, None), |of| (if of < IoClass::Read { 0 } else { 2 }, Some(of)))
    };
    classes.min_by_key(rank).flatten()
}

/// Rejoins a read's buffer with its part past the pointer, which reads as zeros.
fn join_read(result: Result<Done, Failure>, past: Option<crate::BufMut>) -> Result<Reply, Failure> {
    match result {
        Ok(Done::Read(mut into)) => {
            if let Some(mut past) = past {
                past.fill(0);
                into.unsplit(past);
            }
            Ok(Reply::Read(into))
        }
        Ok(other) => Err(Failure::new(ErrorKind::Host, format!("a read was answered with {other:?}"))),
        Err(mut failure) => {
            if let (Some(into), Some(past)) = (&mut failure.buffer, past) {
                into.unsplit(past);
            }
            Err(failure)
        }
    }
}

impl<B: Backend> ZonedDevice for QueuedDevice<B> {
    fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    fn submit(&self, op: Op) -> Io {
        self.submit_with_class(None, op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        self.submit_with_class(Some(class), op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.details.clone()
    }
}

impl<B: Backend> QueuedDevice<B> {
    fn submit_with_class(&self, class: Option<IoClass>, op: Op) -> Io {
        let geometry = &self.shared.geometry;
        if self.shared.gone.load(Ordering::Relaxed) {
            return Io::ready(Err(self.shared.gone_error(op)));
        }
        let name = op.name();
        match op {
            Op::Read { at, into } => match checks::locate_transfer(geometry, name, at, into.len()) {
                Ok(Transfer { zone, offset, .. }) => self.submit_to_zone(
                    zone,
                    Submitted { name, at: Some(at), class },
                    ZoneTask::Read { at: offset, into },
                ),
                Err(error) => Io::ready(Err(error.with_buffer(into))),
            },
            Op::Write { at, data, how } => match checks::locate_transfer(geometry, name, at, data.len()) {
                Ok(Transfer { zone, offset, .. }) => {
                    let durable = how == Durability::Durable;
                    self.submit_to_zone(
                        zone,
                        Submitted { name, at: Some(at), class },
                        ZoneTask::Write { at: offset, data, durable },
                    )
                }
                Err(error) => Io::ready(Err(error)),
            },
            Op::Append { zone, data, how } => match checks::check_append(geometry, name, zone, data.len()) {
                Ok(_) => {
                    let durable = how == Durability::Durable;
                    self.submit_to_zone(
                        zone,
                        Submitted { name, at: None, class },
                        ZoneTask::Append { data, durable },
                    )
                }
                Err(error) => Io::ready(Err(error)),
            },
            Op::Zone { zone, action } => match checks::check_zone_exists(geometry, name, zone) {
                Ok(()) => {
                    self.submit_to_zone(zone, Submitted { name, at: None, class }, ZoneTask::Zone(action))
                }
                Err(error) => Io::ready(Err(error)),
            },
            Op::Flush => self.flush(name),
            Op::Report { zones } => self.report(zones),
        }
    }
}

impl<B> fmt::Debug for QueuedDevice<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.geometry.name)
    }
}
