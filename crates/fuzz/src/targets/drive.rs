//! Fuzz targets for a drive's URL, for the answers of its identify and report commands, for its profile, and for its content.

use sys::nvme::{Controller, Descriptors, Namespace, ZoneReport, ZonedController, ZonedNamespace};
use units::{RealDriver, crc32c};
use zoned::DeviceUrl;
use zoned::contents::{Layout, Samples, detect};
use zoned::emu::Profile;

/// Parses a device URL.
pub(crate) fn device_url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // The URL may name a profile's file, which the target `profile` tests.
    if text.contains("profile=") {
        return;
    }
    if let Ok(first) = text.parse::<DeviceUrl>() {
        let shown = first.to_string();
        let again = shown.parse::<DeviceUrl>().unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!(again, first, "{shown}");
    }
}

/// Decodes the bytes that NVMe identify and report commands give.
pub(crate) fn nvme_answers(bytes: &[u8]) {
    let Some((&format, bytes)) = bytes.split_first() else { return };
    let _controller = Controller::decode(bytes);
    let _namespace = Namespace::decode(bytes);
    let _descriptors = Descriptors::decode(bytes);
    let _zoned = ZonedNamespace::decode(bytes, format % 64);
    let _limits = ZonedController::decode(bytes);
    if let Some(report) = ZoneReport::decode(bytes) {
        assert!(report.zones.len() * 64 <= bytes.len(), "as many zones as there are bytes for");
    }
}

/// Looks for the signatures of a drive's possible users, in the first, the last and the zones' first bytes.
pub(crate) fn signatures_of_users(bytes: &[u8]) {
    let Some((&[conventional, zones, step], bytes)) = bytes.split_first_chunk() else { return };
    let zone_size = 65_536 * u64::from(step % 8 + 1);
    let zones = u32::from(zones) + 1;
    let layout = Layout {
        size: zone_size * u64::from(zones),
        zone_size,
        zones,
        conventional: u32::from(conventional).min(zones),
    };
    let mut samples = Samples::default();
    let mut last_end = 0;
    for place in layout.places() {
        assert!(last_end <= place.start && place.start < place.end && place.end <= layout.size, "{place:?}");
        last_end = place.end;
        let length = usize::try_from(place.end - place.start).expect("fits memory");
        let mut part = bytes.to_vec();
        part.resize(length, 0);
        samples.insert(place.start, part);
    }
    let _found = detect(&layout, &samples);
}

/// Parses a profile: a drive's times and geometry.
pub(crate) fn drive_profile(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _profile = Profile::parse("fuzzed", text);
    }
}

/// Bytes of a drive file's header, of its first block, and of an entry of its zone table.
const FILE_HEADER_BYTES: usize = 128;
const FIRST_BLOCK_BYTES: usize = 8192;
const ZONE_ENTRY_BYTES: usize = 32;

/// Opens a drive file: its header and its zone table, their checksums made right. Opening must give a drive or an error, and
/// must neither allocate nor write by what the header claims alone.
pub(crate) fn drive_file(bytes: &[u8]) {
    let (header, table) = bytes.split_at(bytes.len().min(FILE_HEADER_BYTES));
    let mut file = header.to_vec();
    file.resize(FILE_HEADER_BYTES, 0);
    put(&mut file, 0, b"FURROW-EMU-DRIVE");
    put(&mut file, 16, &1_u32.to_le_bytes());
    put(&mut file, 96, &(FIRST_BLOCK_BYTES as u64).to_le_bytes());
    let zones = u64::from(u32::from_le_bytes(word_at(&file, 44)));
    let data = (FIRST_BLOCK_BYTES as u64 + zones * 2 * ZONE_ENTRY_BYTES as u64).next_multiple_of(1 << 20);
    put(&mut file, 104, &data.to_le_bytes());
    let crc = crc32c(&[file.get(24..FILE_HEADER_BYTES).unwrap_or_default()]);
    put(&mut file, 20, &crc.to_le_bytes());
    let uuid = file.get(24..40).unwrap_or_default().to_vec();
    file.resize(FIRST_BLOCK_BYTES, 0);
    for (n, entry) in table.chunks_exact(ZONE_ENTRY_BYTES).enumerate() {
        let (zone, slot) = ((n / 2) as u32, (n % 2) as u64);
        let mut entry = entry.to_vec();
        let crc =
            crc32c(&[&uuid, &zone.to_le_bytes(), &slot.to_le_bytes(), entry.get(4..).unwrap_or_default()]);
        put(&mut entry, 0, &crc.to_le_bytes());
        file.extend_from_slice(&entry);
    }
    let path = super::temporary::path("img");
    std::fs::write(&path, &file).expect("a small file");
    let opened = zoned::open(&format!("emu:{}", path.display()), RealDriver::new());
    drop(opened);
    std::fs::remove_file(&path).expect("a file of this target");
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + what.len()) {
        place.copy_from_slice(what);
    }
}

fn word_at(bytes: &[u8], at: usize) -> [u8; 4] {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).unwrap_or_default()
}
