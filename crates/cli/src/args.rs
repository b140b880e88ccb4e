//! Command line arguments that several commands share.

use clap::Args;

/// The drive a command works on.
#[derive(Clone, Debug, Args)]
pub struct DeviceArg {
    /// The drive: nvme:/dev/ng0n1, blk:/dev/nvme0n1, emu:FILE?zones=..., emu:mem?zones=...
    #[arg(short, long, env = "FURROW_DEVICE", value_name = "URL")]
    pub device: String,
}

/// Consent to lose what a drive holds.
#[derive(Clone, Copy, Debug, Args)]
pub struct ForceArg {
    /// Overwrite a drive that holds data: the data is lost.
    #[arg(long, visible_alias = "yes")]
    pub force: bool,
    /// Say what would be done and do nothing.
    #[arg(long)]
    pub dry_run: bool,
}
