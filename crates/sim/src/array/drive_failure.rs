//! The drives of an array that fail at a power cut or after the mount that follows it, and the drives that are left.

use super::shape::{MissingDrive, Shape};

/// The drives that fail, or the drive that comes back, at or after a power cut. Drives have the numbers of the recording: members by
/// slot, then the new drive of a replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DriveFailure {
    None,
    At(usize),
    After(usize),
    AtBoth(usize, usize),
    AtAndAfter(usize, usize),
    AfterBoth(usize, usize),
    /// The drive that was replaced is present again.
    Back,
}

impl DriveFailure {
    /// The drives that fail at the cut.
    pub(crate) fn at(self) -> Vec<usize> {
        match self {
            DriveFailure::At(drive) | DriveFailure::AtAndAfter(drive, _) => vec![drive],
            DriveFailure::AtBoth(one, other) => vec![one, other],
            DriveFailure::None
            | DriveFailure::After(_)
            | DriveFailure::AfterBoth(..)
            | DriveFailure::Back => Vec::new(),
        }
    }

    /// The drives that fail after the mount that follows the cut.
    pub(crate) fn after(self) -> Vec<usize> {
        match self {
            DriveFailure::After(drive) | DriveFailure::AtAndAfter(_, drive) => vec![drive],
            DriveFailure::AfterBoth(one, other) => vec![one, other],
            DriveFailure::None | DriveFailure::At(_) | DriveFailure::AtBoth(..) | DriveFailure::Back => {
                Vec::new()
            }
        }
    }

    /// The drive failures to try at a power cut. `replaced`: the new drive is a member by then.
    pub(crate) fn all_of(shape: &Shape, replaced: bool) -> Vec<DriveFailure> {
        if shape.parities > 1 {
            return DriveFailure::of_two_parities(shape, replaced);
        }
        let each =
            |of: std::ops::Range<usize>| of.clone().map(DriveFailure::At).chain(of.map(DriveFailure::After));
        match shape.missing {
            MissingDrive::None | MissingDrive::Worn(_) => {
                [DriveFailure::None].into_iter().chain(each(0..shape.drives)).collect()
            }
            MissingDrive::Before(_) | MissingDrive::During(..) => vec![DriveFailure::None],
            MissingDrive::Replaced(_) if !replaced => {
                vec![DriveFailure::None, DriveFailure::At(shape.drives), DriveFailure::Back]
            }
            MissingDrive::Replaced(slot) => {
                let of = each(0..shape.drives + 1);
                let others = of.filter(
                    |failure| !matches!(failure, DriveFailure::At(n) | DriveFailure::After(n) if *n == slot),
                );
                [DriveFailure::None, DriveFailure::Back].into_iter().chain(others).collect()
            }
        }
    }

    /// As [`all_of`](DriveFailure::all_of), of an array that does without two drives.
    fn of_two_parities(shape: &Shape, replaced: bool) -> Vec<DriveFailure> {
        let lacking = match shape.missing {
            MissingDrive::Before(slot) | MissingDrive::During(slot, _) => Some(slot),
            MissingDrive::Replaced(slot) => Some(slot),
            MissingDrive::None | MissingDrive::Worn(_) => None,
        };
        let is_there = |drive: &usize| Some(*drive) != lacking && Some(*drive) != shape.also_missing;
        let there: Vec<usize> = (0..shape.drives).filter(is_there).collect();
        let is_replaced = replaced && matches!(shape.missing, MissingDrive::Replaced(_));
        let left =
            2 - usize::from(lacking.is_some() && !is_replaced) - usize::from(shape.also_missing.is_some());
        let mut failures = vec![DriveFailure::None];
        if matches!(shape.missing, MissingDrive::Replaced(_)) {
            failures.extend([DriveFailure::Back, DriveFailure::At(shape.drives)].into_iter().filter(
                |failure| {
                    // The new drive counts among the drives that may fail once it is a member.
                    !replaced || left > 0 || *failure == DriveFailure::Back
                },
            ));
        }
        if left > 0 {
            failures.extend(there.iter().flat_map(|n| [DriveFailure::At(*n), DriveFailure::After(*n)]));
        }
        if left > 1 {
            for (place, one) in there.iter().enumerate() {
                let other = |step: usize| there.get((place + step) % there.len()).copied().unwrap_or(*one);
                failures.push(DriveFailure::AtBoth(*one, other(1)));
                failures.push(DriveFailure::AtAndAfter(*one, other(2)));
                failures.push(DriveFailure::AfterBoth(*one, other(if there.len() > 4 { 2 } else { 1 })));
            }
        }
        failures
    }

    /// The drives that are present at the mount after a cut.
    pub(crate) fn present(self, shape: &Shape) -> Vec<usize> {
        let away = match shape.missing {
            MissingDrive::Before(slot) | MissingDrive::During(slot, false) => Some(slot),
            MissingDrive::Replaced(slot) if self != DriveFailure::Back => Some(slot),
            _ => None,
        };
        let there = |index: &usize| {
            Some(*index) != away && Some(*index) != shape.also_missing && !self.at().contains(index)
        };
        (0..shape.recorded()).filter(there).collect()
    }

    /// The number of members that the last mount of a crash state lacks. `replaced`: the new drive is a member by then.
    pub(crate) fn lacking(self, shape: &Shape, replaced: bool) -> usize {
        let of_workload = match shape.missing {
            MissingDrive::Before(_) | MissingDrive::During(_, false) => 1,
            MissingDrive::Replaced(_) => usize::from(!replaced && self != DriveFailure::Back),
            MissingDrive::During(_, true) | MissingDrive::None | MissingDrive::Worn(_) => 0,
        };
        let is_member = |drive: &usize| replaced || *drive < shape.drives;
        let failed = self.at().into_iter().chain(self.after()).filter(is_member).count();
        of_workload + usize::from(shape.also_missing.is_some()) + failed
    }

    /// Whether no drive of the array has been missing at any time, the mount included.
    pub(crate) fn leaves_whole(self, shape: &Shape) -> bool {
        shape.missing == MissingDrive::None && self.at().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CrashOptions, Target};

    /// Some arrays have two parities: with drives that are missing, fail or are replaced, a second one missing from the start
    /// or not, and pairs of drives that fail at a cut and after a mount.
    #[test]
    fn arrays_of_two_parities_lose_any_two_drives() {
        let options = CrashOptions::new(Target::Array, 1, 1);
        let shapes: Vec<Shape> = (0..160).map(|workload| Shape::of(&options, workload)).collect();
        let two: Vec<&Shape> = shapes.iter().filter(|shape| shape.parities == 2).collect();
        assert!(two.len() > 3, "{}", two.len());
        for shape in two {
            for (replaced, failure) in [true, false].into_iter().flat_map(|replaced| {
                DriveFailure::all_of(shape, replaced).into_iter().map(move |failure| (replaced, failure))
            }) {
                assert!(failure.lacking(shape, replaced) <= 2, "{shape:?} {failure:?}");
                let slot = match shape.missing {
                    MissingDrive::Before(slot) | MissingDrive::During(slot, _) => slot,
                    MissingDrive::Replaced(slot) => slot,
                    MissingDrive::Worn(worn) => worn.slot,
                    MissingDrive::None => 0,
                };
                assert!(slot < shape.drives && shape.also_missing != Some(slot), "{shape:?}");
            }
            let pairs = DriveFailure::all_of(shape, false)
                .into_iter()
                .filter(|failure| failure.at().len() + failure.after().len() == 2);
            let may_lose_two = match shape.missing {
                MissingDrive::Before(_) | MissingDrive::During(..) | MissingDrive::Replaced(_) => false,
                MissingDrive::None | MissingDrive::Worn(_) => shape.also_missing.is_none(),
            };
            assert_eq!(pairs.count() > 0, may_lose_two, "{shape:?}");
        }
    }

    #[test]
    fn no_more_members_are_missing_than_there_are_parities() {
        let options = CrashOptions::new(Target::Array, 1, 1);
        for workload in 0..80 {
            let shape = Shape::of(&options, workload);
            for (replaced, failure) in [false, true]
                .into_iter()
                .flat_map(|r| DriveFailure::all_of(&shape, r).into_iter().map(move |failure| (r, failure)))
            {
                let members = match shape.missing {
                    // After the cut either the new drive is the member, or the old drive's slot is empty.
                    MissingDrive::Replaced(slot) => {
                        (0..shape.recorded()).filter(|n| *n != slot).collect::<Vec<_>>()
                    }
                    _ => (0..shape.drives).collect(),
                };
                let present = failure.present(&shape);
                let away = members.iter().filter(|n| !present.contains(n)).count();
                assert!(away <= shape.parities as usize, "{shape:?} {replaced} {failure:?}");
                let also = usize::from(shape.also_missing.is_some());
                assert_eq!(
                    failure == DriveFailure::Back,
                    present.len() + also > shape.drives,
                    "{shape:?} {failure:?}"
                );
            }
        }
    }
}
