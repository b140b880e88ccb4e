//! The page that the processes of one drive share: when logs are synced and how long that takes, and whose bulk is in flight.
//!
//! A page is a file that every process maps. All fields are atomics in the machine's byte order, because the processes run on one machine.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `FURPRIO` and a zero byte |
//! | 8 | 4 | version | 1 |
//! | 12 | 4 | size | bytes of the page |
//! | 16 | 8 | device | `st_dev` of the drive |
//! | 24 | 8 | head | events that were ever written |
//! | 32 | 8 | rest | until then (CLOCK_MONOTONIC, ns) bulk of all processes rests |
//! | 40 | 24 | | zero |
//! | 64 | 64 x 64 | slots | a process with bulk: pid (4), calls in flight (4), time of the last bulk (8), zero (48) |
//! | 4160 | 1024 x 32 | events | a ring: number + 1 (8), time (8), latency (8), kind and bytes (8) |
//!
//! The path of a log neither locks nor allocates: it writes two events, one when an operation begins and one when it ends. A process that dies leaves an
//! event unfinished, which readers pass over, and its slot, which the next process takes over.

use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::time::Duration;

use units::Instant;
use zoned::share::{Beside, Kind, SETTLES_AFTER, Sample};

/// The first eight bytes of a page.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"FURPRIO\0");
/// The version of the layout.
pub const VERSION: u32 = 1;
/// Bytes of a page.
pub const PAGE_BYTES: usize = size_of::<Page>();
/// Bytes of a page's header.
pub const HEADER_BYTES: usize = 64;
/// Processes with bulk that a page counts. More of them are admitted as well, but a log beside their bulk counts as alone.
pub const SLOTS: usize = 64;
/// Events that the ring keeps.
pub const EVENTS: usize = 1024;

/// A bulk operation that seems to be in flight for longer than this, without another one of its process, has no end: its thread was cancelled.
const IN_FLIGHT_AT_MOST: Duration = Duration::from_secs(120);
/// Times further in the future than this are of another boot, or garbled: the processes of a drive have one clock.
pub const FUTURE: Duration = Duration::from_secs(1);
/// The longest rest that is believed.
const REST_AT_MOST: Duration = Duration::from_millis(20);

const _: () = assert!(offset_of!(Page, slots) == HEADER_BYTES && offset_of!(Page, events) == 4160);
const _: () = assert!(size_of::<Slot>() == 64 && size_of::<Event>() == 32 && PAGE_BYTES == 36_928);

/// A page. See the [module](self).
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Page {
    magic: AtomicU64,
    version: AtomicU32,
    size: AtomicU32,
    device: AtomicU64,
    head: AtomicU64,
    rest: AtomicU64,
    reserved: [AtomicU64; 3],
    slots: [Slot; SLOTS],
    events: [Event; EVENTS],
}

#[repr(C)]
#[derive(Debug, Default)]
struct Slot {
    pid: AtomicU32,
    in_flight: AtomicU32,
    last: AtomicU64,
    reserved: [AtomicU64; 6],
}

#[repr(C)]
#[derive(Debug, Default)]
struct Event {
    number: AtomicU64,
    time: AtomicU64,
    latency: AtomicU64,
    word: AtomicU64,
}

/// Why a file is no page that this program can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PageError {
    /// The file is too short, has another magic number, or another size in its header.
    #[error("is no page of counters, or damaged: remove it when no program uses it")]
    Damaged,
    /// The page has another layout.
    #[error(
        "is a page of version {0}, and this program's is 1: end the programs that use it, then remove it"
    )]
    OtherVersion(u32),
    /// The page is of another drive.
    #[error("is the page of the drive {0:x}: remove it when no program uses it")]
    OtherDrive(u64),
}

/// An event of a log: its begin or its end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LogEvent {
    /// An operation of a log began.
    Begun(Instant),
    /// An operation of a log ended.
    Ended(Sample),
}

impl Page {
    /// A page in this process's memory.
    pub fn in_memory(device: u64) -> Page {
        let page = Page {
            magic: AtomicU64::new(MAGIC),
            version: AtomicU32::new(VERSION),
            size: AtomicU32::new(PAGE_BYTES as u32),
            device: AtomicU64::new(device),
            head: AtomicU64::new(0),
            rest: AtomicU64::new(0),
            reserved: Default::default(),
            slots: std::array::from_fn(|_| Slot::default()),
            events: std::array::from_fn(|_| Event::default()),
        };
        debug_assert_eq!(page.check(device), Ok(()));
        page
    }

    /// A page with the content of a file; what a short file lacks is zero. For fuzz tests: programs map the file.
    #[cfg(feature = "fuzzing")]
    pub fn from_file(bytes: &[u8]) -> Page {
        fn at<const N: usize>(bytes: &[u8], place: usize) -> [u8; N] {
            bytes.get(place..).and_then(|bytes| bytes.first_chunk().copied()).unwrap_or([0; N])
        }
        let half = |place| AtomicU32::new(u32::from_ne_bytes(at(bytes, place)));
        let word = |place| AtomicU64::new(u64::from_ne_bytes(at(bytes, place)));
        let slot = |place: usize| Slot {
            pid: half(place),
            in_flight: half(place + offset_of!(Slot, in_flight)),
            last: word(place + offset_of!(Slot, last)),
            reserved: Default::default(),
        };
        let event = |place: usize| Event {
            number: word(place),
            time: word(place + offset_of!(Event, time)),
            latency: word(place + offset_of!(Event, latency)),
            word: word(place + offset_of!(Event, word)),
        };
        Page {
            magic: word(0),
            version: half(offset_of!(Page, version)),
            size: half(offset_of!(Page, size)),
            device: word(offset_of!(Page, device)),
            head: word(offset_of!(Page, head)),
            rest: word(offset_of!(Page, rest)),
            reserved: Default::default(),
            slots: std::array::from_fn(|n| slot(HEADER_BYTES + n * size_of::<Slot>())),
            events: std::array::from_fn(|n| event(offset_of!(Page, events) + n * size_of::<Event>())),
        }
    }

    /// The first bytes of a new page's file; the rest is zero.
    pub fn header(device: u64) -> [u8; HEADER_BYTES] {
        let fields = MAGIC.to_ne_bytes().into_iter().chain(VERSION.to_ne_bytes());
        let fields = fields.chain((PAGE_BYTES as u32).to_ne_bytes()).chain(device.to_ne_bytes());
        let mut header = [0; HEADER_BYTES];
        header.iter_mut().zip(fields).for_each(|(to, byte)| *to = byte);
        header
    }

    /// Fails if the page is not one of `device` in this layout.
    pub fn check(&self, device: u64) -> Result<(), PageError> {
        let of_page = self.device.load(Relaxed);
        check_fields(self.magic.load(Relaxed), self.version.load(Relaxed), self.size.load(Relaxed))?;
        if of_page == device { Ok(()) } else { Err(PageError::OtherDrive(of_page)) }
    }

    /// An operation of a log begins at `now`. Returns what bulk was in flight.
    pub fn log_begins(&self, now: Instant) -> Beside {
        self.push(now, Duration::ZERO, 0);
        self.bulk_at(now)
    }

    /// An operation of a log ended.
    pub fn log_ended(&self, sample: &Sample) {
        let kind = match sample.kind {
            Kind::Read => 1,
            Kind::Write => 2,
            Kind::Flush => 3,
        };
        let beside = match sample.bulk {
            Beside::Nothing => 0,
            Beside::Settling => 1,
            Beside::InFlight => 2,
        };
        let bytes = sample.bytes.min(u64::MAX >> 8);
        self.push(sample.submitted, sample.latency, bytes << 8 | beside << 4 | kind);
    }

    fn push(&self, time: Instant, latency: Duration, word: u64) {
        let number = self.head.fetch_add(1, AcqRel);
        let Some(event) = self.event(number) else { return };
        event.number.store(0, Relaxed);
        fence(Release);
        event.time.store(time.0, Relaxed);
        event.latency.store(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        event.word.store(word, Relaxed);
        event.number.store(number.wrapping_add(1), Release);
    }

    fn event(&self, number: u64) -> Option<&Event> {
        self.events.get((number % EVENTS as u64) as usize)
    }

    /// Calls `with` for the events from the number `from` on that the ring still has. Returns the number at which to go on.
    pub fn events_since(&self, from: u64, mut with: impl FnMut(LogEvent)) -> u64 {
        let head = self.head.load(Acquire);
        // A number beyond the head is one of a page that was made anew.
        let first = if from > head { head } else { from }.max(head.saturating_sub(EVENTS as u64 / 2));
        for number in first..head {
            let Some(event) = self.event(number) else { continue };
            if event.number.load(Acquire) != number.wrapping_add(1) {
                // Another process writes this event right now, or died while it did.
                if head - number < EVENTS as u64 / 8 {
                    return number;
                }
                continue;
            }
            let time = Instant(event.time.load(Relaxed));
            let latency = Duration::from_nanos(event.latency.load(Relaxed));
            let word = event.word.load(Relaxed);
            fence(Acquire);
            if event.number.load(Relaxed) == number.wrapping_add(1)
                && let Some(event) = decode(time, latency, word)
            {
                with(event);
            }
        }
        head
    }

    /// The number of the next event.
    pub fn head(&self) -> u64 {
        self.head.load(Acquire)
    }

    /// The bulk operations of all processes at `now`.
    pub fn bulk_at(&self, now: Instant) -> Beside {
        let mut most = Beside::Nothing;
        for slot in &self.slots {
            let last = Instant(slot.last.load(Acquire));
            if slot.pid.load(Relaxed) == 0 || last > now.after(FUTURE) {
                continue;
            }
            let age = now.since(last);
            if slot.in_flight.load(Acquire) > 0 && age < IN_FLIGHT_AT_MOST {
                return Beside::InFlight;
            }
            if age < SETTLES_AFTER {
                most = Beside::Settling;
            }
        }
        most
    }

    /// Takes a slot for the process `pid`: a free one, or that of a process for which `is_dead` is true. `None` if there is neither.
    pub fn claim(&self, pid: u32, is_dead: impl Fn(u32) -> bool) -> Option<usize> {
        let claim_if = |free: &dyn Fn(u32) -> bool| {
            self.slots.iter().position(|slot| {
                let of_slot = slot.pid.load(Acquire);
                let taken = free(of_slot) && slot.pid.compare_exchange(of_slot, pid, AcqRel, Relaxed).is_ok();
                if taken {
                    slot.in_flight.store(0, Release);
                    slot.last.store(0, Release);
                }
                taken
            })
        };
        // The slot of this number's former process comes first: numbers are given again.
        claim_if(&|of_slot| of_slot == pid)
            .or_else(|| claim_if(&|of_slot| of_slot == 0))
            .or_else(|| claim_if(&|of_slot| is_dead(of_slot)))
    }

    /// Frees the slots of processes that died within a bulk operation: such an operation would count as in flight.
    pub fn release_dead(&self, now: Instant, is_dead: impl Fn(u32) -> bool) {
        for (number, slot) in self.slots.iter().enumerate() {
            let pid = slot.pid.load(Acquire);
            let is_in_flight = pid != 0 && slot.in_flight.load(Acquire) > 0;
            if is_in_flight && now.since(Instant(slot.last.load(Acquire))) >= FUTURE && is_dead(pid) {
                self.release(number, pid);
            }
        }
    }

    /// Gives a slot back.
    pub fn release(&self, slot: usize, pid: u32) {
        if let Some(slot) = self.slots.get(slot) {
            // A slot that another process took over is not this one's any more.
            let _of_another = slot.pid.compare_exchange(pid, 0, AcqRel, Relaxed);
        }
    }

    /// A bulk operation of the process with that slot begins.
    pub fn bulk_begins(&self, slot: usize, now: Instant) {
        if let Some(slot) = self.slots.get(slot) {
            slot.last.store(now.0, Release);
            slot.in_flight.fetch_add(1, AcqRel);
        }
    }

    /// A bulk operation of the process with that slot ended.
    pub fn bulk_ended(&self, slot: usize, now: Instant) {
        if let Some(slot) = self.slots.get(slot) {
            slot.last.store(now.0, Release);
            // A thread that was cancelled within an operation never comes here; a slot that was taken over may be at zero.
            let _at_zero = slot.in_flight.fetch_update(AcqRel, Relaxed, |calls| calls.checked_sub(1));
        }
    }

    /// Lets the bulk of all processes rest until `until`, so that logs are measured alone.
    pub fn rest(&self, now: Instant, until: Instant) {
        let later = |present| Some(believed_rest(now, present).map_or(until.0, |end| end.0.max(until.0)));
        let _always_stored = self.rest.fetch_update(AcqRel, Acquire, later);
    }

    /// The end of the present rest.
    pub fn rests_until(&self, now: Instant) -> Option<Instant> {
        believed_rest(now, self.rest.load(Acquire))
    }
}

fn believed_rest(now: Instant, until: u64) -> Option<Instant> {
    let until = Instant(until);
    (until > now && until.since(now) <= REST_AT_MOST).then_some(until)
}

/// Checks the first bytes of a page's file.
pub fn check_file(bytes: &[u8]) -> Result<(), PageError> {
    let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let magic = bytes.first_chunk().copied().map(u64::from_ne_bytes);
    let (Some(magic), Some(version), Some(size)) = (magic, word(8), word(12)) else {
        return Err(PageError::Damaged);
    };
    check_fields(magic, version, size)?;
    if bytes.len() == PAGE_BYTES { Ok(()) } else { Err(PageError::Damaged) }
}

/// The processes that have a slot in a page's file.
pub fn processes_of_file(bytes: &[u8]) -> Vec<u32> {
    let slots = bytes.get(HEADER_BYTES..).unwrap_or_default().chunks(size_of::<Slot>()).take(SLOTS);
    let pids = slots.filter_map(|slot| slot.first_chunk().copied().map(u32::from_ne_bytes));
    pids.filter(|pid| *pid != 0).collect()
}

fn check_fields(magic: u64, version: u32, size: u32) -> Result<(), PageError> {
    if magic != MAGIC {
        return Err(PageError::Damaged);
    }
    if version != VERSION {
        return Err(PageError::OtherVersion(version));
    }
    if size as usize == PAGE_BYTES { Ok(()) } else { Err(PageError::Damaged) }
}

/// The event of a word; `None` for a garbled one.
fn decode(time: Instant, latency: Duration, word: u64) -> Option<LogEvent> {
    let kind = match word & 15 {
        0 => return Some(LogEvent::Begun(time)),
        1 => Kind::Read,
        2 => Kind::Write,
        3 => Kind::Flush,
        _ => return None,
    };
    let bulk = match word >> 4 & 15 {
        0 => Beside::Nothing,
        1 => Beside::Settling,
        2 => Beside::InFlight,
        _ => return None,
    };
    Some(LogEvent::Ended(Sample { kind, bytes: word >> 8, submitted: time, latency, bulk }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn sample(ms: u64) -> Sample {
        let latency = Duration::from_micros(70);
        Sample { kind: Kind::Flush, bytes: 4096, submitted: at(ms), latency, bulk: Beside::Settling }
    }

    fn events(page: &Page, from: u64) -> (Vec<LogEvent>, u64) {
        let mut seen = Vec::new();
        let next = page.events_since(from, |event| seen.push(event));
        (seen, next)
    }

    #[test]
    fn events_come_back_in_their_order() {
        let page = Page::in_memory(7);
        page.log_begins(at(1));
        page.log_ended(&sample(1));
        let (seen, next) = events(&page, 0);
        assert_eq!(seen, [LogEvent::Begun(at(1)), LogEvent::Ended(sample(1))]);
        page.log_begins(at(2));
        assert_eq!(events(&page, next), (vec![LogEvent::Begun(at(2))], 3));
    }

    #[test]
    fn a_reader_that_fell_behind_goes_on_with_what_the_ring_has() {
        let page = Page::in_memory(7);
        for ms in 0..3000 {
            page.log_begins(at(ms));
        }
        let (seen, next) = events(&page, 0);
        assert_eq!((seen.first(), seen.len(), next), (Some(&LogEvent::Begun(at(2488))), 512, 3000));
        assert_eq!(events(&page, 1 << 40).1, 3000, "a number of another page");
    }

    #[test]
    fn an_event_that_a_dead_process_left_unfinished_is_passed_over() {
        let page = Page::in_memory(7);
        page.head.fetch_add(1, AcqRel);
        page.log_begins(at(1));
        assert_eq!(events(&page, 0), (Vec::new(), 0), "the writer may be at work");
        for ms in 0..200 {
            page.log_begins(at(ms));
        }
        let (seen, next) = events(&page, 0);
        assert_eq!((seen.len(), next), (201, 202));
    }

    #[test]
    fn bulk_is_seen_while_in_flight_and_a_moment_afterwards() {
        let page = Page::in_memory(7);
        let slot = page.claim(10, |_| false).unwrap();
        assert_eq!(page.bulk_at(at(100)), Beside::Nothing);
        page.bulk_begins(slot, at(100));
        assert_eq!(page.bulk_at(at(900)), Beside::InFlight);
        page.bulk_ended(slot, at(901));
        assert_eq!(page.bulk_at(at(902)), Beside::Settling);
        assert_eq!(page.bulk_at(at(904)), Beside::Nothing);
    }

    #[test]
    fn a_sync_of_bulk_that_takes_long_stays_in_flight() {
        let page = Page::in_memory(7);
        let slot = page.claim(10, |_| false).unwrap();
        page.bulk_begins(slot, at(0));
        page.release_dead(at(100_000), |_| false);
        assert_eq!(page.bulk_at(at(119_999)), Beside::InFlight);
        assert_eq!(page.bulk_at(at(120_000)), Beside::Nothing, "of a cancelled thread");
    }

    #[test]
    fn bulk_of_a_process_that_died_within_a_call_ends() {
        let page = Page::in_memory(7);
        for pid in [10, 11] {
            let slot = page.claim(pid, |_| false).unwrap();
            page.bulk_begins(slot, at(0));
        }
        page.release_dead(at(1000), |pid| pid == 10);
        assert_eq!(page.bulk_at(at(1000)), Beside::InFlight, "the living one's");
        page.release_dead(at(1000), |_| true);
        assert_eq!(page.bulk_at(at(1000)), Beside::Nothing);
    }

    #[test]
    fn bulk_of_a_time_to_come_is_none() {
        let page = Page::in_memory(7);
        let slot = page.claim(10, |_| false).unwrap();
        page.bulk_begins(slot, at(5_000));
        assert_eq!(page.bulk_at(at(4_999)), Beside::InFlight, "begun while the caller read the clock");
        assert_eq!(page.bulk_at(at(3_000)), Beside::Nothing);
    }

    #[test]
    fn slots_of_dead_processes_are_taken_over_when_all_are_taken() {
        let page = Page::in_memory(7);
        for pid in 1..=64 {
            assert_eq!(page.claim(pid, |_| false), Some(pid as usize - 1));
        }
        assert_eq!(page.claim(100, |_| false), None);
        assert_eq!(page.claim(100, |pid| pid == 9), Some(8));
        page.release(8, 9);
        assert_eq!(page.claim(101, |_| false), None, "released by a process that lost it");
        page.release(8, 100);
        assert_eq!(page.claim(101, |_| false), Some(8));
    }

    #[test]
    fn a_rest_that_is_too_long_is_not_believed() {
        let page = Page::in_memory(7);
        page.rest(at(1), at(10));
        assert_eq!(page.rests_until(at(5)), Some(at(10)));
        assert_eq!(page.rests_until(at(10)), None);
        page.rest(at(11), at(100_000));
        assert_eq!(page.rests_until(at(11)), None);
        page.rest(at(11), at(20));
        assert_eq!(page.rests_until(at(11)), Some(at(20)), "it is no rest to wait for");
        page.rest(at(11), at(15));
        assert_eq!(page.rests_until(at(11)), Some(at(20)));
    }

    #[test]
    fn a_file_of_another_version_or_a_garbled_one_is_told_from_a_page() {
        let mut file = Page::header(7).to_vec();
        file.resize(PAGE_BYTES, 0);
        assert_eq!(check_file(&file), Ok(()));
        assert_eq!(check_file(&file[..100]), Err(PageError::Damaged));
        assert_eq!(check_file(b""), Err(PageError::Damaged));
        file[8] = 9;
        assert_eq!(check_file(&file), Err(PageError::OtherVersion(9)));
        file[0] = 0;
        assert_eq!(check_file(&file), Err(PageError::Damaged));
        let page = Page::in_memory(7);
        assert_eq!(page.check(8), Err(PageError::OtherDrive(7)));
    }
}
