//! Why bytes from etcd are no value.

use replica::TooOld;

/// The most characters of foreign text that a message repeats.
const MAX_QUOTED: usize = 200;

/// `text` on one line of at most [`MAX_QUOTED`] characters: control characters are escaped.
pub(crate) fn quoted(text: &str) -> String {
    let escape = |char: char| -> Vec<char> {
        if char.is_control() { char.escape_default().collect() } else { vec![char] }
    };
    let mut shown: String = text.chars().flat_map(escape).take(MAX_QUOTED + 1).collect();
    if shown.chars().count() > MAX_QUOTED {
        shown = shown.chars().take(MAX_QUOTED).chain("...".chars()).collect();
    }
    shown
}

/// Why bytes from etcd are no value of their kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// More bytes than any value of this crate has.
    #[error("{0} bytes are more than any value has")]
    TooLong(usize),
    /// No JSON of the fields that the value has.
    #[error("{0}")]
    Json(String),
    /// A format of another version of Furrow.
    #[error("format {found}, where this version of Furrow knows format {known}")]
    Format {
        /// The format that the value names.
        found: u32,
        /// The format that is written and read here.
        known: u32,
    },
    /// A version of the cluster that this program does not speak.
    #[error(transparent)]
    TooOld(TooOld),
    /// Slots that belong to no group.
    #[error("slot {0} belongs to no group")]
    SlotGap(u16),
    /// A slot that belongs to two ranges.
    #[error("slot {0} is in two ranges")]
    SlotOverlap(u16),
    /// Well-formed, but against a rule that the sentence names.
    #[error("{0}")]
    Rule(String),
}

impl ValueError {
    /// The error for a broken rule, in a sentence that may repeat foreign text.
    pub(crate) fn rule(sentence: impl AsRef<str>) -> ValueError {
        ValueError::Rule(quoted(sentence.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_in_a_message_is_one_short_line() {
        assert_eq!(quoted("a\nb\u{1b}"), "a\\nb\\u{1b}");
        assert_eq!(quoted(&"x".repeat(5000)).len(), MAX_QUOTED + 3);
    }
}
