//! The id of a client whose commands run once.

use std::fmt;

/// Bytes of an id in a store.
const LEN: usize = 24;

/// The id of a client whose commands run once. In words: three decimal numbers with `-` between them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OnceId {
    /// The group of replicas that has the id.
    pub group: u64,
    /// The view of the store in which the id was made: one replica alone makes ids in a view.
    pub view: u64,
    /// The number of the id: the ids of one view have different ones.
    pub number: u64,
}

impl OnceId {
    /// The id of a word; `None` if the word is not how [`Display`](fmt::Display) writes an id.
    pub fn parse(word: &[u8]) -> Option<OnceId> {
        let mut numbers = std::str::from_utf8(word).ok()?.split('-').map(parse_number);
        let id = OnceId { group: numbers.next()??, view: numbers.next()??, number: numbers.next()?? };
        numbers.next().is_none().then_some(id)
    }

    /// The id's bytes in a store: three numbers, big-endian.
    pub fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let numbers = [self.group, self.view, self.number];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// The id of its bytes in a store; `None` for bytes of another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<OnceId> {
        let (group, rest) = bytes.split_first_chunk()?;
        let (view, rest) = rest.split_first_chunk()?;
        let number = u64::from_be_bytes(rest.try_into().ok()?);
        Some(OnceId { group: u64::from_be_bytes(*group), view: u64::from_be_bytes(*view), number })
    }
}

/// A number in the one form that [`fmt::Display`] has for it.
fn parse_number(text: &str) -> Option<u64> {
    let is_canonical = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    text.parse().ok().filter(|_| is_canonical)
}

impl fmt::Display for OnceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.group, self.view, self.number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_has_one_form_in_words() {
        let id = OnceId { group: 3, view: 0, number: 17 };
        assert_eq!(id.to_string(), "3-0-17");
        assert_eq!(OnceId::parse(b"3-0-17"), Some(id));
        for other in ["03-0-17", "+3-0-17", "3-0", "3-0-17-", "3-0-17-1", "3--17", "", "a-0-17", " 3-0-17"] {
            assert_eq!(OnceId::parse(other.as_bytes()), None, "{other}");
        }
        assert_eq!(OnceId::parse(b"3-0-18446744073709551616"), None);
    }

    proptest! {
        #[test]
        fn an_id_survives_its_words_and_its_bytes(group: u64, view: u64, number: u64) {
            let id = OnceId { group, view, number };
            prop_assert_eq!(OnceId::parse(id.to_string().as_bytes()), Some(id));
            prop_assert_eq!(OnceId::from_bytes(&id.to_bytes()), Some(id));
            prop_assert_eq!(OnceId::from_bytes(&id.to_bytes()[1..]), None);
        }

        #[test]
        fn any_word_is_no_id_or_the_words_of_one(word: Vec<u8>) {
            if let Some(id) = OnceId::parse(&word) {
                prop_assert_eq!(id.to_string().into_bytes(), word);
            }
        }
    }
}
