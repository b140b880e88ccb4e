//! The trace file, version 1. All numbers little-endian.
//!
//! Header, 88 bytes:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `FURTRACE` |
//! | 8 | 4 | version | 1 |
//! | 12 | 4 | target | 1 fs, 2 log, 3 engine, 5 waltz, 6 leveldb, 7 stage |
//! | 16 | 8 | seed | the workload's seed |
//! | 24 | 8 | workload | which workload of the seed |
//! | 32 | 4 x 9 | drive | block size, zones, conventional, zone size, zone capacity, open, active, append, atomic |
//! | 68 | 4 | flags | bit 0: volatile cache; bit 1: appends in flight take their addresses in any order; bit 2: the engine's writes go as the server's do; bit 3: the engine's tables are modelled |
//! | 72 | 8 | events | number of events that follow |
//! | 80 | 8 | reserved | zero |
//!
//! Each event, 32 bytes, followed by its payload:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 1 | kind | 1 write, 2 append, 3 flush, 4 zone command, 5 acked, 6 attempt, 7 acknowledged, 8 failed, 9 ready, 10 refused, 11 drive, 12 dirty |
//! | 1 | 1 | detail | write, append: 1 durable; zone: 1 open, 2 close, 3 finish, 4 reset; acked: 1 with an address |
//! | 2 | 2 | reserved | zero |
//! | 4 | 4 | length | payload bytes |
//! | 8 | 8 | id | the operation's or the step's number; drive: of which one the operations behind it are; dirty: bytes of files that are in memory only |
//! | 16 | 8 | place | write: first block; append and zone command: the zone; acked: the address of an append |
//! | 24 | 8 | reserved | zero |
//!
//! Then 4 bytes: CRC32C of everything before.
//!
//! With a drive among the events the trace is of an array: every one of its drives is like that of the header.

use std::path::Path;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zoned::{Action, Buf, Durability, Lba, Op, ZoneId};

use super::{Drive, Event, OpNumber, Step, Trace};
use crate::{Error, Result, Target};

const MAGIC: [u8; 8] = *b"FURTRACE";
const VERSION: u32 = 1;
const FLAG_VOLATILE_CACHE: u32 = 1;
const FLAG_REORDERS: u32 = 2;
const FLAG_ORDERED_WRITES: u32 = 4;
const FLAG_MODELLED_TABLES: u32 = 8;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TraceHeader {
    magic: [u8; 8],
    version: U32,
    target: U32,
    seed: U64,
    workload: U64,
    drive: [U32; 9],
    flags: U32,
    events: U64,
    reserved: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EventRecord {
    kind: u8,
    detail: u8,
    reserved: U16,
    length: U32,
    id: U64,
    place: U64,
    reserved_too: U64,
}

const _: () = assert!(size_of::<TraceHeader>() == 88 && size_of::<EventRecord>() == 32);

impl Trace {
    /// The trace as the bytes of a trace file.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads a trace back. Total: any bytes give a trace or an error.
    pub fn decode(bytes: &[u8]) -> Result<Trace> {
        decode(bytes)
    }

    /// Writes the trace to a file.
    pub fn save(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.encode()).map_err(|e| Error::File("write the trace", path.into(), e))
    }

    /// Reads a trace from a file.
    pub fn load(path: &Path) -> Result<Trace> {
        let bytes = std::fs::read(path).map_err(|e| Error::File("read the trace", path.into(), e))?;
        Trace::decode(&bytes)
    }
}

fn encode(trace: &Trace) -> Vec<u8> {
    let drive = &trace.drive;
    let numbers = [
        drive.block_size,
        drive.zones,
        drive.conventional,
        drive.zone_size,
        drive.zone_capacity,
        drive.max_open,
        drive.max_active,
        drive.max_append,
        drive.atomic_write,
    ];
    let flags = u32::from(drive.volatile_cache) * FLAG_VOLATILE_CACHE
        + u32::from(drive.reorders) * FLAG_REORDERS
        + u32::from(trace.ordered) * FLAG_ORDERED_WRITES
        + u32::from(trace.modelled) * FLAG_MODELLED_TABLES;
    let header = TraceHeader {
        magic: MAGIC,
        version: VERSION.into(),
        target: trace.target.number().into(),
        seed: trace.seed.into(),
        workload: trace.workload.into(),
        drive: numbers.map(U32::new),
        flags: flags.into(),
        events: (trace.events.len() as u64).into(),
        reserved: 0.into(),
    };
    let mut out = header.as_bytes().to_vec();
    for event in &trace.events {
        let (kind, detail, id, place, payload): (u8, u8, u64, u64, &[u8]) = match event {
            Event::Submit { op, what: Op::Write { at, data, how } } => {
                (1, durability_detail(*how), op.0, at.0, data)
            }
            Event::Submit { op, what: Op::Append { zone, data, how } } => {
                (2, durability_detail(*how), op.0, zone.0.into(), data)
            }
            Event::Submit { op, what: Op::Flush } => (3, 0, op.0, 0, &[]),
            Event::Submit { op, what: Op::Zone { zone, action } } => {
                (4, action_number(*action), op.0, zone.0.into(), &[])
            }
            // Reads and reports change nothing on the medium and are not recorded.
            Event::Submit { op, what: Op::Read { .. } | Op::Report { .. } } => (3, 0, op.0, 0, &[]),
            Event::Acked { op, at } => (5, u8::from(at.is_some()), op.0, at.map_or(0, |at| at.0), &[]),
            Event::Attempt { step } => (6, 0, step.0, 0, &[]),
            Event::Acknowledged { step } => (7, 0, step.0, 0, &[]),
            Event::Failed { step } => (8, 0, step.0, 0, &[]),
            Event::Ready => (9, 0, 0, 0, &[]),
            Event::Refused { op } => (10, 0, op.0, 0, &[]),
            Event::Dirty { bytes } => (12, 0, *bytes, 0, &[]),
            Event::Drive { drive } => (11, 0, u64::from(*drive), 0, &[]),
        };
        let length = u32::try_from(payload.len()).expect("an operation is shorter than a zone");
        let record = EventRecord {
            kind,
            detail,
            reserved: 0.into(),
            length: length.into(),
            id: id.into(),
            place: place.into(),
            reserved_too: 0.into(),
        };
        out.extend_from_slice(record.as_bytes());
        out.extend_from_slice(payload);
    }
    let crc = units::crc32c(&[&out]);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn decode(bytes: &[u8]) -> Result<Trace> {
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or(Error::Trace("it is empty"))?;
    let (header, mut rest) =
        TraceHeader::ref_from_prefix(body).map_err(|_| Error::Trace("it is shorter than its header"))?;
    if header.magic != MAGIC {
        return Err(Error::Trace("it does not begin as a trace does"));
    }
    if header.version.get() != VERSION {
        return Err(Error::Trace("it is of another version: record it again with this build"));
    }
    if units::crc32c(&[body]) != u32::from_le_bytes(*crc) {
        return Err(Error::Trace("its checksum does not fit: it is damaged"));
    }
    let [
        block_size,
        zones,
        conventional,
        zone_size,
        zone_capacity,
        max_open,
        max_active,
        max_append,
        atomic_write,
    ] = header.drive.map(U32::get);
    if !block_size.is_power_of_two() || zone_capacity > zone_size || zones == 0 || conventional > zones {
        return Err(Error::Trace("its drive cannot exist"));
    }
    if header.flags.get()
        & !(FLAG_VOLATILE_CACHE | FLAG_REORDERS | FLAG_ORDERED_WRITES | FLAG_MODELLED_TABLES)
        != 0
    {
        return Err(Error::Trace("it has a flag that this build does not know"));
    }
    let volatile_cache = header.flags.get() & FLAG_VOLATILE_CACHE != 0;
    let reorders = header.flags.get() & FLAG_REORDERS != 0;
    let ordered = header.flags.get() & FLAG_ORDERED_WRITES != 0;
    let modelled = header.flags.get() & FLAG_MODELLED_TABLES != 0;
    let target = Target::from_number(header.target.get()).ok_or(Error::Trace("its target is unknown"))?;
    let mut events = Vec::new();
    while !rest.is_empty() {
        let (record, tail) =
            EventRecord::ref_from_prefix(rest).map_err(|_| Error::Trace("its last event is cut off"))?;
        let payload = tail
            .get(..record.length.get() as usize)
            .ok_or(Error::Trace("an event is longer than the file"))?;
        rest = tail.get(payload.len()..).unwrap_or_default();
        events.push(decode_event(record, payload)?);
    }
    if events.len() as u64 != header.events.get() {
        return Err(Error::Trace("events are missing"));
    }
    Ok(Trace {
        target,
        seed: header.seed.get(),
        workload: header.workload.get(),
        drive: Drive {
            block_size,
            zones,
            conventional,
            zone_size,
            zone_capacity,
            max_open,
            max_active,
            max_append,
            atomic_write,
            volatile_cache,
            reorders,
        },
        ordered,
        modelled,
        events,
    })
}

fn decode_event(record: &EventRecord, payload: &[u8]) -> Result<Event> {
    let (op, step) = (OpNumber(record.id.get()), Step(record.id.get()));
    let zone = || {
        u32::try_from(record.place.get())
            .map(ZoneId)
            .map_err(|_| Error::Trace("a zone's number is too large"))
    };
    let how = if record.detail == 1 { Durability::Durable } else { Durability::Cached };
    Ok(match record.kind {
        1 => Event::Submit {
            op,
            what: Op::Write { at: Lba(record.place.get()), data: Buf::copy_from(payload), how },
        },
        2 => Event::Submit { op, what: Op::Append { zone: zone()?, data: Buf::copy_from(payload), how } },
        3 => Event::Submit { op, what: Op::Flush },
        4 => {
            let action =
                action_from_number(record.detail).ok_or(Error::Trace("a zone command is unknown"))?;
            Event::Submit { op, what: Op::Zone { zone: zone()?, action } }
        }
        5 => Event::Acked { op, at: (record.detail == 1).then_some(Lba(record.place.get())) },
        6 => Event::Attempt { step },
        7 => Event::Acknowledged { step },
        8 => Event::Failed { step },
        9 => Event::Ready,
        10 => Event::Refused { op },
        11 => {
            let drive = u32::try_from(record.id.get());
            Event::Drive { drive: drive.map_err(|_| Error::Trace("a drive's number is too large"))? }
        }
        12 => Event::Dirty { bytes: record.id.get() },
        _ => return Err(Error::Trace("an event's kind is unknown")),
    })
}

fn durability_detail(how: Durability) -> u8 {
    u8::from(how == Durability::Durable)
}

fn action_number(action: Action) -> u8 {
    match action {
        Action::Open => 1,
        Action::Close => 2,
        Action::Finish => 3,
        Action::Reset => 4,
    }
}

fn action_from_number(number: u8) -> Option<Action> {
    [Action::Open, Action::Close, Action::Finish, Action::Reset]
        .into_iter()
        .find(|a| action_number(*a) == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example_trace() -> Trace {
        let drive = Drive {
            block_size: 4096,
            zones: 48,
            conventional: 0,
            zone_size: 16,
            zone_capacity: 14,
            max_open: 6,
            max_active: 8,
            max_append: 4,
            atomic_write: 1,
            volatile_cache: true,
            reorders: false,
        };
        let data = Buf::copy_from(b"eight by");
        let submit = |n, what| Event::Submit { op: OpNumber(n), what };
        let events = vec![
            submit(0, Op::Write { at: Lba(32), data: data.clone(), how: Durability::Cached }),
            Event::Acked { op: OpNumber(0), at: None },
            Event::Ready,
            Event::Attempt { step: Step(7) },
            submit(1, Op::Append { zone: ZoneId(3), data, how: Durability::Durable }),
            submit(2, Op::Flush),
            submit(3, Op::Zone { zone: ZoneId(5), action: Action::Reset }),
            Event::Acked { op: OpNumber(2), at: None },
            Event::Acknowledged { step: Step(7) },
            Event::Failed { step: Step(8) },
        ];
        Trace { target: Target::Log, seed: 42, workload: 3, drive, ordered: false, modelled: false, events }
    }

    #[test]
    fn a_trace_of_version_1_reads_and_writes_back_byte_for_byte() {
        let ordered = Trace { target: Target::Engine, ordered: true, ..example_trace() };
        for (name, example) in [("trace-v1", example_trace()), ("trace-v1-ordered", ordered)] {
            let path = format!("{}/tests/golden/{name}.bin", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("FURROW_WRITE_GOLDEN").is_some() {
                example.save(path.as_ref()).expect("writable");
            }
            let golden = std::fs::read(path).expect("the golden file is committed");
            assert_eq!(Trace::decode(&golden).expect("valid").encode(), golden);
            assert_eq!(format!("{:?}", Trace::decode(&golden).expect("valid")), format!("{example:?}"));
        }
    }

    #[test]
    fn optional_parts_of_a_trace_are_written_and_read_back() {
        let mut trace = example_trace();
        trace.drive.reorders = true;
        trace.ordered = true;
        trace.modelled = true;
        trace.events.push(Event::Acked { op: OpNumber(1), at: Some(Lba(0)) });
        trace.events.push(Event::Refused { op: OpNumber(3) });
        trace.events.push(Event::Drive { drive: 4 });
        trace.events.push(Event::Dirty { bytes: 5000 });
        let again = Trace::decode(&trace.encode()).expect("valid");
        assert_eq!(format!("{again:?}"), format!("{trace:?}"));
    }

    #[test]
    fn any_change_of_a_trace_is_refused() {
        let good = example_trace().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x11;
            assert!(Trace::decode(&bad).is_err(), "byte {at}");
            assert!(Trace::decode(&good[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn bytes_with_a_fitting_checksum_are_a_trace_or_an_error() {
        let mut rng = crate::Rng::new(3);
        let good = example_trace().encode();
        for _ in 0..2000 {
            let mut bad = good[..good.len() - 4].to_vec();
            for _ in 0..3 {
                let at = rng.index(bad.len());
                bad[at] = rng.draw() as u8;
            }
            bad.truncate(88 + rng.index(bad.len()));
            let crc = units::crc32c(&[&bad]);
            bad.extend_from_slice(&crc.to_le_bytes());
            if let Ok(trace) = Trace::decode(&bad) {
                assert!(Trace::decode(&trace.encode()).is_ok());
            }
        }
    }
}
