//! What a workload of the target `array` runs on, and which drives it loses: a function of the seed and its number.

use std::time::Duration;

use zoned::Blocks;
use zoned::emu::{EmuOptions, Latency};

use crate::{CrashOptions, Rng};

/// Logical zones.
pub(crate) const ZONES: u32 = 6;

/// Which drive is lost before the cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    None,
    /// The array never had it.
    Before(usize),
    /// It fails in the middle of the workload; at the mount it is there again, or not.
    During(usize, bool),
    /// The array never had it, and a new drive takes its place while the workload runs.
    Replaced(usize),
}

/// Which drive is lost, or comes back, at or after a cut. Drives are counted as they were recorded: the members by
/// slot, and behind them the one that takes a lost one's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    None,
    At(usize),
    After(usize),
    /// The one that was replaced is there again.
    Back,
}

/// The drives of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub drives: usize,
    pub unit: u64,
    pub capacity: u64,
    pub cache: bool,
    pub lost: Lost,
    /// Logical zones.
    pub zones: u32,
    /// Zones that a drive may have open.
    pub open: u32,
    /// The drives do what they are asked when they complete it, no earlier.
    pub late: bool,
}

/// The delays of drives, so that operations overlap.
pub(crate) fn latency() -> Latency {
    Latency { flush: Duration::from_micros(30), ..Latency::all(Duration::from_micros(10)) }
}

impl Shape {
    pub(crate) fn of(options: &CrashOptions, workload: u64) -> Shape {
        let mut rng = Rng::at(options.seed, &[workload, 0xa44a]);
        let shapes = [(3, 1, 48), (4, 2, 61), (5, 2, 64), (5, 4, 90), (3, 5, 93)];
        let (drives, unit, capacity) = shapes.get(rng.index(shapes.len())).copied().unwrap_or((3, 1, 48));
        let slot = rng.index(drives);
        let lost = match workload % 8 {
            1 | 5 => Lost::Before(slot),
            2 | 6 => Lost::Replaced(slot),
            3 | 7 => Lost::During(slot, rng.chance(50)),
            _ => Lost::None,
        };
        let cache = options.volatile_cache.unwrap_or(workload % 5 != 4);
        let late = workload % 8 == 4;
        Shape { drives, unit, capacity, cache, lost, zones: ZONES, open: 8, late }
    }

    /// The shape below a file system: more zones, and more of them open.
    pub(crate) fn below(options: &CrashOptions, workload: u64) -> Shape {
        let shape = Shape::of(options, workload);
        // As small as its metadata allows: parity of the zones that may be active, twice.
        Shape { zones: 28, open: 10, capacity: 20 + 16 * (shape.unit + 1), ..shape }
    }

    /// The shape below a database. Nothing is replaced there: that is the array's own target's.
    pub(crate) fn below_engine(options: &CrashOptions, workload: u64) -> Shape {
        let shape = Shape::below(options, workload);
        let lost = match shape.lost {
            Lost::Replaced(slot) => Lost::Before(slot),
            lost => lost,
        };
        Shape { zones: 96, open: 13, capacity: 32 + 24 * (shape.unit + 1), lost, ..shape }
    }

    /// Drives that are recorded.
    pub(crate) fn recorded(&self) -> usize {
        self.drives + usize::from(matches!(self.lost, Lost::Replaced(_)))
    }

    /// The settings of a drive.
    pub(crate) fn drive(&self, index: usize, latency: Latency) -> EmuOptions {
        EmuOptions {
            name: format!("emu:{index}"),
            block_size: 512,
            zones: self.zones + 3,
            zone_size: Blocks(self.capacity),
            zone_capacity: Blocks(self.capacity),
            max_open: Some(self.open),
            max_active: Some(self.open + 1),
            volatile_cache: self.cache,
            track_power_cuts: true,
            latency,
            seed: index as u64,
            ..EmuOptions::default()
        }
    }

    /// What may be lost at a cut, or after it. `replaced`: the new drive is a member by then.
    pub(crate) fn losses(&self, replaced: bool) -> Vec<Loss> {
        let each = |of: std::ops::Range<usize>| of.clone().map(Loss::At).chain(of.map(Loss::After));
        match self.lost {
            Lost::None => [Loss::None].into_iter().chain(each(0..self.drives)).collect(),
            Lost::Before(_) | Lost::During(..) => vec![Loss::None],
            Lost::Replaced(_) if !replaced => vec![Loss::None, Loss::At(self.drives), Loss::Back],
            Lost::Replaced(slot) => {
                let of = each(0..self.drives + 1);
                let others = of.filter(|loss| !matches!(loss, Loss::At(n) | Loss::After(n) if *n == slot));
                [Loss::None, Loss::Back].into_iter().chain(others).collect()
            }
        }
    }

    /// The drives that are there at the mount after a cut.
    pub(crate) fn present(&self, loss: Loss) -> Vec<usize> {
        let away = match self.lost {
            Lost::Before(slot) | Lost::During(slot, false) => Some(slot),
            Lost::Replaced(slot) if loss != Loss::Back => Some(slot),
            _ => None,
        };
        let there = |index: &usize| Some(*index) != away && loss != Loss::At(*index);
        (0..self.recorded()).filter(there).collect()
    }

    /// Whether the array has had all its drives all along, and has them at the mount.
    pub(crate) fn is_whole(&self, loss: Loss) -> bool {
        self.lost == Lost::None && !matches!(loss, Loss::At(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    #[test]
    fn never_more_than_one_member_is_away() {
        let options = CrashOptions::new(Target::Array, 1, 1);
        for workload in 0..80 {
            let shape = Shape::of(&options, workload);
            for (replaced, loss) in
                [false, true].into_iter().flat_map(|r| shape.losses(r).into_iter().map(move |loss| (r, loss)))
            {
                let members = match shape.lost {
                    // Who is a member: the new one, or the old one's empty slot.
                    Lost::Replaced(slot) => (0..shape.recorded()).filter(|n| *n != slot).collect::<Vec<_>>(),
                    _ => (0..shape.drives).collect(),
                };
                let present = shape.present(loss);
                let away = members.iter().filter(|n| !present.contains(n)).count();
                assert!(away <= 1, "{shape:?} {replaced} {loss:?}");
                assert_eq!(loss == Loss::Back, present.len() > shape.drives, "{shape:?} {loss:?}");
            }
        }
    }
}
