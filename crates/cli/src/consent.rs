//! The consent to overwrite a drive: shows what the drive holds, and refuses without `--force`.

use std::sync::Arc;

use anyhow::Result;
use serde_json::json;
use zoned::ZonedDevice;
use zoned::contents::{Contents, Signature};

use crate::args::ForceArg;
use crate::context::Context;
use crate::exit::Failure;
use crate::{describe, output};

/// Shows what a drive holds; returns whether to overwrite the drive, which a dry run never does. `action` names the
/// overwriting: "make a file system on it".
///
/// # Errors
///
/// A refusal, where the drive holds data and `--force` is not given.
pub fn given(
    context: &Context,
    device: &Arc<dyn ZonedDevice>,
    force: ForceArg,
    action: &str,
) -> Result<bool> {
    // The drive is read on its own clock, which a benchmark may have made virtual.
    let contents = units::block_on(&**device.driver(), Contents::read(&**device))?;
    let drive = describe::drive(&**device);
    let refused = !contents.is_blank() && !force.force;
    if force.dry_run {
        let would = if refused { "refuse" } else { action };
        if context.json {
            output::json(&json!({
                "device": &*device.geometry().name,
                "details": describe::details_json(&**device),
                "signatures": contents.signatures.iter().map(Signature::to_string).collect::<Vec<_>>(),
                "written_zones": contents.written,
                "written_bytes": contents.bytes.0,
                "would": would,
            }))?;
        } else if refused {
            output::line(format!("would refuse: {drive}: {contents}; --force erases it"))?;
        } else {
            output::line(format!("would {action}: {drive}: {contents}"))?;
        }
        return Ok(false);
    }
    if refused {
        return Err(Failure::refused(format!(
            "{drive}: {contents}: to {action} would destroy it; --force does it"
        )));
    }
    let is_real = !device.details().is_empty();
    if !context.json && (is_real || !contents.is_blank()) {
        output::line(format!("{drive}: {contents}"))?;
    }
    Ok(true)
}
