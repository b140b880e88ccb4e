//! The table of zones: the use of each zone, and the number of its live blocks.

use std::collections::{BTreeMap, BTreeSet};

use units::{Blocks, ZoneId};
use zoned::{Geometry, ZoneInfo, ZoneKind, ZoneState};

use crate::files::stat::ZoneRole;
use crate::options::Lifetime;
use crate::zones::open_zone::{DataKind, DataSource};

/// Reclaim begins when this many empty zones are left besides those kept for reclaim.
pub(crate) const LOW_FREE_ZONES: usize = 2;
/// A reclaim must gain a zone divided by this number, and at least a block.
pub(crate) const MIN_RECLAIM_GAIN_DIVISOR: u64 = 64;

/// The phase of a zone's life.
///
/// ```text
///   Free --> Data (open) --> Full --(no live block, metadata durable, no reader)--> Resetting --> Free
///     |----> Log (leased) <--> Rest --^
///     '----> Ahead (opened ahead) --> Log, or Data where no other zone is left
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The zone is never used for files: it holds the superblock or metadata, or is worn out.
    Unusable,
    /// Conventional: segments of ordered logs may lie in the zone, which is neither opened nor reset.
    Conventional,
    /// Empty.
    Free,
    /// The zone is open, and file data is written to it.
    Data,
    /// The zone is empty, and opened ahead for the next log that needs a zone.
    Ahead,
    /// An open log has leased the zone.
    Log,
    /// The zone has log segments in front, and room behind them for the next log.
    Rest,
    /// The zone is full: no block will be written before the next reset.
    Full,
    /// A reset of the zone is in flight.
    Resetting,
}

/// One zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zone {
    pub role: ZoneRole,
    pub phase: Phase,
    /// The device's state of the zone, as last known.
    pub state: ZoneState,
    /// Number of blocks written in the zone, as last known.
    pub pointer: u64,
    pub capacity: u64,
    /// Number of blocks in the zone that files refer to.
    pub live: u64,
    /// Number of the metadata record that freed the zone's last live block: a reset waits until the record is
    /// durable.
    pub freed_by: u64,
    pub generation: u64,
}

impl Zone {
    fn has_live_log(&self) -> bool {
        self.live > 0 && self.role == ZoneRole::Log
    }

    /// True for a full data zone from which a reclaim would gain at least `least` blocks.
    pub(crate) fn is_reclaim_candidate(&self, least: u64) -> bool {
        let mixed = self.phase == Phase::Full && self.live > 0;
        mixed
            && matches!(self.role, ZoneRole::Data { .. })
            && self.capacity.saturating_sub(self.live) >= least
    }
}

/// Content that is written one zone after the other, and whose zones die at about the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stream {
    Log,
    Data(DataKind),
}

impl Stream {
    /// The stream of file data. Data that survived until a reclaim is long-lived, whatever was expected of it: it is one stream.
    pub(crate) fn of(kind: DataKind) -> Stream {
        let is_reclaimed = kind.source == DataSource::Reclaim;
        Stream::Data(if is_reclaimed { DataKind { lifetime: Lifetime::NotSet, ..kind } } else { kind })
    }
}

/// All zones.
#[derive(Debug)]
pub(crate) struct ZoneTable {
    zones: Vec<Zone>,
    free: BTreeSet<u32>,
    /// The zone that each stream took last.
    last: BTreeMap<Stream, u32>,
    /// The full zones without a live block.
    dead: BTreeSet<u32>,
    live: u64,
    usable: u64,
    usable_zones: usize,
    /// Number of zones with live segments of logs.
    live_logs: usize,
}

impl ZoneTable {
    /// The table of a device's zones, from the device's report alone. Zones from `files_from` on are for
    /// files.
    pub(crate) fn new(geometry: &Geometry, report: &[ZoneInfo], files_from: u32) -> ZoneTable {
        let mut table = ZoneTable {
            zones: Vec::new(),
            free: BTreeSet::new(),
            last: BTreeMap::new(),
            dead: BTreeSet::new(),
            live: 0,
            usable: 0,
            usable_zones: 0,
            live_logs: 0,
        };
        for info in report {
            let worn = matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline);
            let usable = info.zone.0 >= files_from && info.kind == ZoneKind::Sequential && !worn;
            let conventional = info.zone.0 >= 2 && info.kind == ZoneKind::Conventional && !worn;
            let role = match info.zone.0 {
                n if n < 2 => ZoneRole::Superblock,
                n if n >= geometry.conventional && n < files_from => ZoneRole::Metadata,
                _ => ZoneRole::Free,
            };
            // An open zone without a written block counts as empty.
            let opened = info.state.is_active() && info.pointer == Blocks::ZERO;
            let empty = info.state == ZoneState::Empty || opened;
            let phase = match (usable, empty) {
                (false, _) if conventional => Phase::Conventional,
                (false, _) => Phase::Unusable,
                (true, true) => Phase::Free,
                (true, false) => Phase::Full,
            };
            if phase == Phase::Free {
                table.free.insert(info.zone.0);
            }
            table.usable += u64::from(usable) * info.capacity.0;
            table.usable_zones += usize::from(usable);
            table.zones.push(Zone {
                role,
                phase,
                state: info.state,
                pointer: info.pointer.0,
                capacity: info.capacity.0,
                live: 0,
                freed_by: 0,
                generation: 0,
            });
        }
        table
    }

    /// The zone's entry.
    pub(crate) fn get(&self, zone: ZoneId) -> Option<&Zone> {
        self.zones.get(zone.index())
    }

    /// All zones with their entries in the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ZoneId, &Zone)> {
        (0_u32..).map(ZoneId).zip(&self.zones)
    }

    /// Number of zones that files may use, as of the mount.
    pub(crate) fn usable_zones(&self) -> usize {
        self.usable_zones
    }

    /// Changes the phase and the role of a zone.
    pub(crate) fn set(&mut self, zone: ZoneId, phase: Phase, role: ZoneRole) {
        let Some(entry) = self.zones.get_mut(zone.index()) else { return };
        self.live_logs -= usize::from(entry.has_live_log());
        entry.phase = phase;
        entry.role = role;
        self.live_logs += usize::from(entry.has_live_log());
        self.free.remove(&zone.0);
        self.dead.remove(&zone.0);
        match phase {
            Phase::Free => {
                entry.pointer = 0;
                entry.state = ZoneState::Empty;
                self.free.insert(zone.0);
            }
            Phase::Full if entry.live == 0 => {
                self.dead.insert(zone.0);
            }
            _ => {}
        }
    }

    /// Changes the phase of a zone and keeps its role, but an empty zone has no role.
    pub(crate) fn set_phase(&mut self, zone: ZoneId, phase: Phase) {
        let role = if phase == Phase::Free { ZoneRole::Free } else { self.role(zone) };
        self.set(zone, phase, role);
    }

    fn role(&self, zone: ZoneId) -> ZoneRole {
        self.get(zone).map_or(ZoneRole::Free, |z| z.role)
    }

    /// Sets the device's state and write pointer of a zone, as they are now or will be when the operations in
    /// flight have ended.
    pub(crate) fn note_state(&mut self, zone: ZoneId, state: ZoneState, pointer: u64) {
        if let Some(entry) = self.zones.get_mut(zone.index()) {
            entry.state = state;
            entry.pointer = pointer;
        }
    }

    /// Sets the generation of a log zone.
    pub(crate) fn set_generation(&mut self, zone: ZoneId, generation: u64) {
        if let Some(entry) = self.zones.get_mut(zone.index()) {
            entry.generation = generation;
        }
    }

    /// Adds `blocks` live blocks to a zone. Returns false where files cannot use the zone.
    #[must_use]
    pub(crate) fn add_live(&mut self, zone: ZoneId, blocks: u64, role: ZoneRole) -> bool {
        let Some(entry) = self.zones.get_mut(zone.index()) else { return false };
        if entry.phase == Phase::Unusable && matches!(entry.role, ZoneRole::Superblock | ZoneRole::Metadata) {
            return false;
        }
        // During a metadata replay, the zone may have been reset and put to another use since the record was
        // written.
        self.live_logs -= usize::from(entry.has_live_log());
        if entry.role == ZoneRole::Free || (entry.live == 0 && entry.phase == Phase::Full) {
            entry.role = role;
        }
        entry.live += blocks;
        self.live_logs += usize::from(entry.has_live_log());
        self.live += if entry.phase == Phase::Conventional { 0 } else { blocks };
        self.dead.remove(&zone.0);
        true
    }

    /// Removes `blocks` live blocks from a zone, freed by metadata record number `by`.
    pub(crate) fn remove_live(&mut self, zone: ZoneId, blocks: u64, by: u64) {
        let Some(entry) = self.zones.get_mut(zone.index()) else { return };
        self.live_logs -= usize::from(entry.has_live_log());
        entry.live = entry.live.checked_sub(blocks).expect("no more blocks die than were live");
        self.live_logs += usize::from(entry.has_live_log());
        entry.freed_by = entry.freed_by.max(by);
        match entry.phase {
            Phase::Conventional if entry.live == 0 => entry.role = ZoneRole::Free,
            Phase::Conventional => {}
            _ => self.live -= blocks,
        }
        if entry.live == 0 && entry.phase == Phase::Full {
            self.dead.insert(zone.0);
        }
    }

    /// Number of empty zones.
    pub(crate) fn free_zone_count(&self) -> usize {
        self.free.len()
    }

    /// The empty zone that a stream takes next. Zones of an array may share a physical zone with their neighbours, which is empty again
    /// once all of them are: so that zones of one stream are neighbours, a stream takes the zone behind its last one, else the lowest
    /// with an empty zone behind it, of which neither is behind another stream's last one, else the lowest.
    pub(crate) fn next_free_zone(&self, stream: Stream) -> Option<ZoneId> {
        let behind = |last: &u32| last.checked_add(1);
        let own = self.last.get(&stream).and_then(behind).filter(|zone| self.free.contains(zone));
        let is_taken =
            |zone: u32| self.last.iter().any(|(of, last)| *of != stream && behind(last) == Some(zone));
        let begins_pair = |zone: &&u32| {
            let next = zone.saturating_add(1);
            self.free.contains(&next) && !is_taken(**zone) && !is_taken(next)
        };
        own.or_else(|| self.free.iter().find(begins_pair).or(self.free.first()).copied()).map(ZoneId)
    }

    /// A stream takes a zone.
    pub(crate) fn note_last_zone(&mut self, stream: Stream, zone: ZoneId) {
        self.last.insert(stream, zone.0);
    }

    /// The full zones without a live block.
    pub(crate) fn dead(&self) -> Vec<ZoneId> {
        self.dead.iter().copied().map(ZoneId).collect()
    }

    /// True if a full zone without a live block exists.
    pub(crate) fn has_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    /// True if the reset of a zone is in flight.
    pub(crate) fn is_resetting(&self) -> bool {
        self.zones.iter().any(|z| z.phase == Phase::Resetting)
    }

    /// The full data zone with the fewest live blocks, among those from which a reclaim would gain at least
    /// `least` blocks.
    pub(crate) fn reclaim_victim(&self, least: u64, except: &[ZoneId]) -> Option<ZoneId> {
        self.iter()
            .filter(|(zone, z)| z.is_reclaim_candidate(least) && !except.contains(zone))
            .min_by_key(|(_, z)| z.live)
            .map(|(zone, _)| zone)
    }

    /// Number of zones with live segments of logs.
    pub(crate) fn live_log_zones(&self) -> usize {
        self.live_logs
    }

    /// The conventional zones that logs may use, and their capacities in blocks.
    pub(crate) fn conventional(&self) -> impl Iterator<Item = (ZoneId, u64)> {
        self.iter().filter(|(_, z)| z.phase == Phase::Conventional).map(|(zone, z)| (zone, z.capacity))
    }

    /// Number of live blocks in the zones that [`ZoneTable::usable`] counts, and in worn ones.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// Number of blocks of all zones that files may use.
    pub(crate) fn usable(&self) -> u64 {
        self.usable
    }

    /// The lifetime of a data zone; not set for any other zone.
    pub(crate) fn lifetime(&self, zone: ZoneId) -> Lifetime {
        match self.role(zone) {
            ZoneRole::Data { lifetime } => lifetime,
            _ => Lifetime::NotSet,
        }
    }

    /// Number of blocks written in a zone, as last known.
    pub(crate) fn pointer(&self, zone: ZoneId) -> Blocks {
        Blocks(self.get(zone).map_or(0, |z| z.pointer))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::{Driver, VirtualDriver, block_on};
    use zoned::ZonedDevice;
    use zoned::emu::{Emu, EmuOptions};

    use super::*;

    #[test]
    fn zones_of_a_stream_are_neighbours() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let drive = Emu::memory(EmuOptions { zones: 12, ..EmuOptions::default() }, Arc::clone(&driver));
        let report = block_on(&*driver, (&*drive as &dyn ZonedDevice).report(0..12)).expect("reported");
        let mut table = ZoneTable::new(drive.geometry(), &report, 2);
        let take = |table: &mut ZoneTable, stream| {
            let zone = table.next_free_zone(stream)?;
            table.set(zone, Phase::Full, ZoneRole::Free);
            table.note_last_zone(stream, zone);
            Some(zone.0)
        };
        let of = |lifetime, source| Stream::of(DataKind { lifetime, source });
        let (log, data) = (Stream::Log, of(Lifetime::Medium, DataSource::Flush));
        let taken = [log, data, log, data].map(|stream| take(&mut table, stream));
        assert_eq!(taken, [2, 4, 3, 5].map(Some), "each stream's second zone is behind its first one");
        let others = [of(Lifetime::Short, DataSource::Reclaim), of(Lifetime::Medium, DataSource::Compaction)];
        let taken = others.map(|stream| take(&mut table, stream));
        assert_eq!(taken, [7, 9].map(Some), "not behind the last zones of others, and not before them");
        assert_eq!(
            (take(&mut table, data), take(&mut table, data)),
            (Some(6), Some(8)),
            "behind 5, and the lowest"
        );
        table.set_phase(ZoneId(3), Phase::Free);
        table.set_phase(ZoneId(4), Phase::Free);
        assert_eq!(
            (take(&mut table, log), take(&mut table, log)),
            (Some(4), Some(3)),
            "behind zone 3, and the lowest"
        );
        let taken = [log, log, log].map(|stream| take(&mut table, stream));
        assert_eq!(taken, [Some(10), Some(11), None], "the last empty zones");
    }
}
