use std::sync::Arc;

use proptest::prelude::*;
use units::VirtualDriver;

use super::*;
use crate::emu::{Emu, EmuOptions, FaultOp, FaultSpec};
use crate::{Action, Buf, Durability, ErrorKind};

const MIB: u64 = 1 << 20;

/// The layout of the tested drive: 16 zones of 1 MiB, the first two conventional.
const LAYOUT: Layout = Layout { size: 16 * MIB, zone_size: MIB, zones: 16, conventional: 2 };

/// Samples of a drive that is zero except for `bytes`, given by offset.
fn samples(layout: &Layout, bytes: &[(u64, &[u8])]) -> Samples {
    let mut samples = Samples::default();
    for place in layout.places() {
        let mut part = vec![0; usize::try_from(place.end - place.start).unwrap()];
        for (at, bytes) in bytes.iter().filter(|(at, _)| place.contains(at)) {
            let at = usize::try_from(at - place.start).unwrap();
            part[at..at + bytes.len()].copy_from_slice(bytes);
        }
        samples.insert(place.start, part);
    }
    samples
}

fn signatures_found(bytes: &[(u64, &[u8])]) -> Vec<Signature> {
    detect(&LAYOUT, &samples(&LAYOUT, bytes))
}

/// The first block of an ext4 file system with 1 KiB blocks.
fn ext() -> Vec<u8> {
    let mut block = vec![0; 1024];
    block[0] = 128;
    block[4] = 200;
    block[56..58].copy_from_slice(&[0x53, 0xef]);
    block[76] = 1;
    block
}

/// A boot sector whose one entry is of type 0x83.
fn boot_sector() -> Vec<u8> {
    let mut sector = vec![0; 512];
    sector[446] = 0x80;
    sector[450] = 0x83;
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

fn lvm_label() -> Vec<u8> {
    let mut label = vec![0; 32];
    label[..8].copy_from_slice(b"LABELONE");
    label[24..].copy_from_slice(b"LVM2 001");
    label
}

#[test]
fn each_signature_is_found_where_its_format_says() {
    use Signature as S;
    let f2fs = [0x10, 0x20, 0xf5, 0xf2];
    let (md_1, md_0) = ([0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0], [0xfc, 0x4e, 0x2b, 0xa9, 0, 0, 0, 0]);
    let md_turned = [0xa9, 0x2b, 0x4e, 0xfc, 0, 0, 0, 0];
    let (ext, lvm, boot) = (ext(), lvm_label(), boot_sector());
    let cases: &[(Signature, u64, &[u8])] = &[
        (S::FurrowFs, 0, b"FURROWFS"),
        (S::FurrowFs, MIB, b"FURROWFS"),
        (S::FurrowArray, 2 * MIB, b"FURROWMD"),
        (S::FurrowArray, 15 * MIB, b"FURROWMD"),
        (S::ZenFs, 8, b"FNEZ"),
        (S::ZenFs, 2 * MIB + 8, b"FNEZ"),
        (S::Btrfs, 65_536 + 64, b"_BHRfS_M"),
        (S::Btrfs, 64, b"_BHRfS_M"),
        (S::Btrfs, MIB + 64, b"_BHRfS_M"),
        (S::F2fs, 1024, &f2fs),
        (S::F2fs, 4096 + 1024, &f2fs),
        (S::Zonefs, 0, b"SFOZ"),
        (S::DmZoned, 0, b"DBZD"),
        (S::Lvm, 0, &lvm),
        (S::Lvm, 512, &lvm),
        (S::Md { version: "1.0" }, 16 * MIB - 8192, &md_1),
        (S::Md { version: "1.1" }, 0, &md_1),
        (S::Md { version: "1.2" }, 4096, &md_1),
        (S::Md { version: "0.90" }, 16 * MIB - 65_536, &md_0),
        (S::Md { version: "0.90" }, 16 * MIB - 65_536, &md_turned),
        (S::Luks, 0, b"LUKS\xba\xbe\0\x02"),
        (S::Luks, 16_384, b"SKUL\xba\xbe\0\x02"),
        (S::Xfs, 0, b"XFSB"),
        (S::Ext, 1024, &ext),
        (S::Bcache, 4096 + 24, &[0xc6, 0x85, 0x73, 0xf6]),
        (S::Swap, 4086, b"SWAPSPACE2"),
        (S::Gpt, 512, b"EFI PART"),
        (S::Gpt, 4096, b"EFI PART"),
        (S::Gpt, 16 * MIB - 512, b"EFI PART"),
        (S::Mbr, 0, &boot),
    ];
    for (signature, at, bytes) in cases {
        assert_eq!(signatures_found(&[(*at, bytes)]), [*signature], "{signature} at {at}");
        // Moved by one byte, the signature is not recognised.
        assert_eq!(signatures_found(&[(*at + 1, bytes)]), [], "{signature} at {at} + 1");
    }
    assert_eq!(signatures_found(&[]), []);
}

#[test]
fn the_end_of_a_drive_is_where_md_puts_its_block_by_sectors() {
    // The drive is 5 KiB short of a whole zone: an md 0.90 superblock lies below a multiple of 64 KiB, an md
    // 1.0 one at a multiple of 4 KiB.
    let layout = Layout { size: 16 * MIB - 5_120, ..LAYOUT };
    let end = |at: u64, version: u8| {
        let block = [0xfc, 0x4e, 0x2b, 0xa9, version, 0, 0, 0];
        detect(&layout, &samples(&layout, &[(at, &block)]))
    };
    assert_eq!(end(16 * MIB - 16_384, 1), [Signature::Md { version: "1.0" }]);
    assert_eq!(end(16 * MIB - 131_072, 0), [Signature::Md { version: "0.90" }]);
}

#[test]
fn few_bytes_of_magic_alone_are_no_signature() {
    assert_eq!(signatures_found(&[(1080, &[0x53, 0xef])]), [], "an ext without inodes");
    assert_eq!(signatures_found(&[(510, &[0x55, 0xaa])]), [], "a table without entries");
    let mut boot = boot_sector();
    boot[462] = 0x7f;
    assert_eq!(signatures_found(&[(0, &boot)]), [], "an entry that cannot be");
    assert_eq!(signatures_found(&[(512, b"LABELONE")]), [], "a label of nothing");
}

#[test]
fn several_signatures_are_all_named_and_a_protective_table_is_not() {
    let (boot, mut label) = (boot_sector(), lvm_label());
    label.resize(512, 0);
    assert_eq!(signatures_found(&[(0, &boot), (512, b"EFI PART")]), [Signature::Gpt]);
    assert_eq!(
        signatures_found(&[(512, &label), (65_600, b"_BHRfS_M"), (2 * MIB + 64, b"_BHRfS_M")]),
        [Signature::Btrfs, Signature::Lvm]
    );
}

#[test]
fn the_copies_of_a_large_btrfs_are_found() {
    let zone_size = 256 * MIB;
    let layout = Layout { size: 4096 * zone_size, zone_size, zones: 4096, conventional: 0 };
    let copy = (512 << 30) + 64;
    assert_eq!(detect(&layout, &samples(&layout, &[(copy, b"_BHRfS_M")])), [Signature::Btrfs]);
    assert_eq!(detect(&layout, &samples(&layout, &[(copy + zone_size, b"_BHRfS_M")])), [Signature::Btrfs]);
    let read: u64 = layout.places().iter().map(|place| place.end - place.start).sum();
    assert!(read <= 512 << 10, "{read} bytes are read of a drive of a TiB");
}

proptest! {
    #[test]
    fn any_bytes_of_any_drive_give_an_answer(
        size in any::<u64>(),
        zone_size in prop_oneof![Just(0), Just(1), 1_u64..1 << 40, any::<u64>()],
        zones in any::<u32>(),
        conventional in any::<u32>(),
        parts in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..600)), 0..8),
        start in prop::collection::vec(any::<u8>(), 0..8192),
    ) {
        let layout = Layout { size, zone_size, zones, conventional };
        let places = layout.places();
        prop_assert!(places.iter().all(|place| place.start < place.end && place.end <= size));
        prop_assert!(places.windows(2).all(|two| two[0].end < two[1].start));
        let mut samples = Samples::default();
        samples.insert(0, start);
        for (at, bytes) in parts {
            samples.insert(at, bytes);
        }
        let found = detect(&layout, &samples);
        prop_assert!(found.is_sorted());
    }
}

/// A small drive with two conventional zones.
fn drive(conventional: u32) -> Arc<Emu> {
    let options = EmuOptions { conventional, max_open: Some(4), max_active: Some(4), ..EmuOptions::tiny() };
    Emu::memory(options, VirtualDriver::new(1))
}

fn contents_of(emu: &Arc<Emu>) -> Contents {
    let dev: Arc<dyn ZonedDevice> = emu.clone();
    units::block_on(&**dev.driver(), Contents::read(&*dev)).unwrap()
}

fn guard_contents(emu: &Arc<Emu>, force: bool) -> Result<Contents> {
    let dev: Arc<dyn ZonedDevice> = emu.clone();
    units::block_on(&**dev.driver(), guard(&*dev, force))
}

/// Writes bytes into a zone, `at` bytes behind its start.
fn put(emu: &Arc<Emu>, zone: u32, at: usize, bytes: &[u8]) {
    let dev: Arc<dyn ZonedDevice> = emu.clone();
    let block = dev.geometry().block_size as usize;
    let mut data = vec![0; (at + bytes.len()).next_multiple_of(block)];
    data[at..at + bytes.len()].copy_from_slice(bytes);
    dev.write(dev.geometry().start(ZoneId(zone)), Buf::copy_from(&data), Durability::Durable).wait().unwrap();
}

#[test]
fn a_blank_drive_may_be_overwritten() {
    let emu = drive(2);
    assert!(contents_of(&emu).is_blank());
    assert_eq!(guard_contents(&emu, false).unwrap(), Contents { sampled: 2, ..Contents::default() });
}

#[test]
fn a_signature_in_a_conventional_zone_is_refused_and_named() {
    let emu = drive(2);
    put(&emu, 0, 1024, &[0x10, 0x20, 0xf5, 0xf2]);
    let error = guard_contents(&emu, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HoldsData);
    assert!(error.to_string().contains("an f2fs file system"), "{error}");
    assert_eq!(guard_contents(&emu, true).unwrap().signatures, [Signature::F2fs]);
}

#[test]
fn data_without_a_signature_in_a_conventional_zone_is_refused() {
    let emu = drive(2);
    assert!(contents_of(&emu).to_string().contains("samples"), "the text says that only samples were read");
    put(&emu, 1, 4 * 4096, b"no known format");
    let contents = contents_of(&emu);
    assert_eq!((contents.filled, contents.sampled), (1, 1));
    let error = guard_contents(&emu, false).expect_err("it holds data");
    assert_eq!(error.kind(), ErrorKind::HoldsData);
    assert!(error.to_string().contains("1 conventional zone holds data"), "{error}");
    assert!(guard_contents(&emu, true).is_ok());
}

#[test]
fn written_zones_are_refused_and_counted() {
    let emu = drive(0);
    put(&emu, 1, 0, &[7; 100]);
    put(&emu, 5, 0, &[7; 100]);
    let contents = contents_of(&emu);
    let block = u64::from(emu.geometry().block_size);
    assert_eq!((contents.written, contents.bytes.0, contents.signatures.len()), (2, 2 * block, 0));
    let error = guard_contents(&emu, false).unwrap_err().to_string();
    assert!(error.contains("2 zones are written"), "{error}");
}

#[test]
fn a_zoned_btrfs_is_found_in_the_zone_that_its_log_went_on_in() {
    let emu = drive(0);
    put(&emu, 1, 64, b"_BHRfS_M");
    assert_eq!(contents_of(&emu).signatures, [Signature::Btrfs]);
}

#[test]
fn what_lies_behind_a_pointer_is_not_read() {
    let emu = drive(0);
    put(&emu, 0, 64, b"_BHRfS_M");
    let dev: Arc<dyn ZonedDevice> = emu.clone();
    dev.zone(ZoneId(0), Action::Reset).wait().unwrap();
    assert!(contents_of(&emu).is_blank());
}

#[test]
fn zones_left_open_by_somebody_are_refused_without_force() {
    let emu = drive(0);
    let dev: Arc<dyn ZonedDevice> = emu.clone();
    dev.zone(ZoneId(3), Action::Open).wait().unwrap();
    let error = guard_contents(&emu, false).unwrap_err().to_string();
    assert!(error.contains("1 zone was left open"), "{error}");
    assert_eq!(guard_contents(&emu, true).unwrap().left_open, 1);
}

#[test]
fn a_worn_zone_is_no_data() {
    let emu = drive(0);
    put(&emu, 2, 0, &[7; 100]);
    emu.wear(ZoneId(2), ZoneState::Offline);
    emu.wear(ZoneId(3), ZoneState::ReadOnly);
    assert!(contents_of(&emu).is_blank());
}

#[test]
fn a_start_that_cannot_be_read_is_refused() {
    let emu = drive(2);
    emu.fail(FaultSpec::all(FaultOp::Read));
    let contents = contents_of(&emu);
    assert!(contents.unreadable > 0 && !contents.is_blank());
    assert!(guard_contents(&emu, false).unwrap_err().to_string().contains("cannot be read"));
}

#[test]
fn a_member_of_an_array_is_refused_with_the_arrays_name() {
    let emu = drive(0);
    put(&emu, 1, 0, &array_member::tests::record(9));
    let contents = contents_of(&emu);
    assert_eq!(contents.array.as_ref().unwrap().label, "barn");
    let error = guard_contents(&emu, false).unwrap_err().to_string();
    assert!(
        error.contains("a member of a Furrow array (drive 3 of the 5 of array 'barn', 00112233-"),
        "{error}"
    );
}

#[test]
fn a_member_with_a_damaged_superblock_is_still_known_as_a_member() {
    let emu = drive(0);
    put(&emu, 1, 0, b"FURROWMD");
    let contents = contents_of(&emu);
    assert_eq!((contents.signatures.as_slice(), contents.array), ([Signature::FurrowArray].as_slice(), None));
}
