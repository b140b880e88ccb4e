//! The drive under measurement, and its clock.

use std::num::NonZeroU32;
use std::sync::Arc;

use zoned::emu::EmuOptions;
use zoned::{Action, DeviceUrl, Driver, ZoneKind, ZoneState, ZonedDevice};

use crate::{Clock, Error, Result};

/// An open drive and its clock.
#[derive(Clone, Debug)]
pub struct Drive {
    device: Arc<dyn ZonedDevice>,
    options: EmuOptions,
    clock: Clock,
    emulated: bool,
}

impl Drive {
    /// Opens the drive that `url` names; with `create` a drive file that does not exist is made.
    ///
    /// Without a `clock`, an emulated drive that has times runs on the virtual one, any other on the real one,
    /// dilated as the URL says.
    ///
    /// # Errors
    /// [`Error::Settings`] where clock and URL contradict each other, or where nothing takes any time.
    pub fn open(url: &str, clock: Option<Clock>, create: bool) -> Result<Drive> {
        let mut parsed: DeviceUrl = url.parse()?;
        let clock = match &parsed {
            DeviceUrl::Emu(url) => choose_clock(clock, &url.options()?)?,
            _ if clock.unwrap_or(Clock::Real) == Clock::Real => Clock::Real,
            _ => {
                return Err(Error::settings(
                    "a real drive runs on the real clock; only an emulated one has others",
                ));
            }
        };
        if let Clock::Dilated(n) = clock
            && parsed.options()?.dilation != n.get()
        {
            let joint = if url.contains('?') { '&' } else { '?' };
            parsed = format!("{url}{joint}dilated={n}").parse()?;
        }
        let options = if parsed.is_emulated() { parsed.options()? } else { EmuOptions::default() };
        let driver = clock.driver();
        let device = if create { parsed.open_or_create(driver)? } else { parsed.open(driver)? };
        Ok(Drive { device, options, clock, emulated: parsed.is_emulated() })
    }

    /// An empty drive in memory with the same properties and times, on a new clock of the same kind. A real drive cannot be
    /// copied: it is reset itself, and its data is lost.
    ///
    /// # Errors / Those of the real drive.
    pub fn fresh(&self) -> Result<Drive> {
        let geometry = self.device.geometry();
        if !self.emulated {
            for zone in self.device.report_all()? {
                let worn = matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline | ZoneState::Empty);
                if zone.kind == ZoneKind::Sequential && !worn {
                    self.device.zone(zone.zone, Action::Reset).wait()?;
                }
            }
            return Ok(self.clone());
        }
        let options = EmuOptions {
            name: "emu:mem".into(),
            block_size: geometry.block_size,
            zones: geometry.zones,
            conventional: geometry.conventional,
            zone_size: geometry.zone_size,
            zone_capacity: geometry.zone_capacity,
            max_open: geometry.max_open,
            max_active: geometry.max_active,
            max_append: geometry.max_append,
            atomic_write: geometry.atomic_write,
            volatile_cache: geometry.volatile_cache,
            read_past_pointer: geometry.read_past_pointer,
            track_power_cuts: false,
            ..self.options.clone()
        };
        let device = zoned::emulated(options.clone(), self.clock.driver());
        Ok(Drive { device, options, clock: self.clock, emulated: true })
    }

    /// The drive under measurement.
    pub fn device(&self) -> &Arc<dyn ZonedDevice> {
        &self.device
    }

    /// The driver of the drive's clock.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        self.device.driver()
    }

    /// The drive's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The factor by which the drive's times are stretched; results are divided by it.
    pub fn dilation(&self) -> u32 {
        self.options.dilation
    }
}

/// The clock for the drive: the given one, or the default for the drive's options.
fn choose_clock(clock: Option<Clock>, options: &EmuOptions) -> Result<Clock> {
    let timed = match &options.profile {
        Some(profile) if !profile.is_instant() => true,
        _ => options.latency != zoned::emu::Latency::NONE,
    };
    let stretched = NonZeroU32::new(options.dilation).filter(|n| n.get() > 1);
    match (clock, stretched) {
        (Some(Clock::Dilated(asked)), Some(n)) if asked != n => Err(Error::settings(format!(
            "the clock is to be dilated={asked} and the drive's URL says dilated={n}: give one of the two"
        ))),
        (Some(Clock::Real), Some(n)) => Err(Error::settings(format!(
            "the drive's URL says dilated={n}: say so of the clock, or leave it out of the URL"
        ))),
        (Some(Clock::Virtual), _) if !timed => Err(Error::settings(
            "this drive's operations take no time, and the virtual clock would stand still: give the drive a \
             profile (emu:mem?profile=zn540), or use the real clock",
        )),
        (Some(clock), _) => Ok(clock),
        (None, Some(n)) => Ok(Clock::Dilated(n)),
        (None, None) if timed => Ok(Clock::Virtual),
        (None, None) => Ok(Clock::Real),
    }
}

#[cfg(test)]
mod tests {
    use zoned::Blocks;

    use super::*;

    fn refusal(url: &str, clock: &str) -> String {
        Drive::open(url, Some(clock.parse().unwrap()), false).expect_err(url).to_string()
    }

    #[test]
    fn the_dilation_is_said_once_or_twice_alike() {
        for (url, clock) in [
            ("emu:mem?profile=zn540&zones=8&dilated=10", None),
            ("emu:mem?profile=zn540&zones=8", Some("dilated=10")),
            ("emu:mem?profile=zn540&zones=8&dilated=10", Some("dilated=10")),
            ("emu:mem", Some("dilated=10")),
        ] {
            let drive = Drive::open(url, clock.map(|c| c.parse().unwrap()), false).unwrap();
            assert_eq!((drive.dilation(), drive.clock().to_string().as_str()), (10, "dilated=10"), "{url}");
        }
    }

    #[test]
    fn clocks_that_contradict_the_drive_are_refused() {
        let url = "emu:mem?profile=zn540&zones=8&dilated=10";
        for clock in ["dilated=9", "dilated=11"] {
            assert!(refusal(url, clock).contains("give one of the two"), "{}", refusal(url, clock));
        }
        assert!(refusal(url, "real").contains("dilated=10"));
        assert!(refusal("emu:mem", "virtual").contains("take no time"));
        assert!(refusal("blk:/dev/nvme0n1", "virtual").contains("real clock"));
    }

    #[test]
    fn a_fresh_drive_has_the_geometry_of_its_model_and_is_empty() {
        let drive = Drive::open("emu:mem?profile=confzns&zones=9&zone-size=1MiB", None, false).unwrap();
        assert_eq!(drive.clock(), Clock::Virtual);
        let buffer = zoned::Buf::copy_from(&[1; 4096]);
        drive.device().append(zoned::ZoneId(0), buffer, zoned::Durability::Cached).wait().unwrap();
        let fresh = drive.fresh().unwrap();
        assert_eq!(fresh.device().geometry(), drive.device().geometry());
        assert!(fresh.device().report_all().unwrap().iter().all(|zone| zone.pointer == Blocks::ZERO));
    }
}
