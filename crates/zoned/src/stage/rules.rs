//! The safety rule of a stage that tests break on purpose, to prove that the crash explorer finds the loss. Without the feature
//! `broken-rules` no rule can be broken.

/// A safety rule that a stage breaks on purpose.
#[cfg(feature = "broken-rules")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StageBrokenRule {
    /// Broken rule: a write is acknowledged as soon as the stage holds it.
    EarlyAcknowledgement,
}

/// The safety rule that a stage breaks, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Rules {
    #[cfg(feature = "broken-rules")]
    pub broken: Option<StageBrokenRule>,
}

impl Rules {
    /// Broken rule: a write is acknowledged as soon as the stage holds it.
    #[inline]
    pub fn acknowledges_early(self) -> bool {
        #[cfg(feature = "broken-rules")]
        return self.broken == Some(StageBrokenRule::EarlyAcknowledgement);
        #[cfg(not(feature = "broken-rules"))]
        return false;
    }
}
