//! Reading records back from a drive's metadata zones.

use std::sync::Arc;

use uuid::Uuid;
use zoned::{Blocks, BufMut, Error, ErrorKind, Lba, Result, ZoneInfo, ZoneState};

use crate::degraded::errors::fails_the_drive;
use crate::format::record::{self, Body, Record};
use crate::format::superblock::Superblock;
use crate::layout::Slot;
use crate::layout::placement::metadata_zones;
use crate::member::drive_ios::run_at_once;
use crate::member::member_drive::MemberDrive;

/// Bytes of a metadata zone that are read at a time.
const READ_CHUNK_BYTES: u64 = 4 << 20;
/// Blocks that contain the first record of a zone, a superblock, at the smallest block size.
const FIRST_RECORD_BLOCKS: u64 = 8;

/// A drive's own superblock record: its array and its slot, a member's or an idle spare's.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub superblock: Superblock,
    pub slot: Slot,
}

impl Claim {
    /// The drive's identity as an idle spare; `None` for a member.
    pub(crate) fn spare(&self) -> Option<Uuid> {
        self.superblock.spare_in_slot(self.slot)
    }
}

/// The drives that are members of an array, each with its claim. A drive that does not answer is skipped with a warning:
/// the array may work without it.
pub(crate) async fn claims(devices: Vec<MemberDrive>) -> Result<Vec<(MemberDrive, Claim)>> {
    let Some(driver) = devices.first().map(|device| Arc::clone(device.driver())) else {
        return Ok(Vec::new());
    };
    let read = |device: MemberDrive| async move {
        let found = claim(&device).await;
        (device, found)
    };
    let found = run_at_once(&*driver, "superblocks", devices.into_iter().map(read).collect()).await;
    let mut claims = Vec::new();
    for (device, found) in found {
        match found {
            Ok(Some(claim)) => claims.push((device, claim)),
            Ok(None) => {}
            Err(error) if fails_the_drive(error.kind()) => {
                tracing::warn!(?device, %error, "the drive does not answer: left out");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(claims)
}

/// The claim of a drive, from its newest superblock. `None` if the drive is no member of an array, or no superblock can be
/// read.
pub(crate) async fn claim(device: &MemberDrive) -> Result<Option<Claim>> {
    let mut newest: Option<Claim> = None;
    let mut unreadable = 0;
    for info in device.report(metadata_zones()).await? {
        let count = info.pointer.0.min(FIRST_RECORD_BLOCKS);
        if count == 0 || info.state == ZoneState::Offline || info.state == ZoneState::Conventional {
            continue;
        }
        let block = device.geometry().block_size;
        let (bytes, bad) = read_past_unreadable(device, device.geometry().start(info.zone), count).await?;
        unreadable += bad;
        let found =
            record::decode(&bytes.freeze(), block).map_err(|why| unreadable_superblock_error(device, why))?;
        if let Some((Record { place, body: Body::Superblock(superblock) }, _)) = found
            && newest.as_ref().is_none_or(|claim| claim.superblock.config <= superblock.config)
        {
            newest = Some(Claim { superblock, slot: place.member });
        }
    }
    if newest.is_none() && unreadable > 0 {
        tracing::warn!(
            ?device,
            unreadable,
            "the metadata of the drive cannot be read, so that its array is unknown: left out"
        );
    }
    Ok(newest)
}

/// Reads blocks of a drive. Unreadable blocks are zeros in the result, and counted.
async fn read_past_unreadable(device: &MemberDrive, at: Lba, count: u64) -> Result<(BufMut, u64)> {
    let size = device.geometry().block_size as usize;
    match device.read(at, BufMut::zeroed(count as usize * size)).await {
        Ok(data) => return Ok((data, 0)),
        Err(e) if e.kind() != ErrorKind::Media => return Err(e),
        Err(_) => {}
    }
    let (mut data, mut unreadable) = (BufMut::with_capacity(count as usize * size), 0);
    for n in 0..count {
        match device.read(at.plus(Blocks(n)), BufMut::zeroed(size)).await {
            Ok(block) => data.extend_from_slice(&block),
            Err(e) if e.kind() != ErrorKind::Media => return Err(e),
            Err(_) => {
                data.resize(data.len() + size, 0);
                unreadable += 1;
            }
        }
    }
    Ok((data, unreadable))
}

/// The newest superblock in a member's log. Reads the whole log: the failure of a drive is recorded behind other records.
pub(crate) async fn newest(device: &MemberDrive, claim: &Claim) -> Result<Superblock> {
    let unit = u64::from(claim.superblock.unit);
    let mut newest = claim.superblock.clone();
    for info in device.report(metadata_zones()).await? {
        each_record(device, unit, &info, &mut |_, _, record| {
            if let Body::Superblock(superblock) = record.body
                && superblock.uuid == newest.uuid
                && superblock.config > newest.config
            {
                newest = superblock;
            }
        })
        .await?;
    }
    Ok(newest)
}

fn unreadable_superblock_error(device: &MemberDrive, why: String) -> Error {
    device.error(ErrorKind::Unsupported, "read the superblock").because(why)
}

/// Visits all records of a metadata zone of an array whose stripe unit is `unit`: first block, number of blocks, record.
/// Returns the number of unreadable blocks, which are skipped.
pub(crate) async fn each_record(
    device: &MemberDrive,
    unit: u64,
    info: &ZoneInfo,
    visit: &mut (dyn FnMut(u64, u64, Record) + Send),
) -> Result<u64> {
    let geometry = device.geometry();
    let size = u64::from(geometry.block_size);
    if info.state == ZoneState::Offline {
        return Ok(0);
    }
    // The longest record has a header and a stripe unit.
    let longest = unit + 1 + FIRST_RECORD_BLOCKS;
    let chunk = (READ_CHUNK_BYTES / size).min(geometry.max_transfer.0).max(1);
    let mut held = BufMut::with_capacity(0);
    let (mut from, mut read, mut unreadable) = (0, 0, 0);
    while from < info.pointer.0 {
        // `held` has the content of blocks `from..read` of the metadata zone.
        while read < info.pointer.0 && read - from < longest {
            let count = chunk.min(info.pointer.0 - read);
            let at = Lba(geometry.start(info.zone).0 + read);
            let (more, bad) = read_past_unreadable(device, at, count).await?;
            unreadable += bad;
            held.extend_from_slice(&more);
            read += count;
        }
        let bytes = std::mem::take(&mut held).freeze();
        let mut at = 0;
        while at < bytes.len() && (read == info.pointer.0 || bytes.len() - at >= (longest * size) as usize) {
            let found = record::decode(&bytes.slice(at..), geometry.block_size);
            let step = match found.map_err(|why| unreadable_superblock_error(device, why))? {
                Some((record, blocks)) => {
                    visit(from + at as u64 / size, blocks, record);
                    blocks
                }
                None => 1,
            };
            at += (step * size) as usize;
        }
        let at = at.min(bytes.len());
        from += at as u64 / size;
        held.extend_from_slice(&bytes.slice(at..));
    }
    Ok(unreadable)
}
