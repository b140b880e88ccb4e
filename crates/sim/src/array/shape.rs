//! The drives of a workload of the target `array`, and which of them fails: a function of the seed and the workload's number.

use std::time::Duration;

use zoned::emu::{EmuOptions, Latency};
use zoned::{Blocks, ZoneId, ZoneState};

use crate::{CrashOptions, Rng};

/// Metadata zones of a drive, before the physical zone of logical zone 0.
pub(crate) const METADATA_ZONES: u32 = 3;
/// Logical zones of an array in the target `array`.
pub(crate) const LOGICAL_ZONES: u32 = 6;
/// Most conventional zones of a drive.
const MAX_CONVENTIONAL_ZONES: u64 = 5;

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
    /// The logical zone that the worn physical zone is a part of.
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

impl Worn {
    /// The physical zone that wears out, on a drive with `conventional` conventional zones.
    pub(crate) fn part(&self, conventional: u32) -> ZoneId {
        ZoneId(u32::try_from(self.zone).expect("a few") + METADATA_ZONES + conventional)
    }
}

/// The drive that fails, or comes back, at or after a power cut. Drives have the numbers of the recording: members by slot,
/// then the new drive of a replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DriveFailure {
    None,
    At(usize),
    After(usize),
    /// The drive that was replaced is present again.
    Back,
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
    /// The seed of the drives' numbers of conventional zones; `None` where no drive has conventional zones.
    pub smr: Option<u64>,
}

/// Latencies of the emulated drives, long enough for operations to overlap.
pub(crate) fn latency() -> Latency {
    Latency { flush: Duration::from_micros(30), ..Latency::all(Duration::from_micros(10)) }
}

impl Shape {
    pub(crate) fn of(options: &CrashOptions, workload: u64) -> Shape {
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
            smr,
        }
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

    /// The physical zone that wears out in this workload.
    pub(crate) fn worn(&self) -> Option<Worn> {
        match self.missing {
            MissingDrive::Worn(worn) => Some(worn),
            _ => None,
        }
    }

    /// The shape of an array below a file system: it has more zones, and more of them open, than the target `array` uses.
    pub(crate) fn below(options: &CrashOptions, workload: u64) -> Shape {
        let shape = Shape::of(options, workload);
        // Worn zones, drives that differ and conventional zones are tested in the target `array` alone.
        let missing = match shape.missing {
            MissingDrive::Worn(worn) => MissingDrive::Before(worn.slot),
            missing => missing,
        };
        // The smallest zones that the metadata log allows: twice the parity of all active zones.
        Shape {
            zones: 28,
            open: 10,
            capacity: 20 + 16 * (shape.unit + 1),
            missing,
            uneven: None,
            smr: None,
            ..shape
        }
    }

    /// The shape of an array below a database. Drives are replaced in the target `array` alone.
    pub(crate) fn below_engine(options: &CrashOptions, workload: u64) -> Shape {
        let shape = Shape::below(options, workload);
        let missing = match shape.missing {
            MissingDrive::Replaced(slot) => MissingDrive::Before(slot),
            missing => missing,
        };
        Shape { zones: 96, open: 13, capacity: 32 + 24 * (shape.unit + 1), missing, spare: false, ..shape }
    }

    /// Number of drives whose operations are recorded.
    pub(crate) fn recorded(&self) -> usize {
        self.drives + usize::from(matches!(self.missing, MissingDrive::Replaced(_)))
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
        let sequential = self.zones + METADATA_ZONES + few(1, 3);
        let open = self.open + few(2, 4);
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
            track_power_cuts: true,
            latency,
            seed: index as u64,
            ..EmuOptions::default()
        }
    }

    /// The drive failures to try at a power cut. `replaced`: the new drive is a member by then.
    pub(crate) fn failures(&self, replaced: bool) -> Vec<DriveFailure> {
        let each =
            |of: std::ops::Range<usize>| of.clone().map(DriveFailure::At).chain(of.map(DriveFailure::After));
        match self.missing {
            MissingDrive::None | MissingDrive::Worn(_) => {
                [DriveFailure::None].into_iter().chain(each(0..self.drives)).collect()
            }
            MissingDrive::Before(_) | MissingDrive::During(..) => vec![DriveFailure::None],
            MissingDrive::Replaced(_) if !replaced => {
                vec![DriveFailure::None, DriveFailure::At(self.drives), DriveFailure::Back]
            }
            MissingDrive::Replaced(slot) => {
                let of = each(0..self.drives + 1);
                let others = of.filter(
                    |failure| !matches!(failure, DriveFailure::At(n) | DriveFailure::After(n) if *n == slot),
                );
                [DriveFailure::None, DriveFailure::Back].into_iter().chain(others).collect()
            }
        }
    }

    /// The drives that are present at the mount after a cut.
    pub(crate) fn present(&self, failure: DriveFailure) -> Vec<usize> {
        let away = match self.missing {
            MissingDrive::Before(slot) | MissingDrive::During(slot, false) => Some(slot),
            MissingDrive::Replaced(slot) if failure != DriveFailure::Back => Some(slot),
            _ => None,
        };
        let there = |index: &usize| Some(*index) != away && failure != DriveFailure::At(*index);
        (0..self.recorded()).filter(there).collect()
    }

    /// Whether no drive of the array has been missing at any time, the mount included.
    pub(crate) fn is_whole(&self, failure: DriveFailure) -> bool {
        self.missing == MissingDrive::None && !matches!(failure, DriveFailure::At(_))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Target;

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
        let spares = shapes.iter().filter(|shape| shape.spare).count();
        assert!((10..30).contains(&spares), "{spares}");
        let (mut differ, mut smr) = (0, 0);
        for shape in &shapes {
            let drives: Vec<EmuOptions> =
                (0..shape.drives).map(|drive| shape.drive(drive, Latency::NONE)).collect();
            let least = |of: fn(&EmuOptions) -> u64| drives.iter().map(of).min().expect("some");
            let all = (least(|d| d.zone_capacity.0), least(|d| u64::from(d.zones - d.conventional)));
            assert_eq!(all, (shape.capacity, u64::from(shape.zones + METADATA_ZONES)), "{shape:?}");
            assert_eq!(
                least(|d| u64::from(d.max_open.expect("limited"))),
                u64::from(shape.open),
                "{shape:?}"
            );
            let of =
                |d: &EmuOptions| (d.zone_size.0, d.zone_capacity.0, d.zones - d.conventional, d.max_open);
            smr += usize::from(drives.iter().map(|d| d.conventional).collect::<BTreeSet<_>>().len() > 1);
            differ += usize::from(drives.iter().map(of).collect::<BTreeSet<_>>().len() > 1);
        }
        assert!(differ > 30 && smr > 30, "{differ} {smr}");
    }

    #[test]
    fn at_most_one_member_is_missing() {
        let options = CrashOptions::new(Target::Array, 1, 1);
        for workload in 0..80 {
            let shape = Shape::of(&options, workload);
            for (replaced, failure) in [false, true]
                .into_iter()
                .flat_map(|r| shape.failures(r).into_iter().map(move |failure| (r, failure)))
            {
                let members = match shape.missing {
                    // After the cut either the new drive is the member, or the old drive's slot is empty.
                    MissingDrive::Replaced(slot) => {
                        (0..shape.recorded()).filter(|n| *n != slot).collect::<Vec<_>>()
                    }
                    _ => (0..shape.drives).collect(),
                };
                let present = shape.present(failure);
                let away = members.iter().filter(|n| !present.contains(n)).count();
                assert!(away <= 1, "{shape:?} {replaced} {failure:?}");
                assert_eq!(
                    failure == DriveFailure::Back,
                    present.len() > shape.drives,
                    "{shape:?} {failure:?}"
                );
            }
        }
    }
}
