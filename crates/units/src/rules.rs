//! Safety rules that a test breaks on purpose, to prove that another test finds the fault.

/// Declares a crate's enum `BrokenRule` and its struct `Rules`, with a question for each rule: true where the rule is broken.
///
/// The crate has the feature `broken-rules`. Without the feature the enum does not exist, and each question is the constant `false`.
#[macro_export]
macro_rules! broken_rules {
    ($($(#[$doc:meta])* $variant:ident asked as $question:ident,)*) => {
        /// A safety rule that is broken on purpose.
        #[cfg(feature = "broken-rules")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum BrokenRule {
            $($(#[$doc])* $variant,)*
        }

        /// The safety rule that is broken, if any.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub(crate) struct Rules {
            #[cfg(feature = "broken-rules")]
            pub(crate) broken: Option<BrokenRule>,
        }

        impl Rules {
            $(
                $(#[$doc])*
                #[inline]
                pub(crate) fn $question(self) -> bool {
                    #[cfg(feature = "broken-rules")]
                    return self.broken == Some(BrokenRule::$variant);
                    #[cfg(not(feature = "broken-rules"))]
                    return false;
                }
            )*
        }
    };
}
