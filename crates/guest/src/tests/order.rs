//! A test of the order of appends in flight.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use zoned::{Action, Buf, BufMut, Durability, Io, Lba, ZoneId, ZonedDevice};

use super::device::open;
use crate::checks::Checks;

/// Appends in flight at a time.
const APPENDS_IN_FLIGHT: usize = 8;
/// Total number of appends.
const TOTAL_APPENDS: usize = 192;
/// Zone of the appends.
const APPENDED_ZONE: ZoneId = ZoneId(5);

/// Number of appends whose address is above that of an append submitted later.
pub struct AppendOrder {
    /// Number of appends that landed out of the order of submission.
    pub reordered: usize,
}

impl fmt::Display for AppendOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {TOTAL_APPENDS} appends, {APPENDS_IN_FLIGHT} in flight, landed out of submission order",
            self.reordered
        )
    }
}

/// Measures how many appends in flight land out of the order of submission. Notes the count, and judges nothing.
pub fn run(checks: &mut Checks, device: &str) -> Result<()> {
    checks.check(&format!("appends of {device}"), Duration::from_secs(60), |control| {
        control.note(out_of_order(device)?.to_string())
    })
}

/// Appends numbered blocks, reads them back at the returned addresses, and counts reordered ones.
pub fn out_of_order(url: &str) -> Result<AppendOrder> {
    let device = open(url)?;
    device.zone(APPENDED_ZONE, Action::Reset).wait()?;
    let mut landed = Vec::new();
    let mut flying: VecDeque<Io<Lba>> = VecDeque::new();
    for number in 0..TOTAL_APPENDS {
        if flying.len() == APPENDS_IN_FLIGHT {
            landed.push(flying.pop_front().context("eight are in flight")?.wait()?);
        }
        flying.push_back(device.append(
            APPENDED_ZONE,
            Buf::copy_from(&block(&*device, number)),
            Durability::Cached,
        ));
    }
    for append in flying {
        landed.push(append.wait()?);
    }
    for (number, at) in landed.iter().enumerate() {
        let wanted = block(&*device, number);
        let found = device.read(*at, BufMut::zeroed(wanted.len())).wait()?;
        ensure!(
            found[..] == wanted[..],
            "append {number} is not at block {at}, where the drive said it landed"
        );
    }
    let mut highest = Lba(0);
    let mut reordered = 0;
    for at in landed {
        reordered += usize::from(at < highest);
        highest = highest.max(at);
    }
    device.zone(APPENDED_ZONE, Action::Reset).wait()?;
    Ok(AppendOrder { reordered })
}

fn block(device: &dyn ZonedDevice, number: usize) -> Vec<u8> {
    let size = usize::try_from(device.geometry().block_size).unwrap_or_default();
    number.to_le_bytes().into_iter().cycle().take(size).collect()
}
