//! A drive some of whose blocks cannot be read until their zone is reset.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use zoned::{Action, Blocks, Driver, Error, ErrorKind, Geometry, Io, Lba, Op, ZonedDevice};

/// Blocks that one of several drives cannot read, over all its lives.
#[derive(Clone, Debug, Default)]
pub(super) struct Bad {
    /// The drive.
    pub drive: usize,
    now: Arc<Mutex<BTreeSet<Lba>>>,
    /// Also those whose zone was reset since: a power cut may undo that.
    ever: Arc<Mutex<BTreeSet<Lba>>>,
}

impl Bad {
    pub(super) fn of(drive: usize) -> Bad {
        Bad { drive, ..Bad::default() }
    }

    pub(super) fn add(&self, at: Lba) {
        self.now.lock().insert(at);
        self.ever.lock().insert(at);
    }

    /// Whether the block could not be read once.
    pub(super) fn was(&self, at: Lba) -> bool {
        self.ever.lock().contains(&at)
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
