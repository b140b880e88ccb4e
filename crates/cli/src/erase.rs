//! Before a drive is overwritten: what it is and what it holds is shown, and consent asked for.

use std::sync::Arc;

use anyhow::Result;
use serde_json::json;
use units::Bytes;
use zoned::ZonedDevice;
use zoned::contents::{Contents, Signature};

use crate::args::ForceArg;
use crate::context::Context;
use crate::device::details_json;
use crate::exit::Failure;
use crate::{output, size};

/// Shows the drive, and says whether to go on: not after a dry run. `what` is done to it.
///
/// # Errors
/// A refusal, where it holds data and there is no consent.
pub fn agreed(context: &Context, device: &Arc<dyn ZonedDevice>, force: ForceArg, what: &str) -> Result<bool> {
    // On the clock of the drive, which may be another than the program's.
    let contents = units::block_on(&**device.driver(), Contents::read(&**device))?;
    let about = about(&**device);
    let refused = !contents.is_blank() && !force.force;
    if force.dry_run {
        let would = if refused { "refuse" } else { what };
        if context.json {
            output::json(&json!({
                "device": &*device.geometry().name,
                "details": details_json(&**device),
                "signatures": contents.signatures.iter().map(Signature::to_string).collect::<Vec<_>>(),
                "written_zones": contents.written,
                "written_bytes": contents.bytes.0,
                "would": would,
            }))?;
        } else if refused {
            output::line(format!("would refuse: {about}: {contents}; --force erases it"))?;
        } else {
            output::line(format!("would {what}: {about}: {contents}"))?;
        }
        return Ok(false);
    }
    if refused {
        return Err(Failure::refused(format!(
            "{about}: {contents}: to {what} would destroy it; --force does it"
        )));
    }
    let is_real = !device.details().is_empty();
    if !context.json && (is_real || !contents.is_blank()) {
        output::line(format!("{about}: {contents}"))?;
    }
    Ok(true)
}

/// The drive's name, its model and serial number where it has them, and its capacity.
fn about(device: &dyn ZonedDevice) -> String {
    let geometry = device.geometry();
    let details = device.details();
    let detail = |name: &str| details.iter().find(|(known, _)| *known == name).map(|(_, value)| value.trim());
    let mut parts = Vec::new();
    parts.extend(detail("model").map(str::to_owned));
    parts.extend(detail("serial").map(|serial| format!("serial {serial}")));
    parts.push(size::show(Bytes(geometry.capacity_bytes())));
    format!("{} ({})", geometry.name, parts.join(", "))
}
