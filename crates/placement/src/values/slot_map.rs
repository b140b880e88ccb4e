//! The groups' slots: the value of the key `slots`.

use serde::{Deserialize, Serialize};

use super::json;
use crate::names::MAX_GROUPS;
use crate::slots::{SLOTS, Slot};
use crate::value_error::ValueError;
use replica::GroupId;

/// The most ranges of a map.
const MAX_RANGES: usize = 2048;

/// A range of slots and its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotRange {
    /// The first slot.
    pub first: Slot,
    /// The last slot, which belongs to the range.
    pub last: Slot,
    /// The group that has the slots.
    pub group: GroupId,
}

/// The 16,384 slots of the cluster: each belongs to one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotMap {
    /// In ascending order, without gap or overlap.
    ranges: Vec<SlotRange>,
}

/// The fields in etcd.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    ranges: Vec<RangeFields>,
}

/// The fields of a range in etcd.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeFields {
    first: u16,
    last: u16,
    group: u64,
}

impl SlotMap {
    /// One range for each of `groups` groups; the lengths of two differ by one slot at most.
    ///
    /// # Panics
    /// No group, or more than 1,024: [`super::meta::Meta`] has no such number.
    pub fn even(groups: u32) -> SlotMap {
        assert!((1..=MAX_GROUPS).contains(&groups), "{groups} groups");
        let begin = |group: u32| u16::try_from(u32::from(SLOTS) * group / groups).expect("at most 16,384");
        let range = |group| SlotRange {
            first: Slot::new(begin(group)).expect("below the end of the last group"),
            last: Slot::new(begin(group + 1) - 1).expect("the last group ends at 16,384"),
            group: GroupId(u64::from(group)),
        };
        SlotMap { ranges: (0..groups).map(range).collect() }
    }

    /// The value in `bytes`.
    ///
    /// # Errors
    /// [`ValueError`]: no such fields, more than 2,048 ranges, a slot that does not exist, that has no group ([`ValueError::SlotGap`]) or two ([`ValueError::SlotOverlap`]).
    pub fn decode(bytes: &[u8]) -> Result<SlotMap, ValueError> {
        let fields: Fields = json::decode(bytes)?;
        if fields.ranges.len() > MAX_RANGES {
            return Err(ValueError::rule(format!(
                "{} ranges are more than {MAX_RANGES}",
                fields.ranges.len()
            )));
        }
        let mut next = 0;
        let mut ranges = Vec::with_capacity(fields.ranges.len());
        for RangeFields { first, last, group } in fields.ranges {
            let slot = |number| {
                Slot::new(number).ok_or_else(|| ValueError::rule(format!("slot {number} does not exist")))
            };
            let range = SlotRange { first: slot(first)?, last: slot(last)?, group: GroupId(group) };
            if first > last {
                return Err(ValueError::rule(format!("a range from slot {first} to {last}")));
            }
            if first > next {
                return Err(ValueError::SlotGap(next));
            }
            if first < next {
                return Err(ValueError::SlotOverlap(first));
            }
            next = last + 1;
            ranges.push(range);
        }
        if next < SLOTS {
            return Err(ValueError::SlotGap(next));
        }
        Ok(SlotMap { ranges })
    }

    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let fields = |range: &SlotRange| RangeFields {
            first: range.first.number(),
            last: range.last.number(),
            group: range.group.0,
        };
        json::encode(&Fields { ranges: self.ranges.iter().map(fields).collect() })
    }

    /// The group that has a slot.
    pub fn group(&self, slot: Slot) -> GroupId {
        let at = self.ranges.partition_point(|range| range.last < slot);
        self.ranges.get(at).expect("the last range ends with the last slot").group
    }

    /// The ranges, in ascending order.
    pub fn ranges(&self) -> &[SlotRange] {
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_ranges_differ_by_one_slot_at_most_and_are_decoded_again() {
        for groups in [1, 2, 3, 5, 7, 100, 1023, 1024] {
            let map = SlotMap::even(groups);
            let lengths: Vec<u16> =
                map.ranges().iter().map(|range| range.last.number() - range.first.number() + 1).collect();
            assert!(
                lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1,
                "{groups}: {lengths:?}"
            );
            assert_eq!(SlotMap::decode(&map.encode()).unwrap(), map);
        }
    }

    #[test]
    fn a_slot_has_the_group_of_its_range() {
        let map = SlotMap::even(3);
        for range in map.ranges() {
            for slot in [range.first, range.last] {
                assert_eq!(map.group(slot), range.group);
            }
        }
        assert_eq!(map.group(Slot::new(12_182).unwrap()), GroupId(2));
    }

    #[test]
    fn gaps_and_overlaps_are_named() {
        let decode =
            |ranges: &str| SlotMap::decode(format!("{{\"ranges\":[{ranges}]}}").as_bytes()).unwrap_err();
        let range = |first: u32, last: u32| format!("{{\"first\":{first},\"last\":{last},\"group\":0}}");
        assert_eq!(decode(""), ValueError::SlotGap(0));
        assert_eq!(decode(&range(1, 16_383)), ValueError::SlotGap(0));
        assert_eq!(decode(&range(0, 16_382)), ValueError::SlotGap(16_383));
        assert_eq!(decode(&[range(0, 99), range(101, 16_383)].join(",")), ValueError::SlotGap(100));
        assert_eq!(decode(&[range(0, 99), range(99, 16_383)].join(",")), ValueError::SlotOverlap(99));
        assert_eq!(decode(&[range(0, 16_383), range(0, 16_383)].join(",")), ValueError::SlotOverlap(0));
        assert!(decode(&range(0, 16_384)).to_string().contains("does not exist"));
        assert!(decode(&[range(0, 9), range(10, 8)].join(",")).to_string().contains("from slot 10 to 8"));
        assert!(decode(&range(0, 70_000)).to_string().contains("invalid value"));
    }
}
