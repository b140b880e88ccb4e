//! `furrow fs df`

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::{output, size};

/// `furrow fs df`
#[derive(Debug, Args)]
pub struct DfArgs {
    #[command(flatten)]
    device: DeviceArg,
}

/// Shows the space.
pub fn run(context: &Context, args: &DfArgs) -> Result<ExitCode> {
    let fs = context.mount(&args.device, true)?;
    let stat = fs.statfs();
    let device = &fs.device().geometry().name;
    let zones = stat.zones;
    if context.json {
        output::json(&json!({
            "device": &**device,
            "uuid": stat.uuid.to_string(),
            "label": stat.label,
            "capacity": stat.capacity.0,
            "used": stat.used.0,
            "free": stat.free.0,
            "garbage": stat.garbage.0,
            "files": stat.files,
            "zones": {
                "metadata": zones.metadata, "log": zones.log, "data": zones.data,
                "free": zones.free, "worn": zones.worn, "open": zones.open,
            },
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let share = |part: u64| format!("{:.1} %", part as f64 * 100.0 / stat.capacity.0.max(1) as f64);
    output::pairs(&[
        ("device", device.to_string()),
        ("uuid", stat.uuid.to_string()),
        ("label", if stat.label.is_empty() { "-".to_owned() } else { stat.label.clone() }),
        ("capacity", size::show(stat.capacity)),
        ("used", format!("{} ({})", size::show(stat.used), share(stat.used.0))),
        ("free", format!("{} ({})", size::show(stat.free), share(stat.free.0))),
        ("garbage", format!("{}, freed by reclaim", size::show(stat.garbage))),
        ("files", stat.files.to_string()),
        (
            "zones",
            format!(
                "{} metadata, {} log, {} data, {} free, {} worn; {} open",
                zones.metadata, zones.log, zones.data, zones.free, zones.worn, zones.open
            ),
        ),
    ])?;
    Ok(ExitCode::SUCCESS)
}
