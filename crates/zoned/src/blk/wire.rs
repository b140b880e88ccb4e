//! Operations as requests to a block device.

use std::fs::File;
use std::io;
use std::sync::Arc;

use sys::block::Zone;
use sys::{Finished, Priority, Request};
use units::Bytes;

use crate::blk::limits;
use crate::kernel::{DeviceLock, DriveOp, ExpectedReply, Failure, Wire};
use crate::{Action, Done, ErrorKind, Geometry, IoClass, Lba};

/// Functions of a zoned block device that block the calling thread (ioctls).
pub(super) trait BlockZones: Send + Sync + 'static {
    /// The block device's file for reads and writes.
    fn file(&self) -> Arc<File>;
    /// Reports the block device's zones from the one at `from` on.
    fn report(&self, from: Bytes, max: u32) -> io::Result<Vec<Zone>>;
    /// Executes a zone command on the block device.
    fn command(&self, action: Action, at: Bytes, len: Bytes) -> io::Result<()>;
    /// True if the device has been removed.
    fn is_gone(&self) -> bool;
}

impl BlockZones for DeviceLock {
    fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    fn report(&self, from: Bytes, max: u32) -> io::Result<Vec<Zone>> {
        sys::block::report(&self.file, from, max)
    }

    fn command(&self, action: Action, at: Bytes, len: Bytes) -> io::Result<()> {
        command(&self.file, action, at, len)
    }

    fn is_gone(&self) -> bool {
        DeviceLock::is_gone(self)
    }
}

/// Executes a zone command on a block device by ioctl.
pub(crate) fn command(file: &File, action: Action, at: Bytes, len: Bytes) -> io::Result<()> {
    match action {
        Action::Open => sys::block::open(file, at, len),
        Action::Close => sys::block::close(file, at, len),
        Action::Finish => sys::block::finish(file, at, len),
        Action::Reset => sys::block::reset(file, at, len),
    }
}

/// Encodes operations as requests to a block device.
pub(super) struct BlkWire {
    geometry: Geometry,
    zones: Arc<dyn BlockZones>,
    file: Arc<File>,
}

impl BlkWire {
    pub(super) fn new(geometry: Geometry, zones: Arc<dyn BlockZones>) -> BlkWire {
        let file = zones.file();
        BlkWire { geometry, zones, file }
    }

    fn byte_offset(&self, at: Lba) -> u64 {
        at.0.saturating_mul(u64::from(self.geometry.block_size))
    }
}

/// The place of a class's operations in the kernel's queue. Reads that somebody waits for, and operations without a class, have the thread's.
fn priority_of(class: Option<IoClass>) -> Priority {
    match class {
        None | Some(IoClass::Read) => Priority::Unset,
        Some(IoClass::Log | IoClass::Metadata) => Priority::of_log(),
        Some(_) => Priority::of_bulk(),
    }
}

impl Wire for BlkWire {
    fn request(&self, ask: DriveOp) -> (Request, ExpectedReply) {
        let file = Arc::clone(&self.file);
        match ask {
            DriveOp::Read { at, into, class } => {
                let expect = ExpectedReply::Read(into.len());
                let (at, priority) = (self.byte_offset(at), priority_of(class));
                (Request::Read { file, at, into, priority }, expect)
            }
            DriveOp::Write { at, data, durable, class, .. } => {
                let expect = ExpectedReply::Written(data.iter().map(|part| part.len()).sum());
                let (at, priority) = (self.byte_offset(at), priority_of(class));
                (Request::Write { file, at, data, durable, priority }, expect)
            }
            DriveOp::Append { zone, .. } => {
                unreachable!("appends to zone {zone} are writes here: Rules say so")
            }
            DriveOp::Flush => (Request::Sync { file }, ExpectedReply::Success),
            DriveOp::Zone { zone, action } => {
                let zones = Arc::clone(&self.zones);
                let (at, len) = (
                    Bytes(self.byte_offset(self.geometry.start(zone))),
                    self.geometry.zone_size.bytes(self.geometry.block_size),
                );
                let call = move || zones.command(action, at, len).map(|()| 0);
                (Request::Call(Box::new(call)), ExpectedReply::Success)
            }
            DriveOp::Report { zones: wanted } => {
                let zones = Arc::clone(&self.zones);
                let geometry = self.geometry.clone();
                let from = Bytes(self.byte_offset(geometry.start(crate::ZoneId(wanted.start))));
                ExpectedReply::report(move || {
                    let report = zones.report(from, wanted.end - wanted.start)?;
                    Ok(limits::zone_infos(&geometry, wanted.start, &report))
                })
            }
        }
    }

    fn interpret(&self, expect: ExpectedReply, finished: Finished) -> Result<Done, Failure> {
        let Finished { result, buffer, .. } = finished;
        let done = match result {
            Ok(done) => done,
            Err(e) => {
                let mut failure = Failure::from_errno(&e);
                failure.buffer = buffer;
                return Err(failure);
            }
        };
        let short = |wanted: usize| {
            Failure::new(ErrorKind::Media, format!("{done} bytes of {wanted} were transferred"))
        };
        match (expect, buffer) {
            (ExpectedReply::Read(wanted), Some(into)) if done == wanted as u64 => Ok(Done::Read(into)),
            (ExpectedReply::Read(wanted), buffer) => Err(Failure { buffer, ..short(wanted) }),
            (ExpectedReply::Written(wanted), _) if done != wanted as u64 => Err(short(wanted)),
            (ExpectedReply::Report(place), _) => Ok(Done::Zones(std::mem::take(&mut place.lock()))),
            _ => Ok(Done::Unit),
        }
    }

    fn is_gone(&self) -> bool {
        self.zones.is_gone()
    }
}
