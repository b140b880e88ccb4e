//! The protobuf bytes of an entry that changes the members.
//!
//! The library that reads them exhausts its stack on groups that are nested deeply (RUSTSEC-2024-0437), and `ConfChangeV2` has no groups. An entry that came from a peer has that message's own fields only.

/// The tags of `ConfChangeV2`: the transition, a number; a change and the context, with their lengths.
const TRANSITION: u64 = 1 << 3;
const CHANGE: u64 = (2 << 3) | 2;
const CONTEXT: u64 = (3 << 3) | 2;
/// The tags of a change: its kind and the replica, numbers.
const KIND: u64 = 1 << 3;
const REPLICA: u64 = 2 << 3;

/// True if the bytes hold fields of a `ConfChangeV2` and no others.
pub(super) fn is_change_of_members(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let field = match number(&mut bytes) {
            Some(TRANSITION) => number(&mut bytes).map(|_| true),
            Some(CHANGE) => counted(&mut bytes).map(is_change),
            Some(CONTEXT) => counted(&mut bytes).map(|_| true),
            _ => None,
        };
        if field != Some(true) {
            return false;
        }
    }
    true
}

fn is_change(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let is_known = matches!(number(&mut bytes), Some(KIND | REPLICA));
        if !is_known || number(&mut bytes).is_none() {
            return false;
        }
    }
    true
}

/// A number in 7 bits a byte, the lowest first; all bytes but the last have the eighth bit.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(number(rest)?).ok()?;
    let (bytes, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_change_of_members_are_taken_and_no_others() {
        let change = [CHANGE as u8, 3, REPLICA as u8, 0x80, 1];
        let all = [&[TRANSITION as u8, 2][..], &change, &[CONTEXT as u8, 2, 7, 7]].concat();
        assert!(is_change_of_members(&all));
        assert!(is_change_of_members(&[]));
        for len in [1, 3, 4, 6, 8, 10] {
            assert!(!is_change_of_members(&all[..len]), "{len}");
        }
        let (group, field_4) = ([(4 << 3) | 3, (4 << 3) | 4], [4 << 3, 1]);
        for foreign in [&group[..], &field_4, &[CHANGE as u8, 2, group[0], group[1]]] {
            assert!(!is_change_of_members(&[&all[..], foreign].concat()), "{foreign:?}");
        }
    }
}
