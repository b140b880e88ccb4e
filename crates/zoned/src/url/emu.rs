//! URLs of the scheme `emu:`: an emulated drive, in a file or in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;

use super::query::{Before, LOG_TARGET, STAGE, invalid, parameters};
use crate::emu::{Emu, EmuOptions, Latency, Profile, contradiction_text, is_drive_file};
use crate::kernel::one_write_per_zone;
use crate::{Blocks, Driver, Error, Result, ZonedDevice};

/// An emulated drive's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmuUrl {
    place: DriveLocation,
    parameters: BTreeMap<&'static str, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DriveLocation {
    Memory,
    File(PathBuf),
}

/// Parameters of an emulated drive's URL, with descriptions.
pub const EMU_PARAMETERS: &[(&str, &str)] = &[
    ("profile", "times and geometry: null (no delay), confzns, zn540, smallzone, smr, or a file ./my.toml"),
    ("dilated", "device times stretched so many times: 10; divide what you measure by it"),
    ("delay", "every operation takes this long: 15us"),
    ("zones", "number of zones"),
    ("zone-size", "from one zone to the next: 64MiB"),
    ("zone-capacity", "writable part of a zone; the whole by default"),
    ("conventional", "number of conventional zones, the first ones"),
    ("block-size", "bytes in a block: 4096"),
    ("max-open", "zones open at once, or none"),
    ("max-active", "zones active at once, or none"),
    ("max-append", "longest append: 128KiB"),
    ("cache", "volatile or none"),
    ("reorder", "on: appends in flight take their addresses in any order, as those of real drives do"),
    (
        "writes",
        "one: a zone has one write in flight, and neighbours that wait go out together, as with blk: and nvme:; many",
    ),
    STAGE,
    LOG_TARGET,
    ("seed", "decides what chance decides"),
];

impl EmuUrl {
    /// Parses the part of an emulated drive's URL after `emu:`.
    pub(super) fn parse(url: &str, rest: &str) -> Result<EmuUrl> {
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let place = match place {
            "" => return Err(invalid(url, "no path: use emu:PATH, or emu:mem for a drive in memory")),
            "mem" => DriveLocation::Memory,
            path => DriveLocation::File(PathBuf::from(path)),
        };
        let url = EmuUrl { place, parameters: parameters(url, query, EMU_PARAMETERS)? };
        url.options()?;
        Ok(url)
    }

    /// The drive file's path; `None` for a drive in memory.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            DriveLocation::Memory => None,
            DriveLocation::File(path) => Some(path),
        }
    }

    /// Settings of a new drive that the URL describes.
    pub fn options(&self) -> Result<EmuOptions> {
        let base = match self.parameters.get("profile") {
            None => EmuOptions::default(),
            Some(name) => EmuOptions::of_profile(Profile::load(name).map_err(|why| self.invalid(why))?),
        };
        let mut options = EmuOptions { name: self.name(), ..base.clone() };
        options.block_size = self.number("block-size", options.block_size, size)?;
        options.zones = self.number("zones", options.zones, count)?;
        // A drive smaller than the profile's has the same share of conventional zones.
        let share = u64::from(base.conventional) * u64::from(options.zones) / u64::from(base.zones.max(1));
        let share = u32::try_from(share).unwrap_or(u32::MAX).min(options.zones);
        options.conventional = self.number("conventional", share, count)?;
        let block = options.block_size.max(1);
        let blocks = |text: &str| {
            let bytes = size(text)?;
            bytes.is_multiple_of(u64::from(block)).then_some(Blocks(bytes / u64::from(block)))
        };
        let whole = |key: &str, default: u64| match self.parameters.get(key) {
            None => Ok(Blocks(default / u64::from(block))),
            Some(text) => blocks(text).ok_or_else(|| {
                self.invalid(format!(
                    "{key}={text}: a size in whole blocks of {block} bytes is needed, as in 64MiB"
                ))
            }),
        };
        let default = |blocks: Blocks| blocks.bytes(base.block_size).0;
        options.zone_size = whole("zone-size", default(base.zone_size))?;
        let size = options.zone_size.bytes(block).0;
        let capacity = match base.zone_capacity == base.zone_size {
            true => size,
            false => default(base.zone_capacity).min(size),
        };
        options.zone_capacity = whole("zone-capacity", capacity)?;
        options.max_append = whole("max-append", default(base.max_append))?;
        options.max_open = self.limit("max-open", options.max_open)?;
        let active = match (options.max_open, options.max_active) {
            (Some(open), Some(active)) => Some(open.max(active)),
            _ => None,
        };
        options.max_active = self.limit("max-active", active)?;
        if !self.parameters.contains_key("max-open")
            && let Some(active) = options.max_active
        {
            options.max_open = options.max_open.map(|open| open.min(active));
        }
        options.volatile_cache = match self.parameters.get("cache").map(String::as_str) {
            None => base.volatile_cache,
            Some("volatile") => true,
            Some("none") => false,
            Some(other) => return Err(self.invalid(format!("cache={other}: use volatile or none"))),
        };
        options.reorder = match self.parameters.get("reorder").map(String::as_str) {
            None | Some("off") => false,
            Some("on") => true,
            Some(other) => return Err(self.invalid(format!("reorder={other}: use on or off"))),
        };
        options.one_write = match self.parameters.get("writes").map(String::as_str) {
            None | Some("many") => false,
            Some("one") => true,
            Some(other) => return Err(self.invalid(format!("writes={other}: use one or many"))),
        };
        options.seed = self.number("seed", 0, |text| text.parse().ok())?;
        let delay = match self.parameters.get("delay") {
            None => Duration::ZERO,
            Some(text) => humantime::parse_duration(text)
                .map_err(|e| self.invalid(format!("delay={text}: {e}; a time is needed, as in 15us")))?,
        };
        options.latency = Latency::all(delay);
        if delay > Duration::ZERO && options.profile.as_ref().is_some_and(|p| !p.is_instant()) {
            return Err(self.invalid("delay: this profile has times of its own; give one of the two".into()));
        }
        options.dilation = self.number("dilated", 1, count)?;
        if options.dilation == 0 {
            return Err(self.invalid("dilated=0: a number from 1 on is needed".into()));
        }
        self.before(&options)?;
        options.geometry()?;
        Ok(options)
    }

    /// True if the drive exists: a drive in memory always does, a drive file must have been created.
    pub fn exists(&self) -> bool {
        self.path().is_none_or(is_drive_file)
    }

    /// Opens the emulated drive; with `create` a missing drive file is created.
    pub fn open(&self, create: bool, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
        let options = self.options()?;
        let (one_write, dilation) = (options.one_write, options.dilation);
        let emu = self.open_drive(create, driver)?;
        self.before(&options)?.drive(if one_write { one_write_per_zone(emu) } else { emu }, dilation)
    }

    /// The devices before the drive. One without times has no queue that a scheduler could shorten: it has none by default.
    fn before(&self, options: &EmuOptions) -> Result<Before> {
        let mut before = Before::parse(&self.to_string(), &self.parameters)?;
        let has_times = options.profile.as_ref().is_some_and(|profile| !profile.is_instant())
            || options.latency != Latency::NONE;
        if !has_times && !self.parameters.contains_key(LOG_TARGET.0) {
            before.log_target = None;
        }
        Ok(before)
    }

    fn open_drive(&self, create: bool, driver: Arc<dyn Driver>) -> Result<Arc<Emu>> {
        let options = self.options()?;
        match &self.place {
            DriveLocation::Memory => Ok(Emu::memory(options, driver)),
            DriveLocation::File(path) => {
                let wanted = options.clone();
                Emu::open_checked(path, options, create, driver, &|found| {
                    self.check_settings_agree(&wanted, found)
                })
            }
        }
    }

    /// Checks that a drive file's settings agree with the parameters that the URL gives.
    fn check_settings_agree(&self, wanted: &EmuOptions, found: &EmuOptions) -> Result<(), String> {
        let differs = |key: &str| match key {
            "zones" => wanted.zones != found.zones,
            "zone-size" => {
                wanted.zone_size.bytes(wanted.block_size) != found.zone_size.bytes(found.block_size)
            }
            "zone-capacity" => {
                wanted.zone_capacity.bytes(wanted.block_size) != found.zone_capacity.bytes(found.block_size)
            }
            "conventional" => wanted.conventional != found.conventional,
            "block-size" => wanted.block_size != found.block_size,
            "max-open" => wanted.max_open != found.max_open,
            "max-active" => wanted.max_active != found.max_active,
            "max-append" => {
                wanted.max_append.bytes(wanted.block_size) != found.max_append.bytes(found.block_size)
            }
            "cache" => wanted.volatile_cache != found.volatile_cache,
            _ => false,
        };
        let limit = |n: Option<u32>| n.map_or("none".to_string(), |n| n.to_string());
        let human = |blocks: Blocks| ByteSize(blocks.bytes(found.block_size).0).to_string().replace(' ', "");
        let of_file = |key: &str| match key {
            "zones" => found.zones.to_string(),
            "zone-size" => human(found.zone_size),
            "zone-capacity" => human(found.zone_capacity),
            "conventional" => found.conventional.to_string(),
            "block-size" => found.block_size.to_string(),
            "max-open" => limit(found.max_open),
            "max-active" => limit(found.max_active),
            "max-append" => human(found.max_append),
            _ => if found.volatile_cache { "volatile" } else { "none" }.to_string(),
        };
        match self.parameters.iter().find(|(key, _)| differs(key)) {
            Some((key, value)) => Err(contradiction_text(key, value, &of_file(key))),
            None => Ok(()),
        }
    }

    fn name(&self) -> String {
        match &self.place {
            DriveLocation::Memory => "emu:mem".into(),
            DriveLocation::File(path) => format!("emu:{}", path.display()),
        }
    }

    fn invalid(&self, why: String) -> Error {
        invalid(&self.to_string(), why)
    }

    fn number<N: TryFrom<u64>>(&self, key: &str, default: N, parse: fn(&str) -> Option<u64>) -> Result<N> {
        let Some(text) = self.parameters.get(key) else { return Ok(default) };
        let number = parse(text).and_then(|n| N::try_from(n).ok());
        number.ok_or_else(|| self.invalid(format!("{key}={text}: a number in range is needed")))
    }

    fn limit(&self, key: &str, default: Option<u32>) -> Result<Option<u32>> {
        match self.parameters.get(key).map(String::as_str) {
            None => Ok(default),
            Some("none") => Ok(None),
            Some(_) => self.number(key, 0, count).map(Some),
        }
    }
}

fn size(text: &str) -> Option<u64> {
    text.parse::<ByteSize>().ok().map(|size| size.as_u64())
}

fn count(text: &str) -> Option<u64> {
    text.parse().ok()
}

impl fmt::Display for EmuUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        for (index, (key, value)) in self.parameters.iter().enumerate() {
            write!(f, "{}{key}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}
