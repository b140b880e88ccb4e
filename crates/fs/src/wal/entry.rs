//! The format of a log entry: one 64-byte header, then bytes of the log's stream.
//!
//! An entry (or one *part* of an entry too long for one device operation) begins at a block boundary:
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `FuLe` |
//! | 4 | 2 | version | 2 |
//! | 6 | 2 | flags | bit 0: padding, without stream bytes and sequence; bit 1: in an odd region, see below; bit 2: a void entry, bit 3: the payload has a list of known tickets, see [`parallel`](crate::wal::parallel); bit 4: rewritten in place, see below; the others are zero |
//! | 8 | 8 | log | the log's id: its inode number |
//! | 16 | 8 | generation | the generation of the entry's zone |
//! | 24 | 8 | sequence | counts the log's entries, across zones and epochs; shared by the parts of one entry |
//! | 32 | 8 | needs | kept only if every sequence below this exists; never above `sequence` |
//! | 40 | 4 | epoch | counts how often the log was opened for append |
//! | 44 | 2 | part | which part of the entry, from 0 |
//! | 46 | 2 | parts | how many parts the entry has, from 1: all are kept or none |
//! | 48 | 4 | length | stream bytes in this part |
//! | 52 | 4 | mask | combined by exclusive or with the first word of every block but the first |
//! | 56 | 4 | open | how many entries right before this one were not known to be durable when this one was sealed |
//! | 60 | 4 | crc | CRC32C |
//! | 64 | length | payload | a piece of the stream; zeros fill the last block |
//!
//! All numbers are little-endian. The CRC covers, in this order: the file system's UUID (16 bytes), the zone's
//! number (4 bytes), sequence and part scrambled (SplitMix64 of the sequence, and of that by exclusive or with the part:
//! 8 bytes, so that the XOR of three entries is no valid entry: see [`units::scrambled`]), the header with a zero in place of
//! the CRC, the payload as stored on the device.
//!
//! The entries before the open ones were durable when the entry was sealed: a missing one is damage, and no effect of a power
//! cut. All ones in `open` means that nothing is known.
//!
//! # Regions
//!
//! Within an epoch the entries come in *regions*, numbered from 0. The first entry of a region was submitted when every
//! entry before it was acknowledged, so its address is higher than theirs: an entry that was not found before the next
//! region, or the log's next segment, begins does not exist. Appends are reordered within a region only.
//!
//! # Entries rewritten in place
//!
//! In a conventional zone an ordered log rewrites its last block while the block has room. Each version of the block is an entry of one
//! part with all bytes of the version before and more behind them, under a sequence of its own: with bit 4 set the entry stands for
//! every sequence from `needs` to its own. A power cut leaves one version whole, since a drive writes a block of a conventional zone
//! wholly or not at all. Entries behind an older version are then behind a gap in the sequence, and do not count.
//!
//! # Why a payload is never taken for an entry
//!
//! After a torn entry, recovery looks for the next entry block by block. A record that embeds an old entry of the same log,
//! in the same zone generation, could then be taken for an entry. A checksum over the entry's address would prevent that,
//! but the address of a zone append is unknown when the append is submitted. Instead the writer chooses the *mask* so that
//! only the first block of an entry begins with the magic. The mask is zero unless a payload has the magic at a block
//! boundary. So a block of a log zone begins with the magic exactly where a header was written.

use units::ZoneId;
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first four bytes of an entry's header.
pub(super) const MAGIC: [u8; 4] = *b"FuLe";
/// The version of the log entry format.
const VERSION: u16 = 2;
/// Bytes of a header.
pub(crate) const HEADER_SIZE: usize = 64;
/// Bytes of the longest part of an entry, header included. A decoder refuses greater lengths.
pub(crate) const MAX_PART: usize = 8 << 20;
const FLAG_PADDING: u16 = 1;
const FLAG_ODD: u16 = 2;
const FLAG_VOID: u16 = 4;
const FLAG_KNOWN: u16 = 8;
const FLAG_REWRITTEN: u16 = 16;
const FLAGS: u16 = FLAG_PADDING | FLAG_ODD | FLAG_VOID | FLAG_KNOWN | FLAG_REWRITTEN;
/// The bytes at the start of an entry's second and later blocks that the mask changes.
const MASKED_WORD_BYTES: usize = MAGIC.len();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    version: U16,
    flags: U16,
    log: U64,
    generation: U64,
    sequence: U64,
    needs: U64,
    epoch: U32,
    part: U16,
    parts: U16,
    length: U32,
    mask: U32,
    open: U32,
    crc: U32,
}

const _: () = {
    assert!(size_of::<Raw>() == HEADER_SIZE);
    assert!(std::mem::offset_of!(Raw, log) == 8);
    assert!(std::mem::offset_of!(Raw, needs) == 32);
    assert!(std::mem::offset_of!(Raw, epoch) == 40);
    assert!(std::mem::offset_of!(Raw, length) == 48);
    assert!(std::mem::offset_of!(Raw, crc) == 60);
};

/// The file system and the zone that hold an entry: the entry's checksum covers both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// The file system.
    pub uuid: Uuid,
    /// The zone.
    pub zone: ZoneId,
}

/// A decoded entry header. The table at the top of the file has the fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryHeader {
    /// The entry is padding, without stream bytes and sequence: it only moves the zone's write pointer.
    pub padding: bool,
    /// The entry is in a region with an odd number.
    pub odd: bool,
    /// A void entry of a parallel log: its tickets, from `sequence` on, have no records.
    pub void: bool,
    /// In a parallel log: the entry's payload lists acknowledged tickets above `needs`.
    pub known: bool,
    /// The entry holds every sequence from `needs` to its own: a version of a block that is rewritten in place.
    pub rewritten: bool,
    /// The log's id.
    pub log: u64,
    /// The generation of the zone that holds the entry.
    pub generation: u64,
    /// The entry's place in the log's order.
    pub sequence: u64,
    /// The entry counts only if every sequence below this one exists.
    pub needs: u64,
    /// The number of times that the log was opened for append before.
    pub epoch: u32,
    /// The part's number within the entry, from 0.
    pub part: u16,
    /// The number of parts of the entry.
    pub parts: u16,
    /// Bytes of the log's stream in this part.
    pub length: u32,
    /// The mask: combined by exclusive or with the first word of the part's second and later blocks.
    pub mask: u32,
    /// The number of entries right before this one that were not known to be durable when this one was
    /// sealed.
    pub open: u32,
    /// The entry's checksum as stored.
    pub crc: u32,
}

/// The reason why bytes are no log entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadEntry {
    /// The bytes end before the entry does.
    #[error("the log entry is cut off")]
    Short,
    /// The bytes do not begin with the magic of a log entry.
    #[error("no log entry begins here")]
    NoMagic,
    /// The entry was written by another version of the format.
    #[error("the log entry has format version {0}, and this program knows version 2: use one that knows it")]
    Version(u16),
    /// A field of the entry has a value that no writer writes.
    #[error("the log entry's field '{0}' has an impossible value")]
    Field(&'static str),
    /// The entry's checksum does not match: torn, damaged, or of another file system or zone.
    #[error("the log entry's checksum does not fit")]
    Checksum,
}

impl EntryHeader {
    /// Decodes an entry header without checking its checksum. Any bytes give a header or an error, never a
    /// panic.
    pub fn parse(bytes: &[u8]) -> Result<EntryHeader, BadEntry> {
        let (raw, _) = Raw::read_from_prefix(bytes).map_err(|_| BadEntry::Short)?;
        if raw.magic != MAGIC {
            return Err(BadEntry::NoMagic);
        }
        if raw.version.get() != VERSION {
            return Err(BadEntry::Version(raw.version.get()));
        }
        let header = EntryHeader {
            padding: raw.flags.get() & FLAG_PADDING != 0,
            odd: raw.flags.get() & FLAG_ODD != 0,
            void: raw.flags.get() & FLAG_VOID != 0,
            known: raw.flags.get() & FLAG_KNOWN != 0,
            rewritten: raw.flags.get() & FLAG_REWRITTEN != 0,
            log: raw.log.get(),
            generation: raw.generation.get(),
            sequence: raw.sequence.get(),
            needs: raw.needs.get(),
            epoch: raw.epoch.get(),
            part: raw.part.get(),
            parts: raw.parts.get(),
            length: raw.length.get(),
            mask: raw.mask.get(),
            open: raw.open.get(),
            crc: raw.crc.get(),
        };
        let checks = [
            ("flags", raw.flags.get() & !FLAGS == 0),
            ("needs", header.needs <= header.sequence),
            ("part", header.part < header.parts),
            ("parts", !header.rewritten || header.parts == 1),
            ("length", header.total() <= MAX_PART),
            ("open", header.open == u32::MAX || u64::from(header.open) <= header.sequence),
        ];
        match checks.iter().find(|(_, fits)| !fits) {
            Some((field, _)) => Err(BadEntry::Field(field)),
            None => Ok(header),
        }
    }

    /// A header of log 1 for tests of recovery: one part of 10 bytes, and nothing is known to be durable.
    #[cfg(test)]
    pub(super) fn for_recovery_tests(epoch: u32, sequence: u64, needs: u64) -> EntryHeader {
        EntryHeader {
            padding: false,
            odd: false,
            void: false,
            known: false,
            rewritten: false,
            log: 1,
            generation: 1,
            sequence,
            needs,
            epoch,
            part: 0,
            parts: 1,
            length: 10,
            mask: 0,
            open: u32::MAX,
            crc: 0,
        }
    }

    /// Every sequence below this one was durable when the entry was sealed.
    pub fn proven(&self) -> u64 {
        if self.open == u32::MAX { 0 } else { self.sequence.saturating_sub(self.open.into()) }
    }

    /// The lowest sequence that the entry stands for.
    pub(super) fn first_sequence(&self) -> u64 {
        if self.rewritten { self.needs } else { self.sequence }
    }

    /// Bytes of the entry's header and payload.
    pub fn total(&self) -> usize {
        HEADER_SIZE.saturating_add(usize::try_from(self.length).unwrap_or(usize::MAX))
    }

    fn flags(&self) -> u16 {
        let bit = |set: bool, flag: u16| if set { flag } else { 0 };
        bit(self.padding, FLAG_PADDING)
            | bit(self.odd, FLAG_ODD)
            | bit(self.void, FLAG_VOID)
            | bit(self.known, FLAG_KNOWN)
            | bit(self.rewritten, FLAG_REWRITTEN)
    }

    fn raw(&self) -> Raw {
        Raw {
            magic: MAGIC,
            version: U16::new(VERSION),
            flags: U16::new(self.flags()),
            log: U64::new(self.log),
            generation: U64::new(self.generation),
            sequence: U64::new(self.sequence),
            needs: U64::new(self.needs),
            epoch: U32::new(self.epoch),
            part: U16::new(self.part),
            parts: U16::new(self.parts),
            length: U32::new(self.length),
            mask: U32::new(self.mask),
            open: U32::new(self.open),
            crc: U32::new(self.crc),
        }
    }

    /// The checksum of an entry with this header at `home`. `payload`: the payload's pieces as stored on the
    /// device.
    pub fn checksum<'a>(&self, home: &Home, payload: impl Iterator<Item = &'a [u8]>) -> u32 {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(home.uuid.as_bytes());
        digest.update(&home.zone.0.to_le_bytes());
        digest.update(&units::scrambled(&[self.sequence, self.part.into()]));
        digest.update(EntryHeader { crc: 0, ..*self }.raw().as_bytes());
        for piece in payload {
            digest.update(piece);
        }
        u32::try_from(digest.finalize()).expect("a CRC32C has 32 bits")
    }

    /// Finishes a part of an entry in place: chooses and applies the mask, and writes the header with its
    /// checksum.
    ///
    /// `part`: whole blocks with room for the header, then the payload, then zeros. Returns the header as
    /// written.
    pub fn seal(mut self, part: &mut [u8], home: &Home, block_size: usize) -> EntryHeader {
        assert!(self.total() <= part.len() && self.total() <= MAX_PART, "a part is sealed within its blocks");
        assert!(self.part < self.parts && self.needs <= self.sequence, "a sealed header is a valid one");
        self.mask = choose_mask(part, block_size);
        if self.mask != 0 {
            for word in further_words_mut(part, block_size) {
                for (byte, mask) in word.iter_mut().zip(self.mask.to_le_bytes()) {
                    *byte ^= mask;
                }
            }
        }
        self.crc = self.checksum(home, part.get(HEADER_SIZE..self.total()).into_iter());
        if let Some(header) = part.get_mut(..HEADER_SIZE) {
            header.copy_from_slice(self.raw().as_bytes());
        }
        self
    }
}

/// Checks and decodes one whole part of an entry: the header and its stream bytes. Any bytes give a part or
/// an error, never a panic.
pub fn decode(bytes: &[u8], home: &Home, block_size: u32) -> Result<(EntryHeader, Vec<u8>), BadEntry> {
    let header = EntryHeader::parse(bytes)?;
    let stored = bytes.get(HEADER_SIZE..header.total()).ok_or(BadEntry::Short)?;
    if header.checksum(home, std::iter::once(stored)) != header.crc {
        return Err(BadEntry::Checksum);
    }
    let mut payload = vec![0; stored.len()];
    copy_unmasked(stored, HEADER_SIZE, block_size as usize, header.mask, &mut payload);
    Ok((header, payload))
}

/// Copies stream bytes out of a part of an entry as stored on the device. `phase`: the distance of the first
/// byte of `from` from a block boundary of the part.
pub(super) fn copy_unmasked(from: &[u8], phase: usize, block_size: usize, mask: u32, to: &mut [u8]) {
    let len = from.len().min(to.len());
    if let (Some(to), Some(from)) = (to.get_mut(..len), from.get(..len)) {
        to.copy_from_slice(from);
    }
    if mask == 0 {
        return;
    }
    // The first block of a part begins with the header, so the mask changes no payload byte of this block.
    for (at, byte) in to.iter_mut().enumerate().take(len) {
        if let Some(mask) = mask.to_le_bytes().get((phase + at) % block_size) {
            *byte ^= mask;
        }
    }
}

fn further_words_mut(part: &mut [u8], block_size: usize) -> impl Iterator<Item = &mut [u8]> {
    part.chunks_mut(block_size).skip(1).filter_map(|block| block.get_mut(..MASKED_WORD_BYTES))
}

/// The lowest mask under which only the first block of `part` begins with the magic of an entry.
fn choose_mask(part: &[u8], block_size: usize) -> u32 {
    let words = || part.chunks(block_size).skip(1).filter_map(|b| b.first_chunk::<MASKED_WORD_BYTES>());
    let magic = u32::from_le_bytes(MAGIC);
    // Each block after the first rules out one mask, so one of the first `blocks + 1` masks is left.
    let mut mask = 0_u32;
    while words().any(|word| u32::from_le_bytes(*word) ^ mask == magic) {
        mask += 1;
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: usize = 512;

    fn home() -> Home {
        Home { uuid: Uuid::from_bytes(*b"0123456789abcdef"), zone: ZoneId(7) }
    }

    fn header(length: usize) -> EntryHeader {
        EntryHeader {
            padding: false,
            odd: false,
            void: false,
            known: false,
            rewritten: false,
            log: 0x0102_0304_0506_0708,
            generation: 42,
            sequence: 9,
            needs: 8,
            epoch: 3,
            part: 1,
            parts: 2,
            length: u32::try_from(length).expect("short"),
            mask: 0,
            open: 5,
            crc: 0,
        }
    }

    fn sealed(payload: &[u8]) -> Vec<u8> {
        let header = header(payload.len());
        let mut part = vec![0; header.total().next_multiple_of(BLOCK)];
        part[HEADER_SIZE..HEADER_SIZE + payload.len()].copy_from_slice(payload);
        header.seal(&mut part, &home(), BLOCK);
        part
    }

    /// A payload whose second block begins with the magic of an entry.
    fn payload_with_entry_magic() -> Vec<u8> {
        let mut payload: Vec<u8> = (0..1000_u32).map(|n| n.to_le_bytes()[0]).collect();
        payload[BLOCK - HEADER_SIZE..][..4].copy_from_slice(&MAGIC);
        payload
    }

    #[test]
    fn the_golden_entry_decodes_and_encodes_to_the_same_bytes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/log-entry-v2.bin");
        if std::env::var_os("FURROW_WRITE_GOLDEN").is_some() {
            std::fs::write(path, sealed(&payload_with_entry_magic()))
                .expect("the golden file can be written");
        }
        let golden = std::fs::read(path).expect("the golden file is committed");
        let (found, payload) = decode(&golden, &home(), BLOCK as u32).expect("the golden entry decodes");
        assert_eq!(payload, payload_with_entry_magic());
        assert_eq!(
            (found.log, found.generation, found.sequence, found.needs),
            (0x0102_0304_0506_0708, 42, 9, 8)
        );
        assert_eq!((found.epoch, found.part, found.parts, found.mask, found.padding), (3, 1, 2, 1, false));
        assert_eq!((found.open, found.proven()), (5, 4));
        assert_eq!(sealed(&payload), golden);
    }

    #[test]
    fn the_golden_version_of_a_rewritten_block_decodes_and_encodes_to_the_same_bytes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/log-entry-rewritten-v2.bin");
        let header = EntryHeader { rewritten: true, needs: 6, part: 0, parts: 1, ..header(5) };
        let mut part = vec![0; BLOCK];
        part[HEADER_SIZE..][..5].copy_from_slice(b"bytes");
        header.seal(&mut part, &home(), BLOCK);
        if std::env::var_os("FURROW_WRITE_GOLDEN").is_some() {
            std::fs::write(path, &part).expect("the golden file can be written");
        }
        let golden = std::fs::read(path).expect("the golden file is committed");
        let (found, payload) = decode(&golden, &home(), BLOCK as u32).expect("the golden entry decodes");
        assert_eq!((found.first_sequence(), found.sequence, payload.as_slice()), (6, 9, &b"bytes"[..]));
        assert_eq!(part, golden);
        // A block is rewritten as one part.
        let mut two = golden;
        two[46] = 2;
        assert_eq!(EntryHeader::parse(&two), Err(BadEntry::Field("parts")));
    }

    #[test]
    fn no_further_block_begins_with_the_magic() {
        let part = sealed(&payload_with_entry_magic());
        assert_eq!(part[..4], MAGIC);
        assert_ne!(part[BLOCK..][..4], MAGIC);
        // A payload block that mask 1 would turn into the magic makes the writer choose another mask.
        let mut payload = vec![0; 3 * BLOCK];
        payload[BLOCK - HEADER_SIZE..][..4].copy_from_slice(&MAGIC);
        let turned = u32::from_le_bytes(MAGIC) ^ 1;
        payload[2 * BLOCK - HEADER_SIZE..][..4].copy_from_slice(&turned.to_le_bytes());
        let part = sealed(&payload);
        assert!(part.chunks(BLOCK).skip(1).all(|block| block[..4] != MAGIC));
        assert_eq!(decode(&part, &home(), BLOCK as u32).expect("valid").1, payload);
    }

    #[test]
    fn the_checksum_is_bound_to_file_system_and_zone() {
        let part = sealed(b"bytes");
        let other_fs = Home { uuid: Uuid::from_bytes([1; 16]), ..home() };
        let other_zone = Home { zone: ZoneId(8), ..home() };
        for wrong in [other_fs, other_zone] {
            assert_eq!(decode(&part, &wrong, BLOCK as u32), Err(BadEntry::Checksum));
        }
        assert!(decode(&part, &home(), BLOCK as u32).is_ok());
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let part = sealed(&payload_with_entry_magic());
        for at in 0..HEADER_SIZE + 1000 {
            let mut damaged = part.clone();
            damaged[at] ^= 0x10;
            assert!(decode(&damaged, &home(), BLOCK as u32).is_err(), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_an_error(mut bytes: Vec<u8>, headed: bool) {
            if headed && bytes.len() >= 6 {
                bytes[..6].copy_from_slice(b"FuLe\x01\x00");
            }
            prop_assert!(decode(&bytes, &home(), BLOCK as u32).is_err());
            let _any = EntryHeader::parse(&bytes);
        }

        #[test]
        fn a_header_with_any_field_values_gives_a_value_or_an_error(mut bytes in prop::array::uniform32(any::<u8>()), tail in prop::array::uniform32(any::<u8>())) {
            bytes[..8].copy_from_slice(b"FuLe\x01\x00\x00\x00");
            let whole = [bytes, tail].concat();
            if let Ok(header) = EntryHeader::parse(&whole) {
                prop_assert!(header.total() <= MAX_PART && header.part < header.parts);
            }
        }

        #[test]
        fn every_payload_comes_back(payload in prop::collection::vec(any::<u8>(), 0..3000)) {
            let part = sealed(&payload);
            prop_assert_eq!(decode(&part, &home(), BLOCK as u32).expect("valid").1, payload);
        }
    }
}
