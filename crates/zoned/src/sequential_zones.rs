//! A view of a device without its conventional zones.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{Done, Driver, Geometry, Io, IoClass, Lba, Op, Result, ShareStatus, ZoneId, ZonedDevice};

/// The sequential zones of a device that begins with conventional zones, as a device of their own: zone 0 of the view is
/// the device's first sequential zone.
///
/// ```text
///   device   0   1   2   3   4   5   ...
///            conventional    sequential
///   view                     0   1   ...
/// ```
///
/// The view has no conventional zones. No operation of the view reads or writes the device's conventional zones.
/// Addresses and zone numbers of operations, appends' results, reports and errors count from the view's start; messages of
/// errors name the device's own zones and addresses. Durability and crash safety are the device's.
pub struct SequentialZones {
    device: Arc<dyn ZonedDevice>,
    geometry: Geometry,
    /// The device's first sequential zone, and its first block.
    first: ZoneId,
    start: Lba,
}

impl SequentialZones {
    /// The view of `device`; the device itself if it has no conventional zones.
    pub fn of(device: Arc<dyn ZonedDevice>) -> Arc<dyn ZonedDevice> {
        let whole = device.geometry();
        if whole.conventional == 0 {
            return device;
        }
        let (first, start) = SequentialZones::origin(whole);
        let zones = whole.zones.saturating_sub(whole.conventional);
        let geometry = Geometry { zones, conventional: 0, ..whole.clone() };
        Arc::new(SequentialZones { geometry, first, start, device })
    }

    /// The first sequential zone of a device with `geometry`, and its first block: the origin of the view's numbers.
    pub fn origin(geometry: &Geometry) -> (ZoneId, Lba) {
        let first = ZoneId(geometry.conventional);
        (first, geometry.start(first))
    }

    /// The device's number of a zone of the view.
    fn zone_on_device(&self, zone: ZoneId) -> ZoneId {
        ZoneId(zone.0.saturating_add(self.first.0))
    }

    /// The device's address of a block of the view.
    fn address_on_device(&self, at: Lba) -> Lba {
        Lba(at.0.saturating_add(self.start.0))
    }
}

impl ZonedDevice for SequentialZones {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, op: Op) -> Io {
        self.submit_as(IoClass::default(), op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        let op = match op {
            Op::Read { at, into } => Op::Read { at: self.address_on_device(at), into },
            Op::Write { at, data, how } => Op::Write { at: self.address_on_device(at), data, how },
            Op::Append { zone, data, how } => Op::Append { zone: self.zone_on_device(zone), data, how },
            Op::Flush => Op::Flush,
            Op::Zone { zone, action } => Op::Zone { zone: self.zone_on_device(zone), action },
            Op::Report { zones } => {
                let on_device = |zone: u32| self.zone_on_device(ZoneId(zone)).0;
                Op::Report { zones: on_device(zones.start)..on_device(zones.end) }
            }
        };
        let (first, start) = (self.first, self.start);
        let io = self.device.submit_as(class, op);
        io.map(self.device.driver(), &self.geometry.name, move |result| count_from(result, first, start))
    }

    fn raise(&self, class: IoClass, blocks: Range<Lba>) {
        self.device.raise(class, self.address_on_device(blocks.start)..self.address_on_device(blocks.end));
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.device.driver()
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.device.details()
    }

    fn share_status(&self) -> Option<ShareStatus> {
        self.device.share_status()
    }
}

/// The result of an operation with the device's numbers, in numbers that count from zone `first` and block `start`.
fn count_from(result: Result<Done>, first: ZoneId, start: Lba) -> Result<Done> {
    match result {
        Ok(Done::At(at)) => Ok(Done::At(Lba(at.0.saturating_sub(start.0)))),
        Ok(Done::Zones(mut zones)) => {
            for info in &mut zones {
                info.zone = ZoneId(info.zone.0.saturating_sub(first.0));
            }
            Ok(Done::Zones(zones))
        }
        Ok(done @ (Done::Unit | Done::Read(_))) => Ok(done),
        Err(error) => Err(error.counted_from(first, start)),
    }
}

impl fmt::Debug for SequentialZones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use units::{RealDriver, VirtualDriver, block_on};

    use super::*;
    use crate::emu::{Emu, EmuOptions, FaultOp, FaultSpec};
    use crate::{Action, Buf, BufMut, Durability, ErrorKind, ZoneKind, ZoneState};

    fn drive(conventional: u32) -> Arc<Emu> {
        let options = EmuOptions { name: "emu:smr".into(), zones: 24, conventional, ..EmuOptions::tiny() };
        Emu::memory(options, VirtualDriver::new(1))
    }

    fn block(byte: u8, geometry: &Geometry) -> Buf {
        Buf::copy_from(&vec![byte; geometry.block_size as usize])
    }

    #[test]
    fn a_device_without_conventional_zones_is_its_own_view() {
        let device: Arc<dyn ZonedDevice> = drive(0);
        assert!(Arc::ptr_eq(&SequentialZones::of(Arc::clone(&device)), &device));
    }

    #[test]
    fn the_view_conforms_to_the_device_contract() {
        let real: fn() -> Arc<dyn Driver> = || RealDriver::new();
        let simulated: fn() -> Arc<dyn Driver> = || VirtualDriver::new(1);
        for (query, driver) in [
            (
                "zones=32&zone-size=64KiB&zone-capacity=56KiB&max-open=6&max-active=8&conventional=3",
                simulated,
            ),
            ("zones=20&zone-size=1MiB&conventional=5&cache=none&delay=15us", simulated),
            ("zones=20&zone-size=1MiB&conventional=5&delay=15us&reorder=on", simulated),
            ("zones=20&zone-size=64KiB&conventional=1&delay=15us", real),
        ] {
            let url = format!("emu:mem?{query}");
            let device = crate::open_or_create(&url, driver()).expect(&url);
            let view = SequentialZones::of(Arc::clone(&device));
            let (of_view, of_device) = (view.geometry(), device.geometry());
            assert_eq!((of_view.zones, of_view.conventional), (of_device.zones - of_device.conventional, 0));
            let failures = crate::conformance::failures(&view);
            assert!(failures.is_empty(), "{url}:\n{}", failures.join("\n"));
        }
    }

    #[test]
    fn operations_reach_the_zones_behind_the_conventional_ones() {
        let emu = drive(5);
        let device: Arc<dyn ZonedDevice> = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
        let view = SequentialZones::of(Arc::clone(&device));
        let driver = Arc::clone(view.driver());
        block_on(&*driver, async {
            let geometry = view.geometry();
            let (zone, start) = (ZoneId(2), geometry.start(ZoneId(2)));
            view.write(start, block(1, geometry), Durability::Cached).await.expect("written");
            let at = view.append(zone, block(2, geometry), Durability::Cached).await.expect("appended");
            assert_eq!(at, Lba(start.0 + 1), "the view's address of the append");
            let own = device.geometry().start(ZoneId(7));
            for (at, byte) in [(own, 1), (Lba(own.0 + 1), 2)] {
                let into = BufMut::zeroed(geometry.block_size as usize);
                assert_eq!(device.read(at, into).await.expect("read")[0], byte);
            }
            let report = view.report(0..u32::MAX).await.expect("reported");
            assert_eq!(report.len(), 19);
            assert!(report.iter().zip(0..).all(|(info, n)| info.zone == ZoneId(n)));
            assert!(report.iter().all(|info| info.kind == ZoneKind::Sequential));
            assert_eq!((report[2].state, report[2].pointer.0), (ZoneState::ImplicitOpen, 2));
            assert_eq!(view.report(2..3).await.expect("reported"), report[2..3]);
            view.zone(zone, Action::Reset).await.expect("reset");
            let of_device = device.report(7..8).await.expect("reported");
            assert_eq!(of_device[0].state, ZoneState::Empty);
        });
    }

    #[test]
    fn an_error_counts_from_the_view_and_its_message_names_the_devices_zone() {
        let emu = drive(5);
        let device = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
        let view = SequentialZones::of(device);
        let geometry = view.geometry().clone();
        let driver = Arc::clone(view.driver());
        block_on(&*driver, async {
            let at = Lba(geometry.start(ZoneId(2)).0 + 1);
            let refused = view.write(at, block(1, &geometry), Durability::Cached).await.expect_err("above");
            assert_eq!(refused.kind(), ErrorKind::NotAtWritePointer);
            assert_eq!((refused.zone(), refused.address()), (Some(ZoneId(2)), Some(at)));
            let own = at.0 + 5 * geometry.zone_size.0;
            assert!(refused.to_string().contains(&format!("zone 7, block {own}")), "{refused}");
            let start = geometry.start(ZoneId(3));
            view.write(start, block(3, &geometry), Durability::Cached).await.expect("written");
            emu.fail(FaultSpec::all(FaultOp::Read));
            let into = BufMut::zeroed(geometry.block_size as usize);
            let mut unreadable = view.read(start, into).await.expect_err("unreadable");
            assert_eq!((unreadable.kind(), unreadable.zone()), (ErrorKind::Media, Some(ZoneId(3))));
            assert!(unreadable.take_buffer().is_some(), "the buffer of the read comes back");
            let past = view.zone(ZoneId(19), Action::Reset).await.expect_err("no such zone");
            assert_eq!((past.kind(), past.zone()), (ErrorKind::OutOfRange, Some(ZoneId(19))));
        });
    }
}
