//! Device URLs, by which commands and configuration name devices.

mod emu;
mod kernel;
mod query;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

pub use emu::{EMU_PARAMETERS, EmuUrl};
pub use kernel::{KERNEL_PARAMETERS, KernelUrl};

use crate::emu::EmuOptions;
use crate::{Driver, Error, ErrorKind, Result, ZonedDevice};
use query::invalid;

/// A device's URL: `emu:mem`, `emu:/var/lib/furrow.img?zones=64&zone-size=64MiB`, `blk:/dev/nvme0n1`,
/// `nvme:/dev/ng0n1`, `nvme:serial=ZNS0`.
///
/// Sizes are numbers with an optional unit (`4096`, `64MiB`, `1GB`); limits may be `none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceUrl {
    /// The URL of an emulated drive.
    Emu(EmuUrl),
    /// The URL of a drive of this machine.
    Kernel(KernelUrl),
    /// The URL of an array: the part after `array:`, which names the members.
    Array(String),
}

/// Opens the array that the part of a URL after `array:` names.
pub type ArrayOpener = fn(&str, Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>>;

/// The function that opens arrays. The array crate lies above this crate, so that a program has to register
/// the function.
static ARRAYS: OnceLock<ArrayOpener> = OnceLock::new();

/// Registers the function that opens `array:` URLs. Later calls have no effect.
pub fn register_array_opener(opener: ArrayOpener) {
    let _the_first_counts = ARRAYS.set(opener);
}

fn open_array(rest: &str, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
    match ARRAYS.get() {
        Some(opener) => opener(rest, driver),
        None => Err(Error::new(ErrorKind::Unsupported, &Arc::from(format!("array:{rest}")), "open")
            .because("this program knows no arrays: use blk:, nvme: or emu:")),
    }
}

impl FromStr for DeviceUrl {
    type Err = Error;

    fn from_str(url: &str) -> Result<DeviceUrl> {
        let Some((scheme, rest)) = url.split_once(':') else {
            let advice = if url.starts_with("/dev/") { "blk" } else { "emu" };
            return Err(invalid(url, format!("no scheme: did you mean {advice}:{url}?")));
        };
        match scheme {
            "emu" => Ok(DeviceUrl::Emu(EmuUrl::parse(url, rest)?)),
            "blk" | "nvme" => Ok(DeviceUrl::Kernel(KernelUrl::parse(url, rest)?)),
            "array" if rest.is_empty() => Err(invalid(url, "no members: array:URL,URL,URL")),
            "array" => Ok(DeviceUrl::Array(rest.to_owned())),
            _ => Err(invalid(
                url,
                format!(
                    "unknown scheme {scheme}: use emu:PATH, emu:mem, blk:/dev/NAME, nvme:/dev/ngXnY or \
                     array:URL,URL,URL"
                ),
            )),
        }
    }
}

impl DeviceUrl {
    /// True for the URL of an emulated drive, which may be created and formatted without confirmation.
    pub fn is_emulated(&self) -> bool {
        matches!(self, DeviceUrl::Emu(_))
    }

    /// True if the device's contents end with the process.
    pub fn is_in_memory(&self) -> bool {
        matches!(self, DeviceUrl::Emu(url) if url.path().is_none())
    }

    /// The settings of an emulated drive; [`ErrorKind::Invalid`] for the URL of any other device.
    pub fn options(&self) -> Result<EmuOptions> {
        match self {
            DeviceUrl::Emu(url) => url.options(),
            DeviceUrl::Kernel(_) | DeviceUrl::Array(_) => {
                Err(invalid(&self.to_string(), "an emulated drive is needed: emu:..."))
            }
        }
    }

    /// True unless the URL names a drive file that does not exist yet.
    pub fn exists(&self) -> bool {
        match self {
            DeviceUrl::Emu(url) => url.exists(),
            DeviceUrl::Kernel(_) | DeviceUrl::Array(_) => true,
        }
    }

    /// Opens the device that the URL names; [`ErrorKind::NotFound`] if no such device exists.
    pub fn open(&self, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
        match self {
            DeviceUrl::Emu(url) => url.open(false, driver),
            DeviceUrl::Kernel(url) => url.open(driver),
            DeviceUrl::Array(rest) => open_array(rest, driver),
        }
    }

    /// Opens the device that the URL names; creates the drive file of an emulated drive if it is missing.
    pub fn open_or_create(&self, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
        match self {
            DeviceUrl::Emu(url) => url.open(true, driver),
            DeviceUrl::Kernel(url) => url.open(driver),
            DeviceUrl::Array(rest) => open_array(rest, driver),
        }
    }
}

impl fmt::Display for DeviceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceUrl::Emu(url) => url.fmt(f),
            DeviceUrl::Kernel(url) => url.fmt(f),
            DeviceUrl::Array(rest) => write!(f, "array:{rest}"),
        }
    }
}

/// Opens the device that `url` names (see [`DeviceUrl`]). A missing drive file is [`ErrorKind::NotFound`].
pub fn open(url: &str, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
    url.parse::<DeviceUrl>()?.open(driver)
}

/// Opens the device that `url` names; creates a missing drive file with the URL's settings.
pub fn open_or_create(url: &str, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
    url.parse::<DeviceUrl>()?.open_or_create(driver)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use units::VirtualDriver;

    use super::*;
    use crate::Blocks;

    fn parse_error_text(url: &str) -> String {
        open(url, VirtualDriver::new(1)).expect_err(url).to_string()
    }

    #[test]
    fn sizes_and_limits_are_read_as_people_write_them() {
        let url = "emu:mem?zones=8&zone-size=1MiB&zone-capacity=768KiB&block-size=512&max-open=none&cache=none&delay=15us";
        let options = url.parse::<DeviceUrl>().and_then(|u| u.options()).expect("valid");
        assert_eq!(
            (options.zones, options.zone_size, options.zone_capacity),
            (8, Blocks(2048), Blocks(1536))
        );
        assert_eq!((options.max_open, options.max_active, options.volatile_cache), (None, None, false));
        assert_eq!(options.latency.read, Duration::from_micros(15));
    }

    #[test]
    fn an_unknown_parameter_is_named_and_the_known_ones_are_listed() {
        let text = parse_error_text("emu:mem?zonez=8");
        assert!(text.contains("zonez") && text.contains("zone-capacity"), "{text}");
        let text = parse_error_text("emu:mem?profile=fast");
        assert!(text.contains("fast") && text.contains("null"), "{text}");
        let text = parse_error_text("blk:/dev/x?zones=8");
        assert!(text.contains("zones") && text.contains("io"), "{text}");
    }

    #[test]
    fn wrong_values_are_named() {
        for (url, part) in [
            ("mem", "emu:mem"),
            ("/dev/nvme0n1", "blk:/dev/nvme0n1"),
            ("emu:", "no path"),
            ("ssd:x", "unknown scheme ssd"),
            ("array:x", "knows no arrays"),
            ("array:", "no members"),
            ("blk:", "no device"),
            ("nvme:?io=ring", "no device"),
            ("blk:/dev/x?io=fast", "io=fast"),
            ("blk:/dev/x?io=ioctl", "io=ioctl"),
            ("nvme:ABC?namespace=0", "namespace=0"),
            ("nvme:/dev/ng0n1?namespace=1", "namespace"),
            ("nvme:serial=", "no device"),
            ("emu:mem?zones=many", "zones=many"),
            ("emu:mem?zones=8&zones=9", "twice"),
            ("emu:mem?zone-size=5000", "zone-size=5000"),
            ("emu:mem?zone-size=1MiB&zone-capacity=2MiB", "capacity"),
            ("emu:mem?delay=soon", "delay=soon"),
            ("emu:mem?block-size=1000", "1000 bytes"),
            ("emu:mem?cache=maybe", "cache=maybe"),
            ("emu:mem?max-open=0", "at least one"),
            ("emu:mem?reorder=7", "on or off"),
            ("emu:mem?writes=two", "one or many"),
            ("emu:mem?dilated=0", "dilated=0"),
            ("emu:mem?stage=0", "stage=0"),
            ("blk:/dev/x?stage=much", "stage=much"),
            ("emu:mem?stage=1KiB", "at least a block"),
            ("emu:mem?log-target=99", "from 100 on"),
            ("blk:/dev/x?log-target=much", "log-target=much"),
            ("emu:mem?profile=zn540&delay=1us", "one of the two"),
            ("emu:mem?profile=./not-here.toml", "not-here.toml"),
        ] {
            let text = parse_error_text(url);
            assert!(text.contains(part), "{url}: {text}");
        }
    }

    #[test]
    fn an_url_reads_back_as_it_is_shown() {
        for (text, shown) in [
            ("emu:/a/b.img?cache=none&zones=8", "emu:/a/b.img?cache=none&zones=8"),
            ("blk:/dev/nvme0n1?io=threads", "blk:/dev/nvme0n1?io=threads"),
            ("nvme:/dev/ng0n1?io=ioctl", "nvme:/dev/ng0n1?io=threads"),
            ("nvme:ZNS0?namespace=2", "nvme:serial=ZNS0?namespace=2"),
            ("nvme:serial=ZNS0", "nvme:serial=ZNS0"),
            ("emu:/a/b.img?stage=1MiB", "emu:/a/b.img?stage=1MiB"),
            ("blk:/dev/x?stage=1MiB&io=ring", "blk:/dev/x?io=ring&stage=1048576"),
            ("emu:/a/b.img?log-target=none", "emu:/a/b.img?log-target=none"),
            ("blk:/dev/x?log-target=120&stage=1MiB", "blk:/dev/x?stage=1048576"),
            ("blk:/dev/x?log-target=150%&stage=1MiB", "blk:/dev/x?stage=1048576&log-target=150"),
            ("blk:/dev/x?log-target=none", "blk:/dev/x?log-target=none"),
        ] {
            let url: DeviceUrl = text.parse().expect(text);
            assert_eq!(url.to_string(), shown);
            assert_eq!(shown.parse::<DeviceUrl>().expect(shown), url);
        }
        let DeviceUrl::Emu(url) = "emu:/a/b.img".parse().expect("valid") else { panic!("emulated") };
        assert_eq!(url.path(), Some(Path::new("/a/b.img")));
    }

    #[test]
    fn a_missing_device_and_a_missing_file_have_different_errors() {
        assert!(parse_error_text("blk:/dev/no-such-device").contains("not found"));
        assert!(parse_error_text("nvme:/dev/no-such-device").contains("not found"));
        let text = parse_error_text("blk:/proc/self/exe");
        assert!(text.contains("emu:"), "{text}");
        let text = parse_error_text("nvme:serial=no-such-serial");
        assert!(text.contains("no-such-serial") && text.contains("furrow device list"), "{text}");
    }
}
