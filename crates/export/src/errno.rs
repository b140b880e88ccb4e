//! Error numbers of the kernel's block layer for errors of a device.

use zoned::ErrorKind;

/// The error number that a program sees when its request failed with `kind`. Limits have the numbers that the block layer
/// uses for them, so that file systems and Furrow's own `blk:` devices recognise them.
pub(crate) fn errno(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::TooManyOpen => libc::ETOOMANYREFS,
        ErrorKind::TooManyActive => libc::EOVERFLOW,
        ErrorKind::Media | ErrorKind::Damaged => libc::ENODATA,
        ErrorKind::Gone => libc::ENODEV,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        // A drive says no more of a write that is not at the pointer, or to a full or worn zone; a program that wants to know
        // asks for a report.
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_zones_have_the_block_layers_numbers() {
        assert_eq!(errno(ErrorKind::TooManyOpen), 109);
        assert_eq!(errno(ErrorKind::TooManyActive), 75);
    }

    #[test]
    fn an_unreadable_block_and_a_missing_drive_are_told_apart() {
        let found = [ErrorKind::Media, ErrorKind::Gone, ErrorKind::NotAtWritePointer].map(errno);
        assert_eq!(found, [libc::ENODATA, libc::ENODEV, libc::EIO]);
    }
}
