//! What a pipeline needs of the engine.

/// What a pipeline as a whole needs. Of two needs the greater one includes the smaller one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Needs {
    /// No data.
    Nothing,
    /// Reads of the drive.
    Reads,
    /// Walks over the whole database.
    Walks,
    /// One of the engine's writers.
    Writes,
}

impl Needs {
    /// The names of the needs in metrics, in their order.
    pub const NAMES: [&'static str; 4] = ["none", "read", "walk", "write"];
}
