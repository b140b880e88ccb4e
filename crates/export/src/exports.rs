//! The exports of this machine, whoever serves them.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use sys::ublk::{Control, DeviceInfo, DeviceState, UblkId};
use units::{Driver, block_on, sleep_until};
use zoned::{Error, ErrorKind, Result};

use crate::block_device::{self, in_use};
use crate::driver::{self, MARK, find, name};
use crate::record::Record;

/// Directory with an entry `ublkcN` for each ublk device.
const CHAR_DEVICES: &str = "/sys/class/ublk-char";
/// Pause between two looks at a server that ends.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time that users are given to close the block device: programs of udev open a device that was just closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// Longest time that a server is given to end.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// State of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerState {
    /// A server answers the block device's requests.
    Served,
    /// The server was killed; requests wait until another one takes over.
    Recoverable,
    /// The server and the block device are gone; the number of the export is still taken.
    Dead,
}

/// An export of this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ExportInfo {
    /// Number of the block device.
    pub id: u32,
    /// Path of the block device.
    pub path: String,
    /// State of the export.
    pub state: ServerState,
    /// Process id of the server.
    pub server: Option<u32>,
    /// URL of the device behind the block device, if the server left a record of it.
    pub device: Option<String>,
    /// Size of the block device in bytes.
    pub size: u64,
    /// Size of a zone in bytes.
    pub zone_size: u64,
    /// Uses of the block device, in words.
    pub users: Vec<String>,
}

/// The exports of this machine, in the order of their numbers. Other programs' ublk devices are left out.
///
/// # Errors
/// [`ErrorKind::Unsupported`] and [`ErrorKind::Denied`] as for [`Export::start`](crate::Export::start).
pub fn list() -> Result<Vec<ExportInfo>> {
    let control = driver::control("list")?;
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok();
    let entries = fs::read_dir(CHAR_DEVICES).into_iter().flatten().flatten();
    let mut ids: Vec<UblkId> = entries.filter_map(number).map(UblkId).collect();
    ids.sort_unstable();
    let mut exports = Vec::new();
    for id in ids {
        // A device that is deleted meanwhile is not listed.
        let Ok(info) = control.info(id) else { continue };
        if info.mark == MARK {
            exports.push(export_info(&control, &info));
        }
    }
    Ok(exports)
}

fn export_info(control: &Control, info: &DeviceInfo) -> ExportInfo {
    let params = control.params(info.id).ok().flatten();
    let record = Record::read(info.id);
    let state = match info.state {
        DeviceState::Live => ServerState::Served,
        DeviceState::Quiesced => ServerState::Recoverable,
        DeviceState::Dead | DeviceState::Other(_) => ServerState::Dead,
    };
    ExportInfo {
        id: info.id.0,
        path: block_device::path(info.id).display().to_string(),
        state,
        server: info.server.filter(|_| state == ServerState::Served),
        device: record.map(|record| record.url),
        size: params.map_or(0, |params| params.size.0),
        zone_size: params.map_or(0, |params| params.zone_size.0),
        users: block_device::users(info.id),
    }
}

/// Stops an export: its server ends as by SIGTERM. An export whose server was killed is deleted.
///
/// # Errors
/// [`ErrorKind::InUse`] while the block device is mounted or open; [`ErrorKind::NotFound`] if there is none of this
/// number; [`ErrorKind::Invalid`] if the device is another program's.
pub fn stop(id: UblkId, clock: &dyn Driver) -> Result<()> {
    let control = driver::control("stop")?;
    let info = find(&control, id, "stop")?;
    let is_served = info.state == DeviceState::Live;
    let end = clock.now().after(CLOSE_LIMIT);
    while let Some(error) = block_device::refuse_used(id, "stop", is_served) {
        if clock.now() >= end {
            return Err(error);
        }
        block_on(clock, sleep_until(clock, clock.now().after(LOOK_INTERVAL)));
    }
    if let (true, Some(server)) = (is_served, info.server) {
        let failed = |error: io::Error| driver::failed("ending the server", error);
        let pid = i32::try_from(server).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        kill_process(pid, Signal::TERM).map_err(|error| failed(error.into()))?;
        return wait_until_gone(id, server, clock);
    }
    control.stop(id).map_err(|error| driver::failed("stopping the block device", error))?;
    control.delete(id).map_err(|error| driver::failed("deleting the block device", error))?;
    Record::remove(id);
    Ok(())
}

fn wait_until_gone(id: UblkId, server: u32, clock: &dyn Driver) -> Result<()> {
    let end = clock.now().after(STOP_LIMIT);
    // The number stays taken until everybody has closed the device; its entry goes when the server has deleted it.
    while fs::exists(format!("{CHAR_DEVICES}/ublkc{id}")).unwrap_or(false) {
        if clock.now() >= end {
            let users = block_device::users(id);
            if !users.is_empty() {
                return Err(in_use(id, "stop", &users));
            }
            let why = format!("its server, process {server}, has not ended after {} s", STOP_LIMIT.as_secs());
            return Err(Error::new(ErrorKind::Host, &name(id), "stop").because(why));
        }
        block_on(clock, sleep_until(clock, clock.now().after(LOOK_INTERVAL)));
    }
    Ok(())
}

/// Waits until the server of an export that is to be taken over has ended. Returns the device's URL, if the server left a
/// record of it.
///
/// # Errors
/// [`ErrorKind::Held`] if the server is alive; [`ErrorKind::Invalid`] if the block device does not outlive its server;
/// those of [`stop`] for a number that is none of an export.
pub fn await_server_end(id: UblkId, clock: &dyn Driver) -> Result<Option<String>> {
    let control = driver::control("recover")?;
    let end = clock.now().after(STOP_LIMIT);
    loop {
        let info = find(&control, id, "recover")?;
        let refuse = |kind, why: String| Err(Error::new(kind, &name(id), "recover").because(why));
        if !info.recoverable {
            let why = "its device forgets with its process: it ends with its server";
            return refuse(ErrorKind::Invalid, why.to_owned());
        }
        match (info.state, info.server) {
            (DeviceState::Quiesced, _) => return Ok(Record::read(id).map(|record| record.url)),
            (DeviceState::Live, Some(pid)) if is_alive(pid) => {
                return refuse(
                    ErrorKind::Held { pid },
                    "its server is alive: there is nothing to take over".to_owned(),
                );
            }
            // The kernel ends the requests of the process that has ended.
            (DeviceState::Live, _) if clock.now() < end => {
                block_on(clock, sleep_until(clock, clock.now().after(LOOK_INTERVAL)));
            }
            _ => {
                let why =
                    format!("it has no block device any more: furrow export --stop {id} frees its number");
                return refuse(ErrorKind::Invalid, why);
            }
        }
    }
}

/// True if the process runs: one that was killed, and is not reaped yet, does not.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the program's name, which is in parentheses and may hold any character.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X' | 'x'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_without_an_entry_is_not() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(u32::MAX));
    }
}
