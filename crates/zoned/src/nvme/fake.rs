//! NVMe commands of the fake kernel. The dwords are decoded independently of the encoder under test.

use std::io;
use std::sync::atomic::Ordering;

use sys::nvme::Command;
use sys::{Buf, BufMut, Finished};

use crate::kernel::fake::{Inner, gather};
use crate::{Action, Done, Durability, ErrorKind, Lba, Op, ZoneState};

fn address(command: &Command) -> Lba {
    Lba(u64::from(command.cdw10) | u64::from(command.cdw11) << 32)
}

fn finished_command(result: crate::Result<Done>, buffer: Option<BufMut>) -> Finished {
    match result {
        Ok(Done::At(at)) => Finished { result: Ok(at.0), status: 0, buffer },
        Ok(_) => Finished { result: Ok(0), status: 0, buffer },
        Err(e) => Finished { result: Ok(u64::MAX), status: nvme_status(e.kind()), buffer },
    }
}

fn nvme_status(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::ZoneFull => 0x1b9,
        ErrorKind::ZoneReadOnly => 0x1ba,
        ErrorKind::ZoneOffline => 0x1bb,
        ErrorKind::NotAtWritePointer => 0x1bc,
        ErrorKind::TooManyActive => 0x1bd,
        ErrorKind::TooManyOpen => 0x1be,
        ErrorKind::IllegalMove => 0x1bf,
        ErrorKind::Media => 0x006,
        ErrorKind::TooLarge | ErrorKind::BadLength => 0x002,
        _ => 0x080,
    }
}

pub(crate) fn perform_out(fake: &Inner, command: Command, data: &[Buf]) -> Finished {
    assert_eq!(command.nsid, 1);
    let data = gather(data);
    let how = if command.cdw12 & 1 << 30 == 0 { Durability::Cached } else { Durability::Durable };
    let zone = fake.geometry().zone_of(address(&command));
    if matches!(command.opcode, 0x01 | 0x7d) {
        let blocks = (command.cdw12 as usize & 0xffff) + 1;
        assert_eq!(data.len(), blocks * fake.geometry().block_size as usize, "the kernel does not check");
    }
    let op = match (command.opcode, zone) {
        (0x00, _) => Op::Flush,
        (0x01, _) => Op::Write { at: address(&command), data, how },
        (0x7d, Some(zone)) => {
            assert_eq!(fake.geometry().start(zone), address(&command));
            Op::Append { zone, data, how }
        }
        (0x79, Some(zone)) => {
            let action = match command.cdw13 {
                1 => Action::Close,
                2 => Action::Finish,
                3 => Action::Open,
                4 => Action::Reset,
                other => panic!("zone send action {other}"),
            };
            Op::Zone { zone, action }
        }
        _ => panic!("{command:?}"),
    };
    let mut finished = finished_command(fake.apply(op), None);
    if fake.internal_errors.load(Ordering::Relaxed) && finished.status != 0 {
        finished.status = 0x006;
    }
    if fake.wrong_append_address.load(Ordering::Relaxed) && command.opcode == 0x7d {
        finished.result = Ok(0);
    }
    finished
}

pub(crate) fn perform_in(fake: &Inner, command: Command, into: BufMut) -> Finished {
    assert_eq!((command.nsid, command.opcode), (1, 0x02));
    assert_eq!(into.len(), (command.cdw12 as usize + 1) * fake.geometry().block_size as usize);
    match fake.apply(Op::Read { at: address(&command), into }) {
        Ok(Done::Read(into)) => Finished { result: Ok(0), status: 0, buffer: Some(into) },
        Ok(_) => unreachable!("a read"),
        Err(mut e) => {
            let buffer = e.take_buffer();
            finished_command(Err(e), buffer)
        }
    }
}

/// Executes zone management receive.
pub(crate) fn receive(fake: &Inner, command: &Command, into: &mut [u8]) -> io::Result<(u16, u64)> {
    assert_eq!((command.opcode, command.nsid, command.cdw13), (0x7a, 1, 1 << 16));
    assert_eq!((command.cdw12 as usize + 1) * 4, into.len(), "the kernel does not check");
    let geometry = fake.geometry().clone();
    let first = geometry.zone_of(address(command)).expect("within").0;
    let room = u32::try_from(into.len() / 64 - 1).expect("few");
    let Ok(Done::Zones(zones)) = fake.apply(Op::Report { zones: first..first + room }) else {
        panic!("a report");
    };
    into[..8].copy_from_slice(&(zones.len() as u64).to_le_bytes());
    for (info, raw) in zones.iter().zip(into[64..].chunks_exact_mut(64)) {
        let start = geometry.start(info.zone).0;
        raw[0] = 2;
        raw[1] = match info.state {
            ZoneState::Empty => 1,
            ZoneState::ImplicitOpen => 2,
            ZoneState::ExplicitOpen => 3,
            ZoneState::Closed => 4,
            ZoneState::ReadOnly => 0xd,
            ZoneState::Full => 0xe,
            ZoneState::Offline => 0xf,
            ZoneState::Conventional => panic!("there are none"),
        } << 4;
        raw[8..16].copy_from_slice(&info.capacity.0.to_le_bytes());
        raw[16..24].copy_from_slice(&start.to_le_bytes());
        raw[24..32].copy_from_slice(&(start + info.pointer.0).to_le_bytes());
    }
    Ok((0, 0))
}
