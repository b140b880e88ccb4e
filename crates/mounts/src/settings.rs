//! Settings of the file system and of its write-ahead logs from the environment, because an unmodified program has no other place for them.

use std::env;
use std::ffi::OsString;

use bytesize::ByteSize;
use fs::Bytes;
use fs::wal::{IoMode, LogOptions, LogZones};

use crate::counters::{COUNTERS_VARIABLE, EVERY_VARIABLE};
use crate::error::{Error, ErrorKind, Result};

const IO: &str = "FURROW_WAL_IO";
const BUFFER_VARIABLE: &str = "FURROW_WAL_BUFFER";
const WINDOW_VARIABLE: &str = "FURROW_WAL_WINDOW";
const ZONES_VARIABLE: &str = "FURROW_WAL_ZONES";

/// Environment variable: the size of the file system's page cache.
const CACHE_VARIABLE: &str = "FURROW_CACHE";

/// Environment variable: `1` formats the device, whatever it holds.
pub(crate) const FORMAT_VARIABLE: &str = "FURROW_FORMAT";

/// The beginnings of the names that are read for a file system. A name that begins so and is not known has a slip.
const FAMILIES: [&str; 4] = ["FURROW_WAL_", "FURROW_CACH", "FURROW_FORM", "FURROW_COUNT"];

/// The largest write-ahead log buffer in bytes.
const MAX_BUFFER: u64 = 128 << 20;

/// Refuses a misspelled name in this process's environment, because it would silently have no effect.
pub(crate) fn check_names() -> Result<()> {
    check_known(env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()))
}

fn check_known(mut names: impl Iterator<Item = String>) -> Result<()> {
    let known = [
        IO,
        BUFFER_VARIABLE,
        WINDOW_VARIABLE,
        ZONES_VARIABLE,
        CACHE_VARIABLE,
        FORMAT_VARIABLE,
        COUNTERS_VARIABLE,
        EVERY_VARIABLE,
    ];
    let is_of_family = |name: &str| FAMILIES.iter().any(|family| name.starts_with(family));
    match names.find(|name| is_of_family(name) && !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let text = format!("{name} in the environment is not known: there are {}", known.join(", "));
            Err(Error::new(ErrorKind::Invalid, text))
        }
    }
}

/// Whether the environment asks to format the device.
pub(crate) fn asks_for_format() -> Result<bool> {
    is_format(env::var_os(FORMAT_VARIABLE).unwrap_or_default().to_string_lossy().as_ref())
}

fn is_format(value: &str) -> Result<bool> {
    match value {
        "1" => Ok(true),
        "" | "0" => Ok(false),
        other => Err(Error::new(ErrorKind::Invalid, format!("{FORMAT_VARIABLE}={other}: it wants 1 or 0"))),
    }
}

/// The write-ahead log settings in this process's environment. An unset variable has its default.
pub(crate) fn log_options() -> Result<LogOptions> {
    read_options(|name| env::var_os(name))
}

fn read_options(get: impl Fn(&str) -> Option<OsString>) -> Result<LogOptions> {
    let mut options = LogOptions::default();
    let text = |name: &str| get(name).map(|value| value.to_string_lossy().into_owned());
    let refuse = |name: &str, value: &str, wants: &str| {
        Err(Error::new(ErrorKind::Invalid, format!("{name}={value}: it wants {wants}")))
    };
    if let Some(value) = text(IO) {
        options.mode = match value.as_str() {
            "append" => IoMode::Append,
            "write" => IoMode::Write,
            _ => return refuse(IO, &value, "append or write"),
        };
    }
    if let Some(value) = text(ZONES_VARIABLE) {
        options.zones = match value.as_str() {
            "auto" => LogZones::Auto,
            "conventional" => LogZones::Conventional,
            "sequential" => LogZones::Sequential,
            _ => return refuse(ZONES_VARIABLE, &value, "auto, conventional or sequential"),
        };
    }
    if let Some(value) = text(WINDOW_VARIABLE) {
        options.window = match value.parse() {
            Ok(window) if (1..=LogOptions::MAX_WINDOW).contains(&window) => window,
            _ => {
                return refuse(
                    WINDOW_VARIABLE,
                    &value,
                    &format!("a number from 1 to {}", LogOptions::MAX_WINDOW),
                );
            }
        };
    }
    if let Some(value) = text(BUFFER_VARIABLE) {
        options.buffer = match value.parse::<ByteSize>() {
            Ok(ByteSize(size)) if (1..=MAX_BUFFER).contains(&size) => to_usize(size),
            _ => return refuse(BUFFER_VARIABLE, &value, "a size up to 128MiB, such as 64KiB"),
        };
    }
    Ok(options)
}

/// The size of the page cache in this process's environment; if unset, the default for the memory that this process may have.
pub(crate) fn cache() -> Result<Bytes> {
    match env::var_os(CACHE_VARIABLE) {
        None => Ok(fs::default_cache_size()),
        Some(value) => cache_size(&value.to_string_lossy()),
    }
}

fn cache_size(value: &str) -> Result<Bytes> {
    let refuse = |why: String| Error::new(ErrorKind::Invalid, format!("{CACHE_VARIABLE}={value}: {why}"));
    let wants = || refuse("it wants a size such as 256MiB, or 0 for no cache".to_owned());
    let ByteSize(size) = value.parse().map_err(|_| wants())?;
    fs::check_cache_size(Bytes(size)).map_err(|error| refuse(error.to_string()))?;
    Ok(Bytes(size))
}

fn to_usize(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_page_cache_is_a_size() {
        assert_eq!(cache_size("0").unwrap(), Bytes::ZERO);
        assert_eq!(cache_size("64MiB").unwrap(), Bytes(64 << 20));
        for nonsense in ["", "much", "-1", "64 miles", "256", "1EiB"] {
            let error = cache_size(nonsense).unwrap_err();
            assert!(error.to_string().contains("FURROW_CACHE"), "{error}");
        }
    }

    fn of(set: &[(&str, &str)]) -> Result<LogOptions> {
        read_options(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn set_variables_are_used_and_unset_ones_have_defaults() {
        assert_eq!(of(&[]), Ok(LogOptions::default()));
        let all = [
            (IO, "write"),
            (BUFFER_VARIABLE, "4KiB"),
            (WINDOW_VARIABLE, "7"),
            (ZONES_VARIABLE, "sequential"),
        ];
        let expected = LogOptions {
            mode: IoMode::Write,
            buffer: 4096,
            window: 7,
            zones: LogZones::Sequential,
            ..LogOptions::default()
        };
        assert_eq!(of(&all), Ok(expected));
    }

    #[test]
    fn a_misspelled_variable_name_is_refused() {
        let of = |name: &str| check_known(["PATH", IO, name].map(str::to_owned).into_iter());
        assert!(of(BUFFER_VARIABLE).is_ok() && of("FURROW_DEVICE").is_ok() && of(EVERY_VARIABLE).is_ok());
        for slip in
            ["FURROW_WAL_BUFER", "FURROW_CACH", "FURROW_CACHE_MODE", "FURROW_FORMATS", "FURROW_COUNTER"]
        {
            assert!(of(slip).expect_err("a slip").to_string().contains(BUFFER_VARIABLE), "{slip}");
        }
    }

    #[test]
    fn a_drive_is_formatted_by_a_clear_word_alone() {
        assert_eq!((is_format("1"), is_format("0"), is_format("")), (Ok(true), Ok(false), Ok(false)));
        let error = is_format("maybe").expect_err("nonsense").to_string();
        assert!(error.contains("FURROW_FORMAT=maybe"), "{error}");
    }

    #[test]
    fn an_invalid_value_is_refused_with_its_variable_name() {
        for (name, value) in [
            (IO, "fast"),
            (BUFFER_VARIABLE, "0"),
            (BUFFER_VARIABLE, "1TiB"),
            (WINDOW_VARIABLE, "0"),
            (WINDOW_VARIABLE, "many"),
            (ZONES_VARIABLE, "2"),
        ] {
            let error = of(&[(name, value)]).expect_err("nonsense").to_string();
            assert!(error.contains(&format!("{name}={value}")), "{error}");
        }
    }
}
