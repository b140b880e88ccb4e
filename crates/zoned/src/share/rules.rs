//! The safety rule of a scheduler that tests break on purpose, to prove that the crash explorer finds the harm. Without the feature `broken-rules` no rule can be broken.

/// A safety rule that a scheduler breaks on purpose.
#[cfg(feature = "broken-rules")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShareBrokenRule {
    /// Broken rule: an operation that is not held overtakes held operations of its zone.
    ZoneOrder,
}

/// The safety rule that a scheduler breaks, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Rules {
    #[cfg(feature = "broken-rules")]
    pub broken: Option<ShareBrokenRule>,
}

impl Rules {
    /// Broken rule: an operation that is not held overtakes held operations of its zone.
    #[inline]
    pub fn keeps_zone_order(self) -> bool {
        #[cfg(feature = "broken-rules")]
        return self.broken != Some(ShareBrokenRule::ZoneOrder);
        #[cfg(not(feature = "broken-rules"))]
        return true;
    }
}
