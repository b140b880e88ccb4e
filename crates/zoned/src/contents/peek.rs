//! Examines a block device of this machine without opening it exclusively.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sys::block::{Condition, Zone, ZoneKind};

use super::{Contents, Layout, Samples};
use crate::{Bytes, ZoneState};

/// Contents of the drive whose block device is `node`, for display only: another process may be writing to
/// the drive.
///
/// # Errors
/// Errors of the host, such as a missing permission.
pub fn peek(node: &Path) -> io::Result<Contents> {
    let file = sys::block::open_to_look(node)?;
    let zones = sys::block::report(&file, Bytes(0), u32::MAX)?;
    let mut contents = Contents::default();
    for zone in zones.iter().filter(|zone| !is_conventional(zone)) {
        contents.count_zone(zone_state(zone.condition), Bytes(readable_bytes(zone)));
    }
    let conventional = zones.iter().take_while(|zone| is_conventional(zone)).count();
    let layout = Layout {
        size: sys::block::size(&file)?.0,
        zone_size: zones.first().map_or(0, |zone| zone.len.0),
        zones: u32::try_from(zones.len()).unwrap_or(u32::MAX),
        conventional: u32::try_from(conventional).unwrap_or(u32::MAX),
    };
    let samples = read_samples(&file, &layout, &zones, &mut contents.unreadable);
    contents.recognise(&layout, &samples);
    Ok(contents)
}

fn read_samples(file: &File, layout: &Layout, zones: &[Zone], unreadable: &mut u32) -> Samples {
    let mut samples = Samples::default();
    for place in layout.places() {
        let mut at = place.start;
        while at < place.end {
            let zone = at.checked_div(layout.zone_size).and_then(|n| zones.get(usize::try_from(n).ok()?));
            let Some(zone) = zone else { break };
            let upto = place.end.min(zone.start.0.saturating_add(readable_bytes(zone)));
            if at < upto {
                let mut bytes = vec![0; usize::try_from(upto - at).unwrap_or(0)];
                match file.read_exact_at(&mut bytes, at) {
                    Ok(()) => samples.insert(at, bytes),
                    Err(_) => *unreadable += 1,
                }
            }
            at = zone.start.0.saturating_add(zone.len.0.max(1)).max(at + 1);
        }
    }
    samples
}

fn is_conventional(zone: &Zone) -> bool {
    zone.kind == ZoneKind::Conventional
}

/// Number of bytes from a zone's start that hold data.
fn readable_bytes(zone: &Zone) -> u64 {
    match zone.condition {
        _ if is_conventional(zone) => zone.len.0,
        Condition::Full => zone.capacity.0,
        Condition::Empty | Condition::ReadOnly | Condition::Offline => 0,
        _ => zone.pointer.0.saturating_sub(zone.start.0).min(zone.capacity.0),
    }
}

fn zone_state(condition: Condition) -> ZoneState {
    match condition {
        Condition::Empty => ZoneState::Empty,
        Condition::ImplicitOpen => ZoneState::ImplicitOpen,
        Condition::ExplicitOpen => ZoneState::ExplicitOpen,
        Condition::Closed => ZoneState::Closed,
        Condition::ReadOnly => ZoneState::ReadOnly,
        Condition::Offline => ZoneState::Offline,
        Condition::NotWritePointer | Condition::Full | Condition::Other(_) => ZoneState::Full,
    }
}
