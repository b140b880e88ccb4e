//! Settings at the end of an array's URL: `array:PATH?appends=auto&stage=1MiB`.
//!
//! | setting | meaning |
//! |---|---|
//! | `appends=ordered`, `append`, `auto` | [`OpenOptions::appends`] |
//! | `stage=SIZE` | a [`Stage`] before the array, with a window of this size |
//!
//! The settings come last. In a list of drives they stand behind those of the last drive: `array:emu:a,emu:b?zones=8?appends=auto`. A last
//! drive without settings of its own needs no second `?`: `array:emu:a,emu:b?stage=1MiB` stages the array, and not the drive.

use std::sync::Arc;

use zoned::{Bytes, Error, ErrorKind, Result, Stage};

use crate::OpenOptions;

/// The settings that a URL may have.
const APPENDS: &str = "appends";
const STAGE: &str = "stage";

/// The settings in an array's URL.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Settings {
    /// The settings of the mount.
    pub options: OpenOptions,
    /// The window of the stage before the array.
    pub stage: Option<Bytes>,
}

/// Splits the part of an array's URL after `array:` into the part that names the members, and the settings.
///
/// Errors: [`ErrorKind::Invalid`] for an unknown setting or a bad value.
pub(super) fn split(rest: &str) -> Result<(&str, Settings)> {
    let mut found = Settings::default();
    let Some((named, settings)) = rest.rsplit_once('?') else { return Ok((rest, found)) };
    // In a list the last `?` may begin the settings of the last drive.
    if is_url_list(named) && !are_of_array(named, settings) {
        return Ok((rest, found));
    }
    let mut seen = Vec::new();
    for pair in settings.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            APPENDS => found.options.appends = value.parse().map_err(|why| invalid(rest, why))?,
            STAGE => found.stage = Some(Stage::window(value).map_err(|why| invalid(rest, why))?),
            _ => {
                let why = format!("unknown setting {key:?} of an array; known are {APPENDS} and {STAGE}");
                return Err(invalid(rest, why));
            }
        }
        if seen.contains(&key) {
            return Err(invalid(rest, format!("{key} is given twice")));
        }
        seen.push(key);
    }
    Ok((named, found))
}

/// True if `settings`, behind the last `?` of a list of URLs, are those of the array. `named`: the part before that `?`.
fn are_of_array(named: &str, settings: &str) -> bool {
    let last_drive = named.rsplit(',').next().unwrap_or_default();
    let key = |pair: &str| pair.split('=').next().is_some_and(|key| key == APPENDS || key == STAGE);
    // `stage` is a setting of drives too: beside other settings of a drive it is the drive's.
    let ends_list = !settings.contains(',');
    ends_list
        && (last_drive.contains('?') || settings.starts_with("appends=") || settings.split('&').all(key))
}

/// True if `rest` is a list of URLs.
pub(super) fn is_url_list(rest: &str) -> bool {
    rest.contains(',') || ["emu:", "blk:", "nvme:", "array:"].iter().any(|scheme| rest.starts_with(scheme))
}

fn invalid(rest: &str, why: String) -> Error {
    url_error(ErrorKind::Invalid, rest, why)
}

/// An error of an array's URL. `rest`: the part after `array:`, or the URL of a drive.
pub(super) fn url_error(kind: ErrorKind, rest: &str, why: String) -> Error {
    let url = if rest.starts_with("array:") { rest.to_owned() } else { format!("array:{rest}") };
    Error::new(kind, &Arc::from(url), "open").because(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AppendMode;

    #[test]
    fn settings_come_behind_the_members_and_behind_the_last_drives_own() {
        for (rest, named, appends, stage) in [
            ("barn", "barn", AppendMode::Ordered, None),
            ("barn?appends=auto", "barn", AppendMode::Auto, None),
            ("barn?stage=1MiB&appends=auto", "barn", AppendMode::Auto, Some(1 << 20)),
            ("./barn.array?appends=ordered", "./barn.array", AppendMode::Ordered, None),
            ("emu:a,emu:b?appends=append", "emu:a,emu:b", AppendMode::Append, None),
            ("emu:a,emu:b?stage=64KiB", "emu:a,emu:b", AppendMode::Ordered, Some(64 << 10)),
            ("emu:a,emu:b?stage=64KiB&appends=auto", "emu:a,emu:b", AppendMode::Auto, Some(64 << 10)),
            ("emu:a,emu:b?zones=8", "emu:a,emu:b?zones=8", AppendMode::Ordered, None),
            ("emu:a,emu:b?stage=1MiB&zones=8", "emu:a,emu:b?stage=1MiB&zones=8", AppendMode::Ordered, None),
            ("emu:a?stage=1MiB,emu:b", "emu:a?stage=1MiB,emu:b", AppendMode::Ordered, None),
            (
                "emu:a?zones=8,emu:b?zones=8?appends=auto",
                "emu:a?zones=8,emu:b?zones=8",
                AppendMode::Auto,
                None,
            ),
            (
                "emu:a,emu:b?stage=4KiB?stage=8KiB",
                "emu:a,emu:b?stage=4KiB",
                AppendMode::Ordered,
                Some(8 << 10),
            ),
        ] {
            let (found, settings) = split(rest).expect(rest);
            let read = (found, settings.options.appends, settings.stage);
            assert_eq!(read, (named, appends, stage.map(Bytes)), "{rest}");
        }
    }

    #[test]
    fn bad_settings_are_named() {
        for (rest, part) in [
            ("barn?appends=fast", "appends=fast: use ordered, append or auto"),
            ("barn?append=auto", "unknown setting \"append\" of an array; known are appends and stage"),
            ("barn?appends=auto&appends=auto", "appends is given twice"),
            ("emu:a,emu:b?appends=", "appends=: use ordered"),
            ("emu:a,emu:b?appends=auto&zones=8", "unknown setting \"zones\""),
            ("emu:a,emu:b?zones=8?zones=9", "unknown setting \"zones\""),
            ("barn?stage=0", "stage=0: a size above 0 is needed, as in 1MiB"),
            ("barn?stage=much", "stage=much: a size above 0"),
            ("barn?stage=-1", "stage=-1: a size above 0"),
            ("barn?stage", "stage=: a size above 0"),
            ("barn?stage=1MiB&stage=2MiB", "stage is given twice"),
            ("emu:a,emu:b?stage=0KiB", "stage=0KiB: a size above 0"),
            ("emu:a,emu:b?zones=8?stage=", "stage=: a size above 0"),
        ] {
            let text = split(rest).expect_err(rest).to_string();
            assert!(text.contains(part), "{rest}: {text}");
        }
    }
}
