//! The command `furrow device list`, which lists the zoned drives of this machine.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use zoned::contents::{Contents, Signature, peek};
use zoned::discover::{Machine, Use, ZonedDrive};

use crate::context::Context;
use crate::{output, size};

/// Lists the zoned drives of this machine.
pub fn run(context: &Context) -> Result<ExitCode> {
    let found = Machine::here().zoned_drives().into_iter();
    let drives: Vec<(ZonedDrive, io::Result<Contents>)> = found
        .map(|drive| {
            let contents = peek(&Path::new("/dev").join(&drive.name));
            (drive, contents)
        })
        .collect();
    if context.json {
        output::json(&drives.iter().map(|(drive, contents)| drive_json(drive, contents)).collect())?;
        return Ok(ExitCode::SUCCESS);
    }
    if drives.is_empty() {
        output::line("this machine has no zoned drive; emu:FILE?zones=64 is one kept in a file")?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = drives.iter().map(|(drive, contents)| {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        vec![
            drive.urls.first().cloned().unwrap_or_default(),
            drive.kind.to_string(),
            text(&drive.model),
            text(&drive.serial),
            size::show(drive.size),
            format!("{} x {}", drive.zones, size::show(drive.zone_size)),
            use_of(drive, contents),
        ]
    });
    output::table(&["device", "kind", "model", "serial", "size", "zones", "use"], &["size"], rows.collect())?;
    Ok(ExitCode::SUCCESS)
}

/// The drive's use or, if no program uses it, its content.
fn use_of(drive: &ZonedDrive, contents: &io::Result<Contents>) -> String {
    if !drive.uses.is_empty() {
        return drive.uses.iter().map(Use::to_string).collect::<Vec<_>>().join(", ");
    }
    match contents {
        Ok(contents) if contents.is_blank() => "blank".to_owned(),
        Ok(contents) => contents.to_string(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            "unknown: reading it takes root".to_owned()
        }
        Err(error) => format!("unknown: {error}"),
    }
}

fn drive_json(drive: &ZonedDrive, contents: &io::Result<Contents>) -> Value {
    let held = contents.as_ref().ok();
    json!({
        "name": drive.name,
        "kind": drive.kind.to_string(),
        "model": drive.model,
        "serial": drive.serial,
        "size": drive.size.0,
        "zones": drive.zones,
        "zone_size": drive.zone_size.0,
        "max_open": drive.max_open,
        "max_active": drive.max_active,
        "uses": drive.uses.iter().map(Use::to_string).collect::<Vec<_>>(),
        "signatures": held.map(|held| held.signatures.iter().map(Signature::to_string).collect::<Vec<_>>()),
        "written_zones": held.map(|held| held.written),
        "written_bytes": held.map(|held| held.bytes.0),
        "urls": drive.urls,
    })
}
