//! The classes of operations: an array hands that of a client's operation on to its drives, and its own jobs have theirs.

use std::collections::BTreeSet;
use std::sync::Arc;

use array::{Array, OpenOptions, ScrubOptions, Slot};
use parking_lot::Mutex;
use units::{Driver, block_on};
use zoned::{Blocks, BufMut, Durability, Geometry, Io, IoClass, Op, ZoneId, ZonedDevice};

use crate::common::{BLOCK_BYTES, Bench, METADATA_ZONES, blocks};

/// A drive that notes the classes of the transfers of its data zones.
#[derive(Debug)]
struct NotingDrive {
    inner: Arc<dyn ZonedDevice>,
    seen: Arc<Mutex<BTreeSet<IoClass>>>,
}

impl ZonedDevice for NotingDrive {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.submit_as(IoClass::default(), op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        let zone = match &op {
            Op::Read { at, .. } | Op::Write { at, .. } => self.geometry().zone_of(*at),
            Op::Append { zone, .. } => Some(*zone),
            Op::Zone { .. } | Op::Flush | Op::Report { .. } => None,
        };
        if zone.is_some_and(|zone| zone.0 >= METADATA_ZONES) {
            self.seen.lock().insert(class);
        }
        self.inner.submit_as(class, op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

#[test]
fn drives_see_the_class_of_the_client_or_of_the_arrays_own_job() {
    let bench = Bench::new(1);
    let seen: Arc<Mutex<BTreeSet<IoClass>>> = Arc::default();
    let noting = |inner| Arc::new(NotingDrive { inner, seen: Arc::clone(&seen) }) as Arc<dyn ZonedDevice>;
    let take = || std::mem::take(&mut *seen.lock()).into_iter().collect::<Vec<_>>();
    block_on(&*bench.driver, async {
        let devices = bench.devices(&[]).into_iter().map(noting).collect();
        let array = Array::open(devices, OpenOptions::default()).await.expect("opened");
        let device: Arc<dyn ZonedDevice> = array.clone();
        take();
        // Whole stripes and a part of one: data and parity.
        let at = device.geometry().start(ZoneId(0));
        device
            .write_as(IoClass::Compaction, at, blocks(0, 0, 32), Durability::Cached)
            .await
            .expect("written");
        assert_eq!(take(), [IoClass::Compaction]);
        let next = at.plus(Blocks(32));
        device.write(next, blocks(0, 32, 40), Durability::Cached).await.expect("written");
        assert_eq!(take(), [IoClass::Log], "a client without a class");
        let into = BufMut::zeroed(16 * BLOCK_BYTES);
        device.read_as(IoClass::Flush, at, into).await.expect("read");
        assert_eq!(take(), [IoClass::Flush]);
        array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!(take(), [IoClass::Scrub]);
        array.fail(Slot(1)).await.expect("failed");
        take();
        let new = noting(Bench::drive(&bench.driver, 9) as Arc<dyn ZonedDevice>);
        array.replace(Slot(1), new).await.expect("rebuilt");
        assert!(take().contains(&IoClass::Rebuild));
    });
}
