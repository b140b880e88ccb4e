//! The size of an array's logical zones: `--zone-size`.

use std::str::FromStr;
use std::sync::Arc;

use ::array::{CreateOptions, Superblock, plan};
use anyhow::Result;
use units::Bytes;
use zoned::ZonedDevice;

use crate::exit::Failure;
use crate::size;

/// The most logical zones that share a physical zone, for sizes in bytes.
const MAX_SHARES: u32 = 4096;

/// The size of an array's logical zones, as the user writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ZoneSize {
    /// `1/S`: parts of S logical zones share a physical zone.
    Share(u32),
    /// The bytes that a logical zone holds.
    Bytes(Bytes),
}

impl FromStr for ZoneSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ZoneSize, String> {
        let wrong = || {
            format!("'{text}' is not a zone size: write 1/2 for half a physical zone of each drive, or 2GiB")
        };
        match text.split_once('/') {
            Some(("1", shares)) => shares.parse().map(ZoneSize::Share).map_err(|_| wrong()),
            Some(_) => Err(wrong()),
            None => size::parse(text).map(ZoneSize::Bytes).map_err(|_| wrong()),
        }
    }
}

/// Bytes that a logical zone of a planned array holds.
pub(crate) fn zone_bytes(planned: &Superblock) -> Bytes {
    Bytes(planned.part_rows().bytes(planned.block_size).0 * u64::from(planned.data_units()))
}

/// Sets the number of logical zones in a physical zone, for zones of `size`.
///
/// Error: no number gives zones of that many bytes; the message has the nearest size.
pub(crate) fn set_shares(
    options: &mut CreateOptions,
    devices: &[Arc<dyn ZonedDevice>],
    wanted: ZoneSize,
) -> Result<()> {
    let wanted = match wanted {
        ZoneSize::Share(shares) => {
            options.shares = shares;
            return Ok(());
        }
        ZoneSize::Bytes(bytes) => bytes,
    };
    let sizes = (1..=MAX_SHARES).map_while(|shares| {
        let planned = plan(devices, &CreateOptions { shares, spare_drives: 0, ..options.clone() });
        planned.ok().map(|planned| (shares, zone_bytes(&planned)))
    });
    // The sizes decrease with the number.
    let mut nearest: Option<(u32, Bytes)> = None;
    for (shares, bytes) in sizes {
        let is_nearer = |(_, known): (u32, Bytes)| bytes.0.abs_diff(wanted.0) < known.0.abs_diff(wanted.0);
        if !nearest.is_none_or(is_nearer) {
            break;
        }
        nearest = Some((shares, bytes));
    }
    match nearest {
        Some((shares, bytes)) if bytes == wanted => {
            options.shares = shares;
            Ok(())
        }
        Some((shares, bytes)) => Err(Failure::refused(format!(
            "zones of {} do not fill the drives' zones with whole stripe units: the nearest size is {} bytes ({}), 1/{shares} of a \
             zone of each drive",
            size::show(wanted),
            bytes.0,
            size::show(bytes)
        ))),
        // Without a size that fits, the plan of the array says why.
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_sizes_are_fractions_of_a_physical_zone_or_bytes() {
        assert_eq!("1/2".parse(), Ok(ZoneSize::Share(2)));
        assert_eq!("2GiB".parse(), Ok(ZoneSize::Bytes(Bytes(2 << 30))));
        for wrong in ["2/3", "1/", "1/x", "half"] {
            assert!(wrong.parse::<ZoneSize>().expect_err(wrong).contains("write 1/2"), "{wrong}");
        }
    }
}
