//! The arrays that the figures of the RAIZN paper compare.

use bench::array::Setup;
use zoned::Bytes;

/// Bytes of a KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;

/// Number of drives of an array.
pub const DRIVES: u32 = 5;

/// The name of the series of Furrow's array.
pub const OURS: &str = "Furrow";
/// The name of the series of md's array.
pub const MODEL: &str = "md (model)";

/// The array that is measured: Furrow's or md's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeasuredArray {
    /// Furrow's array.
    Furrow,
    /// The model of md's array.
    Md,
}

impl MeasuredArray {
    /// Furrow's array and md.
    pub const ALL: [MeasuredArray; 2] = [MeasuredArray::Furrow, MeasuredArray::Md];

    /// The name of the array's series.
    pub fn name(self) -> &'static str {
        match self {
            MeasuredArray::Furrow => OURS,
            MeasuredArray::Md => MODEL,
        }
    }

    /// The note of the rows of the array's series.
    pub fn note(self) -> &'static str {
        match self {
            MeasuredArray::Furrow => "",
            MeasuredArray::Md => {
                "a model, not md: its layout and stripe cache over conventional drives, without the host's time"
            }
        }
    }
}

/// An array of five drives with `zones` zones for data.
pub fn setup(zones: u32, unit: Bytes) -> Setup {
    // The array's metadata takes four zones more.
    Setup { drives: DRIVES, zones: zones + 4, stripe_unit: unit, ..Setup::default() }
}
