//! Fields of the crate's formats: numbers are little-endian, and bytes of any number have it before them, in 4 bytes.

pub(crate) fn put_number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend(number.to_le_bytes());
}

/// # Panics
/// 4 GiB or more: the bounds of keys, values and entries are below.
pub(crate) fn put_length(bytes: &mut Vec<u8>, len: usize) {
    bytes.extend(u32::try_from(len).expect("a part is shorter than 4 GiB").to_le_bytes());
}

/// # Panics
/// As [`put_length`].
pub(crate) fn put_counted(bytes: &mut Vec<u8>, counted: &[u8]) {
    put_length(bytes, counted.len());
    bytes.extend_from_slice(counted);
}

/// Takes a byte from the front of `rest`; `None` if it is empty.
pub(crate) fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (byte, behind) = rest.split_first()?;
    *rest = behind;
    Some(*byte)
}

/// Takes a number of 8 bytes from the front of `rest`; `None` if it is shorter.
pub(crate) fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u64::from_le_bytes(*number))
}

/// Takes a number of 4 bytes from the front of `rest`; `None` if it is shorter.
pub(crate) fn length(rest: &mut &[u8]) -> Option<usize> {
    let (number, behind) = rest.split_first_chunk()?;
    *rest = behind;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

/// Takes bytes, with their number before them, from the front of `rest`; `None` if it is shorter.
pub(crate) fn counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = length(rest)?;
    let (bytes, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(bytes)
}
