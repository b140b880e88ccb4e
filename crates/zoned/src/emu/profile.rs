//! Drive profiles: the geometry and the times of a drive, as a TOML file.
//!
//! The profiles in `profiles/` are part of the program, comments and sources included; users write their own.
//! Every section and most fields may be left out: geometry that a profile does not give is [`EmuOptions`](super::EmuOptions)'
//! default, and times are zero.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use toml::Spanned;

mod load;

/// A drive profile: a drive's geometry and times.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Profile {
    pub(super) geometry: Shape,
    pub(super) host: HostTiming,
    pub(super) write: WriteTiming,
    pub(super) append: AppendTiming,
    pub(super) read: ReadTiming,
    pub(super) flash: Option<Flash>,
    pub(super) arm: Option<Arm>,
    pub(super) zone: ZoneTimes,
    pub(super) flush: FlushTimes,
}

/// Longest time and slowest rate that a profile may give: values beyond are mistakes, and their sums could
/// overflow.
const MAX_TIME: u64 = 60_000_000_000;
const LEAST_RATE: u64 = 4096;
const LEAST_PAGE: u64 = 512;

/// A profile's default geometry. Parameters of the device's URL override the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Shape {
    block_size: Option<Spanned<Size>>,
    zones: Option<NonZeroU32>,
    conventional: Option<u32>,
    zone_size: Option<Spanned<Size>>,
    zone_capacity: Option<Spanned<Size>>,
    max_open: Option<Limit>,
    max_active: Option<Limit>,
    max_append: Option<Spanned<Size>>,
    cache: Option<Cache>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Cache {
    Volatile,
    None,
}

/// A profile's cost of the host's software.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct HostTiming {
    /// Time added to every command.
    pub(super) latency: Time,
}

/// A profile's times of writes, most of which also apply to appends.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct WriteTiming {
    /// Fixed part of a write's latency.
    pub(super) latency: Time,
    /// Write latency per KiB transferred; does not occupy the controller.
    pub(super) per_kib: Time,
    /// Minimum transfer of a write: a shorter command transfers this many bytes.
    pub(super) least: Size,
    /// Time added for a write shorter than `least`.
    pub(super) partial: Time,
    /// Time that each write occupies the controller.
    pub(super) controller: Time,
    /// Time added if the write opens its zone.
    pub(super) implicit_open: Time,
    /// Fitted to measurements: number of other writes and appends in flight from which `contention_delay` is
    /// added; 0 for never.
    #[serde(alias = "crowd-from")]
    pub(super) contention_from: u32,
    /// Fitted to measurements: the added time of a write among many in flight.
    #[serde(alias = "crowd-delay")]
    pub(super) contention_delay: Time,
    /// The time at which a write is acknowledged.
    pub(super) acknowledge: Acknowledge,
    /// Write buffer of each group of dies: buffered writes are acknowledged before they are programmed.
    pub(super) buffer: Size,
    /// Program bandwidth of the whole drive in bytes per second; 0 if only the dies limit it.
    pub(super) bandwidth: Rate,
}

/// The moment at which a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Acknowledge {
    /// A write is acknowledged when its data is in the buffer.
    #[default]
    Buffer,
    /// A write is acknowledged when its data is programmed.
    Program,
}

/// A profile's times of appends that differ from those of writes.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct AppendTiming {
    pub(super) latency: Time,
    pub(super) controller: Time,
    pub(super) implicit_open: Time,
}

/// Reads.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct ReadTiming {
    /// Fixed part of a read's latency, without the flash array.
    pub(super) latency: Time,
    /// Read latency per KiB transferred; does not occupy the controller.
    pub(super) per_kib: Time,
    /// Largest number of bytes to which `per-kib` applies; 0 for no limit.
    pub(super) per_kib_limit: Size,
    /// Time that each read occupies the controller.
    pub(super) controller: Time,
    /// Read bandwidth of the whole drive in bytes per second; 0 if only the dies limit it.
    pub(super) bandwidth: Rate,
}

/// A flash drive's channels and dies, and the mapping of zones to dies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Flash {
    pub(super) channels: NonZeroU32,
    /// Dies (ways) on each channel.
    pub(super) dies: NonZeroU32,
    /// Planes per die; planes work independently.
    pub(super) planes: NonZeroU32,
    pub(super) page: Page,
    /// Transfer time of a page on the channel.
    #[serde(default)]
    pub(super) transfer: Time,
    /// Times of reading a page; each read draws one at random.
    pub(super) read: Times,
    /// Times of programming a page; each program draws one at random.
    pub(super) program: Times,
    #[serde(default)]
    pub(super) zones: ZoneMap,
}

/// The planes that a zone lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ZoneMap {
    /// A zone lies on all planes.
    #[default]
    Device,
    /// A zone lies on one die.
    Die,
    /// A zone lies on one of this many groups of dies.
    Groups(NonZeroU32),
}

/// A profile's arm of a disk, for drives without flash.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Arm {
    /// Time of a seek to the next track.
    pub(super) settle: Time,
    /// Time of a seek across the whole disk.
    pub(super) full_stroke: Time,
    /// Time of one rotation of the platter.
    pub(super) turn: Time,
    /// Media transfer rate in bytes per second; 0 for no limit.
    pub(super) bandwidth: Rate,
}

/// A profile's times of zone commands.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct ZoneTimes {
    pub(super) open: Time,
    pub(super) close: Time,
    /// Time to finish an empty or full zone.
    pub(super) finish_empty: Time,
    /// Fixed part of the time to finish any other zone.
    pub(super) finish: Time,
    /// Rate in bytes per second at which a finish pads the rest of the zone; 0 for no padding.
    pub(super) finish_bandwidth: Rate,
    /// Time to reset a zone by how full the zone is, interpolated linearly between the points.
    pub(super) reset: Curve,
    pub(super) report: Time,
    pub(super) report_per_zone: Time,
}

/// A profile's times of flushes.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct FlushTimes {
    /// Time of a flush, added to the time that the cache needs to drain.
    pub(super) latency: Time,
}

/// A time in a profile, in nanoseconds, written `450us`, `1.6ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Time(pub(super) u64);

/// A size in a profile, in bytes, written `64KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Size(pub(super) u64);

/// A rate in a profile, in bytes per second: [`LEAST_RATE`] or more, or 0 for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Rate(pub(super) u64);

/// Bytes in a page of flash, [`LEAST_PAGE`] or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page(pub(super) u64);

/// A limit in a profile: a number of zones, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(Option<u32>);

/// One time in a profile, or several to draw from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Times(pub(super) Box<[u64]>);

/// A curve in a profile: time by the filled share of a zone.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Curve(Box<[(u64, u64)]>);

/// The filled share of a whole zone, on a curve.
const WHOLE_ZONE: u64 = 1_000_000_000;

impl Profile {
    /// True if the profile lets every operation complete at once.
    pub fn is_instant(&self) -> bool {
        *self == Profile { geometry: self.geometry.clone(), ..Profile::default() }
    }
}

impl Flash {
    /// The number of planes of the whole drive.
    fn planes_of_drive(&self) -> Option<u64> {
        let dies = u64::from(self.channels.get()) * u64::from(self.dies.get());
        dies.checked_mul(u64::from(self.planes.get()))
    }
}

impl Shape {
    /// Checks a profile's rules that its types do not express.
    fn check_rules(&self) -> Result<(), (usize, String)> {
        let Shape { block_size, zone_size, zone_capacity, max_append, .. } = self;
        let block = block_size.as_ref().map_or(4096, |b| b.as_ref().0);
        if let Some(given) = block_size
            && !(block.is_power_of_two() && (512..=65_536).contains(&block))
        {
            return Err((given.span().start, "block-size: use a power of two from 512 to 65536".into()));
        }
        for (name, given) in
            [("zone-size", zone_size), ("zone-capacity", zone_capacity), ("max-append", max_append)]
        {
            if let Some(given) = given
                && (given.as_ref().0 == 0 || !given.as_ref().0.is_multiple_of(block))
            {
                let why = format!("{name}: a size in whole blocks of {block} bytes is needed");
                return Err((given.span().start, why));
            }
        }
        match (zone_size, zone_capacity) {
            (Some(size), Some(capacity)) if capacity.as_ref().0 > size.as_ref().0 => {
                Err((capacity.span().start, "zone-capacity: it is above zone-size".into()))
            }
            _ => Ok(()),
        }
    }
}

impl Time {
    fn parse(text: &str) -> Result<Time, String> {
        let wrong = || format!("\"{text}\": a time is needed, as in \"450us\" or \"1.6ms\"");
        let unit = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
        let (number, unit) = text.split_at(unit);
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let scale = match unit {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(wrong()),
        };
        let time = Duration::try_from_secs_f64(number * scale / 1e9).map_err(|_| wrong())?;
        match u64::try_from(time.as_nanos()) {
            Ok(nanos) if nanos <= MAX_TIME => Ok(Time(nanos)),
            _ => Err(format!("\"{text}\": a minute is the longest")),
        }
    }
}

impl Times {
    /// One of the times in the list, selected by `draw`.
    pub(super) fn pick_time(&self, draw: u64) -> u64 {
        let index = usize::try_from(draw % self.0.len().max(1) as u64).unwrap_or_default();
        self.0.get(index).copied().unwrap_or_default()
    }
}

impl Curve {
    /// The curve's time at the filled share `part` / `whole`, interpolated.
    pub(super) fn at(&self, part: u64, whole: u64) -> u64 {
        let fill = u128::from(part) * u128::from(WHOLE_ZONE) / u128::from(whole.max(1));
        let fill = u64::try_from(fill).unwrap_or(WHOLE_ZONE);
        let after = self.0.partition_point(|(at, _)| *at < fill);
        let (Some(high), Some(low)) =
            (self.0.get(after).or(self.0.last()), self.0.get(after.saturating_sub(1)))
        else {
            return 0;
        };
        if high.0 <= low.0 {
            return high.1;
        }
        let share = (fill - low.0) as f64 / (high.0 - low.0) as f64;
        (low.1 as f64 + share * (high.1 as f64 - low.1 as f64)) as u64
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        Time::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        let text = String::deserialize(from)?;
        let size = text.parse::<ByteSize>().map(|size| Size(size.as_u64()));
        size.map_err(|_| D::Error::custom(format!("\"{text}\": a size is needed, as in \"64KiB\"")))
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
        match Size::deserialize(from)?.0 {
            rate if rate == 0 || rate >= LEAST_RATE => Ok(Rate(rate)),
            _ => Err(D::Error::custom(format!("{LEAST_RATE} bytes a second are the least; 0 for no limit"))),
        }
    }
}

impl<'de> Deserialize<'de> for Page {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Page, D::Error> {
        match Size::deserialize(from)?.0 {
            size if size >= LEAST_PAGE => Ok(Page(size)),
            _ => Err(D::Error::custom(format!("a page has {LEAST_PAGE} bytes or more"))),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Limit, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Limit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of zones, or \"none\"")
            }

            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Limit, E> {
                match u32::try_from(n) {
                    Ok(n) if n > 0 => Ok(Limit(Some(n))),
                    _ => Err(E::custom("at least one zone must be allowed to be open")),
                }
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Limit, E> {
                let none = (text == "none").then_some(Limit(None));
                none.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        from.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Times, D::Error> {
        let times = Vec::<Time>::deserialize(from)?;
        if times.is_empty() {
            return Err(D::Error::custom("at least one time is needed"));
        }
        Ok(Times(times.into_iter().map(|t| t.0).collect()))
    }
}

impl<'de> Deserialize<'de> for Curve {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Curve, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Point {
            percent: f64,
            time: Time,
        }
        let points: Vec<Point> = Vec::deserialize(from)?;
        if points.iter().any(|p| !(0.0..=100.0).contains(&p.percent)) {
            return Err(D::Error::custom("percent: from 0 to 100"));
        }
        if !points.is_sorted_by(|a, b| a.percent < b.percent) {
            return Err(D::Error::custom("the points must be in order of percent"));
        }
        let fill = |percent: f64| (percent / 100.0 * WHOLE_ZONE as f64) as u64;
        Ok(Curve(points.into_iter().map(|p| (fill(p.percent), p.time.0)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_loads_and_only_null_takes_no_time() {
        for name in Profile::names() {
            let profile = Profile::load(name).unwrap();
            assert_eq!(profile.is_instant(), name == "null", "{name}");
        }
    }

    #[test]
    fn a_wrong_line_is_named() {
        let planes = "\n[flash]\nchannels = 4000000000\ndies = 4000000000\nplanes = 9\npage = \"4KiB\"\n\
            read = [\"1us\"]\nprogram = [\"1us\"]"
            .to_string();
        for (text, line, part) in [
            ("[geometry]\nzones = 4\n\nzone-sise = \"1MiB\"", 4, "zone-sise"),
            ("[geometry]\nzones = 0", 2, "nonzero"),
            ("[host]\nlatency = \"soon\"", 2, "450us"),
            ("[host]\nlatency = 3", 2, "string"),
            ("[write]\n\nbuffer = \"many\"", 3, "64KiB"),
            ("[write]\nacknowledge = \"never\"", 2, "never"),
            ("[geometry]\nzone-size = \"1MiB\"\nzone-capacity = \"2MiB\"", 3, "zone-size"),
            ("[geometry]\nblock-size = \"1000B\"", 2, "power of two"),
            ("[geometry]\nzones = 1\nzone-size = \"5000B\"", 3, "whole blocks"),
            ("[geometry]\nmax-open = 0", 2, "at least one"),
            ("[flash]\nchannels = 1\ndies = 1\nplanes = 1\npage = \"4KiB\"\nread = []", 6, "at least one"),
            ("[arm]\nsettle = \"1ms\"\nbandwidth = \"1KiB\"", 3, "4096"),
            ("[host]\nlatency = \"2000s\"", 2, "minute"),
            (&planes, 2, "65536"),
            ("[zone]\nreset = [{percent = 9, time = \"1ms\"}, {percent = 3, time = \"1ms\"}]", 2, "order"),
            ("# mine\n\n[geometry]\nconventional = 999", 3, "conventional"),
            ("zones", 1, ""),
        ] {
            let refusal = Profile::parse("./my.toml", text).unwrap_err();
            assert!(refusal.starts_with(&format!("./my.toml:{line}: ")), "{text}: {refusal}");
            assert!(refusal.contains(part), "{text}: {refusal}");
        }
    }

    #[test]
    fn a_curve_is_straight_between_its_points() {
        let text = "reset = [{percent = 0, time = \"1ms\"}, {percent = 50, time = \"3ms\"}]";
        let curve = toml::from_str::<ZoneTimes>(text).unwrap().reset;
        let ms = |part| curve.at(part, 100) / 10_000;
        assert_eq!((ms(0), ms(25), ms(50), ms(100)), (100, 200, 300, 300));
        assert_eq!(Curve::default().at(1, 2), 0);
    }
}
