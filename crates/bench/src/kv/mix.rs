//! The operations of a load: shares of writes, reads and scans, or one of MixGraph's variants.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use units::SplitMix64;

use super::mixgraph::Variant;
use crate::ycsb::keys::below;

/// A kind of operation on a key-value database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Operation {
    /// A put.
    Write,
    /// A get.
    Read,
    /// A seek and reads of the next keys.
    Scan,
}

impl Operation {
    /// All kinds of operations.
    pub const ALL: [Operation; 3] = [Operation::Write, Operation::Read, Operation::Scan];

    /// The operation's name in results and in `--mix`.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::Scan => "scan",
        }
    }
}

/// A mix of operations: `write=70,read=30`, or `mixgraph-prefix-dist`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Shares in percent, in the order of [`Operation::ALL`]; 100 together.
    Shares([u8; 3]),
    /// Keys, sizes and shares of `db_bench`'s `mixgraph`.
    MixGraph(Variant),
}

/// MixGraph's shares in percent, as the WALTZ paper has them.
const MIXGRAPH_SHARES: [u8; 3] = [14, 83, 3];

impl Mix {
    /// A mix of puts alone.
    pub const WRITES: Mix = Mix::Shares([100, 0, 0]);

    /// MixGraph's variant, if the mix is one.
    pub fn variant(self) -> Option<Variant> {
        match self {
            Mix::Shares(_) => None,
            Mix::MixGraph(variant) => Some(variant),
        }
    }

    /// Draws the next operation of the mix.
    pub fn draw(self, random: &mut SplitMix64) -> Operation {
        let shares = match self {
            Mix::Shares(shares) => shares,
            Mix::MixGraph(_) => MIXGRAPH_SHARES,
        };
        let mut at = below(random, 100);
        for (operation, share) in Operation::ALL.into_iter().zip(shares) {
            match at.checked_sub(u64::from(share)) {
                None => return operation,
                Some(rest) => at = rest,
            }
        }
        Operation::Write
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        if let Some(variant) = text.strip_prefix("mixgraph-") {
            return variant.parse().map(Mix::MixGraph);
        }
        let wrong =
            || format!("'{text}' is no mix: write=100, write=70,read=30, ... or mixgraph-{}", Variant::NAMES);
        let mut shares = [None; 3];
        for part in text.split(',') {
            let (name, percent) = part.split_once('=').ok_or_else(wrong)?;
            let place = Operation::ALL.into_iter().zip(&mut shares).find(|(one, _)| one.name() == name);
            let (_, share) = place.ok_or_else(wrong)?;
            let percent: u8 = percent.parse().map_err(|_| wrong())?;
            if share.replace(percent).is_some() {
                return Err(format!("'{text}' says {name} twice"));
            }
        }
        let shares = shares.map(Option::unwrap_or_default);
        let sum: u32 = shares.iter().map(|share| u32::from(*share)).sum();
        if sum != 100 {
            return Err(format!("the shares of '{text}' are {sum} % together, not 100"));
        }
        Ok(Mix::Shares(shares))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mix::Shares(shares) => {
                let parts = Operation::ALL.iter().zip(shares).filter(|(_, share)| **share > 0);
                let parts: Vec<String> =
                    parts.map(|(operation, share)| format!("{}={share}", operation.name())).collect();
                f.write_str(&parts.join(","))
            }
            Mix::MixGraph(variant) => write!(f, "mixgraph-{variant}"),
        }
    }
}

impl Serialize for Mix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_reads_back_as_it_is_shown() {
        for text in ["write=100", "write=70,read=30", "write=5,read=90,scan=5", "mixgraph-prefix-dist"] {
            assert_eq!(text.parse::<Mix>().unwrap().to_string(), text);
        }
        assert_eq!("read=70,write=30".parse(), Ok(Mix::Shares([30, 70, 0])));
    }

    #[test]
    fn what_makes_no_mix_is_refused_by_name() {
        for (text, word) in [
            ("write=99", "99 %"),
            ("write=100,read=100", "200 %"),
            ("write=50,write=50", "twice"),
            ("write", "is no mix"),
            ("delete=100", "is no mix"),
            ("write=many", "is no mix"),
            ("", "is no mix"),
            ("mixgraph-some", "prefix-dist"),
        ] {
            let said = text.parse::<Mix>().expect_err(text);
            assert!(said.contains(word), "{text}: {said}");
        }
    }

    #[test]
    fn operations_come_as_often_as_the_mix_says() {
        for (mix, shares) in
            [("write=70,read=30", [0.7, 0.3, 0.0]), ("mixgraph-all-dist", [0.14, 0.83, 0.03])]
        {
            let (mix, mut random) = (mix.parse::<Mix>().unwrap(), SplitMix64::new(5));
            let drawn: Vec<Operation> = (0..100_000).map(|_| mix.draw(&mut random)).collect();
            for (operation, share) in Operation::ALL.into_iter().zip(shares) {
                let found = drawn.iter().filter(|one| **one == operation).count() as f64 / 1e5;
                assert!((found - share).abs() < 0.005, "{mix} {operation:?}: {found}");
            }
        }
    }
}
