//! Exports a block device as an NVMe drive to the same machine (nvmet-loop).

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

use crate::text;

const NVMET_CONFIGFS: &str = "/sys/kernel/config/nvmet";

/// Exports the block device `device`; returns the serial number of the NVMe drive.
pub fn make(number: usize, device: &Path) -> Result<String> {
    let name = format!("furrow-loop{number}");
    let subsystem = Path::new(NVMET_CONFIGFS).join("subsystems").join(&name);
    fs::create_dir(&subsystem).with_context(|| format!("cannot make {}", subsystem.display()))?;
    text::put(subsystem.join("attr_allow_any_host"), 1)?;
    let serial = format!("LOOP{number}");
    text::put(subsystem.join("attr_serial"), &serial)?;
    let namespace = subsystem.join("namespaces/1");
    fs::create_dir(&namespace)?;
    text::put(namespace.join("device_path"), device.display())?;
    text::put(namespace.join("enable"), 1)?;
    let port = Path::new(NVMET_CONFIGFS).join("ports").join((number + 1).to_string());
    fs::create_dir(&port)?;
    text::put(port.join("addr_trtype"), "loop")?;
    symlink(&subsystem, port.join("subsystems").join(&name)).context("cannot offer the drive")?;
    let wanted = format!("transport=loop,nqn={name}");
    OpenOptions::new()
        .write(true)
        .read(true)
        .open("/dev/nvme-fabrics")
        .and_then(|mut fabrics| fabrics.write_all(wanted.as_bytes()))
        .with_context(|| format!("cannot connect {name}"))?;
    Ok(serial)
}

/// Ends the export of drive `number`, which lets go of its block device.
pub fn remove(number: usize) -> Result<()> {
    let name = format!("furrow-loop{number}");
    let subsystem = Path::new(NVMET_CONFIGFS).join("subsystems").join(&name);
    let port = Path::new(NVMET_CONFIGFS).join("ports").join((number + 1).to_string());
    fs::remove_file(port.join("subsystems").join(&name)).context("cannot withdraw the drive")?;
    let namespace = subsystem.join("namespaces/1");
    text::put(namespace.join("enable"), 0)?;
    for directory in [port, namespace, subsystem] {
        fs::remove_dir(&directory).with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(())
}
