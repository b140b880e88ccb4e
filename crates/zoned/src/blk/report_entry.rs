//! A device's zones as the kernel reports zones: the inverse of [`zone_infos`](super::limits::zone_infos).

use sys::block::{Condition, Zone, ZoneKind as Kind};
use units::Bytes;

use crate::{Geometry, ZoneInfo, ZoneKind, ZoneState};

/// Write pointer of a zone that has none.
const NO_POINTER: Bytes = Bytes(u64::MAX);

/// A zone as the kernel reports it.
pub fn report_entry(geometry: &Geometry, info: &ZoneInfo) -> Zone {
    let block = geometry.block_size;
    let start = Bytes(geometry.start(info.zone).0 * u64::from(block));
    let len = geometry.zone_size.bytes(block);
    let condition = match info.state {
        ZoneState::Conventional => Condition::NotWritePointer,
        ZoneState::Empty => Condition::Empty,
        ZoneState::ImplicitOpen => Condition::ImplicitOpen,
        ZoneState::ExplicitOpen => Condition::ExplicitOpen,
        ZoneState::Closed => Condition::Closed,
        ZoneState::Full => Condition::Full,
        ZoneState::ReadOnly => Condition::ReadOnly,
        ZoneState::Offline => Condition::Offline,
    };
    let pointer = match condition {
        Condition::NotWritePointer | Condition::ReadOnly | Condition::Offline => NO_POINTER,
        Condition::Full => start.plus(len),
        _ => start.plus(info.pointer.bytes(block)),
    };
    let (kind, capacity) = match info.kind {
        ZoneKind::Conventional => (Kind::Conventional, len),
        // A kernel refuses a device whose zones have different capacities.
        ZoneKind::Sequential => (Kind::SequentialRequired, geometry.zone_capacity.bytes(block)),
    };
    Zone { start, len, capacity, pointer, kind, condition }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Blocks, ZoneId};

    fn report(state: ZoneState, kind: ZoneKind) -> Zone {
        let geometry = Geometry {
            name: Arc::from("emu:mem"),
            block_size: 512,
            zones: 4,
            conventional: 1,
            zone_size: Blocks(64),
            zone_capacity: Blocks(48),
            max_open: None,
            max_active: None,
            max_append: Blocks(8),
            max_transfer: Blocks(8),
            atomic_write: Blocks(1),
            optimal_write: Blocks(1),
            volatile_cache: false,
            ordered_cache: true,
            read_past_pointer: true,
        };
        let info = ZoneInfo { zone: ZoneId(2), kind, state, pointer: Blocks(8), capacity: Blocks(48) };
        report_entry(&geometry, &info)
    }

    #[test]
    fn a_zone_is_reported_in_bytes_of_the_device() {
        let open = report(ZoneState::ImplicitOpen, ZoneKind::Sequential);
        assert_eq!((open.start, open.len, open.capacity), (Bytes(65_536), Bytes(32_768), Bytes(24_576)));
        assert_eq!((open.pointer, open.condition), (Bytes(65_536 + 4096), Condition::ImplicitOpen));
        assert_eq!(open.kind, Kind::SequentialRequired);
    }

    #[test]
    fn a_full_zone_points_at_the_next_one_and_a_worn_one_nowhere() {
        let pointer = |state| report(state, ZoneKind::Sequential).pointer;
        assert_eq!(pointer(ZoneState::Full), Bytes(3 * 32_768));
        assert_eq!([pointer(ZoneState::ReadOnly), pointer(ZoneState::Offline)], [NO_POINTER; 2]);
        let conventional = report(ZoneState::Conventional, ZoneKind::Conventional);
        assert_eq!((conventional.pointer, conventional.capacity), (NO_POINTER, Bytes(32_768)));
    }
}
