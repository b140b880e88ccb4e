//! A dry run of a mount: all steps on drives whose writes stay in memory, so that no drive changes.
//!
//! A dry run fails for every reason that the drives' content and zone reports give. A drive that refuses writes although
//! its reports name no fault is found by a real mount only.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Instrument as _;
use zoned::{
    Action, Blocks, Buf, BufMut, Done, Driver, Error, ErrorKind, Geometry, Io, Lba, Op, Result, ZoneEvent,
    ZoneId, ZoneInfo, ZoneState, ZonedDevice,
};

use crate::OpenOptions;
use crate::core::Core;
use crate::degraded::errors::fails_the_drive;
use crate::layout::placement::is_metadata_zone;
use crate::member::member_drive::MemberDrive;
use crate::mount::open::mount;

/// Mounts the array that `devices` are members of, without a write to any of them. Zones with much relocated content are not
/// rewritten. The result must not take operations.
///
/// Errors: those of [`Array::open`](crate::Array::open).
pub(crate) async fn mount_without_writes(devices: &[MemberDrive]) -> Result<Arc<Core>> {
    let mut drives: Vec<MemberDrive> = Vec::with_capacity(devices.len());
    for device in devices {
        match DryRunDrive::over(device).await {
            Ok(drive) => drives.push(device.through(drive)),
            Err(error) if fails_the_drive(error.kind()) => {
                tracing::warn!(?device, %error, "the drive does not answer: left out");
            }
            Err(error) => return Err(error),
        }
    }
    let dry_run = mount(drives, OpenOptions::default()).instrument(tracing::error_span!("dry run"));
    dry_run.await.map(|(core, _candidate)| core)
}

/// A drive whose writes and zone commands stay in memory.
struct DryRunDrive {
    inner: MemberDrive,
    /// The zones as the dry run left them.
    zones: Mutex<Vec<DryRunZone>>,
}

/// A zone of a drive in a dry run.
#[derive(Debug)]
struct DryRunZone {
    info: ZoneInfo,
    /// True if the dry run wrote to the zone or sent it a command.
    changed: bool,
    /// The zone's first blocks that are read from the drive.
    on_drive: Blocks,
    /// Content that the dry run wrote, by its first block. Only metadata zones keep content: no decision of a mount
    /// depends on the data and parity that the same mount wrote, so these read as zeros.
    written: BTreeMap<u64, Buf>,
}

impl DryRunDrive {
    async fn over(inner: &MemberDrive) -> Result<Arc<DryRunDrive>> {
        let reported = inner.report(0..inner.geometry().zones).await?;
        let zone = |info: ZoneInfo| DryRunZone {
            info,
            changed: false,
            on_drive: info.pointer,
            written: BTreeMap::new(),
        };
        let zones = Mutex::new(reported.into_iter().map(zone).collect());
        Ok(Arc::new(DryRunDrive { inner: inner.clone(), zones }))
    }

    fn error(&self, kind: ErrorKind, name: &'static str, zone: ZoneId) -> Error {
        self.inner.error(kind, name).in_zone(zone)
    }

    /// Carries out an event of a zone in memory.
    fn change(&self, name: &'static str, id: ZoneId, event: ZoneEvent) -> Result<()> {
        let mut zones = self.zones.lock();
        let active = zones.iter().filter(|zone| zone.info.state.is_active()).count();
        let max_active = self.inner.geometry().max_active;
        let zone = zones.get_mut(id.index()).ok_or_else(|| self.error(ErrorKind::OutOfRange, name, id))?;
        let from = zone.info.state;
        let to = from.transition(event).map_err(|_| {
            let kind = match from {
                ZoneState::ReadOnly => ErrorKind::ZoneReadOnly,
                ZoneState::Offline => ErrorKind::ZoneOffline,
                ZoneState::Full => ErrorKind::ZoneFull,
                ZoneState::Conventional => ErrorKind::Conventional,
                _ => ErrorKind::IllegalMove,
            };
            self.error(kind, name, id)
        })?;
        // The limit of open zones is not checked: a drive closes an implicitly open zone to open another one.
        if to.is_active() && !from.is_active() && max_active.is_some_and(|max| active >= max as usize) {
            return Err(self.error(ErrorKind::TooManyActive, name, id));
        }
        (zone.info.state, zone.changed) = (to, true);
        match event {
            ZoneEvent::Reset => {
                (zone.info.pointer, zone.on_drive) = (Blocks::ZERO, Blocks::ZERO);
                zone.written.clear();
            }
            ZoneEvent::Finish => zone.info.pointer = zone.info.capacity,
            _ => {}
        }
        Ok(())
    }

    /// Writes `data` to a zone in memory: at `row`, or at the zone's pointer (`None`). Returns the first row.
    fn write(&self, name: &'static str, id: ZoneId, row: Option<Blocks>, data: Buf) -> Result<Blocks> {
        let blocks = Blocks(data.len() as u64 / u64::from(self.inner.geometry().block_size));
        let info = self.zones.lock().get(id.index()).map(|zone| zone.info);
        let info = info.ok_or_else(|| self.error(ErrorKind::OutOfRange, name, id))?;
        let (row, end) = (row.unwrap_or(info.pointer), info.pointer.plus(blocks));
        let writable = !matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline | ZoneState::Full);
        if writable && (row != info.pointer || end > info.capacity) {
            return Err(self.error(ErrorKind::NotAtWritePointer, name, id));
        }
        self.change(name, id, ZoneEvent::Write { fills: end == info.capacity })?;
        if let Some(zone) = self.zones.lock().get_mut(id.index()) {
            zone.info.pointer = end;
            if is_metadata_zone(id) {
                zone.written.insert(row.0, data);
            }
        }
        Ok(row)
    }

    /// Reads blocks of a zone: those of the drive from the drive, the rest from memory.
    fn read(&self, at: Lba, mut into: BufMut) -> Io {
        let geometry = self.inner.geometry();
        let block = geometry.block_size as usize;
        let found = geometry.zone_of(at).and_then(|id| {
            let zones = self.zones.lock();
            let zone = zones.get(id.index()).filter(|zone| zone.changed)?;
            let row = at.since(geometry.start(id)).0;
            let end = row + (into.len() / block) as u64;
            let mut runs = Vec::new();
            for (first, data) in zone.written.range(..end) {
                let (from, to) = ((*first).max(row), (first + (data.len() / block) as u64).min(end));
                if from < to {
                    let part = data.slice((from - first) as usize * block..(to - first) as usize * block);
                    runs.push(((from - row) as usize * block, part));
                }
            }
            let from_drive = (zone.on_drive.0.min(end).saturating_sub(row)) as usize * block;
            Some((from_drive, runs))
        });
        let Some((from_drive, runs)) = found else { return self.inner.submit(Op::Read { at, into }) };
        into.fill(0);
        for (place, run) in runs {
            if let Some(place) = into.get_mut(place..place + run.len()) {
                place.copy_from_slice(&run);
            }
        }
        if from_drive == 0 {
            return Io::ready(Ok(Done::Read(into)));
        }
        let read = self.inner.read(at, into.split_to(from_drive));
        Io::spawn(self.driver(), &geometry.name, async move {
            let mut read = read.await?;
            read.unsplit(into);
            Ok(Done::Read(read))
        })
    }
}

impl ZonedDevice for DryRunDrive {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let name = op.name();
        Io::ready(match op {
            Op::Read { at, into } => return self.read(at, into),
            Op::Report { zones } => {
                let known = self.zones.lock();
                let end = (zones.end as usize).min(known.len());
                let range = known.get((zones.start as usize).min(end)..end).unwrap_or_default();
                Ok(Done::Zones(range.iter().map(|zone| zone.info).collect()))
            }
            Op::Flush => Ok(Done::Unit),
            Op::Write { at, data, how: _ } => match self.geometry().zone_of(at) {
                Some(id) => {
                    let row = Blocks(at.since(self.geometry().start(id)).0);
                    self.write(name, id, Some(row), data).map(|_| Done::Unit)
                }
                None => Err(self.error(ErrorKind::OutOfRange, name, ZoneId(self.geometry().zones))),
            },
            Op::Append { zone, data, how: _ } => {
                self.write(name, zone, None, data).map(|row| Done::At(self.geometry().start(zone).plus(row)))
            }
            Op::Zone { zone, action } => {
                let empty = |info: &DryRunZone| info.info.pointer == Blocks::ZERO;
                let event = match action {
                    Action::Open => ZoneEvent::Open,
                    Action::Close => {
                        ZoneEvent::Close { empty: self.zones.lock().get(zone.index()).is_some_and(empty) }
                    }
                    Action::Finish => ZoneEvent::Finish,
                    Action::Reset => ZoneEvent::Reset,
                };
                self.change(name, zone, event).map(|()| Done::Unit)
            }
        })
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

impl std::fmt::Debug for DryRunDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.inner)
    }
}
