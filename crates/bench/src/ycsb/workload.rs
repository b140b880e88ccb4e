//! The workloads of the Yahoo! Cloud Serving Benchmark.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use units::SplitMix64;

use super::keys::{Distribution, below};

/// A workload of YCSB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Workload {
    /// Inserts all records.
    Load,
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads alone.
    C,
    /// 95 % reads of the latest records, 5 % inserts.
    D,
    /// 95 % scans, 5 % inserts.
    E,
    /// Half reads, half reads followed by a write of the same record.
    F,
}

/// A kind of operation of a YCSB workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Operation {
    /// Reads a record.
    Read,
    /// Overwrites a whole record.
    Update,
    /// Writes a new record.
    Insert,
    /// Reads some records in the order of keys.
    Scan,
    /// Reads a record and overwrites it.
    ReadModifyWrite,
}

impl Operation {
    /// All kinds of operations.
    pub const ALL: [Operation; 5] =
        [Operation::Read, Operation::Update, Operation::Insert, Operation::Scan, Operation::ReadModifyWrite];

    /// The operation's name in results.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Update => "update",
            Operation::Insert => "insert",
            Operation::Scan => "scan",
            Operation::ReadModifyWrite => "read_modify_write",
        }
    }
}

impl Workload {
    /// All of YCSB's workloads, in its order.
    pub const ALL: [Workload; 7] =
        [Workload::Load, Workload::A, Workload::B, Workload::C, Workload::D, Workload::E, Workload::F];

    /// The workload's rarer operation, with its share in percent, and the more frequent operation.
    fn mix(self) -> (u64, Operation, Operation) {
        match self {
            Workload::Load => (100, Operation::Insert, Operation::Insert),
            Workload::A => (50, Operation::Update, Operation::Read),
            Workload::B => (5, Operation::Update, Operation::Read),
            Workload::C => (0, Operation::Update, Operation::Read),
            Workload::D => (5, Operation::Insert, Operation::Read),
            Workload::E => (5, Operation::Insert, Operation::Scan),
            Workload::F => (50, Operation::ReadModifyWrite, Operation::Read),
        }
    }

    /// Draws the next operation of the workload.
    pub fn draw(self, random: &mut SplitMix64) -> Operation {
        let (share, rare, common) = self.mix();
        if below(random, 100) < share { rare } else { common }
    }

    /// The share of inserts in the workload, in percent.
    pub fn inserts(self) -> u64 {
        let (share, rare, _) = self.mix();
        if rare == Operation::Insert { share } else { 0 }
    }

    /// The workload's default distribution of records.
    pub fn distribution(self) -> Distribution {
        if self == Workload::D { Distribution::Latest } else { Distribution::Zipfian }
    }

    /// Reads a list of workloads: `load,a,c`, `load,a..f`.
    ///
    /// # Errors
    ///
    /// A part of the list that is no workload.
    pub fn list(text: &str) -> Result<Vec<Workload>, String> {
        let mut list = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => list.push(part.parse()?),
                Some((from, to)) => {
                    let (from, to): (Workload, Workload) = (from.parse()?, to.parse()?);
                    let before = list.len();
                    list.extend(Workload::ALL.into_iter().filter(|one| (from..=to).contains(one)));
                    if list.len() == before {
                        return Err(format!("'{part}' is no range of workloads: a..f"));
                    }
                }
            }
        }
        Ok(list)
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Workload, String> {
        let found = Workload::ALL.into_iter().find(|one| one.to_string() == text.to_lowercase());
        found.ok_or_else(|| format!("'{text}' is no workload: load, a, b, c, d, e, f, or a..f"))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Workload::Load => "load",
            Workload::A => "a",
            Workload::B => "b",
            Workload::C => "c",
            Workload::D => "d",
            Workload::E => "e",
            Workload::F => "f",
        })
    }
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 100_000;

    #[test]
    fn each_workload_has_the_proportions_that_define_it() {
        use Operation::{Insert, Read, ReadModifyWrite, Scan, Update};
        for (workload, shares) in [
            (Workload::Load, &[(Insert, 1.0)][..]),
            (Workload::A, &[(Read, 0.5), (Update, 0.5)]),
            (Workload::B, &[(Read, 0.95), (Update, 0.05)]),
            (Workload::C, &[(Read, 1.0)]),
            (Workload::D, &[(Read, 0.95), (Insert, 0.05)]),
            (Workload::E, &[(Scan, 0.95), (Insert, 0.05)]),
            (Workload::F, &[(Read, 0.5), (ReadModifyWrite, 0.5)]),
        ] {
            let mut random = SplitMix64::new(3);
            let drawn: Vec<Operation> = (0..DRAWS).map(|_| workload.draw(&mut random)).collect();
            for operation in Operation::ALL {
                let found = drawn.iter().filter(|one| **one == operation).count() as f64 / DRAWS as f64;
                let expected = shares.iter().find(|(one, _)| *one == operation).map_or(0.0, |(_, s)| *s);
                assert!((found - expected).abs() < 0.005, "{workload} {operation:?}: {found}");
            }
        }
        assert_eq!(Workload::D.distribution(), Distribution::Latest);
    }

    #[test]
    fn a_list_of_workloads_may_have_ranges() {
        use Workload::{A, B, C, Load};
        assert_eq!(Workload::list("load,a..c,a"), Ok(vec![Load, A, B, C, A]));
        assert_eq!(Workload::list("a..f").map(|list| list.len()), Ok(6));
        for wrong in ["", "g", "c..a", "load,,a", "a...c"] {
            assert!(Workload::list(wrong).is_err(), "{wrong}");
        }
    }
}
