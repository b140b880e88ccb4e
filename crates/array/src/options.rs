//! Settings.

use zoned::Bytes;

/// What a new array is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Bytes in a stripe unit: whole blocks. Default 64 KiB: small reads seldom need two drives, and large ones use all.
    pub stripe_unit: Bytes,
    /// A name for people, 64 bytes at most. Default none.
    pub label: String,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions { stripe_unit: Bytes(64 << 10), label: String::new() }
    }
}

/// How to open an array.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// A rule to break, to prove that it would be noticed.
    pub sabotage: Option<Sabotage>,
}

/// A rule that is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sabotage {
    /// Resets are not logged.
    ResetLog,
    /// Partial parity is not logged.
    PartialParity,
    /// The next generation of a reset zone is not recorded.
    Generation,
    /// A durable write is acknowledged without a flush.
    Fua,
    /// The parity of stripes that were in flight is not looked at.
    Hole,
}
