//! The drives of a workload of the target `array`, and which of them fails: a function of the seed and the workload's number.

use std::time::Duration;

use ::array::{AppendMode, CreateOptions, OpenOptions, Placement};
use units::Bytes;
use zoned::emu::{EmuOptions, Latency};
use zoned::{Blocks, Goal, ZoneId, ZoneState};

use crate::drive::scheduler_goal;
use crate::{CrashOptions, Rng};

/// Metadata zones of a drive, before the physical zone of logical zone 0.
pub(crate) const METADATA_ZONES: u32 = 3;
/// Logical zones of an array in the target `array`.
pub(crate) const LOGICAL_ZONES: u32 = 6;
/// Physical zones of a drive that small arrays with stored maps keep in reserve.
const RESERVE_ZONES: u32 = 1;
/// Physical zones of a drive for the parts of logical zones where zones share them: six of the logical zones are used.
const SHARED_PART_ZONES: u32 = 16;
/// More blocks of a zone where zones are joined: the logs hold the maps and ends of more zones.
const MORE_BLOCKS_WHERE_JOINED: u64 = 30;
/// Most conventional zones of a drive.
const MAX_CONVENTIONAL_ZONES: u64 = 5;
/// Appends of a length and a number in flight in a round of measurement.
const APPENDS_OF_ROUND: u32 = 4;

/// Drives and blocks of a stripe unit of arrays below a file system or a database, beside those of the target `array`: the widest
/// array, and units with more blocks.
const WIDE_SHAPES: [(usize, u64); 4] = [(6, 1), (6, 3), (5, 7), (5, 8)];

/// Which drive is missing or fails before the cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MissingDrive {
    None,
    /// The drive is missing from the array's first mount on.
    Before(usize),
    /// The drive with this number fails during the workload. `true`: the drive is present again at the mount after the cut.
    During(usize, bool),
    /// The drive is replaced during the workload by a new drive. Without [`Shape::spare`] the drive is missing from the first
    /// mount on and an order replaces it; with a spare the drive fails during the workload, and the spare takes its place.
    Replaced(usize),
    /// All drives are present, and one drive's zone wears out.
    Worn(Worn),
}

/// A physical zone of an array's drive that becomes read-only or offline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Worn {
    pub slot: usize,
    /// The logical zone, or the section of a joined zone, that the worn physical zone is a part of.
    pub zone: usize,
    /// The state after the wear: [`ZoneState::ReadOnly`] or [`ZoneState::Offline`].
    pub state: ZoneState,
    pub when: WearTime,
}

/// When a physical zone wears out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WearTime {
    /// The zone wears out while the workload runs.
    Before,
    /// The zone wears out at the power cut.
    At,
    /// The zone wears out after the mount.
    After,
}

impl MissingDrive {
    /// The same kind of failure, of one of `drives` drives.
    fn within(self, drives: usize) -> MissingDrive {
        match self {
            MissingDrive::None => MissingDrive::None,
            MissingDrive::Before(slot) => MissingDrive::Before(slot % drives),
            MissingDrive::During(slot, back) => MissingDrive::During(slot % drives, back),
            MissingDrive::Replaced(slot) => MissingDrive::Replaced(slot % drives),
            MissingDrive::Worn(worn) => MissingDrive::Worn(Worn { slot: worn.slot % drives, ..worn }),
        }
    }
}

impl Worn {
    /// The physical zone that wears out, on a drive with `conventional` conventional zones.
    pub(crate) fn part(&self, conventional: u32) -> ZoneId {
        ZoneId(u32::try_from(self.zone).expect("a few") + METADATA_ZONES + conventional)
    }
}

/// Number and properties of an array's drives in one workload, and the drive that is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub drives: usize,
    pub unit: u64,
    pub capacity: u64,
    pub cache: bool,
    pub missing: MissingDrive,
    /// Logical zones of the array.
    pub zones: u32,
    /// Zones that a drive may have open.
    pub open: u32,
    /// The drives execute an operation when they complete it, and no earlier.
    pub late: bool,
    /// The seed of the differences between the drives; `None` where all drives are alike.
    pub uneven: Option<u64>,
    /// The new drive of a replacement is an idle spare of the array from the start.
    pub spare: bool,
    /// The array's writes are atomic.
    pub atomic: bool,
    /// The array has stored maps (placement 2).
    pub stored: bool,
    /// Parts of zones move to other physical zones while the workload runs.
    pub moves: bool,
    /// The goal of the schedulers before the drives, in the recorded workload; `None` without schedulers.
    pub scheduler: Option<Goal>,
    /// Units of a stripe: with stored maps there may be more drives.
    pub width: usize,
    /// Drives whose capacity is left free: lost parts of zones move there.
    pub spare_drives: usize,
    /// Logical zones that share a physical zone: with stored maps there may be several.
    pub shares: u32,
    /// Sections of a joined zone: 1 where each zone is for itself.
    pub sections: u32,
    /// The stripes of the sections take turns.
    pub interleaved: bool,
    /// The seed of the drives' numbers of conventional zones; `None` where no drive has conventional zones.
    pub smr: Option<u64>,
    /// Units of parity in a stripe.
    pub parities: u32,
    /// How the array's appends go to its drives. Unless they are ordered, the workload appends, and appends land in any order.
    pub appends: AppendMode,
    /// A second drive that is missing from the array's first mount on: with two parities.
    pub also_missing: Option<usize>,
}

/// Latencies of the emulated drives, long enough for operations to overlap.
pub(crate) fn latency() -> Latency {
    Latency { flush: Duration::from_micros(30), ..Latency::all(Duration::from_micros(10)) }
}

impl Shape {
    /// The shape of an array of the target `array`: some have two parities.
    pub(crate) fn of(options: &CrashOptions, workload: u64) -> Shape {
        let shape = Shape::of_any_width(options, workload).with_shares(options, workload);
        let shape = shape.with_sections(options, workload);
        let moves = shape.stored && Rng::at(options.seed, &[workload, 0x307e]).chance(50);
        let scheduler = scheduler_goal(options.seed, workload);
        Shape { moves, scheduler, ..shape }
    }

    fn of_any_width(options: &CrashOptions, workload: u64) -> Shape {
        let shape = Shape::with_as_many_units_as_drives(options, workload);
        let mut rng = Rng::at(options.seed, &[workload, 0x51de]);
        let least = 2 + shape.parities as usize;
        let loses_drive = matches!(shape.missing, MissingDrive::Before(_) | MissingDrive::During(..));
        let chance = if loses_drive { 80 } else { 50 };
        if !shape.stored || shape.drives <= least || !rng.chance(chance) {
            return shape;
        }
        let width = least + rng.index(shape.drives - least);
        let spare_drives = if rng.chance(60) { 1 + rng.index(shape.drives - width) } else { 0 };
        Shape { width, spare_drives, ..shape }
    }

    /// In some arrays with stored maps and without spare room two, three or six zones share a physical zone: two or three where an array
    /// has more drives than a stripe has units. More zones are smaller, so that they are full soon.
    fn with_shares(self, options: &CrashOptions, workload: u64) -> Shape {
        let mut rng = Rng::at(options.seed, &[workload, 0x54a6]);
        let chance = if self.width < self.drives { 90 } else { 60 };
        if !self.stored || self.spare_drives > 0 || !rng.chance(chance) {
            return self;
        }
        // The logs hold the maps of more zones.
        let is_narrow = self.width < self.drives;
        let maps = if is_narrow { 30 } else { 0 };
        let (shares, capacity) = match rng.index(if is_narrow { 2 } else { 3 }) {
            0 => (2, 2 * self.capacity + 30 + maps),
            1 => (3, self.capacity + 80 + maps),
            _ => (6, self.capacity + 120),
        };
        Shape { shares, capacity, ..self }
    }

    /// In some arrays two or three zones are joined, one behind the other or stripe by stripe.
    fn with_sections(self, options: &CrashOptions, workload: u64) -> Shape {
        let mut rng = Rng::at(options.seed, &[workload, 0x5ec7]);
        if self.shares > 1 || self.atomic || !rng.chance(50) {
            return self;
        }
        let sections = if rng.chance(50) { 2 } else { 3 };
        let interleaved = rng.chance(60);
        Shape { sections, interleaved, capacity: self.capacity + MORE_BLOCKS_WHERE_JOINED, ..self }
    }

    fn with_as_many_units_as_drives(options: &CrashOptions, workload: u64) -> Shape {
        let shape = Shape::with_one_parity(options, workload).with_wider_units(options, workload);
        let mut rng = Rng::at(options.seed, &[workload, 0x2a21]);
        if !rng.chance(60) {
            return shape;
        }
        let shapes = [(4, 1, 48), (4, 2, 61), (5, 2, 64), (6, 4, 90), (5, 5, 93)];
        let (drives, unit, capacity) = shapes.get(rng.index(shapes.len())).copied().unwrap_or((4, 1, 48));
        let shape = Shape { missing: shape.missing.within(drives), ..shape };
        let also_missing = shape.draw_second_missing(drives, &mut rng);
        // A log of frames and maps needs more room.
        let capacity = capacity + if shape.atomic { 20 } else { 0 } + if shape.stored { 10 } else { 0 };
        let shape = Shape { drives, width: drives, unit, capacity, parities: 2, also_missing, ..shape };
        shape.with_wider_units(options, workload)
    }

    /// The shape of an array with one parity.
    fn with_one_parity(options: &CrashOptions, workload: u64) -> Shape {
        let mut rng = Rng::at(options.seed, &[workload, 0xa44a]);
        let shapes = [(3, 1, 48), (4, 2, 61), (5, 2, 64), (5, 4, 90), (3, 5, 93)];
        let (drives, unit, capacity) = shapes.get(rng.index(shapes.len())).copied().unwrap_or((3, 1, 48));
        let slot = rng.index(drives);
        let missing = match workload % 8 {
            1 => MissingDrive::Before(slot),
            5 => MissingDrive::Worn(Shape::draw_worn_zone(options, workload, slot)),
            2 | 6 => MissingDrive::Replaced(slot),
            3 | 7 => MissingDrive::During(slot, rng.chance(50)),
            _ => MissingDrive::None,
        };
        let cache = options.volatile_cache.unwrap_or(workload % 5 != 4);
        let late = workload % 8 == 4;
        let mut rng = Rng::at(options.seed, &[workload, 0xd1ff]);
        let uneven = rng.chance(40).then(|| rng.draw());
        let mut rng = Rng::at(options.seed, &[workload, 0x5a42]);
        let smr = rng.chance(30).then(|| rng.draw());
        let atomic = Rng::at(options.seed, &[workload, 0xa703]).chance(35);
        // A log of frames needs more room.
        let capacity = if atomic { capacity + 20 } else { capacity };
        let stored = Rng::at(options.seed, &[workload, 0x3a95]).chance(50);
        // Arrays with atomic writes order their appends.
        let draw = |salt| Rng::at(options.seed, &[workload, salt]);
        let appends = match !atomic && draw(0xa99e).chance(50) {
            true if draw(0xa9a0).chance(50) => AppendMode::Auto,
            true => AppendMode::Append,
            false => AppendMode::Ordered,
        };
        let replaces = matches!(missing, MissingDrive::Replaced(_));
        let spare = replaces && Rng::at(options.seed, &[workload, 0x59a7]).chance(50);
        Shape {
            drives,
            unit,
            capacity,
            cache,
            missing,
            zones: LOGICAL_ZONES,
            open: 8,
            late,
            uneven,
            spare,
            atomic,
            stored,
            moves: false,
            scheduler: None,
            width: drives,
            spare_drives: 0,
            shares: 1,
            sections: 1,
            interleaved: false,
            smr,
            parities: 1,
            appends,
            also_missing: None,
        }
    }

    /// The second drive that is missing from the start, in half of the workloads of an array of `drives` drives and two parities in
    /// which another drive is missing, fails, is replaced or has a worn zone.
    fn draw_second_missing(&self, drives: usize, rng: &mut Rng) -> Option<usize> {
        let slot = match self.missing {
            MissingDrive::Before(slot) | MissingDrive::During(slot, _) => Some(slot),
            // A spare would take the place of the drive that is missing from the start.
            MissingDrive::Replaced(slot) if !self.spare => Some(slot),
            MissingDrive::Worn(worn) => Some(worn.slot),
            MissingDrive::None | MissingDrive::Replaced(_) => None,
        };
        let second = (slot? + 1 + rng.index(drives - 1)) % drives;
        rng.chance(50).then_some(second)
    }

    fn draw_worn_zone(options: &CrashOptions, workload: u64, slot: usize) -> Worn {
        let mut rng = Rng::at(options.seed, &[workload, 0x0143]);
        let state = if rng.chance(50) { ZoneState::ReadOnly } else { ZoneState::Offline };
        let when = match rng.below(4) {
            0 => WearTime::At,
            1 => WearTime::After,
            _ => WearTime::Before,
        };
        Worn { slot, zone: rng.index(LOGICAL_ZONES as usize), state, when }
    }

    /// Some arrays that send appends as appends have units long enough for several appends side by side.
    fn with_wider_units(self, options: &CrashOptions, workload: u64) -> Shape {
        match self.sends_appends() && Rng::at(options.seed, &[workload, 0xa99f]).chance(60) {
            true => Shape { unit: 8, capacity: 190, ..self },
            false => self,
        }
    }

    /// The options of the array's creation.
    pub(crate) fn create_options(&self) -> CreateOptions {
        CreateOptions {
            stripe_unit: Bytes(self.unit * 512),
            parities: self.parities,
            placement: if self.stored { Placement::Stored } else { Placement::Fixed },
            atomic_writes: self.atomic,
            width: Some(u32::try_from(self.width).expect("a few")),
            spare_drives: u32::try_from(self.spare_drives).expect("a few"),
            shares: self.shares,
            sections: self.sections,
            interleaved: self.interleaved,
            ..CreateOptions::default()
        }
    }

    /// True if appends may go to the drives as appends.
    pub(crate) fn sends_appends(&self) -> bool {
        self.appends != AppendMode::Ordered
    }

    /// `options` with the shape's way of appends. Rounds of measurement are short, so that the way changes within a workload.
    pub(crate) fn with_appends(&self, options: OpenOptions) -> OpenOptions {
        OpenOptions { appends: self.appends, append_round: Some(APPENDS_OF_ROUND), ..options }
    }

    /// The number that the array's device gives to the zone with the worn physical zone. `None`: the physical zone may hold parts of
    /// any zones, one after the other or several at a time.
    pub(crate) fn zone_with_wear(&self, worn: Worn) -> Option<usize> {
        let is_of_any = self.shares > 1 || self.width < self.drives || self.moves;
        (!is_of_any).then_some(worn.zone / self.sections as usize)
    }

    /// True if the worn physical zone may hold a part of the zone that the array's device gives this number.
    pub(crate) fn may_wear(&self, worn: Worn, zone: usize) -> bool {
        self.zone_with_wear(worn).is_none_or(|worn| worn == zone)
    }

    /// The physical zones, by their numbers on each drive, of the joined zone that has the worn one, without those of sections that the
    /// zone's first `submitted` blocks fill.
    pub(crate) fn sections_with_wear(&self, worn: Worn, submitted: u64) -> impl Iterator<Item = Worn> {
        let sections = self.sections as usize;
        let first = worn.zone / sections * sections;
        let blocks = self.capacity * (self.width as u64 - u64::from(self.parities));
        let whole = if sections == 1 || self.interleaved { 0 } else { submitted / blocks };
        (0..sections)
            .filter(move |section| *section as u64 >= whole)
            .map(move |section| Worn { zone: first + section, ..worn })
    }

    /// True if an injected error fails a drive during the workload.
    pub(crate) fn fails_drive(&self) -> bool {
        matches!(self.missing, MissingDrive::During(..))
            || matches!(self.missing, MissingDrive::Replaced(_)) && self.spare
    }

    /// The physical zone that wears out in this workload.
    pub(crate) fn worn(&self) -> Option<Worn> {
        match self.missing {
            MissingDrive::Worn(worn) => Some(worn),
            _ => None,
        }
    }

    /// The shape of an array below a file system: it has more zones, and more of them open, than the target `array` uses.
    pub(crate) fn below(options: &CrashOptions, workload: u64) -> Shape {
        let shape = Shape::with_one_parity(options, workload);
        let mut rng = Rng::at(options.seed, &[workload, 0xbe10]);
        let (drives, unit) = match rng.chance(30) {
            true => {
                WIDE_SHAPES.get(rng.index(WIDE_SHAPES.len())).copied().unwrap_or((shape.drives, shape.unit))
            }
            false => (shape.drives, shape.unit),
        };
        let (drives, parities) = if rng.chance(40) { (drives.max(4), 2) } else { (drives, 1) };
        // Worn zones and drives of different sizes and limits are tested in the target `array` alone.
        let missing = match shape.missing {
            MissingDrive::Worn(worn) => MissingDrive::Before(worn.slot),
            missing => missing,
        };
        let shape = Shape { missing, ..shape };
        let also_missing = if parities == 2 { shape.draw_second_missing(drives, &mut rng) } else { None };
        // The smallest zones that the metadata log allows: twice the parity of all active zones, twice the maps, and the frames.
        let maps = if shape.stored { 20 } else { 0 };
        let frames = if shape.atomic { 30 } else { 0 };
        // Drawn apart from the scheduler before the array: either may hold operations, or both.
        let scheduler = scheduler_goal(options.seed ^ 0xbe10, workload);
        Shape {
            scheduler,
            zones: 28,
            open: 10,
            capacity: 20 + 16 * (unit + 1) + maps + frames,
            drives,
            width: drives,
            unit,
            uneven: None,
            parities,
            also_missing,
            appends: AppendMode::Ordered,
            ..shape
        }
        .with_zones_of_other_sizes(options, workload)
    }

    /// Some arrays below a file system or a database have joined zones, others zones that share a physical zone, others more drives than a
    /// stripe has units, with spare room or without.
    fn with_zones_of_other_sizes(self, options: &CrashOptions, workload: u64) -> Shape {
        let mut rng = Rng::at(options.seed, &[workload, 0x5127]);
        if !self.atomic && rng.chance(40) {
            let interleaved = rng.chance(50);
            // A checkpoint has the partial parity of all zones that the drives may have open, and a metadata zone two checkpoints.
            let parity = 2 * u64::from(self.open) * (self.unit + 1);
            let capacity = self.capacity + 2 * MORE_BLOCKS_WHERE_JOINED + parity;
            return Shape { sections: 2, interleaved, open: 2 * self.open, capacity, ..self };
        }
        if self.stored && self.spare_drives == 0 && rng.chance(50) {
            return Shape { shares: 2, capacity: 2 * self.capacity + 60, ..self };
        }
        let least = 2 + self.parities as usize;
        if !self.stored || self.drives <= least || !rng.chance(60) {
            return self;
        }
        let width = least + rng.index(self.drives - least);
        let spare_drives = rng.index(self.drives - width + 1);
        // The array has more logical zones than its drives have physical ones: the logs hold more maps.
        Shape { width, spare_drives, capacity: self.capacity + 60, ..self }
    }

    /// The shape of an array below a database. Drives are replaced in the target `array` alone.
    pub(crate) fn below_engine(options: &CrashOptions, workload: u64) -> Shape {
        let shape = Shape::below(options, workload);
        let missing = match shape.missing {
            MissingDrive::Replaced(slot) => MissingDrive::Before(slot),
            missing => missing,
        };
        let maps = if shape.stored { 60 } else { 0 };
        let frames = if shape.atomic { 46 } else { 0 };
        let capacity = 32 + 24 * (shape.unit + 1) + maps + frames;
        let one = Shape {
            shares: 1,
            sections: 1,
            interleaved: false,
            width: shape.drives,
            spare_drives: 0,
            ..shape
        };
        Shape { zones: 96, open: 13, capacity, missing, spare: false, ..one }
            .with_zones_of_other_sizes(options, workload)
    }

    /// Number of drives whose operations are recorded.
    pub(crate) fn recorded(&self) -> usize {
        self.drives + usize::from(matches!(self.missing, MissingDrive::Replaced(_)))
    }

    /// Number of sequential zones that the array uses of each drive.
    fn physical_zones(&self) -> u32 {
        if self.shares > 1 {
            let parts = match self.zones > LOGICAL_ZONES {
                true => self.zones.div_ceil(self.shares) + self.open + 4,
                false => SHARED_PART_ZONES,
            };
            return parts + METADATA_ZONES;
        }
        let reserve = if self.stored { RESERVE_ZONES } else { 0 };
        self.zones * self.sections + METADATA_ZONES + reserve
    }

    /// Number of conventional zones of one drive of the array.
    pub(crate) fn conventional(&self, index: usize) -> u32 {
        let draw = |seed| Rng::at(seed, &[index as u64]).below(MAX_CONVENTIONAL_ZONES + 1);
        self.smr.map_or(0, |seed| u32::try_from(draw(seed)).expect("a few"))
    }

    /// The emulator's settings for one drive of the array.
    pub(crate) fn drive(&self, index: usize, latency: Latency) -> EmuOptions {
        // One drive has the fewest zones, another the shortest zones, a third the lowest limits: the array has the least of each.
        let more = |of: u64, most: u64| match self.uneven {
            Some(seed) if (seed.wrapping_add(of) % self.drives as u64) as usize != index => {
                Rng::at(seed, &[index as u64, of]).below(most)
            }
            _ => 0,
        };
        let few = |of, most| u32::try_from(more(of, most)).expect("a few");
        let capacity = Blocks(self.capacity + more(0, 9));
        let conventional = self.conventional(index);
        let sequential = self.physical_zones() + few(1, 3);
        // An array with stored maps keeps one zone more for itself.
        let open = self.open + few(2, 4) + u32::from(self.stored);
        EmuOptions {
            name: format!("emu:{index}"),
            block_size: 512,
            zones: conventional + sequential,
            conventional,
            zone_size: capacity.plus(Blocks(more(3, 7))),
            zone_capacity: capacity,
            max_open: Some(open),
            max_active: Some(open + 1),
            volatile_cache: self.cache,
            reorder: self.sends_appends(),
            track_power_cuts: true,
            latency,
            seed: index as u64,
            ..EmuOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use units::{Driver, VirtualDriver, block_on};
    use zoned::ZonedDevice;
    use zoned::emu::Emu;

    use super::*;
    use crate::Target;

    /// Workloads of any seed begin: CI explores a seed of the commit.
    #[test]
    fn arrays_of_every_seed_can_be_created() {
        let mut refused = BTreeSet::new();
        for (target, of) in [
            (Target::Array, Shape::of as fn(&CrashOptions, u64) -> Shape),
            (Target::Fs, Shape::below),
            (Target::Engine, Shape::below_engine),
        ] {
            for (seed, workload) in (0..60).flat_map(|seed| (0..24).map(move |workload| (seed, workload))) {
                let shape = of(&CrashOptions::new(target, seed, 1), workload);
                let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
                let drive = |n| {
                    Emu::memory(shape.drive(n, Latency::NONE), Arc::clone(&driver)) as Arc<dyn ZonedDevice>
                };
                let drives: Vec<Arc<dyn ZonedDevice>> = (0..shape.drives).map(drive).collect();
                if let Err(e) = block_on(&*driver, ::array::create(&drives, &shape.create_options())) {
                    refused.insert(format!("{target}: {shape:?}: {e}"));
                }
            }
        }
        assert!(refused.is_empty(), "{} refused, as {:?}", refused.len(), refused.first());
    }

    /// The first workloads have drives that differ, some of them in conventional zones, and worn zones in both states at
    /// all three times.
    #[test]
    fn drives_differ_and_zones_wear_out() {
        let options = CrashOptions::new(Target::Array, 1, 1);
        let shapes: Vec<Shape> = (0..160).map(|workload| Shape::of(&options, workload)).collect();
        let worn: BTreeSet<String> = shapes
            .iter()
            .filter_map(Shape::worn)
            .map(|worn| format!("{:?} {:?}", worn.state, worn.when))
            .collect();
        assert_eq!(worn.len(), 6, "{worn:?}");
        let atomic = shapes.iter().filter(|shape| shape.atomic).count();
        assert!((40..72).contains(&atomic), "{atomic}");
        let stored = shapes.iter().filter(|shape| shape.stored).count();
        assert!((60..100).contains(&stored), "{stored}");
        let shared = |shares| shapes.iter().filter(|shape| shape.shares == shares).count();
        let counts = [2, 3, 6].map(shared);
        assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
        let joined = |interleaved| {
            let of = |sections| {
                let is = |shape: &&Shape| shape.sections == sections && shape.interleaved == interleaved;
                shapes.iter().filter(is).count()
            };
            [2, 3].map(of)
        };
        let counts = [joined(false), joined(true)].concat();
        assert!(counts.iter().all(|count| *count > 3), "{counts:?}");
        let narrow = shapes.iter().filter(|shape| shape.width < shape.drives).count();
        assert!((15..40).contains(&narrow), "{narrow}");
        let worn = shapes.iter().filter(|shape| shape.worn().is_some());
        let of_any: Vec<&Shape> =
            worn.filter(|s| s.worn().and_then(|w| s.zone_with_wear(w)).is_none()).collect();
        let count = |is: fn(&Shape) -> bool| of_any.iter().filter(|shape| is(shape)).count();
        let counts = [
            count(|shape| shape.shares > 1),
            count(|shape| shape.moves),
            count(|shape| shape.width < shape.drives),
        ];
        assert!(counts.iter().all(|count| *count > 0), "worn: {counts:?}");
        let both = || shapes.iter().filter(|shape| shape.width < shape.drives && shape.shares > 1);
        assert_eq!(both().map(|shape| shape.shares).collect::<BTreeSet<_>>(), [2, 3].into());
        assert_eq!(both().map(|shape| shape.parities).collect::<BTreeSet<_>>(), [1, 2].into());
        let room = shapes.iter().filter(|shape| shape.spare_drives > 0).count();
        assert!((10..40).contains(&room), "{room}");
        let spares = shapes.iter().filter(|shape| shape.spare).count();
        assert!((10..30).contains(&spares), "{spares}");
        let (mut differ, mut smr) = (0, 0);
        for shape in &shapes {
            let drives: Vec<EmuOptions> =
                (0..shape.drives).map(|drive| shape.drive(drive, Latency::NONE)).collect();
            let least = |of: fn(&EmuOptions) -> u64| drives.iter().map(of).min().expect("some");
            let all = (least(|d| d.zone_capacity.0), least(|d| u64::from(d.zones - d.conventional)));
            assert_eq!(all, (shape.capacity, u64::from(shape.physical_zones())), "{shape:?}");
            assert_eq!(
                least(|d| u64::from(d.max_open.expect("limited"))),
                u64::from(shape.open) + u64::from(shape.stored),
                "{shape:?}"
            );
            let of =
                |d: &EmuOptions| (d.zone_size.0, d.zone_capacity.0, d.zones - d.conventional, d.max_open);
            smr += usize::from(drives.iter().map(|d| d.conventional).collect::<BTreeSet<_>>().len() > 1);
            differ += usize::from(drives.iter().map(of).collect::<BTreeSet<_>>().len() > 1);
        }
        assert!(differ > 30 && smr > 30, "{differ} {smr}");
    }

    /// Arrays below a file system and below a database have three to six drives, stripe units of one to eight blocks, members with
    /// different numbers of conventional zones, and drives that are missing, fail, or are replaced (below a file system) by a spare.
    #[test]
    fn arrays_below_other_targets_differ() {
        for (target, below) in [
            (Target::Fs, Shape::below as fn(&CrashOptions, u64) -> Shape),
            (Target::Engine, Shape::below_engine),
        ] {
            let options = CrashOptions::new(target, 1, 1);
            let shapes: Vec<Shape> = (0..60).map(|workload| below(&options, workload)).collect();
            let drives: BTreeSet<usize> = shapes.iter().map(|shape| shape.drives).collect();
            assert_eq!(drives, (3..=6).collect(), "{target}");
            let units: BTreeSet<u64> = shapes.iter().map(|shape| shape.unit).collect();
            assert_eq!(units, [1, 2, 3, 4, 5, 7, 8].into(), "{target}");
            let conventional = |shape: &&Shape| (0..shape.drives).any(|drive| shape.conventional(drive) > 0);
            assert!(shapes.iter().filter(conventional).count() > 9, "{target}");
            let of = |is: fn(&Shape) -> bool| shapes.iter().filter(|shape| is(shape)).count();
            assert!(of(|shape| matches!(shape.missing, MissingDrive::During(..))) > 9, "{target}");
            assert!(of(|shape| matches!(shape.missing, MissingDrive::Before(_))) > 9, "{target}");
            assert_eq!(of(|shape| shape.spare) > 5, target == Target::Fs, "{target}");
            assert!(of(|shape| shape.parities == 2) > 9, "{target}");
            assert!(of(|shape| shape.also_missing.is_some()) > 3, "{target}");
            assert!(of(|shape| shape.atomic) > 9 && of(|shape| shape.stored) > 9, "{target}");
            assert!(of(|shape| shape.shares > 1) > 5, "{target}");
            assert!(of(|shape| shape.width < shape.drives && shape.spare_drives == 0) > 0, "{target}");
            assert!(of(|shape| shape.spare_drives > 0) > 1, "{target}");
            for interleaved in [true, false] {
                let joined = shapes.iter().filter(|s| s.sections > 1 && s.interleaved == interleaved);
                assert!(joined.count() > 2, "{target}, interleaved: {interleaved}");
            }
        }
    }
}
