//! The size of an array's logical zones: `--zone-size`.

use std::str::FromStr;
use std::sync::Arc;

use ::array::{CreateOptions, Superblock, plan};
use anyhow::Result;
use units::Bytes;
use zoned::ZonedDevice;

use crate::exit::Failure;
use crate::size;

/// The most logical zones that share a physical zone, and the most physical zones of a drive in a logical zone, for sizes in bytes.
const MOST: u32 = 4096;
/// A plain number below is one of physical zones: no zone has fewer bytes.
const LEAST_BYTES: u32 = 512;

/// The size of an array's logical zones, as the user writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ZoneSize {
    /// `1/S`: parts of S logical zones share a physical zone.
    Share(u32),
    /// `M`: a logical zone has M physical zones of each drive.
    Zones(u32),
    /// The bytes that a logical zone holds.
    Bytes(Bytes),
}

impl FromStr for ZoneSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ZoneSize, String> {
        let wrong = || {
            format!(
                "'{text}' is not a zone size: write 1/2 for half a physical zone of each drive, 2 for two of them, or 2GiB"
            )
        };
        match text.split_once('/') {
            Some(("1", shares)) => shares.parse().map(ZoneSize::Share).map_err(|_| wrong()),
            Some(_) => Err(wrong()),
            None => match text.parse() {
                Ok(zones) if zones < LEAST_BYTES => Ok(ZoneSize::Zones(zones)),
                _ => size::parse(text).map(ZoneSize::Bytes).map_err(|_| wrong()),
            },
        }
    }
}

impl ZoneSize {
    /// Sets the options that give zones of this size. A size in bytes is none.
    fn set(self, options: &mut CreateOptions) {
        match self {
            ZoneSize::Share(shares) => (options.shares, options.sections) = (shares, 1),
            ZoneSize::Zones(zones) => (options.shares, options.sections) = (1, zones),
            ZoneSize::Bytes(_) => {}
        }
    }
}

/// Bytes that a logical zone of a planned array holds.
pub(crate) fn zone_bytes(planned: &Superblock) -> Bytes {
    let part = planned.part_rows().bytes(planned.block_size).0;
    Bytes(part * u64::from(planned.data_units()) * u64::from(planned.sections))
}

/// Sets the number of logical zones in a physical zone, or of physical zones in a logical one, for zones of the size `wanted`.
///
/// Error: no number gives zones of that many bytes; the message has the nearest size.
pub(crate) fn set_size(
    options: &mut CreateOptions,
    devices: &[Arc<dyn ZonedDevice>],
    wanted: ZoneSize,
) -> Result<()> {
    let ZoneSize::Bytes(bytes) = wanted else {
        wanted.set(options);
        return Ok(());
    };
    match nearest(options, devices, bytes) {
        Some((size, held)) if held == bytes => {
            size.set(options);
            Ok(())
        }
        Some((size, held)) => {
            let how = match size {
                ZoneSize::Share(shares) => format!("1/{shares} of a zone of each drive"),
                ZoneSize::Zones(zones) => format!("{zones} zones of each drive"),
                ZoneSize::Bytes(_) => String::new(),
            };
            Err(Failure::refused(format!(
                "zones of {} do not fill the drives' zones with whole stripe units: the nearest size is {} bytes ({}), {how}",
                size::show(bytes),
                held.0,
                size::show(held)
            )))
        }
        // Without a size that fits, the plan of the array says why.
        None => Ok(()),
    }
}

/// The size that comes nearest to zones of `wanted` bytes, and the bytes of such zones.
fn nearest(
    options: &CreateOptions,
    devices: &[Arc<dyn ZonedDevice>],
    wanted: Bytes,
) -> Option<(ZoneSize, Bytes)> {
    let planned = |size: ZoneSize| {
        let mut options = CreateOptions { spare_drives: 0, ..options.clone() };
        size.set(&mut options);
        Some((size, zone_bytes(&plan(devices, &options).ok()?)))
    };
    let whole = planned(ZoneSize::Share(1))?;
    let zones = u32::try_from((wanted.0 + whole.1.0 / 2) / whole.1.0).unwrap_or(MOST).min(MOST);
    let joined = if zones > 1 { planned(ZoneSize::Zones(zones)) } else { None };
    let shares = (1..=MOST).map_while(|shares| planned(ZoneSize::Share(shares)));
    let distance = |(_, held): &(ZoneSize, Bytes)| held.0.abs_diff(wanted.0);
    // The sizes of shares decrease with the number.
    let mut best = joined.unwrap_or(whole);
    for share in shares.skip(1) {
        if distance(&share) >= distance(&best) {
            break;
        }
        best = share;
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_sizes_are_fractions_of_a_physical_zone_or_bytes() {
        assert_eq!("1/2".parse(), Ok(ZoneSize::Share(2)));
        assert_eq!("2GiB".parse(), Ok(ZoneSize::Bytes(Bytes(2 << 30))));
        assert_eq!("8".parse(), Ok(ZoneSize::Zones(8)));
        assert_eq!("4096".parse(), Ok(ZoneSize::Bytes(Bytes(4096))));
        for wrong in ["2/3", "1/", "1/x", "half"] {
            assert!(wrong.parse::<ZoneSize>().expect_err(wrong).contains("write 1/2"), "{wrong}");
        }
    }
}
