//! Operations as NVMe commands.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use sys::nvme::{Command, Status, StatusKind, Zone, ZoneAction, ZoneReport, report_len};
use sys::{Finished, Request};
use units::Bytes;

use crate::kernel::{DriveOp, ExpectedReply, Failure, Wire};
use crate::nvme::shape;
use crate::{Action, Blocks, Done, ErrorKind, Geometry, Lba};

/// Zones in the result of one report command, which must fit into one transfer.
const REPORT_CHUNK: u32 = 2048;

/// Functions of an NVMe namespace that block the calling thread.
pub(super) trait Namespace: Send + Sync + 'static {
    /// The namespace's character device.
    fn file(&self) -> Arc<File>;
    /// Sends a command to the namespace that returns data, and waits; returns status and result.
    fn receive(&self, command: &Command, into: &mut [u8]) -> io::Result<(u16, u64)>;
    /// True if the namespace has a block device.
    fn has_block_device(&self) -> bool;
    /// Executes a zone command through the block device and waits.
    fn command_by_block_device(&self, action: Action, at: Bytes, len: Bytes) -> io::Result<()>;
    /// True if the device has been removed.
    fn is_gone(&self) -> bool;
}

/// Encodes operations as NVMe commands.
pub(super) struct NvmeWire {
    geometry: Geometry,
    nsid: u32,
    namespace: Arc<dyn Namespace>,
    file: Arc<File>,
}

impl NvmeWire {
    pub(super) fn new(geometry: Geometry, nsid: u32, namespace: Arc<dyn Namespace>) -> NvmeWire {
        let file = namespace.file();
        NvmeWire { geometry, nsid, namespace, file }
    }

    fn blocks(&self, bytes: usize) -> Blocks {
        Bytes(bytes as u64).blocks_floor(self.geometry.block_size)
    }
}

impl Wire for NvmeWire {
    fn request(&self, ask: DriveOp) -> (Request, ExpectedReply) {
        let (file, nsid) = (Arc::clone(&self.file), self.nsid);
        match ask {
            DriveOp::Read { at, into, .. } => {
                let expect = ExpectedReply::Read(into.len());
                let command = Command::read(nsid, at, self.blocks(into.len()));
                (Request::NvmeIn { file, command, into }, expect)
            }
            DriveOp::Write { at, data, durable, .. } => {
                let bytes = data.iter().map(|part| part.len()).sum();
                let command = Command::write(nsid, at, self.blocks(bytes), durable);
                (Request::NvmeOut { file, command, data }, ExpectedReply::Success)
            }
            DriveOp::Append { zone, data, durable } => {
                let start = self.geometry.start(zone);
                let command = Command::append(nsid, start, self.blocks(data.len()), durable);
                (Request::NvmeOut { file, command, data: vec![data] }, ExpectedReply::Address)
            }
            DriveOp::Flush => {
                let command = Command::flush(nsid);
                (Request::NvmeOut { file, command, data: Vec::new() }, ExpectedReply::Success)
            }
            DriveOp::Zone { zone, action } => {
                let start = self.geometry.start(zone);
                let reply = matches!(action, Action::Reset | Action::Finish);
                if reply && self.namespace.has_block_device() {
                    // Resets and finishes are sent through the block layer, as the documentation of module
                    // `nvme` explains.
                    let namespace = Arc::clone(&self.namespace);
                    let size = self.geometry.block_size;
                    let (at, len) = (Blocks(start.0).bytes(size), self.geometry.zone_size.bytes(size));
                    let call = move || namespace.command_by_block_device(action, at, len).map(|()| 0);
                    return (Request::Call(Box::new(call)), ExpectedReply::Success);
                }
                let action = match action {
                    Action::Open => ZoneAction::Open,
                    Action::Close => ZoneAction::Close,
                    Action::Finish => ZoneAction::Finish,
                    Action::Reset => ZoneAction::Reset,
                };
                let command = Command::zone(nsid, start, action);
                (Request::NvmeOut { file, command, data: Vec::new() }, ExpectedReply::Success)
            }
            DriveOp::Report { zones } => {
                let namespace = Arc::clone(&self.namespace);
                let geometry = self.geometry.clone();
                ExpectedReply::report(move || {
                    let found = report(&*namespace, nsid, geometry.zone_size, zones.clone())?;
                    Ok(shape::zone_infos(&geometry, zones.start, &found))
                })
            }
        }
    }

    fn interpret(&self, expect: ExpectedReply, finished: Finished) -> Result<Done, Failure> {
        let Finished { result, status, buffer } = finished;
        let status = Status::new(status);
        let failure = match &result {
            Err(e) => Some(Failure::from_errno(e)),
            Ok(_) if !status.is_success() => Some(failure_of_status(status)),
            Ok(_) => None,
        };
        if let Some(mut failure) = failure {
            failure.buffer = buffer;
            return Err(failure);
        }
        match (expect, buffer) {
            (ExpectedReply::Read(wanted), Some(into)) if into.len() == wanted => Ok(Done::Read(into)),
            (ExpectedReply::Read(_), _) => {
                Err(Failure::new(ErrorKind::Host, "the read's buffer is lost".into()))
            }
            (ExpectedReply::Address, _) => Ok(Done::At(Lba(result.unwrap_or(u64::MAX)))),
            (ExpectedReply::Report(place), _) => Ok(Done::Zones(std::mem::take(&mut place.lock()))),
            (ExpectedReply::Success | ExpectedReply::Written(_), _) => Ok(Done::Unit),
        }
    }

    fn is_gone(&self) -> bool {
        self.namespace.is_gone()
    }
}

/// Maps an NVMe drive's status to a failure.
fn failure_of_status(status: Status) -> Failure {
    let kind = match status.kind() {
        StatusKind::TooManyActive => ErrorKind::TooManyActive,
        StatusKind::TooManyOpen => ErrorKind::TooManyOpen,
        // Zone boundaries are checked before, so the status refers to the capacity.
        StatusKind::ZoneFull | StatusKind::ZoneBoundary => ErrorKind::ZoneFull,
        StatusKind::ZoneReadOnly => ErrorKind::ZoneReadOnly,
        StatusKind::ZoneOffline => ErrorKind::ZoneOffline,
        StatusKind::ZoneInvalidWrite => ErrorKind::NotAtWritePointer,
        StatusKind::InvalidTransition => ErrorKind::IllegalMove,
        StatusKind::OutOfRange => ErrorKind::OutOfRange,
        StatusKind::Unwritten => ErrorKind::ReadPastPointer,
        StatusKind::InvalidOpcode => ErrorKind::Unsupported,
        StatusKind::InvalidField => ErrorKind::Invalid,
        // NVMe targets in the kernel report every failure of their disks as an internal error.
        StatusKind::WriteFault
        | StatusKind::UnrecoveredRead
        | StatusKind::Protection
        | StatusKind::Internal => ErrorKind::Media,
        StatusKind::Aborted | StatusKind::Transfer | StatusKind::Path => ErrorKind::Unknown,
        _ => ErrorKind::Host,
    };
    Failure::new(kind, status.to_string())
}

/// Reports zones of a namespace by as many commands as needed. Blocks the calling thread.
pub(super) fn report(
    namespace: &dyn Namespace,
    nsid: u32,
    zone_size: Blocks,
    zones: Range<u32>,
) -> io::Result<Vec<Zone>> {
    let mut found: Vec<Zone> = Vec::new();
    let mut next = zones.start;
    while next < zones.end {
        let count = (zones.end - next).min(REPORT_CHUNK);
        let len = report_len(count);
        let mut into = vec![0; len.0 as usize];
        let from = Lba(u64::from(next) * zone_size.0);
        let (status, _) = namespace.receive(&Command::report(nsid, from, len), &mut into)?;
        let status = Status::new(status);
        if !status.is_success() {
            return Err(io::Error::other(status.to_string()));
        }
        let report =
            ZoneReport::decode(&into).ok_or_else(|| io::Error::other("the report makes no sense"))?;
        let starts = (next..).map(|zone| u64::from(zone) * zone_size.0);
        if report.zones.is_empty() || report.zones.iter().zip(starts).any(|(zone, at)| zone.start.0 != at) {
            return Err(io::Error::other("the report has other zones than were asked for"));
        }
        next += u32::try_from(report.zones.len()).unwrap_or(count).min(count);
        found.extend(report.zones.into_iter().take(count as usize));
    }
    Ok(found)
}
