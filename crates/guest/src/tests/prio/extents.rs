//! Where a file's bytes are on its drive.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::trace::Write;
use crate::shell;

const FILEFRAG_LIMIT: Duration = Duration::from_secs(30);
/// Bytes of a sector.
const SECTOR: u64 = 512;

/// The extents of a file.
pub(super) struct Extents(Vec<Extent>);

/// Neighbouring sectors of a file that are neighbours on the drive.
#[derive(PartialEq, Eq, Debug)]
struct Extent {
    /// The first sector within the file.
    in_file: u64,
    /// The first sector on the drive.
    on_drive: u64,
    sectors: u64,
}

impl Extents {
    /// The extents of a file.
    pub(super) fn of(path: &Path) -> Result<Extents> {
        let name = path.to_str().context("a path of the guest")?;
        let listed = shell::run_successfully(&["filefrag", "-v", "-b512", name], FILEFRAG_LIMIT)?;
        let extents: Vec<Extent> = listed.lines().filter_map(parse).collect();
        ensure!(!extents.is_empty(), "filefrag names no extents of {name}: {listed}");
        Ok(Extents(extents))
    }

    /// Those of the writes that begin in the file.
    pub(super) fn choose(&self, writes: &[Write]) -> Vec<Write> {
        writes.iter().filter(|write| self.offset(write).is_some()).cloned().collect()
    }

    /// The byte of the file at which a write begins; `None` if the write is no write of the file.
    pub(super) fn offset(&self, write: &Write) -> Option<u64> {
        self.0.iter().find_map(|extent| {
            let within = write.sector.checked_sub(extent.on_drive).filter(|at| *at < extent.sectors)?;
            Some((extent.in_file + within) * SECTOR)
        })
    }
}

/// An extent of filefrag's list: `NUMBER: FROM..TO: FROM..TO: SECTORS: ...`, in the file and on the drive.
fn parse(line: &str) -> Option<Extent> {
    let mut fields = line.split(':').map(str::trim);
    fields.next()?.parse::<u64>().ok()?;
    let mut begin = || fields.next()?.split_once("..")?.0.trim().parse().ok();
    let (in_file, on_drive) = (begin()?, begin()?);
    Some(Extent { in_file, on_drive, sectors: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_read_from_a_list_of_filefrag() {
        let list = "Filesystem type is: ef53\n\
            File size of /tmp/a is 8192 (16 blocks of 512 bytes)\n \
            ext:     logical_offset:        physical_offset: length:   expected: flags:\n   \
            0:        0..       7:      34816..     34823:      8:\n   \
            1:        8..      15:      70000..     70007:      8:      34824: last,eof\n\
            /tmp/a: 2 extents found\n";
        let extents = Extents(list.lines().filter_map(parse).collect());
        let extent = |in_file, on_drive| Extent { in_file, on_drive, sectors: 8 };
        assert_eq!(extents.0, [extent(0, 34816), extent(8, 70000)]);
        let write = |sector| Write { sector, priority: sys::Priority::Idle, thread: String::new() };
        assert_eq!(extents.offset(&write(70004)), Some(12 * 512));
        assert_eq!(extents.offset(&write(34824)), None);
    }
}
