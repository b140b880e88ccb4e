//! `array:URL,URL,...`: an array by its members, in any order. One of them may be missing.

use std::sync::Arc;

use units::block_on;
use zoned::{Driver, Error, ErrorKind, Result, ZonedDevice};

use crate::{Array, OpenOptions};

/// The members that `rest`, an array's URL behind `array:`, names. Those that are not there are left out, with a
/// warning: the array may do without one. One that is held, or named wrongly, is an error.
pub fn members(rest: &str, driver: &Arc<dyn Driver>) -> Result<Vec<Arc<dyn ZonedDevice>>> {
    let mut devices = Vec::new();
    for url in rest.split(',').map(str::trim).filter(|url| !url.is_empty()) {
        if url.starts_with("array:") {
            let error = Error::new(ErrorKind::Unsupported, &Arc::from(url), "open");
            return Err(error.because("an array of arrays is not built"));
        }
        match zoned::open(url, Arc::clone(driver)) {
            Ok(device) => devices.push(device),
            Err(error) if is_missing(error.kind()) => tracing::warn!(url, %error, "a member is missing"),
            Err(error) => return Err(error),
        }
    }
    Ok(devices)
}

fn is_missing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Gone | ErrorKind::Host)
}

/// Opens the array whose members `rest` names: what `zoned` calls for `array:` URLs once it is told to
/// ([`zoned::know_arrays`]).
pub fn open(rest: &str, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
    let devices = members(rest, &driver)?;
    let array = block_on(&*driver, Array::open(devices, OpenOptions::default()))?;
    Ok(array)
}
