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

/// Options that give zones of a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fraction {
    /// Logical zones in a physical one.
    shares: u32,
    /// Physical zones of each drive in a logical one.
    sections: u32,
}

impl Fraction {
    const WHOLE: Fraction = Fraction { shares: 1, sections: 1 };

    fn set(self, options: &mut CreateOptions) {
        (options.shares, options.sections) = (self.shares, self.sections);
    }

    fn words(self) -> String {
        match self {
            Fraction::WHOLE => "a zone of each drive".to_owned(),
            Fraction { shares: 1, sections } => format!("{sections} zones of each drive"),
            Fraction { shares, .. } => format!("1/{shares} of a zone of each drive"),
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
    let bytes = match wanted {
        ZoneSize::Share(shares) => {
            Fraction { shares, ..Fraction::WHOLE }.set(options);
            return Ok(());
        }
        ZoneSize::Zones(sections) => {
            Fraction { sections, ..Fraction::WHOLE }.set(options);
            return Ok(());
        }
        ZoneSize::Bytes(bytes) => bytes,
    };
    match nearest(options, devices, bytes) {
        Some((size, held)) if held == bytes => {
            size.set(options);
            Ok(())
        }
        Some((size, held)) => Err(Failure::refused(format!(
            "zones of {} do not fill the drives' zones with whole stripe units: the nearest size is {} bytes ({}), {}",
            size::show(bytes),
            held.0,
            size::show(held),
            size.words()
        ))),
        // Without a size that fits, the plan of the array says why.
        None => Ok(()),
    }
}

/// The size that comes nearest to zones of `wanted` bytes, and the bytes of such zones.
fn nearest(
    options: &CreateOptions,
    devices: &[Arc<dyn ZonedDevice>],
    wanted: Bytes,
) -> Option<(Fraction, Bytes)> {
    let planned = |size: Fraction| {
        let mut options = CreateOptions { spare_drives: 0, interleaved: false, ..options.clone() };
        size.set(&mut options);
        Some((size, zone_bytes(&plan(devices, &options).ok()?)))
    };
    let whole = planned(Fraction::WHOLE)?;
    let sections = u32::try_from(wanted.0.saturating_add(whole.1.0 / 2) / whole.1.0).unwrap_or(u32::MAX);
    let joined = if sections > 1 { planned(Fraction { sections, ..Fraction::WHOLE }) } else { None };
    let shares = (2..=MAX_SHARES).map_while(|shares| planned(Fraction { shares, ..Fraction::WHOLE }));
    let distance = |(_, held): &(Fraction, Bytes)| held.0.abs_diff(wanted.0);
    // The sizes of shares decrease with the number.
    let mut best = joined.unwrap_or(whole);
    for share in shares {
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
