//! The table of zones: what each is used for, and how many of its blocks are live.

use std::collections::BTreeSet;

use units::{Blocks, ZoneId};
use zoned::{Geometry, ZoneInfo, ZoneKind, ZoneState};

use crate::files::stat::ZoneRole;
use crate::options::Lifetime;

/// What can be done with a zone.
///
/// ```text
///   Free --> Data (open) --> Full --(no live block, metadata durable, no reader)--> Resetting --> Free
///     |----> Log (leased) <--> Rest --^
///     '----> Reserved (opened ahead) --> Log, or Data where nothing else is left
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Superblock, metadata, conventional, worn: not for files.
    Unusable,
    /// Empty.
    Free,
    /// Data is written to it.
    Data,
    /// Empty, and open for the next log that needs a zone.
    Reserved,
    /// A log holds it.
    Log,
    /// Log segments in front, room behind: for the next log.
    Rest,
    /// Written as far as it will be.
    Full,
    /// A reset is on its way.
    Resetting,
}

/// One zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zone {
    pub role: ZoneRole,
    pub phase: Phase,
    /// The device's state as last known.
    pub state: ZoneState,
    /// Blocks written, as last known.
    pub pointer: u64,
    pub capacity: u64,
    /// Blocks that files refer to.
    pub live: u64,
    /// Number of the record that freed its last live block: it must be durable before a reset.
    pub freed_by: u64,
    pub generation: u64,
}

impl Zone {
    /// Whether it is a full data zone from which a reclaim would gain at least `least` blocks.
    pub(crate) fn is_candidate(&self, least: u64) -> bool {
        let mixed = self.phase == Phase::Full && self.live > 0;
        mixed
            && matches!(self.role, ZoneRole::Data { .. })
            && self.capacity.saturating_sub(self.live) >= least
    }
}

/// All zones.
#[derive(Debug)]
pub(crate) struct ZoneTable {
    zones: Vec<Zone>,
    free: BTreeSet<u32>,
    /// Full zones without a live block.
    dead: BTreeSet<u32>,
    live: u64,
    usable: u64,
}

impl ZoneTable {
    /// The table of a device as reported, before any file is known. Zones from `files_from` on are for files.
    pub(crate) fn new(geometry: &Geometry, report: &[ZoneInfo], files_from: u32) -> ZoneTable {
        let mut table =
            ZoneTable { zones: Vec::new(), free: BTreeSet::new(), dead: BTreeSet::new(), live: 0, usable: 0 };
        for info in report {
            let worn = matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline);
            let usable = info.zone.0 >= files_from && info.kind == ZoneKind::Sequential && !worn;
            let role = match info.zone.0 {
                n if n < 2 => ZoneRole::Superblock,
                n if n >= geometry.conventional && n < files_from => ZoneRole::Metadata,
                _ => ZoneRole::Free,
            };
            // Opened ahead and never written: as good as empty.
            let opened = info.state.is_active() && info.pointer == Blocks::ZERO;
            let empty = info.state == ZoneState::Empty || opened;
            let phase = match (usable, empty) {
                (false, _) => Phase::Unusable,
                (true, true) => Phase::Free,
                (true, false) => Phase::Full,
            };
            if phase == Phase::Free {
                table.free.insert(info.zone.0);
            }
            table.usable += u64::from(usable) * info.capacity.0;
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

    /// The entries with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ZoneId, &Zone)> {
        (0_u32..).map(ZoneId).zip(&self.zones)
    }

    /// Changes what a zone is used for.
    pub(crate) fn set(&mut self, zone: ZoneId, phase: Phase, role: ZoneRole) {
        let Some(entry) = self.zones.get_mut(zone.index()) else { return };
        entry.phase = phase;
        entry.role = role;
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

    /// Changes the phase and keeps the role.
    pub(crate) fn set_phase(&mut self, zone: ZoneId, phase: Phase) {
        let role = if phase == Phase::Free { ZoneRole::Free } else { self.role(zone) };
        self.set(zone, phase, role);
    }

    fn role(&self, zone: ZoneId) -> ZoneRole {
        self.get(zone).map_or(ZoneRole::Free, |z| z.role)
    }

    /// Notes what the device says, or will say, of a zone.
    pub(crate) fn note(&mut self, zone: ZoneId, state: ZoneState, pointer: u64) {
        if let Some(entry) = self.zones.get_mut(zone.index()) {
            entry.state = state;
            entry.pointer = pointer;
        }
    }

    /// Notes the generation of a log zone.
    pub(crate) fn set_generation(&mut self, zone: ZoneId, generation: u64) {
        if let Some(entry) = self.zones.get_mut(zone.index()) {
            entry.generation = generation;
        }
    }

    /// Blocks became live. False where there is no such zone.
    #[must_use]
    pub(crate) fn add_live(&mut self, zone: ZoneId, blocks: u64, role: ZoneRole) -> bool {
        let Some(entry) = self.zones.get_mut(zone.index()) else { return false };
        if entry.phase == Phase::Unusable && matches!(entry.role, ZoneRole::Superblock | ZoneRole::Metadata) {
            return false;
        }
        // A replay meets zones that were reset and used for something else since.
        if entry.role == ZoneRole::Free || (entry.live == 0 && entry.phase == Phase::Full) {
            entry.role = role;
        }
        entry.live += blocks;
        self.live += blocks;
        self.dead.remove(&zone.0);
        true
    }

    /// Blocks died by record number `by`.
    pub(crate) fn remove_live(&mut self, zone: ZoneId, blocks: u64, by: u64) {
        let Some(entry) = self.zones.get_mut(zone.index()) else { return };
        entry.live = entry.live.checked_sub(blocks).expect("no more blocks die than were live");
        entry.freed_by = entry.freed_by.max(by);
        self.live -= blocks;
        if entry.live == 0 && entry.phase == Phase::Full {
            self.dead.insert(zone.0);
        }
    }

    /// Number of empty zones.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// An empty zone: the lowest.
    pub(crate) fn first_free(&self) -> Option<ZoneId> {
        self.free.first().copied().map(ZoneId)
    }

    /// Full zones that only wait for a reset.
    pub(crate) fn dead(&self) -> Vec<ZoneId> {
        self.dead.iter().copied().map(ZoneId).collect()
    }

    /// Whether there are any.
    pub(crate) fn has_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    /// Whether a zone comes free by itself: a reset is on its way.
    pub(crate) fn is_resetting(&self) -> bool {
        self.zones.iter().any(|z| z.phase == Phase::Resetting)
    }

    /// The full data zone with the fewest live blocks, if a reclaim would gain `least` blocks.
    pub(crate) fn victim(&self, least: u64, except: &[ZoneId]) -> Option<ZoneId> {
        self.iter()
            .filter(|(zone, z)| z.is_candidate(least) && !except.contains(zone))
            .min_by_key(|(_, z)| z.live)
            .map(|(zone, _)| zone)
    }

    /// Blocks that files refer to.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// Blocks of all zones that files may use.
    pub(crate) fn usable(&self) -> u64 {
        self.usable
    }

    /// The whole as a lifetime class, for data zones.
    pub(crate) fn lifetime(&self, zone: ZoneId) -> Lifetime {
        match self.role(zone) {
            ZoneRole::Data { lifetime } => lifetime,
            _ => Lifetime::NotSet,
        }
    }

    /// The blocks written, as last known.
    pub(crate) fn pointer(&self, zone: ZoneId) -> Blocks {
        Blocks(self.get(zone).map_or(0, |z| z.pointer))
    }
}
