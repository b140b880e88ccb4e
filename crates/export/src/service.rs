//! Requests of the kernel as operations of a device.

use std::pin::Pin;
use std::sync::Arc;

use sys::ublk::{CharDevice, Operation, Outcome, Request, Tag};
use zoned::blk::report_entry;
use zoned::{
    Action, Buf, BufMut, Bytes, Durability, Error, ErrorKind, Geometry, Io, Lba, Result, ZoneId, ZoneInfo,
    ZoneKind, ZoneState, ZonedDevice,
};

use crate::errno::errno;

/// Resets of a reset of all zones that are in flight at once.
const RESETS_IN_FLIGHT: usize = 32;

/// A request under way: its tag, and its outcome when it is known.
pub(crate) type Running = Pin<Box<dyn Future<Output = (Tag, Outcome)> + Send>>;

/// Copies the data of requests between the kernel and this process.
pub(crate) trait RequestData: Send + Sync + 'static {
    /// Copies the data that a write or an append brings.
    fn take(&self, queue: u16, tag: Tag, into: &mut [u8]) -> std::io::Result<()>;

    /// Gives a read or a report its data.
    fn give(&self, queue: u16, tag: Tag, data: &[u8]) -> std::io::Result<()>;
}

impl RequestData for CharDevice {
    fn take(&self, queue: u16, tag: Tag, into: &mut [u8]) -> std::io::Result<()> {
        self.copy_from_request(queue, tag, into)
    }

    fn give(&self, queue: u16, tag: Tag, data: &[u8]) -> std::io::Result<()> {
        self.copy_to_request(queue, tag, data)
    }
}

/// Serves the requests of one queue from a device.
pub(crate) struct Service<D> {
    device: Arc<dyn ZonedDevice>,
    data: Arc<D>,
    queue: u16,
    /// Longest request of the block device.
    max_io: Bytes,
}

impl<D: RequestData> Service<D> {
    pub(crate) fn new(device: &Arc<dyn ZonedDevice>, data: &Arc<D>, queue: u16, max_io: Bytes) -> Service<D> {
        Service { device: Arc::clone(device), data: Arc::clone(data), queue, max_io }
    }

    /// Starts a request. The device has got its operation when this returns, except for a reset of all zones: requests reach
    /// the device in the order in which they are started.
    pub(crate) fn start(&self, request: Request) -> Running {
        let tag = request.tag;
        let operation = request.operation;
        match self.begin(request) {
            Ok(running) => Box::pin(async move {
                let outcome = running.await.unwrap_or_else(|error| failed(operation, &error));
                (tag, outcome)
            }),
            Err(error) => Box::pin(std::future::ready((tag, failed(operation, &error)))),
        }
    }

    fn begin(&self, request: Request) -> Result<Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>> {
        let how = if request.fua { Durability::Durable } else { Durability::Cached };
        let (tag, len) = (request.tag, request.len);
        Ok(match request.operation {
            Operation::Read => {
                let read = self.device.read(self.lba(&request)?, BufMut::zeroed(self.length(&request)?));
                let (data, queue, name) = (Arc::clone(&self.data), self.queue, self.name());
                Box::pin(async move {
                    let found = read.await?;
                    data.give(queue, tag, &found).map_err(|error| copy_failed(&name, &error))?;
                    Ok(Outcome::Moved(len))
                })
            }
            Operation::Write => {
                let written = self.device.write(self.lba(&request)?, self.take(&request)?, how);
                Box::pin(async move { written.await.map(|()| Outcome::Moved(len)) })
            }
            Operation::Append => {
                let appended = self.device.append(self.zone(&request)?, self.take(&request)?, how);
                let block = u64::from(self.geometry().block_size);
                Box::pin(async move { Ok(Outcome::Appended(Bytes(appended.await?.0 * block))) })
            }
            Operation::Flush => done(self.device.flush()),
            Operation::OpenZone => self.act(&request, Action::Open)?,
            Operation::CloseZone => self.act(&request, Action::Close)?,
            Operation::FinishZone => self.act(&request, Action::Finish)?,
            Operation::ResetZone => self.act(&request, Action::Reset)?,
            Operation::ResetAllZones => {
                let device = Arc::clone(&self.device);
                Box::pin(async move { reset_all(&device).await.map(|()| Outcome::Done) })
            }
            Operation::ReportZones => self.report(&request)?,
            Operation::Other(code) => {
                let error = Error::new(ErrorKind::Unsupported, &self.name(), "request");
                return Err(error.because(format!("operation {code} of the kernel")));
            }
        })
    }

    fn report(&self, request: &Request) -> Result<Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>> {
        let first = self.zone(request)?.0;
        let report = self.device.report(first..first.saturating_add(request.zones));
        let (data, queue, tag, name) = (Arc::clone(&self.data), self.queue, request.tag, self.name());
        let (geometry, limit, max_io) = (self.geometry().clone(), request.zones as usize, self.max_io);
        Ok(Box::pin(async move {
            let zones = report.await?;
            let entry = |zone: &ZoneInfo| report_entry(&geometry, zone).encode();
            let bytes: Vec<u8> = zones.iter().take(limit).flat_map(entry).collect();
            data.give(queue, tag, &bytes).map_err(|error| copy_failed(&name, &error))?;
            // The kernel's buffer may be longer than the zones that it asks for, and is of a length that the request does not
            // name. The kernel cuts a result down to that length; after a shorter one it would ask again.
            Ok(Outcome::Moved(max_io))
        }))
    }

    fn act(
        &self,
        request: &Request,
        action: Action,
    ) -> Result<Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>> {
        Ok(done(self.device.zone(self.zone(request)?, action)))
    }

    /// The data of a write or an append.
    fn take(&self, request: &Request) -> Result<Buf> {
        let mut data = BufMut::zeroed(self.length(request)?);
        let copied = self.data.take(self.queue, request.tag, &mut data);
        copied.map_err(|error| copy_failed(&self.name(), &error))?;
        Ok(data.freeze())
    }

    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn name(&self) -> Arc<str> {
        Arc::clone(&self.geometry().name)
    }

    /// The address of the request's first block.
    fn lba(&self, request: &Request) -> Result<Lba> {
        let block = u64::from(self.geometry().block_size);
        if request.at.0.is_multiple_of(block) {
            return Ok(Lba(request.at.0 / block));
        }
        let error = Error::new(ErrorKind::BadLength, &self.name(), "request");
        Err(error.because(format!("it begins at byte {}, and blocks have {block}", request.at.0)))
    }

    /// The zone that the request begins in.
    fn zone(&self, request: &Request) -> Result<ZoneId> {
        let at = self.lba(request)?;
        let outside = || Error::new(ErrorKind::OutOfRange, &self.name(), "request").at(at);
        self.geometry().zone_of(at).ok_or_else(outside)
    }

    /// The length of the request's data.
    fn length(&self, request: &Request) -> Result<usize> {
        let too_large = || Error::new(ErrorKind::TooLarge, &self.name(), "request");
        let len = usize::try_from(request.len.0).map_err(|_| too_large())?;
        if request.len > self.max_io { Err(too_large()) } else { Ok(len) }
    }
}

fn done(io: Io<()>) -> Pin<Box<dyn Future<Output = Result<Outcome>> + Send>> {
    Box::pin(async move { io.await.map(|()| Outcome::Done) })
}

/// Resets every zone that holds data or is open.
async fn reset_all(device: &Arc<dyn ZonedDevice>) -> Result<()> {
    let zones = device.report(0..device.geometry().zones).await?;
    let to_reset = |zone: &&ZoneInfo| {
        let left_alone = [ZoneState::Empty, ZoneState::ReadOnly, ZoneState::Offline];
        zone.kind == ZoneKind::Sequential && !left_alone.contains(&zone.state)
    };
    let zones: Vec<ZoneId> = zones.iter().filter(to_reset).map(|zone| zone.zone).collect();
    for some in zones.chunks(RESETS_IN_FLIGHT) {
        let resets = some.iter().map(|zone| device.zone(*zone, Action::Reset)).collect();
        zoned::join_all::<()>(resets).await.into_iter().collect::<Result<()>>()?;
    }
    Ok(())
}

/// The outcome of a failed request. The kernel logs the request and its error number; what the device said is logged here.
fn failed(operation: Operation, error: &Error) -> Outcome {
    tracing::warn!(%error, ?operation, "a request of the kernel failed");
    Outcome::Failed { errno: errno(error.kind()) }
}

fn copy_failed(name: &Arc<str>, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Host, name, "request").because(format!("copying the request's data: {error}"))
}

#[cfg(test)]
mod tests;
