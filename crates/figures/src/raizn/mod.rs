//! The figures of the RAIZN paper, chapter 4, on five `zn540`. Fig. 4.14 (MySQL) is left out.
//!
//! The paper gives curves, and hardly a number in its text: those few stand in rows of their own, and what it says in words is in
//! the notes. md is [a model](md).

mod md;
mod micro;
mod overwrite;
mod repair;
mod rocks;
mod shares;

#[cfg(test)]
mod tests;

use zoned::Bytes;

use super::Figure;
use bench::array::Setup;

/// All of them, those that want a quiet machine last.
pub const FIGURES: [Figure; 6] =
    [micro::UNITS, micro::WORKLOADS, overwrite::FIGURE, micro::DEGRADED, repair::FIGURE, rocks::FIGURE];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Five drives.
const DRIVES: u32 = 5;

/// Our array.
const OURS: &str = "Furrow";
/// And md's.
const MODEL: &str = "md (model)";

/// Whose array it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    Furrow,
    Md,
}

impl Whose {
    const ALL: [Whose; 2] = [Whose::Furrow, Whose::Md];

    fn name(self) -> &'static str {
        match self {
            Whose::Furrow => OURS,
            Whose::Md => MODEL,
        }
    }

    fn note(self) -> &'static str {
        match self {
            Whose::Furrow => "",
            Whose::Md => {
                "a model, not md: its layout and stripe cache over conventional drives, without the host's time"
            }
        }
    }
}

/// An array of five drives with so many zones for data.
fn setup(zones: u32, unit: Bytes) -> Setup {
    // And those of the metadata.
    Setup { drives: DRIVES, zones: zones + 4, stripe_unit: unit, ..Setup::default() }
}
