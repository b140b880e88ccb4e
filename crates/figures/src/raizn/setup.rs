//! The arrays that the figures compare.

use bench::array::Setup;
use zoned::Bytes;

/// Bytes of a KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;

/// Drives of an array.
pub const DRIVES: u32 = 5;

/// The series of our array.
pub const OURS: &str = "Furrow";
/// The series of md's.
pub const MODEL: &str = "md (model)";

/// Whose array is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// This workspace's.
    Furrow,
    /// md's, as a model.
    Md,
}

impl Whose {
    /// Both.
    pub const ALL: [Whose; 2] = [Whose::Furrow, Whose::Md];

    /// The series' name.
    pub fn name(self) -> &'static str {
        match self {
            Whose::Furrow => OURS,
            Whose::Md => MODEL,
        }
    }

    /// The note of the series' rows.
    pub fn note(self) -> &'static str {
        match self {
            Whose::Furrow => "",
            Whose::Md => {
                "a model, not md: its layout and stripe cache over conventional drives, without the host's time"
            }
        }
    }
}

/// An array of five drives with `zones` zones for data.
pub fn setup(zones: u32, unit: Bytes) -> Setup {
    // Four zones more hold the array's metadata.
    Setup { drives: DRIVES, zones: zones + 4, stripe_unit: unit, ..Setup::default() }
}
