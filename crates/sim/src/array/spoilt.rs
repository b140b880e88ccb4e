//! A drive some of whose blocks cannot be read until their zone is reset.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use zoned::{Action, Blocks, Driver, Error, ErrorKind, Geometry, Io, Lba, Op, ZoneId, ZonedDevice};

use super::shape::METADATA_ZONES;

/// Blocks that one of several drives cannot read, over all its lives.
#[derive(Clone, Debug, Default)]
pub(super) struct Bad {
    /// The drive, and the distance of its zones.
    pub drive: usize,
    zone_size: Blocks,
    now: Arc<Mutex<BTreeSet<Lba>>>,
    /// Also those whose zone was reset since: a power cut may undo that.
    ever: Arc<Mutex<BTreeSet<Lba>>>,
}

impl Bad {
    pub(super) fn of(drive: usize, zone_size: Blocks) -> Bad {
        Bad { drive, zone_size, ..Bad::default() }
    }

    /// Where a row of a logical zone lies on the drive.
    fn place(&self, zone: ZoneId, row: u64) -> Lba {
        Lba(u64::from(zone.0 + METADATA_ZONES) * self.zone_size.0 + row)
    }

    /// A row of a logical zone.
    pub(super) fn add(&self, zone: ZoneId, row: u64) {
        let at = self.place(zone, row);
        self.now.lock().insert(at);
        self.ever.lock().insert(at);
    }

    /// Whether the row could not be read once.
    pub(super) fn was(&self, zone: ZoneId, row: u64) -> bool {
        self.ever.lock().contains(&self.place(zone, row))
    }
}

/// The drive.
#[derive(Debug)]
pub(super) struct Spoilt {
    inner: Arc<dyn ZonedDevice>,
    bad: Bad,
}

impl Spoilt {
    pub(super) fn over(inner: Arc<dyn ZonedDevice>, bad: &Bad) -> Arc<dyn ZonedDevice> {
        Arc::new(Spoilt { inner, bad: bad.clone() })
    }
}

impl ZonedDevice for Spoilt {
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
