//! Sizes in bytes with units: `64MiB`.

use bytesize::ByteSize;
use units::Bytes;

/// Parses a size in an argument: `64MiB`, `1.5GiB`, `4096`.
pub fn parse(text: &str) -> Result<Bytes, String> {
    text.parse::<ByteSize>()
        .map(|size| Bytes(size.as_u64()))
        .map_err(|_| format!("'{text}' is not a size: write 4096, 64KiB, 1.5GiB"))
}

/// The size in the largest unit that gives a number of at least 1.
pub fn show(bytes: Bytes) -> String {
    ByteSize(bytes.0).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        assert_eq!(parse("64MiB"), Ok(Bytes(64 << 20)));
        assert_eq!(parse("1.5GiB"), Ok(Bytes(3 << 29)));
        assert_eq!(parse("4096"), Ok(Bytes(4096)));
        assert_eq!(show(Bytes(64 << 20)), "64.0 MiB");
        assert!(parse("many").is_err());
    }
}
