//! Parameters in the query of a device URL.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Bytes, Error, ErrorKind, Result, Stage, ZonedDevice};

/// The error for an invalid URL.
pub(super) fn invalid(url: &str, why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, &Arc::from(url), "URL").because(why)
}

/// The parameter of a stage before the drive, with its description.
pub(super) const STAGE: (&str, &str) =
    ("stage", "writes so far ahead of a zone's write pointer wait for the blocks below them: 1MiB");

/// The length of the stage's window that the parameters name.
pub(super) fn stage(url: &str, parameters: &BTreeMap<&'static str, String>) -> Result<Option<Bytes>> {
    let window = parameters.get(STAGE.0).map(|text| Stage::window(text)).transpose();
    window.map_err(|why| invalid(url, why))
}

/// The device, behind a stage if `window` is given.
pub(super) fn staged(device: Arc<dyn ZonedDevice>, window: Option<Bytes>) -> Result<Arc<dyn ZonedDevice>> {
    match window {
        None => Ok(device),
        Some(window) => Stage::over(device, window),
    }
}

/// Parses a URL's query `key=value&key=value`; refuses unknown keys.
pub(super) fn parameters(
    url: &str,
    query: &str,
    known: &'static [(&'static str, &'static str)],
) -> Result<BTreeMap<&'static str, String>> {
    let mut parameters = BTreeMap::new();
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some((key, _)) = known.iter().find(|(name, _)| *name == key) else {
            let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(invalid(url, format!("unknown parameter {key}; known are {}", known.join(", "))));
        };
        if parameters.insert(*key, value.to_string()).is_some() {
            return Err(invalid(url, format!("{key} is given twice")));
        }
    }
    Ok(parameters)
}
