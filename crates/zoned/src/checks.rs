//! Checks of an operation against the geometry, which give the same errors from every backend.

use crate::{Blocks, Error, ErrorKind, Geometry, Lba, Result, ZoneId};

/// Location of a read or write: zone and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The zone.
    pub zone: ZoneId,
    /// First block of the transfer, counted from the zone's start.
    pub offset: u64,
    /// Length, in blocks.
    pub blocks: u64,
}

/// Number of blocks of a transfer of `bytes`: whole blocks, at least one, at most `most`.
pub fn transfer_blocks(geometry: &Geometry, name: &'static str, bytes: usize, most: Blocks) -> Result<u64> {
    let size = u64::from(geometry.block_size);
    let bytes = bytes as u64;
    let error = |kind| Error::new(kind, &geometry.name, name);
    if bytes == 0 || !bytes.is_multiple_of(size) {
        return Err(error(ErrorKind::BadLength).because(format!("{bytes} bytes in blocks of {size}")));
    }
    let blocks = bytes / size;
    if blocks > most.0 {
        return Err(error(ErrorKind::TooLarge).because(format!("{blocks} blocks, at most {}", most.0)));
    }
    Ok(blocks)
}

/// Checks that the device has the zone.
pub fn check_zone_exists(geometry: &Geometry, name: &'static str, id: ZoneId) -> Result<()> {
    if id.0 < geometry.zones {
        return Ok(());
    }
    let last = geometry.zones - 1;
    let error = Error::new(ErrorKind::OutOfRange, &geometry.name, name).in_zone(id);
    Err(error.because(format!("the last zone is {last}")))
}

/// Checks an append's length and the zone's kind; returns the number of blocks.
pub fn check_append(geometry: &Geometry, name: &'static str, id: ZoneId, bytes: usize) -> Result<u64> {
    let blocks = transfer_blocks(geometry, name, bytes, geometry.max_append)?;
    check_zone_exists(geometry, name, id)?;
    if geometry.is_conventional(id) {
        let error = Error::new(ErrorKind::Conventional, &geometry.name, name).in_zone(id);
        return Err(error.because("write to it at an address instead"));
    }
    Ok(blocks)
}

/// Location of a transfer of `bytes` at an address.
pub fn locate_transfer(geometry: &Geometry, name: &'static str, at: Lba, bytes: usize) -> Result<Transfer> {
    let blocks = transfer_blocks(geometry, name, bytes, geometry.max_transfer).map_err(|e| e.at(at))?;
    let Some(zone) = geometry.zone_of(at) else {
        let end = u64::from(geometry.zones) * geometry.zone_size.0;
        let error = Error::new(ErrorKind::OutOfRange, &geometry.name, name).at(at);
        return Err(error.because(format!("the device has {end} blocks")));
    };
    let offset = at.since(geometry.start(zone)).0;
    if offset + blocks > geometry.zone_size.0 {
        let error = Error::new(ErrorKind::CrossesZone, &geometry.name, name).in_zone(zone).at(at);
        return Err(error.because(format!("{blocks} blocks, {} left", geometry.zone_size.0 - offset)));
    }
    Ok(Transfer { zone, offset, blocks })
}
