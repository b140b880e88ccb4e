//! Settings of a mount at the end of an array's URL: `array:PATH?appends=auto`.
//!
//! The settings come last. In a list of drives they stand behind those of the last drive: `array:emu:a,emu:b?zones=8?appends=auto`.

use std::sync::Arc;

use zoned::{Error, ErrorKind, Result};

use crate::OpenOptions;

/// The settings that a URL may have.
const APPENDS: &str = "appends";

/// Splits the part of an array's URL after `array:` into the part that names the members, and the settings.
///
/// Errors: [`ErrorKind::Invalid`] for an unknown setting or a bad value.
pub(super) fn split(rest: &str) -> Result<(&str, OpenOptions)> {
    let mut options = OpenOptions::default();
    let Some((named, settings)) = rest.rsplit_once('?') else { return Ok((rest, options)) };
    // In a list the last `?` may begin the settings of the last drive.
    if is_url_list(named) && !settings.starts_with("appends=") {
        return Ok((rest, options));
    }
    let mut seen = false;
    for pair in settings.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key != APPENDS {
            return Err(invalid(rest, format!("unknown setting {key:?} of an array; known is {APPENDS}")));
        }
        if std::mem::replace(&mut seen, true) {
            return Err(invalid(rest, format!("{APPENDS} is given twice")));
        }
        options.appends = value.parse().map_err(|why| invalid(rest, why))?;
    }
    Ok((named, options))
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
        for (rest, named, appends) in [
            ("barn", "barn", AppendMode::Ordered),
            ("barn?appends=auto", "barn", AppendMode::Auto),
            ("./barn.array?appends=ordered", "./barn.array", AppendMode::Ordered),
            ("emu:a,emu:b?appends=append", "emu:a,emu:b", AppendMode::Append),
            ("emu:a,emu:b?zones=8", "emu:a,emu:b?zones=8", AppendMode::Ordered),
            ("emu:a?zones=8,emu:b?zones=8?appends=auto", "emu:a?zones=8,emu:b?zones=8", AppendMode::Auto),
        ] {
            let (found, options) = split(rest).expect(rest);
            assert_eq!((found, options.appends), (named, appends), "{rest}");
        }
    }

    #[test]
    fn bad_settings_are_named() {
        for (rest, part) in [
            ("barn?appends=fast", "appends=fast: use ordered, append or auto"),
            ("barn?append=auto", "unknown setting \"append\" of an array; known is appends"),
            ("barn?appends=auto&appends=auto", "appends is given twice"),
            ("emu:a,emu:b?appends=", "appends=: use ordered"),
            ("emu:a,emu:b?appends=auto&zones=8", "unknown setting \"zones\""),
        ] {
            let text = split(rest).expect_err(rest).to_string();
            assert!(text.contains(part), "{rest}: {text}");
        }
    }
}
