//! The bytes on the device: superblock, header of a metadata zone, frames and records of the metadata log.

pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod record;
pub(crate) mod superblock;

pub(crate) use units::crc32c;

/// The content of golden file `name`. With `FURROW_BLESS=1` in the environment, `fresh` is written to the
/// golden file first, to add one for a new format version.
#[cfg(test)]
pub(crate) fn golden(name: &str, fresh: &[u8]) -> Vec<u8> {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("FURROW_BLESS").is_some() {
        std::fs::write(&path, fresh).expect("the golden file is writable");
    }
    std::fs::read(&path).expect("the golden file is there")
}
