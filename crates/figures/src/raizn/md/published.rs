//! The paper's conventional drives.

/// Drives of an array.
pub const DRIVES: usize = crate::raizn::setup::DRIVES as usize;

/// Bandwidth of a conventional drive's reads, in MiB/s: 4 % above the zoned one.
pub const READ: f64 = 3265.0 / 0.96;
/// And of its writes: 2 % above `zn540`, whose profile has 1,145 MiB/s.
pub const PROFILE_WRITE: f64 = 1145.0 / 0.98;
