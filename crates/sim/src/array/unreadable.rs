//! A drive some of whose blocks cannot be read until their zone is reset.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use zoned::{Action, Blocks, Driver, Error, ErrorKind, Geometry, Io, Lba, Op, ZoneId, ZonedDevice};

/// The blocks that one of an array's drives cannot read. They stay unreadable over mounts.
#[derive(Clone, Debug, Default)]
pub(super) struct UnreadableBlocks {
    /// The number of the drive with unreadable blocks.
    pub drive: usize,
    /// The drive's first sequential block, and the blocks between the starts of the drive's zones.
    first: Lba,
    zone_size: Blocks,
    /// The blocks that cannot be read now.
    now: Arc<Mutex<BTreeSet<Lba>>>,
    /// The rows of logical zones that were ever unreadable: a power cut may undo the reset of a zone.
    ever: Arc<Mutex<BTreeSet<(ZoneId, u64)>>>,
    lost: LostZones,
}

/// The logical zones of which more parts may have been missing than there are parities: a rebuild records rows of them as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum LostZones {
    #[default]
    None,
    One(ZoneId),
    Any,
}

impl UnreadableBlocks {
    pub(super) fn of(drive: usize, geometry: &Geometry) -> UnreadableBlocks {
        let first = geometry.start(ZoneId(geometry.conventional));
        UnreadableBlocks { drive, first, zone_size: geometry.zone_size, ..UnreadableBlocks::default() }
    }

    /// Makes row `row` of a part of a logical zone unreadable. The part begins at row `first` of the drive's physical zone `physical`.
    pub(super) fn add(&self, zone: ZoneId, physical: ZoneId, (first, row): (u64, u64)) {
        let at = Lba(self.first.0 + u64::from(physical.0) * self.zone_size.0 + first + row);
        self.now.lock().insert(at);
        self.ever.lock().insert((zone, row));
    }

    /// Notes of which logical zones more parts were missing than there are parities.
    pub(super) fn lose(&mut self, zones: LostZones) {
        self.lost = zones;
    }

    /// Whether a row of a logical zone was ever unreadable.
    pub(super) fn was(&self, zone: ZoneId, row: u64) -> bool {
        matches!(self.lost, LostZones::Any)
            || self.lost == LostZones::One(zone)
            || self.ever.lock().contains(&(zone, row))
    }
}

/// A drive with unreadable blocks, over one without.
#[derive(Debug)]
pub(super) struct UnreadableDrive {
    inner: Arc<dyn ZonedDevice>,
    bad: UnreadableBlocks,
}

impl UnreadableDrive {
    pub(super) fn over(inner: Arc<dyn ZonedDevice>, bad: &UnreadableBlocks) -> Arc<dyn ZonedDevice> {
        Arc::new(UnreadableDrive { inner, bad: bad.clone() })
    }
}

impl ZonedDevice for UnreadableDrive {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let geometry = self.geometry();
        match op {
            Op::Read { at, into } => {
                let end = at.plus(Blocks(into.len() as u64 / u64::from(geometry.block_size)));
                if self.bad.now.lock().range(at..end).next().is_none() {
                    return self.inner.submit(Op::Read { at, into });
                }
                let error = Error::new(ErrorKind::Media, &geometry.name, "read").at(at);
                Io::ready(Err(error.with_buffer(into)))
            }
            Op::Zone { zone, action: Action::Reset } => {
                let start = geometry.start(zone);
                let end = start.plus(geometry.zone_size);
                self.bad.now.lock().retain(|at| *at < start || *at >= end);
                self.inner.submit(Op::Zone { zone, action: Action::Reset })
            }
            op => self.inner.submit(op),
        }
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}
