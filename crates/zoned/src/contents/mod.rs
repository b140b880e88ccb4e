//! Detects the contents of a drive, and refuses to overwrite a drive that holds data.

mod array_member;
mod peek;
mod samples;
mod signature;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytesize::ByteSize;

pub use array_member::{ArrayMember, RecordHeader};
pub use peek::peek;
pub use samples::{Layout, Samples};
pub use signature::{Signature, detect};

use crate::{
    Blocks, BufMut, Bytes, Error, ErrorKind, Result, ZoneId, ZoneInfo, ZoneKind, ZoneState, ZonedDevice,
};

/// Contents of a drive, as far as its zones and its first and last bytes show.
///
/// A conventional zone has no write pointer, so samples of its blocks decide whether it holds data.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Known formats that were recognised on the drive.
    pub signatures: Vec<Signature>,
    /// The array that the drive is a member of. `None` for a drive with [`Signature::FurrowArray`] means that its
    /// superblock is damaged or of a newer version.
    pub array: Option<ArrayMember>,
    /// Sequential zones that hold data.
    pub written: u32,
    /// Conventional zones in which data was found.
    pub filled: u32,
    /// Conventional zones in whose samples no data was found.
    pub sampled: u32,
    /// Empty zones that are open or closed.
    pub left_open: u32,
    /// Bytes below the write pointers of sequential zones; a finished zone counts whole.
    pub bytes: Bytes,
    /// Sampled parts of the drive that cannot be read.
    pub unreadable: u32,
}

impl Contents {
    /// Examines a drive without writing to it.
    ///
    /// # Errors
    /// Errors of the zone report. A part that cannot be read is counted in [`Contents::unreadable`].
    pub async fn read(dev: &dyn ZonedDevice) -> Result<Contents> {
        let report = dev.report(0..dev.geometry().zones).await?;
        Contents::with_report(dev, &report).await
    }

    /// Examines a drive whose zone report the caller has.
    pub async fn with_report(dev: &dyn ZonedDevice, report: &[ZoneInfo]) -> Result<Contents> {
        let geometry = dev.geometry();
        let mut contents = Contents::default();
        for zone in report.iter().filter(|zone| zone.kind == ZoneKind::Sequential) {
            contents.count_zone(zone.state, zone.pointer.bytes(geometry.block_size));
        }
        let layout = Layout::of(geometry);
        let mut samples = Samples::default();
        for place in layout.places() {
            contents.unreadable += sample_range(dev, report, place, &mut samples).await;
        }
        contents.recognise(&layout, &samples);
        contents.sample_conventional(dev, &layout).await;
        Ok(contents)
    }

    /// Samples conventional zones evenly; if a drive has many, an even selection of them.
    async fn sample_conventional(&mut self, dev: &dyn ZonedDevice, layout: &Layout) {
        let block = u64::from(dev.geometry().block_size);
        for places in layout.conventional_zone_sample_offsets() {
            let mut holds = false;
            for at in places {
                match read(dev, at / block, at / block + 1).await {
                    Ok(bytes) => holds |= !is_uniform(&bytes),
                    Err(_) => self.unreadable += 1,
                }
                if holds {
                    break;
                }
            }
            self.filled += u32::from(holds);
            self.sampled += u32::from(!holds);
        }
    }

    /// Recognises known formats in the samples.
    fn recognise(&mut self, layout: &Layout, samples: &Samples) {
        self.signatures = detect(layout, samples);
        self.array = array_member::array_member(layout, samples);
    }

    /// Counts a sequential zone of the examined drive.
    fn count_zone(&mut self, state: ZoneState, pointer: Bytes) {
        // Read-only and offline zones cannot be overwritten, so nothing in them can be lost.
        if matches!(state, ZoneState::Empty | ZoneState::ReadOnly | ZoneState::Offline) {
            return;
        }
        let holds = pointer > Bytes(0);
        self.written += u32::from(holds);
        self.left_open += u32::from(!holds && state.is_active());
        self.bytes = Bytes(self.bytes.0.saturating_add(pointer.0));
    }

    /// True if overwriting the drive loses no data.
    pub fn is_blank(&self) -> bool {
        let counts = [self.written, self.filled, self.left_open, self.unreadable];
        self.signatures.is_empty() && counts == [0; 4]
    }
}

/// Clauses joined by `, and`, such as `it holds a btrfs file system, and 3 zones are written (1.2 MiB)`.
impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zones = |n: u32, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
        let mut parts = Vec::new();
        if !self.signatures.is_empty() {
            let name = |signature: &Signature| match (signature, &self.array) {
                (Signature::FurrowArray, Some(member)) => format!("{signature} ({member})"),
                _ => signature.to_string(),
            };
            let names: Vec<String> = self.signatures.iter().map(name).collect();
            parts.push(format!("it holds {}", names.join(" and ")));
        }
        if self.written > 0 {
            let which = zones(self.written, "zone is", "zones are");
            parts.push(format!("{which} written ({})", ByteSize(self.bytes.0)));
        }
        if self.filled > 0 {
            let which = zones(self.filled, "conventional zone holds", "conventional zones hold");
            parts.push(format!("{which} data"));
        }
        if self.left_open > 0 {
            parts.push(format!(
                "{} open by somebody",
                zones(self.left_open, "zone was left", "zones were left")
            ));
        }
        if self.unreadable > 0 {
            parts.push("what it holds cannot be read".to_owned());
        }
        match parts.is_empty() {
            true if self.sampled > 0 => {
                f.write_str("it is blank, as far as samples of its conventional zones show")
            }
            true => f.write_str("it is blank"),
            false => f.write_str(&parts.join(", and ")),
        }
    }
}

/// Guards a drive that is about to be overwritten: returns its contents, and refuses a drive that holds data
/// unless `force` is set.
///
/// A drive in use (mounted, stacked on, or held by another process) is refused earlier, when it is opened.
///
/// # Errors
/// [`ErrorKind::HoldsData`] if data would be lost; errors of the zone report.
pub async fn guard(dev: &dyn ZonedDevice, force: bool) -> Result<Contents> {
    let contents = Contents::read(dev).await?;
    if force || contents.is_blank() {
        return Ok(contents);
    }
    let name: &Arc<str> = &dev.geometry().name;
    let why = format!("{contents}: overwriting would destroy it; use force to do so");
    Err(Error::new(ErrorKind::HoldsData, name, "overwrite").because(why))
}

/// True if all bytes are equal, which is what drives return for blocks that were never written.
fn is_uniform(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|first| bytes.iter().all(|byte| byte == first))
}

/// Reads the written part of the byte range `place` into `samples`; returns the number of unreadable parts.
async fn sample_range(
    dev: &dyn ZonedDevice,
    report: &[ZoneInfo],
    place: Range<u64>,
    samples: &mut Samples,
) -> u32 {
    let geometry = dev.geometry();
    let (block, zone_size) = (u64::from(geometry.block_size), geometry.zone_size.0);
    let mut unreadable = 0;
    let (mut at, end) = (place.start / block, place.end.div_ceil(block));
    while at < end {
        let Some(zone) = at.checked_div(zone_size) else { break };
        let start = zone * zone_size;
        let zone = u32::try_from(zone).ok().and_then(|zone| report.get(ZoneId(zone).index()));
        let readable = match zone {
            // The contents of a read-only or offline zone cannot be overwritten and do not matter.
            Some(zone) if matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline) => 0,
            Some(zone) => zone.pointer.0,
            None => break,
        };
        let upto = end.min(start + readable);
        if at < upto {
            match read(dev, at, upto).await {
                Ok(bytes) => samples.insert(at * block, bytes),
                Err(_) => unreadable += 1,
            }
        }
        at = start + zone_size;
    }
    unreadable
}

/// Reads blocks of a drive in transfers that the drive allows.
async fn read(dev: &dyn ZonedDevice, from: u64, upto: u64) -> Result<Vec<u8>> {
    let geometry = dev.geometry();
    let most = geometry.max_transfer.0.max(1);
    let mut bytes = Vec::new();
    let mut at = from;
    while at < upto {
        let blocks = Blocks(most.min(upto - at));
        let len = usize::try_from(blocks.bytes(geometry.block_size).0).unwrap_or(0);
        bytes.extend_from_slice(&dev.read(crate::Lba(at), BufMut::zeroed(len)).await?);
        at += blocks.0;
    }
    Ok(bytes)
}
