//! Published numbers of the RAIZN paper's conventional drives.

/// Number of drives of md's array.
pub const DRIVES: usize = crate::raizn::setup::DRIVES as usize;

/// Read bandwidth of a conventional drive in MiB/s: 4 % above the zoned one.
pub const READ: f64 = 3265.0 / 0.96;
/// Write bandwidth of a conventional drive in MiB/s: 2 % above `zn540`, whose profile has 1,145 MiB/s.
pub const PROFILE_WRITE: f64 = 1145.0 / 0.98;
