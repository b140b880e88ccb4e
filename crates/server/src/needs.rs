//! The needs of a pipeline: reads, walks or writes of the engine.

/// What a pipeline as a whole needs of the engine. The needs are ordered: a greater one includes the smaller ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Needs {
    /// The pipeline needs no data.
    Nothing,
    /// The pipeline reads keys, perhaps from the drive.
    Reads,
    /// The pipeline walks over the whole database.
    Walks,
    /// The pipeline needs one of the engine's writers.
    Writes,
}

impl Needs {
    /// The names of the needs in metrics, in the order of the needs.
    pub const METRIC_NAMES: [&'static str; 4] = ["none", "read", "walk", "write"];
}
