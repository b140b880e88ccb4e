//! Operations as requests to a block device.

use std::fs::File;
use std::io;
use std::sync::Arc;

use sys::block::Zone;
use sys::{Finished, Request};
use units::Bytes;

use crate::blk::limits;
use crate::kernel::{Ask, Expect, Failure, Hold, Wire};
use crate::{Action, Done, ErrorKind, Geometry, Lba};

/// What blocks, and goes by ioctl.
pub(super) trait Zones: Send + Sync + 'static {
    /// The file that reads and writes go to.
    fn file(&self) -> Arc<File>;
    /// The zones from the one at `from` on.
    fn report(&self, from: Bytes, max: u32) -> io::Result<Vec<Zone>>;
    /// A zone command.
    fn command(&self, action: Action, at: Bytes, len: Bytes) -> io::Result<()>;
    /// Whether the device is there no more.
    fn is_gone(&self) -> bool;
}

impl Zones for Hold {
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
        Hold::is_gone(self)
    }
}

/// A zone command by ioctl.
pub(crate) fn command(file: &File, action: Action, at: Bytes, len: Bytes) -> io::Result<()> {
    match action {
        Action::Open => sys::block::open(file, at, len),
        Action::Close => sys::block::close(file, at, len),
        Action::Finish => sys::block::finish(file, at, len),
        Action::Reset => sys::block::reset(file, at, len),
    }
}

/// A block device's language.
pub(super) struct BlkWire {
    geometry: Geometry,
    zones: Arc<dyn Zones>,
    file: Arc<File>,
}

impl BlkWire {
    pub(super) fn new(geometry: Geometry, zones: Arc<dyn Zones>) -> BlkWire {
        let file = zones.file();
        BlkWire { geometry, zones, file }
    }

    fn byte(&self, at: Lba) -> u64 {
        at.0.saturating_mul(u64::from(self.geometry.block_size))
    }
}

impl Wire for BlkWire {
    fn request(&self, ask: Ask) -> (Request, Expect) {
        let file = Arc::clone(&self.file);
        match ask {
            Ask::Read { at, into } => {
                let expect = Expect::Read(into.len());
                (Request::Read { file, at: self.byte(at), into }, expect)
            }
            Ask::Write { at, data, durable } => {
                let expect = Expect::Written(data.iter().map(|part| part.len()).sum());
                (Request::Write { file, at: self.byte(at), data, durable }, expect)
            }
            Ask::Append { zone, .. } => unreachable!("appends to zone {zone} are writes here: Rules say so"),
            Ask::Flush => (Request::Sync { file }, Expect::Success),
            Ask::Zone { zone, action } => {
                let zones = Arc::clone(&self.zones);
                let (at, len) = (
                    Bytes(self.byte(self.geometry.start(zone))),
                    self.geometry.zone_size.bytes(self.geometry.block_size),
                );
                let call = move || zones.command(action, at, len).map(|()| 0);
                (Request::Call(Box::new(call)), Expect::Success)
            }
            Ask::Report { zones: wanted } => {
                let zones = Arc::clone(&self.zones);
                let geometry = self.geometry.clone();
                let from = Bytes(self.byte(geometry.start(crate::ZoneId(wanted.start))));
                Expect::report(move || {
                    let report = zones.report(from, wanted.end - wanted.start)?;
                    Ok(limits::infos(&geometry, wanted.start, &report))
                })
            }
        }
    }

    fn judge(&self, expect: Expect, finished: Finished) -> Result<Done, Failure> {
        let Finished { result, buffer, .. } = finished;
        let done = match result {
            Ok(done) => done,
            Err(e) => {
                let mut failure = Failure::of_errno(&e);
                failure.buffer = buffer;
                return Err(failure);
            }
        };
        let short = |wanted: usize| {
            Failure::new(ErrorKind::Media, format!("{done} bytes of {wanted} were transferred"))
        };
        match (expect, buffer) {
            (Expect::Read(wanted), Some(into)) if done == wanted as u64 => Ok(Done::Read(into)),
            (Expect::Read(wanted), buffer) => Err(Failure { buffer, ..short(wanted) }),
            (Expect::Written(wanted), _) if done != wanted as u64 => Err(short(wanted)),
            (Expect::Report(place), _) => Ok(Done::Zones(std::mem::take(&mut place.lock()))),
            _ => Ok(Done::Unit),
        }
    }

    fn is_gone(&self) -> bool {
        self.zones.is_gone()
    }
}
