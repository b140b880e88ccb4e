//! Result of the layering test.

/// Result of the whole test.
#[derive(Debug, Default)]
pub struct Report {
    /// Every broken rule, as a sentence. The test passes if there is none.
    pub problems: Vec<String>,
    /// Import circles of the crates in [`KNOWN_CIRCLES`](super::modules::KNOWN_CIRCLES): printed, but no failure.
    pub known: Vec<String>,
}
