//! The command `furrow fs df`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use units::Bytes;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::{output, size};

/// `furrow fs df`
#[derive(Debug, Args)]
pub struct DfArgs {
    #[command(flatten)]
    device: DeviceArg,
}

/// Shows the space of a file system.
pub fn run(context: &Context, args: &DfArgs) -> Result<ExitCode> {
    let fs = context.mount(&args.device, true)?;
    let stat = fs.statfs();
    let device = &fs.device().geometry().name;
    let zones = stat.zones;
    // Unusable bytes are dead blocks, too few or too close to live blocks of a log for a reclaim to free their zones.
    let unusable = Bytes(stat.capacity.0.saturating_sub(stat.used.0 + stat.free.0));
    if context.json {
        output::json(&json!({
            "device": &**device,
            "uuid": stat.uuid.to_string(),
            "label": stat.label,
            "capacity": stat.capacity.0,
            "used": stat.used.0,
            "free": stat.free.0,
            "unusable": unusable.0,
            "garbage": stat.garbage.0,
            "files": stat.files,
            "zones": {
                "metadata": zones.metadata, "log": zones.log, "data": zones.data,
                "free": zones.free, "worn": zones.worn, "open": zones.open,
            },
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let [used, unusable, free] = shares([stat.used, unusable, stat.free]);
    output::pairs(&[
        ("device", device.to_string()),
        ("uuid", stat.uuid.to_string()),
        ("label", if stat.label.is_empty() { "-".to_owned() } else { stat.label.clone() }),
        ("capacity", size::show(stat.capacity)),
        ("used", used),
        ("unusable", format!("{unusable} of dead blocks that no reclaim frees")),
        (
            "free",
            format!("{free}, {} of it once garbage is reclaimed", size::show(stat.garbage.min(stat.free))),
        ),
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

/// Shares of sizes in percent. The shares have one decimal, and their sum is 100.0 (of a file system that holds nothing at all,
/// 0).
fn shares<const N: usize>(parts: [Bytes; N]) -> [String; N] {
    let whole = u128::from(parts.iter().map(|part| part.0).sum::<u64>()).max(1);
    // Each share ends where the sum of the parts up to it ends, rounded: so the shares add up exactly.
    let (mut sum, mut end) = (0, 0);
    parts.map(|part| {
        sum += u128::from(part.0);
        let begin = end;
        end = (sum * 1000 + whole / 2) / whole;
        let share = end - begin;
        format!("{} ({}.{} %)", size::show(part), share / 10, share % 10)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_a_hundred() {
        let third = [Bytes(1 << 20); 3];
        assert_eq!(shares(third), ["1.0 MiB (33.3 %)", "1.0 MiB (33.4 %)", "1.0 MiB (33.3 %)"]);
        assert_eq!(shares([Bytes(1 << 20), Bytes(0)]), ["1.0 MiB (100.0 %)", "0 B (0.0 %)"]);
        assert_eq!(shares([Bytes(0); 2]), ["0 B (0.0 %)"; 2]);
    }
}
