//! Entry points for the fuzz targets (cargo feature `fuzzing`; `crates/fuzz`). Each decodes arbitrary bytes;
//! a structure that was decoded must be the same after encoding and decoding again. Checksums in the bytes
//! are corrected first, because random bytes would never pass them.

use std::sync::Arc;

use units::{Blocks, Bytes, ZoneId, block_on, crc32c};
use uuid::Uuid;
use zoned::emu::{Emu, EmuOptions, Latency, Media};
use zoned::{Buf, BufMut, Durability, ZoneKind, ZonedDevice};

use crate::metadata::format::frame::{self, Binding};
use crate::metadata::format::header::Header;
use crate::metadata::format::record::Record;
use crate::metadata::format::superblock::{self, Decoded};
use crate::wal::entry::{self, EntryHeader, HEADER_SIZE, Home};
use crate::wal::parallel::recover::recover;
use crate::wal::parallel::ticket::Epoch;
use crate::wal::segment::Segment;
use crate::{FormatOptions, Fs, MountOptions};

const LOG: u64 = 5;
const GENERATION: u64 = 3;
const ZONE: ZoneId = ZoneId(9);

/// A superblock.
pub fn superblock(bytes: &[u8]) {
    let mut block = bytes.to_vec();
    block.resize(superblock::SIZE, 0);
    put(&mut block, 0, &superblock::MAGIC);
    put(&mut block, 8, &superblock::VERSION.to_le_bytes());
    put(&mut block, 12, &[0; 4]);
    let crc = crc32c(&[&block]);
    put(&mut block, 12, &crc.to_le_bytes());
    if let Ok(Decoded::Good(first)) = superblock::decode(&block) {
        let encoded = superblock::encode(&first, 0, 0);
        let Ok(Decoded::Good(again)) = superblock::decode(&encoded) else {
            panic!("a superblock of this build: {first:?}")
        };
        assert_eq!(again, first);
    }
}

/// Fuzzes one record of the metadata log: the first byte is the record's kind.
pub fn record(bytes: &[u8]) {
    let Some((&kind, payload)) = bytes.split_first() else { return };
    let Some(first) = Record::decode(kind.into(), payload) else { return };
    let mut encoded = Vec::new();
    first.encode(&mut encoded);
    assert_eq!(first.kind(), u16::from(kind));
    assert_eq!(Record::decode(first.kind(), &encoded), Some(first));
}

/// Fuzzes a mount: appends arbitrary records to the metadata log of a fresh file system. A mount must accept
/// or refuse the log. An accepted log can be listed and checked, and mounts again. Each record is given as
/// kind (1 byte), length (1 byte), payload.
pub fn metadata(bytes: &[u8]) {
    thread_local! {
        static FRESH: Media = media_with_empty_file_system();
    }
    let emu = emulated_drive(FRESH.with(Media::clone));
    let dev: Arc<dyn ZonedDevice> = emu.clone();
    let appended = block_on(&**dev.driver(), append_records(&dev, bytes));
    if appended.is_none() {
        return;
    }
    let take = |dev: Arc<dyn ZonedDevice>| {
        block_on(&**dev.driver(), async {
            let fs = Fs::mount(dev.clone(), &MountOptions::default()).await.ok()?;
            for entry in fs.read_dir("/").unwrap_or_default().iter().take(8) {
                let path = format!("/{}", entry.name);
                if let Ok(reader) = fs.open(&path) {
                    let _content = reader.read_at(Bytes::ZERO, &mut [0; 4096]).await;
                }
                let _replay = fs.read_parallel_log(&path).await;
            }
            let _stat = fs.statfs();
            fs.unmount().await.ok()?;
            Some(())
        })
    };
    if take(dev.clone()).is_some() {
        let _report = block_on(&**dev.driver(), Fs::check(&dev));
        let again = block_on(&**dev.driver(), Fs::mount(dev.clone(), &MountOptions::default()));
        assert!(again.is_ok(), "mounted once, unmounted, and refused then: {again:?}");
    }
}

/// Fuzzes the recovery of an ordered log's entries.
pub fn ordered_log(bytes: &[u8]) {
    header(bytes);
    let emu = emulated_drive(Media::new(&EmuOptions::tiny()));
    let dev: Arc<dyn ZonedDevice> = emu.clone();
    let segment = write_entries(&dev, bytes);
    let cuts =
        [crate::wal::Cut { epoch: 0, first_sequence: 0 }, crate::wal::Cut { epoch: 1, first_sequence: 8 }];
    let recovered = block_on(&**dev.driver(), crate::wal::recover(&dev, uuid(), LOG, &cuts, &[segment]));
    let _contents = recovered.map(|found| format!("{found:?}").len());
}

/// Fuzzes the recovery of a parallel log's entries.
pub fn parallel_log(bytes: &[u8]) {
    header(bytes);
    let emu = emulated_drive(Media::new(&EmuOptions::tiny()));
    let dev: Arc<dyn ZonedDevice> = emu.clone();
    let segment = write_entries(&dev, bytes);
    let epochs = [Epoch { epoch: 0, first: 0, settled: 0 }, Epoch { epoch: 1, first: 8, settled: 6 }];
    let recovered = block_on(
        &**dev.driver(),
        recover(&dev, uuid(), LOG, &epochs, 2, &[segment], crate::rules::Rules::default()),
    );
    let recovered = recovered.expect("an emulated drive reads");
    let mut end = 0;
    for kept in &recovered.kept {
        assert!(kept.ticket >= end, "records are kept once, in the order of tickets");
        end = kept.ticket + u64::from(kept.count.min(1));
    }
    assert!(recovered.next >= 8, "no ticket of an older epoch is given again");
}

/// Decodes arbitrary bytes as an entry header, after setting the right magic and version.
fn header(bytes: &[u8]) {
    let mut part = bytes.to_vec();
    part.resize(bytes.len().max(HEADER_SIZE), 0);
    put(&mut part, 0, b"FuLe");
    put(&mut part, 4, &2_u16.to_le_bytes());
    let home = Home { uuid: uuid(), zone: ZONE };
    if let Ok(found) = EntryHeader::parse(&part) {
        assert!(found.proven() <= found.sequence && found.needs <= found.sequence);
        if let Some(payload) = part.get(HEADER_SIZE..found.total()) {
            let crc = found.checksum(&home, std::iter::once(payload));
            put(&mut part, 60, &crc.to_le_bytes());
            let (again, payload) = entry::decode(&part, &home, 512).expect("its checksum is right");
            assert_eq!((again.sequence, payload.len()), (found.sequence, found.length as usize));
        }
    }
}

/// Writes entries into a zone as `bytes` describe them: 8 bytes of fields and a payload each.
fn write_entries(dev: &Arc<dyn ZonedDevice>, bytes: &[u8]) -> Segment {
    let block = dev.geometry().block_size as usize;
    let home = Home { uuid: uuid(), zone: ZONE };
    let (mut rest, mut written) = (bytes, Blocks::ZERO);
    let capacity = dev.geometry().zone_capacity;
    while let Some((&[flags, sequence, needs, part, parts, epoch, open, length], behind)) =
        rest.split_first_chunk()
    {
        let (payload, behind) = behind.split_at(usize::from(length).min(behind.len()));
        rest = behind;
        let (sequence, parts) = (u64::from(sequence % 32), u16::from(parts % 4) + 1);
        let header = EntryHeader {
            padding: flags & 1 != 0,
            odd: flags & 2 != 0,
            void: flags & 4 != 0,
            known: flags & 8 != 0,
            rewritten: flags & 16 != 0 && parts == 1,
            log: LOG + u64::from(flags >> 7),
            generation: GENERATION,
            sequence,
            needs: u64::from(needs).min(sequence),
            epoch: u32::from(epoch % 3),
            part: u16::from(part) % parts,
            parts,
            length: u32::try_from(payload.len()).unwrap_or(0),
            mask: 0,
            open: if open == u8::MAX { u32::MAX } else { u32::from(open).min(sequence as u32) },
            crc: 0,
        };
        let size = (HEADER_SIZE + payload.len()).next_multiple_of(block);
        let blocks = Blocks((size / block) as u64);
        if written.plus(blocks) > capacity {
            break;
        }
        let mut sealed = vec![0; size];
        put(&mut sealed, HEADER_SIZE, payload);
        header.seal(&mut sealed, &home, block);
        let at = dev.geometry().start(ZONE).plus(written);
        let wrote = block_on(&**dev.driver(), dev.write(at, buffer(&sealed), Durability::Durable));
        wrote.expect("an emulated drive takes what fits");
        written = written.plus(blocks);
    }
    Segment { zone: ZONE, generation: GENERATION, start: Blocks::ZERO, end: capacity }
}

/// A drive with an empty file system. The drive keeps no history for power cuts.
fn media_with_empty_file_system() -> Media {
    let emu = emulated_drive(Media::new(&EmuOptions::tiny()));
    let dev: Arc<dyn ZonedDevice> = emu.clone();
    let options = FormatOptions { uuid: Some(uuid()), ..FormatOptions::default() };
    block_on(&**dev.driver(), Fs::format(&dev, &options)).expect("an empty drive is formatted");
    emu.media()
}

/// Appends the records that `bytes` describe to the metadata log. `None` if `bytes` describe no record.
async fn append_records(dev: &Arc<dyn ZonedDevice>, bytes: &[u8]) -> Option<()> {
    let geometry = dev.geometry().clone();
    let block = geometry.block_size as usize;
    let report = dev.report(0..geometry.zones).await.expect("an emulated drive reports");
    let chain = report.iter().filter(|zone| zone.kind == ZoneKind::Sequential && zone.pointer > Blocks(1));
    for zone in chain {
        let length = usize::try_from(zone.pointer.0).ok()? * block;
        let content = dev
            .read(geometry.start(zone.zone), BufMut::zeroed(length))
            .await
            .expect("an emulated drive reads");
        let Some(header) = Header::decode(&content) else { continue };
        let binding = Binding::of(&header);
        let (mut at, mut sequence) = (block, header.first_sequence);
        while let Some((_, behind)) = frame::next(&content, at, block, &binding, sequence) {
            (at, sequence) = (behind, sequence + 1);
        }
        let (mut frames, mut rest) = (Vec::new(), bytes);
        while let Some((&[kind, length], behind)) = rest.split_first_chunk() {
            let (payload, behind) = behind.split_at(usize::from(length).min(behind.len()));
            rest = behind;
            if kind != 0 {
                frame::encode(&mut frames, &binding, kind.into(), (sequence, sequence), payload);
                sequence += 1;
            }
        }
        frames.resize(frames.len().next_multiple_of(block), 0);
        let room = (geometry.zone_capacity.0 - zone.pointer.0) as usize * block;
        frames.truncate(room);
        if frames.is_empty() {
            return None;
        }
        let at = geometry.start(zone.zone).plus(zone.pointer);
        let most = geometry.max_transfer.0 as usize * block;
        let mut written = 0;
        for piece in frames.chunks(most) {
            let at = at.plus(Blocks((written / block) as u64));
            dev.write(at, buffer(piece), Durability::Durable)
                .await
                .expect("an emulated drive takes what fits");
            written += piece.len();
        }
        return Some(());
    }
    None
}

fn emulated_drive(media: Media) -> Arc<Emu> {
    Emu::from_media(media, "emu:mem", Latency::default(), units::VirtualDriver::new(7))
}

fn buffer(bytes: &[u8]) -> Buf {
    let mut buffer = BufMut::with_capacity(bytes.len());
    buffer.extend_from_slice(bytes);
    buffer.freeze()
}

fn uuid() -> Uuid {
    Uuid::from_u128(0x0066_757a_7a65_6421)
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + what.len()) {
        place.copy_from_slice(what);
    }
}
