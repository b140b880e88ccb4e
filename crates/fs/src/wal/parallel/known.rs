//! The list of known tickets in an entry: which tickets above the entry's `needs` were acknowledged when the entry was begun.
//!
//! A power cut of one drive leaves the first blocks of a zone, so `needs` is enough on a drive. The drives of an array lose
//! their caches independently, so acknowledged blocks in the middle of an array's zone may be lost (docs/adr/0011). An entry
//! on an array therefore lists the tickets that it follows, and recovery stops at the first entry that follows a missing
//! ticket.
//!
//! The list is in the payload after the count of records, if the header's flag `known` is set:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 2 | bytes that follow, at most 254 |
//! | 2 | 1 to 10 | tickets from `needs` to the first run |
//! | | 1 to 10 | tickets in the run, from 1 |
//! | | | tickets to the next run, from 1; its length; and so on |
//!
//! The first number is little-endian; the others have seven bits in a byte, the lowest ones first, and the highest bit set in all
//! bytes but the last.

/// Bytes of the longest list of known tickets, its length field included.
pub(crate) const MAX_KNOWN: usize = 256;
/// Bytes of the length field of a list of known tickets.
pub(crate) const KNOWN_LENGTH: usize = 2;

/// A list of known tickets in its encoded form; no bytes for no tickets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Known(Vec<u8>);

impl Known {
    /// Encodes `runs` of tickets above `needs`: each is a first ticket and the ticket after the last one. The runs are in
    /// order, with a gap between two of them. `None` where the list would be too long.
    pub(crate) fn of(needs: u64, runs: &[(u64, u64)]) -> Option<Known> {
        if runs.is_empty() {
            return Some(Known::default());
        }
        let mut bytes = vec![0; KNOWN_LENGTH];
        let mut at = needs;
        for (first, end) in runs {
            put(&mut bytes, first - at);
            put(&mut bytes, end - first);
            at = *end;
        }
        let length = u16::try_from(bytes.len() - KNOWN_LENGTH).ok().filter(|_| bytes.len() <= MAX_KNOWN)?;
        bytes.iter_mut().zip(length.to_le_bytes()).for_each(|(to, from)| *to = from);
        Some(Known(bytes))
    }

    /// Bytes that the list takes in the payload.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        bytes.push(low | if number > 0 { 0x80 } else { 0 });
        if number == 0 {
            return;
        }
    }
}

fn take_varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = bytes.next()?;
        let bits = u64::from(byte & 0x7f);
        if bits.checked_shl(shift).is_none_or(|shifted| shifted >> shift != bits) {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The value of a list's length field.
pub(crate) fn known_length(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|length| usize::from(u16::from_le_bytes(*length)))
}

/// Decodes the list of known tickets at the start of `bytes`, from an entry with this `needs`. `None` for
/// bytes that no writer writes.
pub(crate) fn runs(bytes: &[u8], needs: u64) -> Option<Vec<(u64, u64)>> {
    let list = bytes
        .get(KNOWN_LENGTH..KNOWN_LENGTH + known_length(bytes)?)
        .filter(|list| KNOWN_LENGTH + list.len() <= MAX_KNOWN)?;
    let mut list = list.iter().copied().peekable();
    let (mut runs, mut at) = (Vec::new(), needs);
    while list.peek().is_some() {
        let first = at.checked_add(take_varint(&mut list)?.max(1))?;
        at = first.checked_add(take_varint(&mut list)?.max(1))?;
        runs.push((first, at));
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_is_encoded_as_the_table_says() {
        let known = Known::of(100, &[(101, 104), (300, 301)]).unwrap();
        assert_eq!(known.bytes(), [5, 0, 1, 3, 0xc4, 0x01, 1]);
        assert_eq!(runs(known.bytes(), 100), Some(vec![(101, 104), (300, 301)]));
        assert_eq!(Known::of(7, &[]).unwrap().bytes(), []);
    }

    #[test]
    fn a_list_that_is_too_long_is_refused() {
        let apart = |count: u64| (0..count).map(|n| (2 * n + 1, 2 * n + 2)).collect::<Vec<_>>();
        let most = (MAX_KNOWN - KNOWN_LENGTH) as u64 / 2;
        assert_eq!(Known::of(0, &apart(most)).unwrap().bytes().len(), MAX_KNOWN);
        assert_eq!(Known::of(0, &apart(most + 1)), None);
    }

    proptest! {
        #[test]
        fn runs_are_decoded_as_they_were_encoded(needs in 0..1_u64 << 60, lens in prop::collection::vec((1..1_u64 << 20, 1..1_u64 << 20), 0..30)) {
            let mut at = needs;
            let runs_of: Vec<_> = lens.iter().map(|(gap, len)| { let first = at + gap; at = first + len; (first, at) }).collect();
            let known = Known::of(needs, &runs_of).unwrap();
            if !runs_of.is_empty() {
                prop_assert_eq!(runs(&[known.bytes(), b"behind"].concat(), needs), Some(runs_of));
            }
        }

        #[test]
        fn any_bytes_give_runs_in_order_or_none(bytes: Vec<u8>, needs: u64) {
            if let Some(runs) = runs(&bytes, needs) {
                prop_assert!(runs.iter().all(|(first, end)| first < end && *first > needs));
                prop_assert!(runs.is_sorted_by(|a, b| a.1 < b.0));
            }
        }
    }
}
