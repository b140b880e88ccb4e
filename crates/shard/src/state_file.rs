//! A small file that is replaced as a whole: the process's own state.
//!
//! | bytes | | |
//! |---|---|---|
//! | 0 | 8 | `FURROWST` |
//! | 8 | 4 | version of this header: 1; little-endian, like all numbers |
//! | 12 | 4 | CRC32C of the contents |
//! | 16 | 8 | bytes of the contents |
//! | 24 | | the contents |

use fs::{CreateOptions, Fs};
use units::Bytes;
use units::crc32c;

use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"FURROWST";
const VERSION: u32 = 1;
const HEADER: usize = 24;

/// The longest file that is read.
const MAX_BYTES: u64 = 64 << 20;

/// Reads the contents of the file at `path`; `None` if there is no file.
///
/// # Errors
/// The file system's; `StateFile` for a file that is damaged or of another version.
pub async fn read_state(fs: &Fs, path: &str) -> Result<Option<Vec<u8>>> {
    let reader = match fs.open(path) {
        Ok(reader) => reader,
        Err(error) if error.kind() == fs::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bad = |why: &str| Error::StateFile { path: path.into(), why: why.into() };
    let size = reader.size();
    if size.0 > MAX_BYTES {
        return Err(bad("it is too long"));
    }
    let mut bytes = vec![0; usize::try_from(size.0).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let read = reader.read_at(Bytes(filled as u64), rest).await?;
        if read == 0 {
            return Err(bad("it ends early"));
        }
        filled += read;
    }
    decode(&bytes).map(|contents| Some(contents.to_vec())).map_err(bad)
}

/// Replaces the contents of the file at `path`, which is made if there is none.
///
/// Crash safety: a power cut leaves the old contents or the new ones; after the call the new ones.
///
/// # Errors
/// The file system's: the file has the old contents or the new ones.
pub async fn replace_state(fs: &Fs, path: &str, contents: &[u8]) -> Result<()> {
    let new = format!("{path}.new");
    let writer = fs.create(&new, &CreateOptions::default()).await?;
    writer.append(&encode(contents)).await?;
    writer.sync().await?;
    writer.close().await?;
    fs.rename(&new, path).await?;
    Ok(fs.sync_names().await?)
}

fn encode(contents: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(crc32c(&[contents]).to_le_bytes());
    bytes.extend((contents.len() as u64).to_le_bytes());
    bytes.extend_from_slice(contents);
    bytes
}

fn decode(bytes: &[u8]) -> std::result::Result<&[u8], &'static str> {
    let (header, contents) = bytes.split_at_checked(HEADER).ok_or("it is shorter than its header")?;
    let (magic, rest) = header.split_first_chunk().ok_or("it is shorter than its header")?;
    let number = |rest: &[u8]| rest.split_first_chunk().map(|(number, _)| u32::from_le_bytes(*number));
    if magic != MAGIC {
        return Err("it is no state file");
    }
    if number(rest) != Some(VERSION) {
        return Err("it is of a version that this program does not read");
    }
    let crc = rest.get(4..).and_then(number);
    let len =
        rest.get(8..).and_then(|rest| rest.split_first_chunk()).map(|(len, _)| u64::from_le_bytes(*len));
    if len != Some(contents.len() as u64) || crc != Some(crc32c(&[contents])) {
        return Err("its checksum or its length is wrong");
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use fs::{FormatOptions, MountOptions};
    use proptest::prelude::*;
    use units::{Driver, VirtualDriver, block_on};
    use zoned::ZonedDevice;
    use zoned::emu::{Emu, EmuOptions, Latency, Seeded};

    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written_last() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        block_on(&*driver, async {
            let emu = Emu::memory(EmuOptions::tiny(), Arc::clone(&driver));
            let device = emu as Arc<dyn ZonedDevice>;
            Fs::format(&device, &FormatOptions::default()).await.expect("formats");
            let fs = Fs::mount(device, &MountOptions::default()).await.expect("mounts");
            assert_eq!(read_state(&fs, "/node").await.expect("reads"), None);
            for contents in [&b"one"[..], b"", b"three"] {
                replace_state(&fs, "/node", contents).await.expect("writes");
                assert_eq!(read_state(&fs, "/node").await.expect("reads").as_deref(), Some(contents));
            }
        });
    }

    /// The power is cut at a random time while states are written, with any outcome that the drive allows: the state is the last one that was written, or the one being written.
    #[test]
    fn a_power_cut_leaves_the_last_state_or_the_one_being_written() {
        const STATES: u64 = 60;
        let (mut during, mut between) = (0, 0);
        for seed in 0..400 {
            let virtual_driver = VirtualDriver::new(seed);
            let driver: Arc<dyn Driver> = Arc::clone(&virtual_driver) as Arc<dyn Driver>;
            let latency = Latency::all(Duration::from_micros(20));
            let options = EmuOptions { latency, volatile_cache: seed % 4 != 0, ..EmuOptions::tiny() };
            let emu = Emu::memory(options, Arc::clone(&driver));
            let device = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
            let fs = block_on(&*driver, async {
                Fs::format(&device, &FormatOptions::default()).await.expect("formats");
                Fs::mount(device, &MountOptions::default()).await.expect("mounts")
            });
            let written = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&written);
            driver.spawn(
                "states",
                Box::pin(async move {
                    for number in 1..=STATES {
                        let contents = number.to_le_bytes().repeat(1 + usize::try_from(number * 17).unwrap());
                        replace_state(&fs, "/node", &contents).await.expect("writes");
                        count.store(number, Ordering::SeqCst);
                    }
                }),
            );
            let cut = driver.now().after(Duration::from_micros(driver.random() % 4_000));
            virtual_driver.run_until(cut);
            let written = written.load(Ordering::SeqCst);
            let media = emu.power_cut(&mut Seeded::new(seed));
            virtual_driver.drop_all_tasks();
            let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
            let emu = Emu::from_media(media, "emu:cut", Latency::NONE, Arc::clone(&driver));
            let found = block_on(&*driver, async {
                let fs =
                    Fs::mount(emu as Arc<dyn ZonedDevice>, &MountOptions::default()).await.expect("mounts");
                read_state(&fs, "/node").await.expect("reads")
            });
            let found =
                found.map_or(0, |contents| u64::from_le_bytes(*contents.first_chunk().expect("a number")));
            assert!(
                (written..=written + 1).contains(&found),
                "seed {seed}: {found} is found, {written} were written"
            );
            during += u32::from(written < STATES);
            between += u32::from(found > written);
        }
        assert!(
            during > 300 && between > 0,
            "{during} cuts before the end, {between} found the one being written"
        );
    }

    #[test]
    fn a_changed_byte_is_found() {
        let bytes = encode(b"contents");
        assert_eq!(decode(&bytes), Ok(&b"contents"[..]));
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            assert!(decode(&changed).is_err(), "byte {place}");
            assert!(decode(&bytes[..place]).is_err(), "{place} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_contents_or_an_error(bytes: Vec<u8>) {
            if let Ok(contents) = decode(&bytes) {
                prop_assert_eq!(encode(contents), bytes);
            }
        }
    }
}
