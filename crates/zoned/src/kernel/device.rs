//! A kernel device as a [`ZonedDevice`].

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::checks::{self, Transfer};
use crate::kernel::census::Census;
use crate::kernel::flushes::Flushes;
use crate::kernel::lane::{Claims, Lane, Rules, Step, Task, Told};
use crate::kernel::{Ask, Failure, Few, Kernel, Wire};
use crate::{
    Action, Blocks, Completer, Done, Driver, Durability, Error, ErrorKind, Geometry, Io, Lba, Op, Result,
    ZoneId, ZoneInfo, ZonedDevice,
};

/// What a backend has found out when it opens a device.
pub(crate) struct Parts {
    pub(crate) geometry: Geometry,
    pub(crate) rules: Rules,
    /// A report of all zones.
    pub(crate) report: Vec<ZoneInfo>,
    pub(crate) wire: Box<dyn Wire>,
    pub(crate) kernel: Arc<dyn Kernel>,
    /// The same by system calls that block, for writes that failed before.
    pub(crate) blocking: Arc<dyn Kernel>,
    pub(crate) details: Vec<(&'static str, String)>,
}

/// A device that the kernel drives.
///
/// Dropping it with operations in flight is safe: they end, those that wait for them are sent, and the device is
/// released with the last.
pub(crate) struct KernelDevice {
    shared: Arc<Shared>,
    driver: Arc<dyn Driver>,
    details: Vec<(&'static str, String)>,
}

struct Shared {
    geometry: Geometry,
    rules: Rules,
    lanes: Box<[Slot]>,
    wire: Box<dyn Wire>,
    kernel: Arc<dyn Kernel>,
    blocking: Arc<dyn Kernel>,
    census: Census,
    flushes: Flushes,
    gone: AtomicBool,
}

/// A lane, alone on its cache lines: neighbours' locks must not slow it down.
#[repr(align(128))]
struct Slot(Mutex<Lane<Waiter>>);

// Of a drive with 75,000 zones that is 10 MB.
const _: () = assert!(size_of::<Slot>() == 128);

/// Who waits for an operation of a lane.
#[derive(Debug)]
enum Waiter {
    Caller { completer: Completer, name: &'static str, at: Option<Lba> },
    Report(Arc<Gathering>),
}

/// A report that waits for the changes submitted before it.
#[derive(Debug)]
struct Gathering {
    zones: Range<u32>,
    missing: AtomicUsize,
    completer: Mutex<Option<Completer>>,
}

impl KernelDevice {
    pub(crate) fn new(parts: Parts, driver: Arc<dyn Driver>) -> Arc<KernelDevice> {
        let Parts { geometry, rules, report, wire, kernel, blocking, details } = parts;
        assert_eq!(report.len(), geometry.zones as usize, "a backend counts the zones that it reports");
        let lanes: Box<[Slot]> = report.iter().map(|info| Slot(Mutex::new(Lane::new(info)))).collect();
        let census = Census::default();
        for slot in &lanes {
            census.moved(Claims::default(), slot.0.lock().claims());
        }
        let (flushes, gone) = (Flushes::default(), AtomicBool::new(false));
        let shared =
            Arc::new(Shared { geometry, rules, lanes, wire, kernel, blocking, census, flushes, gone });
        Arc::new(KernelDevice { shared, driver, details })
    }

    fn pair(&self) -> (Completer, Io) {
        Io::pair(&self.driver, &self.shared.geometry.name)
    }

    /// Sends an operation through its zone's lane.
    fn through(&self, zone: ZoneId, name: &'static str, at: Option<Lba>, task: Task) -> Io {
        let (completer, io) = self.pair();
        let waiter = Waiter::Caller { completer, name, at };
        let answers = self.shared.event(zone, |lane, rules, steps| lane.submit(rules, task, waiter, steps));
        answers.give();
        io
    }

    fn flush(&self, name: &'static str) -> Io {
        // What was acknowledged is durable already, and the block layer sends no flush to such a device.
        if !self.shared.geometry.volatile_cache {
            return Io::ready(Ok(Done::Unit));
        }
        let (completer, io) = self.pair();
        self.shared.flush(move |shared, result| {
            let result = result.map(|()| Done::Unit);
            Answers::one(completer, result.map_err(|failure| shared.error(failure, name, None, None)))
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
        let gathering = Arc::new(Gathering {
            zones: zones.clone(),
            missing: AtomicUsize::new(1),
            completer: Mutex::new(Some(completer)),
        });
        for zone in zones.map(ZoneId) {
            let answers = shared.event(zone, |lane, rules, steps| {
                if !lane.is_quiet() {
                    gathering.missing.fetch_add(1, Ordering::Relaxed);
                    lane.submit(rules, Task::Fence, Waiter::Report(Arc::clone(&gathering)), steps);
                }
            });
            answers.give();
        }
        shared.gathered(&gathering);
        io
    }
}

/// Results on their way to those who wait. They are given when nothing of the device is held any more: whoever has
/// the last result may open the device anew.
#[must_use]
struct Answers(Few<(Completer, Result<Done>)>);

impl Answers {
    fn one(completer: Completer, result: Result<Done>) -> Answers {
        let mut answers = Few::new();
        answers.push((completer, result));
        Answers(answers)
    }

    /// What succeeded has failed after all.
    fn failed(self, error: &dyn Fn() -> Error) -> Answers {
        let mut answers = Few::new();
        for (completer, result) in self.0 {
            answers.push((completer, result.and_then(|_| Err(error()))));
        }
        Answers(answers)
    }

    fn give(self) {
        for (completer, result) in self.0 {
            completer.complete(result);
        }
    }
}

impl Shared {
    fn lane(&self, zone: ZoneId) -> &Mutex<Lane<Waiter>> {
        &self.lanes.get(zone.index()).expect("checked against the geometry").0
    }

    fn address(&self, zone: ZoneId, offset: u64) -> Lba {
        self.geometry.start(zone).plus(Blocks(offset))
    }

    /// Tells a lane what happened, and does what follows, without its lock.
    fn event(
        self: &Arc<Shared>,
        zone: ZoneId,
        tell: impl FnOnce(&mut Lane<Waiter>, &Rules, &mut Few<Step<Waiter>>),
    ) -> Answers {
        let mut steps = Few::new();
        {
            let mut lane = self.lane(zone).lock();
            let before = lane.claims();
            tell(&mut lane, &self.rules, &mut steps);
            self.census.moved(before, lane.claims());
        }
        let mut answers = Answers(Few::new());
        for step in steps {
            self.carry_out(zone, step, &mut answers);
        }
        answers
    }

    fn carry_out(self: &Arc<Shared>, zone: ZoneId, step: Step<Waiter>, answers: &mut Answers) {
        match step {
            Step::Answer { waiter, result } => self.answer(zone, waiter, result, answers),
            Step::Read { at, into, past, waiter } => {
                let blocks = (into.len() / self.rules.block) as u64;
                self.ask(Ask::Read { at: self.address(zone, at), into }, move |shared, result| {
                    let result = join(result, past);
                    let ok = result.is_ok();
                    let mut answers =
                        shared.event(zone, |lane, rules, steps| lane.read_over(rules, at, blocks, ok, steps));
                    shared.answer(zone, waiter, result, &mut answers);
                    answers
                });
            }
            Step::Write(flight) => {
                let at = self.address(zone, flight.at);
                let (data, durable) = (flight.data(), self.durably(flight.durable));
                let kernel = if flight.is_repeated() { &self.blocking } else { &self.kernel };
                self.ask_by(kernel, Ask::Write { at, data, durable }, move |shared, result| {
                    let result = result.map(drop).map_err(|failure| shared.limit(zone, failure));
                    shared.written(zone, durable, result.is_ok(), |lane, rules, steps| {
                        lane.wrote(rules, flight, result, steps);
                    })
                });
            }
            Step::Append { data, durable, waiter } => {
                let blocks = (data.len() / self.rules.block) as u64;
                let durable = self.durably(durable);
                self.ask(Ask::Append { zone, data, durable }, move |shared, result| {
                    let result = result.and_then(|done| shared.offset(zone, done));
                    let result = result.map_err(|failure| shared.limit(zone, failure));
                    shared.written(zone, durable, result.is_ok(), |lane, rules, steps| {
                        lane.appended(rules, blocks, waiter, result, steps);
                    })
                });
            }
            Step::Zone { action, waiter } => self.ask(Ask::Zone { zone, action }, move |shared, result| {
                let result = result.map(drop).map_err(|failure| match action {
                    Action::Open => shared.limit(zone, failure),
                    _ => failure,
                });
                shared.event(zone, |lane, rules, steps| lane.acted(rules, action, waiter, result, steps))
            }),
            Step::Report => self.ask(Ask::Report { zones: zone.0..zone.0 + 1 }, move |shared, result| {
                let info = result.and_then(|done| {
                    let info = match done {
                        Done::Zones(zones) => zones.into_iter().find(|info| info.zone == zone),
                        _ => None,
                    };
                    info.ok_or_else(|| shared.no_report())
                });
                shared.event(zone, |lane, rules, steps| lane.reported(rules, info, steps))
            }),
        }
    }

    /// A write or append came back. Where a durable one leaves cached blocks below it, the answers wait for a flush: a
    /// durable block makes the blocks below it durable, and FUA does not. Nor does the block layer flush after an
    /// asynchronous write (it does after a blocking one).
    fn written(
        self: &Arc<Shared>,
        zone: ZoneId,
        durable: bool,
        ok: bool,
        tell: impl FnOnce(&mut Lane<Waiter>, &Rules, &mut Few<Step<Waiter>>),
    ) -> Answers {
        let mut below = 0;
        let answers = self.event(zone, |lane, rules, steps| {
            let counts = ok && self.geometry.volatile_cache;
            if counts {
                match durable {
                    true => below = lane.cached_until(),
                    false => lane.cached(self.flushes.next()),
                }
                if lane.is_overtaken() {
                    below = self.flushes.next();
                }
            }
            tell(lane, rules, steps);
            if counts {
                lane.note(durable);
            }
        });
        if below <= self.flushes.done() {
            return answers;
        }
        self.flush(move |shared, result| match result {
            Ok(()) => answers,
            Err(failure) => answers.failed(&|| shared.error(failure.again(), "flush", Some(zone), None)),
        });
        Answers(Few::new())
    }

    /// Flushes the drive's cache.
    fn flush(
        self: &Arc<Shared>,
        then: impl FnOnce(&Arc<Shared>, Result<(), Failure>) -> Answers + Send + 'static,
    ) {
        let number = self.flushes.start();
        self.ask(Ask::Flush, move |shared, result| {
            if result.is_ok() {
                shared.flushes.end(number);
            }
            then(shared, result.map(drop))
        });
    }

    /// Whether the drive has to be told that a write is to be durable.
    fn durably(&self, durable: bool) -> bool {
        durable && self.geometry.volatile_cache
    }

    /// An append's address as an offset in its zone.
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

    /// Hands an operation to the kernel. `then` is called once, on whichever thread hears of its end.
    fn ask(
        self: &Arc<Shared>,
        ask: Ask,
        then: impl FnOnce(&Arc<Shared>, Result<Done, Failure>) -> Answers + Send + 'static,
    ) {
        self.ask_by(&self.kernel, ask, then);
    }

    fn ask_by(
        self: &Arc<Shared>,
        kernel: &Arc<dyn Kernel>,
        ask: Ask,
        then: impl FnOnce(&Arc<Shared>, Result<Done, Failure>) -> Answers + Send + 'static,
    ) {
        let (request, expect) = self.wire.request(ask);
        let shared = Arc::clone(self);
        let finish = move |finished| {
            let result = shared.wire.judge(expect, finished).map_err(|failure| shared.suspect(failure));
            let answers = then(&shared, result);
            drop(shared);
            answers.give();
        };
        kernel.submit(request, Box::new(finish));
    }

    /// A device that is gone fails in many ways.
    fn suspect(&self, mut failure: Failure) -> Failure {
        if failure.kind == ErrorKind::Gone || self.gone.load(Ordering::Relaxed) || self.wire.is_gone() {
            failure.kind = ErrorKind::Gone;
            self.gone.store(true, Ordering::Relaxed);
        }
        failure
    }

    /// The kernel gives a short report, or an empty one, of a disk that is going.
    fn no_report(&self) -> Failure {
        let why = "the report lacks zones that were asked for";
        self.suspect(Failure::new(ErrorKind::Host, why.into()))
    }

    /// Names a refusal to open a zone: not every way to a drive has words for the limits.
    fn limit(&self, zone: ZoneId, mut failure: Failure) -> Failure {
        if matches!(failure.kind, ErrorKind::Media | ErrorKind::Host) {
            let state = self.lane(zone).lock().state();
            if let Some(kind) = self.census.reached(state, &self.geometry) {
                failure.kind = kind;
            }
        }
        failure
    }

    fn answer(
        self: &Arc<Shared>,
        zone: ZoneId,
        waiter: Waiter,
        result: Result<Told, Failure>,
        answers: &mut Answers,
    ) {
        match waiter {
            Waiter::Caller { completer, name, at } => {
                let result = match result {
                    Ok(Told::Unit) => Ok(Done::Unit),
                    Ok(Told::At(offset)) => Ok(Done::At(self.address(zone, offset))),
                    Ok(Told::Read(into)) => Ok(Done::Read(into)),
                    Err(failure) => Err(self.error(failure, name, Some(zone), at)),
                };
                answers.0.push((completer, result));
            }
            // Whatever became of the changes before it, the report says how the zone is.
            Waiter::Report(gathering) => self.gathered(&gathering),
        }
    }

    /// One of the zones of a report has caught up; the last one sends it.
    fn gathered(self: &Arc<Shared>, gathering: &Gathering) {
        if gathering.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let Some(completer) = gathering.completer.lock().take() else { return };
        let zones = gathering.zones.clone();
        let count = zones.len();
        self.ask(Ask::Report { zones }, move |shared, result| {
            let result = result.and_then(|done| match done {
                Done::Zones(zones) if zones.len() == count => Ok(Done::Zones(zones)),
                _ => Err(shared.no_report()),
            });
            Answers::one(completer, result.map_err(|failure| shared.error(failure, "report", None, None)))
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

    /// The error for an operation on a device that is gone.
    fn gone(&self, op: Op) -> Error {
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

/// Puts a read's buffer together again: what lies past the pointer is zero.
fn join(result: Result<Done, Failure>, past: Option<crate::BufMut>) -> Result<Told, Failure> {
    match result {
        Ok(Done::Read(mut into)) => {
            if let Some(mut past) = past {
                past.fill(0);
                into.unsplit(past);
            }
            Ok(Told::Read(into))
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

impl ZonedDevice for KernelDevice {
    fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    fn submit(&self, op: Op) -> Io {
        let geometry = &self.shared.geometry;
        if self.shared.gone.load(Ordering::Relaxed) {
            return Io::ready(Err(self.shared.gone(op)));
        }
        let name = op.name();
        match op {
            Op::Read { at, into } => match checks::locate(geometry, name, at, into.len()) {
                Ok(Transfer { zone, offset, .. }) => {
                    self.through(zone, name, Some(at), Task::Read { at: offset, into })
                }
                Err(error) => Io::ready(Err(error.with_buffer(into))),
            },
            Op::Write { at, data, how } => match checks::locate(geometry, name, at, data.len()) {
                Ok(Transfer { zone, offset, .. }) => {
                    let durable = how == Durability::Durable;
                    self.through(zone, name, Some(at), Task::Write { at: offset, data, durable })
                }
                Err(error) => Io::ready(Err(error)),
            },
            Op::Append { zone, data, how } => match checks::append(geometry, name, zone, data.len()) {
                Ok(_) => {
                    let durable = how == Durability::Durable;
                    self.through(zone, name, None, Task::Append { data, durable })
                }
                Err(error) => Io::ready(Err(error)),
            },
            Op::Zone { zone, action } => match checks::known(geometry, name, zone) {
                Ok(()) => self.through(zone, name, None, Task::Zone(action)),
                Err(error) => Io::ready(Err(error)),
            },
            Op::Flush => self.flush(name),
            Op::Report { zones } => self.report(zones),
        }
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.details.clone()
    }
}

impl fmt::Debug for KernelDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.geometry.name)
    }
}
