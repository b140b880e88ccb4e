//! Converts the identify data of an NVMe namespace to a geometry.

use std::io;
use std::sync::Arc;

use sys::nvme::{
    Command, Controller, Descriptors, IDENTIFY_LEN, MAX_BLOCKS, Namespace, Status, Zone, ZonedController,
    ZonedNamespace,
};
use units::Bytes;

use crate::{Blocks, Geometry, ZoneId, ZoneInfo};

/// Longest transfer in bytes of one command that Linux accepts on every machine; longer ones need contiguous
/// memory.
const MAX_COMMAND: u64 = 256 << 10;
/// The number of the command set of zoned namespaces.
const ZONED_COMMAND_SET: u8 = 2;

/// The identify data of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IdentifyData {
    pub(super) controller: Controller,
    pub(super) namespace: Namespace,
    pub(super) zoned: ZonedNamespace,
    pub(super) zoned_controller: ZonedController,
}

/// Sends an admin command and waits; returns status and result.
pub(super) type SendAdminCommand<'a> = &'a dyn Fn(&Command, &mut [u8]) -> io::Result<(u16, u64)>;

impl IdentifyData {
    /// Sends the identify commands to a namespace. The inner error says why the namespace is unsupported.
    pub(super) fn identify(
        nsid: u32,
        admin: SendAdminCommand<'_>,
    ) -> io::Result<Result<IdentifyData, String>> {
        let identify = |command: Command| -> io::Result<Result<Vec<u8>, Status>> {
            let mut into = vec![0; IDENTIFY_LEN];
            let (status, _) = admin(&command, &mut into)?;
            let status = Status::new(status);
            Ok(if status.is_success() { Ok(into) } else { Err(status) })
        };
        let refused = |what: &str, status: Status| format!("identify {what}: {status}");
        let senseless = |what: &str| format!("identify {what}: the drive's answer makes no sense");
        // Drives older than command sets refuse the command; such drives are not zoned.
        let set = match identify(Command::identify_descriptors(nsid))? {
            Ok(raw) => Descriptors::decode(&raw).command_set,
            Err(_) => None,
        };
        if set != Some(ZONED_COMMAND_SET) {
            return Ok(Err("not a zoned namespace: for an ordinary drive use emu:PATH".into()));
        }
        let mut raw = Vec::new();
        for (what, command) in [
            ("controller", Command::identify_controller()),
            ("namespace", Command::identify_namespace(nsid)),
            ("zoned namespace", Command::identify_zoned_namespace(nsid)),
            ("zoned controller", Command::identify_zoned_controller()),
        ] {
            match identify(command)? {
                Ok(found) => raw.push(found),
                Err(status) => return Ok(Err(refused(what, status))),
            }
        }
        let [controller, namespace, zoned, zoned_controller] = raw.as_slice() else {
            return Ok(Err(senseless("namespace")));
        };
        Ok((|| {
            let controller = Controller::decode(controller).ok_or_else(|| senseless("controller"))?;
            let namespace = Namespace::decode(namespace).ok_or_else(|| senseless("namespace"))?;
            let zoned = ZonedNamespace::decode(zoned, namespace.format)
                .ok_or_else(|| senseless("zoned namespace"))?;
            let zoned_controller =
                ZonedController::decode(zoned_controller).ok_or_else(|| senseless("zoned controller"))?;
            Ok(IdentifyData { controller, namespace, zoned, zoned_controller })
        })())
    }

    pub(super) fn zone_size(&self) -> Blocks {
        self.zoned.zone_size
    }

    /// Number of the namespace's zones, without a smaller last zone.
    pub(super) fn zones(&self) -> Result<u32, String> {
        let zones = self.namespace.size.0.checked_div(self.zoned.zone_size.0).unwrap_or(0);
        match u32::try_from(zones) {
            Ok(zones @ 1..) => Ok(zones),
            _ => Err(format!("{zones} zones are none, or more than can be counted")),
        }
    }

    /// The namespace's geometry; the error says why the device contract does not support the drive.
    pub(super) fn geometry(&self, name: &Arc<str>, report: &[Zone]) -> Result<Geometry, String> {
        let size = self.namespace.block_size.0;
        let block_size = u32::try_from(size).ok().filter(|size| (512..=65_536).contains(size));
        let block_size = block_size
            .ok_or_else(|| format!("blocks of {size} bytes: a power of two from 512 to 65536 is needed"))?;
        if self.namespace.metadata > 0 {
            let metadata = self.namespace.metadata;
            return Err(format!("{metadata} bytes of metadata with each block: choose a format without"));
        }
        if let Some(zone) = report.iter().find(|zone| !zone.sequential) {
            return Err(format!("the zone at block {} is of a kind that is not known here", zone.start));
        }
        let zones = self.zones()?;
        if report.len() < zones as usize {
            return Err(format!("the report has {} of {zones} zones", report.len()));
        }
        let zone_size = self.zoned.zone_size;
        let zone_capacity = report.iter().map(|zone| zone.capacity).min().unwrap_or(Blocks::ZERO);
        if zone_capacity == Blocks::ZERO || zone_capacity > zone_size {
            return Err(format!("a capacity of {zone_capacity:?} blocks in zones of {zone_size:?}"));
        }
        let blocks = |most: Option<Bytes>| {
            let bytes = most.map_or(MAX_COMMAND, |most| most.0.min(MAX_COMMAND));
            Blocks((bytes / size).clamp(1, MAX_BLOCKS))
        };
        let max_transfer = blocks(self.controller.max_transfer);
        let max_append = blocks(self.zoned_controller.max_append).min(max_transfer);
        Ok(Geometry {
            name: Arc::clone(name),
            block_size,
            zones,
            conventional: 0,
            zone_size,
            zone_capacity,
            max_open: self.zoned.max_open.or(self.zoned.max_active),
            max_active: self.zoned.max_active,
            max_append: max_append.min(zone_capacity),
            max_transfer,
            // The drive's atomic write unit depends on boundaries and modes; one block is atomic in all of them.
            atomic_write: Blocks(1),
            optimal_write: Blocks(1),
            volatile_cache: self.controller.volatile_cache,
            // Reads past the pointer succeed: the zone queue answers them with zeros, on every device.
            ordered_cache: true,
            read_past_pointer: true,
        })
    }

    /// Details of the namespace for `furrow device info`.
    pub(super) fn details(&self) -> Vec<(&'static str, String)> {
        let Controller { model, serial, firmware, .. } = &self.controller;
        let named = [("model", model), ("serial", serial), ("firmware", firmware)];
        named.into_iter().map(|(name, text)| (name, text.clone())).collect()
    }
}

/// Converts the zones of a report, the first of which is `first`.
pub(super) fn zone_infos(geometry: &Geometry, first: u32, report: &[Zone]) -> Vec<ZoneInfo> {
    (first..geometry.zones).zip(report).map(|(id, zone)| info(geometry, ZoneId(id), zone)).collect()
}

fn info(geometry: &Geometry, id: ZoneId, zone: &Zone) -> ZoneInfo {
    let pointer = (zone.pointer >= zone.start).then(|| zone.pointer.since(zone.start));
    crate::kernel::sequential_info(geometry, id, zone.condition, pointer)
}

#[cfg(test)]
pub(super) mod tests {
    use sys::block::Condition;
    use units::Lba;

    use super::*;

    /// Identify data of a drive with `geometry`.
    pub(crate) fn identify_data(geometry: &Geometry) -> IdentifyData {
        let bytes = |blocks: Blocks| Some(blocks.bytes(geometry.block_size));
        IdentifyData {
            controller: Controller {
                serial: "S1".into(),
                model: "pretended".into(),
                firmware: "1".into(),
                max_transfer: bytes(geometry.max_transfer),
                volatile_cache: geometry.volatile_cache,
                atomic_write: Blocks(1),
                atomic_write_power_fail: Blocks(1),
            },
            namespace: Namespace {
                size: Blocks(u64::from(geometry.zones) * geometry.zone_size.0),
                capacity: Blocks(u64::from(geometry.zones) * geometry.zone_size.0),
                used: Blocks(0),
                block_size: Bytes(geometry.block_size.into()),
                metadata: 0,
                format: 0,
                atomic_write: None,
                atomic_write_power_fail: None,
                preferred_write: None,
                nguid: [0; 16],
                eui64: [0; 8],
            },
            zoned: ZonedNamespace {
                max_active: geometry.max_active,
                max_open: geometry.max_open,
                variable_capacity: false,
                active_excursions: false,
                read_across_zones: false,
                zone_size: geometry.zone_size,
            },
            zoned_controller: ZonedController { max_append: bytes(geometry.max_append) },
        }
    }

    fn zone(index: u64) -> Zone {
        let start = Lba(index * 4096);
        let (capacity, condition) = (Blocks(3072), Condition::Empty);
        Zone { start, capacity, pointer: start, condition, sequential: true, finished_by_controller: false }
    }

    fn example_identify_data() -> IdentifyData {
        let (zone_size, zone_capacity) = (Blocks(4096), Blocks(3072));
        let shape = crate::emu::EmuOptions { zones: 4, zone_size, zone_capacity, ..Default::default() };
        identify_data(&shape.geometry().expect("fits"))
    }

    #[test]
    fn transfers_are_no_longer_than_the_kernel_always_passes() {
        let name = Arc::from("nvme:test");
        let report: Vec<Zone> = (0..4).map(zone).collect();
        let mut facts = example_identify_data();
        facts.controller.max_transfer = None;
        facts.zoned_controller.max_append = None;
        let geometry = facts.geometry(&name, &report).expect("fits");
        assert_eq!((geometry.max_transfer, geometry.max_append), (Blocks(64), Blocks(64)));
        facts.controller.max_transfer = Some(Bytes(128 << 10));
        let geometry = facts.geometry(&name, &report).expect("fits");
        assert_eq!((geometry.max_transfer, geometry.max_append), (Blocks(32), Blocks(32)));
        facts.zoned_controller.max_append = Some(Bytes(32 << 10));
        assert_eq!(facts.geometry(&name, &report).expect("fits").max_append, Blocks(8));
        assert_eq!(geometry.zone_capacity, Blocks(3072));
    }

    #[test]
    fn metadata_odd_zones_and_short_reports_are_refused() {
        let name = Arc::from("nvme:test");
        let mut report: Vec<Zone> = (0..4).map(zone).collect();
        let mut facts = example_identify_data();
        assert!(facts.geometry(&name, &report[..3]).expect_err("short").contains("3 of 4"));
        facts.namespace.metadata = 8;
        assert!(facts.geometry(&name, &report).expect_err("metadata").contains("metadata"));
        report[1].sequential = false;
        assert!(example_identify_data().geometry(&name, &report).expect_err("odd").contains("block 4096"));
    }

    #[test]
    fn a_namespace_of_another_command_set_is_refused_in_clear_words() {
        let found = IdentifyData::identify(1, &|_, _| Ok((0x002, 0))).expect("answers");
        assert!(found.expect_err("refused").contains("not a zoned namespace"));
        let found = IdentifyData::identify(1, &|_, _| Ok((0, 0))).expect("answers");
        assert!(found.expect_err("zeros").contains("not a zoned namespace"));
        assert!(IdentifyData::identify(1, &|_, _| Err(io::Error::from_raw_os_error(13))).is_err());
    }
}
