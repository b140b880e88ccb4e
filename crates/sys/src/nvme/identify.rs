//! The data structures of the NVMe identify command: the fields that a zoned backend needs.

use units::{Blocks, Bytes};

use super::{bytes, u8_at, u16_at, u32_at, u64_at};

/// The controller's memory page in bytes: the unit of transfer limits. The register with the page size cannot
/// be read through the passthrough; every controller of zoned drives so far has 4 KiB, and a larger page
/// would only make Furrow's limit too strict.
const CONTROLLER_PAGE_BYTES: u64 = 4096;
/// The value that means "no limit" in the limits of open and active zones.
const NO_LIMIT: u32 = u32::MAX;

/// The identify controller structure (01h).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Controller {
    /// The controller's serial number, without the padding.
    pub serial: String,
    /// The model.
    pub model: String,
    /// The revision of the controller's firmware.
    pub firmware: String,
    /// The most data of one NVMe command (MDTS); `None` for no limit.
    pub max_transfer: Option<Bytes>,
    /// True if the controller has a volatile write cache (VWC).
    pub volatile_cache: bool,
    /// The controller's atomic write unit in normal operation (AWUN).
    pub atomic_write: Blocks,
    /// The controller's atomic write unit across a power failure (AWUPF).
    pub atomic_write_power_fail: Blocks,
}

/// The identify namespace structure (00h).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Size of the namespace.
    pub size: Blocks,
    /// The namespace's capacity: the blocks that can be allocated.
    pub capacity: Blocks,
    /// The namespace's utilization: the blocks in use.
    pub used: Blocks,
    /// The block size of the namespace's format in use.
    pub block_size: Bytes,
    /// Bytes of metadata with each block, in the namespace's format in use.
    pub metadata: u16,
    /// The index of the namespace's format in use.
    pub format: u8,
    /// The namespace's atomic write unit in normal operation (NAWUN); `None` if the controller's value holds.
    pub atomic_write: Option<Blocks>,
    /// The namespace's atomic write unit across a power failure (NAWUPF); `None` if the controller's value
    /// holds.
    pub atomic_write_power_fail: Option<Blocks>,
    /// The best size for writes to the namespace (NPWG); `None` if the namespace does not report it.
    pub preferred_write: Option<Blocks>,
    /// The namespace's identifier in 16 bytes (NGUID); zero if it has none.
    pub nguid: [u8; 16],
    /// The namespace's identifier in 8 bytes (EUI64); zero if it has none.
    pub eui64: [u8; 8],
}

/// The namespace identification descriptors (structure 03h).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Descriptors {
    /// The namespace's identifier in 8 bytes (EUI64).
    pub eui64: Option<[u8; 8]>,
    /// The namespace's identifier in 16 bytes (NGUID).
    pub nguid: Option<[u8; 16]>,
    /// The UUID.
    pub uuid: Option<[u8; 16]>,
    /// The namespace's command set: 0 NVM, 1 key value, 2 zoned. `None` if the device is older than command
    /// sets.
    pub command_set: Option<u8>,
}

/// The identify namespace structure of the Zoned Namespace Command Set (05h).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZonedNamespace {
    /// The most active zones (MAR); `None` for no limit.
    pub max_active: Option<u32>,
    /// The most open zones (MOR); `None` for no limit.
    pub max_open: Option<u32>,
    /// True if the namespace's zones may differ in capacity, and a reset may change a zone's capacity.
    pub variable_capacity: bool,
    /// True if the device may finish an active zone by itself.
    pub active_excursions: bool,
    /// True if a read may cross from zone to zone.
    pub read_across_zones: bool,
    /// The zone size of the namespace's format in use.
    pub zone_size: Blocks,
}

/// The identify controller structure of the Zoned Namespace Command Set (06h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZonedController {
    /// The most data of one append (ZASL); `None` if only the limit for all commands applies.
    pub max_append: Option<Bytes>,
}

impl Controller {
    /// Decodes the identify controller structure.
    pub fn decode(from: &[u8]) -> Option<Controller> {
        Some(Controller {
            serial: ascii_text(from.get(4..24)?),
            model: ascii_text(from.get(24..64)?),
            firmware: ascii_text(from.get(64..72)?),
            max_transfer: bytes_from_page_shift(u8_at(from, 77)?),
            volatile_cache: u8_at(from, 525)? & 1 != 0,
            atomic_write: blocks_from_zero_based(u16_at(from, 526)?),
            atomic_write_power_fail: blocks_from_zero_based(u16_at(from, 528)?),
        })
    }
}

impl Namespace {
    /// Decodes the identify namespace structure. `None` also if no device can have its block size, or if it
    /// does not list the format in use.
    pub fn decode(from: &[u8]) -> Option<Namespace> {
        let features = u8_at(from, 24)?;
        let formats = u8_at(from, 25)?;
        let format = format_in_use(from)?;
        let layout = u32_at(from, 128 + 4 * usize::from(format))?;
        let shift = (layout >> 16) & 0xff;
        let in_namespace = |known: bool, at| u16_at(from, at).filter(|_| known).map(blocks_from_zero_based);
        (format <= formats && (9..=20).contains(&shift)).then_some(())?;
        Some(Namespace {
            size: Blocks(u64_at(from, 0)?),
            capacity: Blocks(u64_at(from, 8)?),
            used: Blocks(u64_at(from, 16)?),
            block_size: Bytes(1 << shift),
            metadata: (layout & 0xffff) as u16,
            format,
            atomic_write: in_namespace(features & 2 != 0, 34),
            atomic_write_power_fail: in_namespace(features & 2 != 0, 36),
            preferred_write: in_namespace(features & 16 != 0, 64),
            nguid: bytes(from, 104)?,
            eui64: bytes(from, 120)?,
        })
    }
}

/// The index of the namespace's format in use: four bits, and two more if there are more than 16 formats.
fn format_in_use(namespace: &[u8]) -> Option<u8> {
    let (formats, in_use) = (u8_at(namespace, 25)?, u8_at(namespace, 26)?);
    let high = if formats >= 16 { (in_use >> 5) & 3 } else { 0 };
    Some((in_use & 0xf) | (high << 4))
}

impl Descriptors {
    /// Decodes the namespace identification descriptors: skips unknown ones, and returns those before the end
    /// if the list breaks off.
    pub fn decode(mut from: &[u8]) -> Descriptors {
        let mut found = Descriptors::default();
        while let [kind, len, _, _, rest @ ..] = from {
            if *len == 0 {
                break; // The end of the list.
            }
            let Some((value, rest)) = rest.split_at_checked(usize::from(*len)) else { break };
            match kind {
                1 => found.eui64 = value.try_into().ok(),
                2 => found.nguid = value.try_into().ok(),
                3 => found.uuid = value.try_into().ok(),
                4 => found.command_set = value.first().copied(),
                _ => {}
            }
            from = rest;
        }
        found
    }
}

impl ZonedNamespace {
    /// Decodes the identify namespace structure for zones. `format` is [`Namespace::format`]. `None` also if
    /// the zone size is zero: the namespace is not zoned.
    pub fn decode(from: &[u8], format: u8) -> Option<ZonedNamespace> {
        let limit = |at| u32_at(from, at).map(|raw| (raw != NO_LIMIT).then(|| raw + 1));
        let zoned = u16_at(from, 0)?;
        let optional = u16_at(from, 2)?;
        let zone_size = u64_at(from, 2816 + 16 * usize::from(format & 63))?;
        (zone_size > 0).then_some(())?;
        Some(ZonedNamespace {
            max_active: limit(4)?,
            max_open: limit(8)?,
            variable_capacity: zoned & 1 != 0,
            active_excursions: zoned & 2 != 0,
            read_across_zones: optional & 1 != 0,
            zone_size: Blocks(zone_size),
        })
    }
}

impl ZonedController {
    /// Decodes the identify controller structure for zones.
    pub fn decode(from: &[u8]) -> Option<ZonedController> {
        Some(ZonedController { max_append: bytes_from_page_shift(u8_at(from, 0)?) })
    }
}

/// A limit that is stored as a power of two of pages; zero means no limit.
fn bytes_from_page_shift(shift: u8) -> Option<Bytes> {
    (shift > 0).then(|| {
        Bytes(CONTROLLER_PAGE_BYTES.checked_shl(shift.into()).filter(|bytes| *bytes > 0).unwrap_or(u64::MAX))
    })
}

/// A limit that is stored as the value less one.
fn blocks_from_zero_based(raw: u16) -> Blocks {
    Blocks(u64::from(raw) + 1)
}

/// ASCII text padded with blanks; an unprintable byte becomes a question mark.
fn ascii_text(raw: &[u8]) -> String {
    let printable = |byte: &u8| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '?' };
    let end = raw.iter().rposition(|byte| !matches!(byte, b' ' | 0)).map_or(0, |last| last + 1);
    raw.iter().take(end).map(printable).collect::<String>().trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::IDENTIFY_LEN;

    fn namespace(formats: u8, in_use: u8) -> Vec<u8> {
        let mut raw = vec![0; IDENTIFY_LEN];
        raw[..8].copy_from_slice(&1024u64.to_le_bytes());
        (raw[25], raw[26]) = (formats, in_use);
        for format in 0..64 {
            // The namespace's format 0 has blocks of 512 bytes, the other formats 4096.
            raw[128 + 4 * format + 2] = if format == 0 { 9 } else { 12 };
        }
        raw
    }

    #[test]
    fn the_block_size_is_that_of_the_format_in_use() {
        let decode = |formats, in_use| Namespace::decode(&namespace(formats, in_use));
        let found = decode(1, 1).expect("a namespace");
        assert_eq!((found.block_size, found.format, found.size), (Bytes(4096), 1, Blocks(1024)));
        assert_eq!(decode(1, 0x10).map(|found| found.block_size), Some(Bytes(512)));
        assert_eq!(decode(63, 0x7f).map(|found| found.format), Some(63));
        assert_eq!(decode(0, 1), None, "a format that is not listed");
    }

    #[test]
    fn a_block_size_that_no_device_has_is_refused() {
        let mut raw = namespace(0, 0);
        for shift in [0, 8, 21, 64, 255] {
            raw[130] = shift;
            assert_eq!(Namespace::decode(&raw), None);
        }
    }

    #[test]
    fn a_controller_is_decoded() {
        let mut raw = vec![0; IDENTIFY_LEN];
        raw[4..24].copy_from_slice(b"ZNS0                ");
        raw[24..64].fill(b' ');
        raw[24..29].copy_from_slice(b"M\x01del");
        (raw[77], raw[525], raw[526], raw[528]) = (7, 1, 127, 0);
        let found = Controller::decode(&raw).expect("a controller");
        assert_eq!((found.serial.as_str(), found.model.as_str()), ("ZNS0", "M?del"));
        assert_eq!(found.max_transfer, Some(Bytes(512 << 10)));
        assert_eq!((found.volatile_cache, found.atomic_write), (true, Blocks(128)));
        assert_eq!(found.atomic_write_power_fail, Blocks(1));
    }

    #[test]
    fn a_zoned_namespace_is_decoded() {
        let mut raw = vec![0; IDENTIFY_LEN];
        assert_eq!(ZonedNamespace::decode(&raw, 0), None, "not zoned");
        raw[2] = 1;
        raw[4..8].copy_from_slice(&11u32.to_le_bytes());
        raw[8..12].fill(0xff);
        raw[2816 + 16..2816 + 24].copy_from_slice(&4096u64.to_le_bytes());
        let found = ZonedNamespace::decode(&raw, 1).expect("a zoned namespace");
        assert_eq!((found.max_active, found.max_open), (Some(12), None));
        assert_eq!((found.zone_size, found.read_across_zones), (Blocks(4096), true));
    }

    #[test]
    fn an_append_limit_of_zero_means_that_of_any_command() {
        assert_eq!(ZonedController::decode(&[0]), Some(ZonedController { max_append: None }));
        assert_eq!(ZonedController::decode(&[3]).and_then(|found| found.max_append), Some(Bytes(32 << 10)));
        assert_eq!(ZonedController::decode(&[255]).and_then(|found| found.max_append), Some(Bytes(u64::MAX)));
    }

    #[test]
    fn identifiers_are_found_among_unknown_ones() {
        let mut raw = vec![9, 2, 0, 0, 1, 2, 1, 8, 0, 0];
        raw.extend(1..=8);
        raw.extend([4, 1, 0, 0, 2, 0, 0, 0, 0]);
        let found = Descriptors::decode(&raw);
        assert_eq!((found.eui64, found.command_set), (Some([1, 2, 3, 4, 5, 6, 7, 8]), Some(2)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_structure_or_none(
            raw in proptest::collection::vec(proptest::num::u8::ANY, 0..=IDENTIFY_LEN), format: u8,
        ) {
            let _controller = Controller::decode(&raw);
            let _descriptors = Descriptors::decode(&raw);
            let _zoned = ZonedController::decode(&raw);
            if let Some(namespace) = Namespace::decode(&raw) {
                proptest::prop_assert!(namespace.block_size.0.is_power_of_two());
            }
            if let Some(zoned) = ZonedNamespace::decode(&raw, format) {
                proptest::prop_assert!(zoned.zone_size > Blocks(0));
            }
        }
    }
}
