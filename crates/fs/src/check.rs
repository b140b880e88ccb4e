//! The check and the dump of an unmounted file system. Both only read the device.

use std::collections::BTreeMap;
use std::sync::Arc;

use units::{Blocks, ZoneId};
use zoned::{ZoneInfo, ZonedDevice};

use crate::error::{Error, Result};
use crate::files::file::File;
use crate::files::stat::{CheckReport, Superblock};
use crate::metadata::mkfs::{check_geometry, read_superblock};
use crate::metadata::replay::{Replayed, replay};
use crate::metadata::state::{Node, ROOT_INO, State};
use crate::options::FileKind;
use crate::rules::Rules;
use crate::wal::ordered::recover::recover;
use crate::wal::parallel;

/// Checks a file system's metadata for consistency, and against the device.
pub(crate) async fn check(dev: &Arc<dyn ZonedDevice>) -> Result<CheckReport> {
    let (superblock, report, problems) = open(dev).await?;
    let mut out = CheckReport { problems, ..CheckReport::default() };
    let Replayed { state, records, .. } = replay(dev, &superblock, &report, &mut |_, _| {}).await?;
    out.records = records;
    out.live = Blocks(state.allocator.table.live());
    check_names(&state, &mut out);
    let mut used: BTreeMap<(ZoneId, u64), (u64, u64)> = BTreeMap::new();
    for node in state.files() {
        check_extents(&node.file, &state, &report, &mut used, &mut out);
        check_segments(&node.file, &mut used, &mut out);
    }
    check_overlaps(&used, &mut out);
    for node in state.files().filter(|n| n.file.kind == FileKind::Log) {
        check_log(dev, &superblock, &node.file, &mut out).await?;
    }
    for node in state.files().filter(|n| n.file.kind == FileKind::ParallelLog) {
        check_parallel_log(dev, &superblock, &node.file, &mut out).await?;
    }
    Ok(out)
}

async fn open(dev: &Arc<dyn ZonedDevice>) -> Result<(Superblock, Vec<ZoneInfo>, Vec<String>)> {
    let report = dev.report(0..dev.geometry().zones).await.map_err(|e| Error::device("checking", e))?;
    let (superblock, problems) = read_superblock(dev, &report).await?;
    check_geometry(&superblock, dev.geometry())?;
    Ok((superblock, report, problems))
}

fn check_names(state: &State, out: &mut CheckReport) {
    let mut links: BTreeMap<u64, u32> = BTreeMap::new();
    for (&ino, node) in &state.nodes {
        let Node::Directory { entries, .. } = node else { continue };
        out.directories += 1;
        for (name, to) in entries {
            *links.entry(*to).or_default() += 1;
            match state.nodes.get(to) {
                None => out
                    .problems
                    .push(format!("'{name}' in directory {ino} names inode {to}, which is not there")),
                Some(Node::Directory { parent, .. }) if *parent != ino => {
                    out.problems.push(format!("directory {to} is in {ino} and says it is in {parent}"));
                }
                Some(_) => {}
            }
        }
    }
    for (&ino, node) in &state.nodes {
        let found = links.get(&ino).copied().unwrap_or(0);
        let expected = match node {
            Node::File(node) => {
                out.files += 1;
                node.links
            }
            Node::Directory { .. } => u32::from(ino != ROOT_INO),
        };
        if found != expected {
            out.problems.push(format!("inode {ino} has {found} names and counts {expected}"));
        }
    }
}

type UsedBlocks = BTreeMap<(ZoneId, u64), (u64, u64)>;

fn check_extents(
    file: &File,
    state: &State,
    report: &[ZoneInfo],
    used: &mut UsedBlocks,
    out: &mut CheckReport,
) {
    let (ino, content) = (file.ino, file.content.read());
    let mut end = 0;
    for e in content.extents.as_slice() {
        out.extents += 1;
        let blocks = e.bytes.div_ceil(state.block);
        let pointer = report.get(e.zone.index()).map_or(Blocks::ZERO, |z| z.pointer);
        if e.start.0 + blocks > pointer.0 {
            out.problems.push(format!(
                "file {ino} has blocks {} to {} of zone {}, which is written up to {pointer}",
                e.start,
                e.start.0 + blocks,
                e.zone
            ));
        }
        if e.offset < end {
            out.problems.push(format!("file {ino} has two extents at offset {}", e.offset));
        }
        end = e.end();
        if used.insert((e.zone, e.start.0), (e.start.0 + blocks, ino)).is_some() {
            out.problems.push(format!("block {} of zone {} belongs to two files", e.start, e.zone));
        }
    }
    if end > content.stored {
        out.problems.push(format!("file {ino} has {} bytes and an extent up to {end}", content.stored));
    }
}

fn check_segments(file: &File, used: &mut UsedBlocks, out: &mut CheckReport) {
    let content = file.content.read();
    for s in &content.log.segments {
        out.segments += 1;
        if s.start > s.end {
            out.problems.push(format!("log {} has a segment that ends before it begins", file.ino));
        }
        if s.start < s.end && used.insert((s.zone, s.start.0), (s.end.0, file.ino)).is_some() {
            out.problems.push(format!("block {} of zone {} belongs to two files", s.start, s.zone));
        }
    }
    if !content.log.cuts.is_sorted_by(|a, b| a.epoch < b.epoch && a.first_sequence <= b.first_sequence) {
        out.problems.push(format!("the epochs of log {} are not in order", file.ino));
    }
}

fn check_overlaps(used: &UsedBlocks, out: &mut CheckReport) {
    let mut last: Option<(ZoneId, u64, u64)> = None;
    for (&(zone, start), &(end, ino)) in used {
        if let Some((last_zone, last_end, other)) = last
            && last_zone == zone
            && start < last_end
        {
            out.problems.push(format!("block {start} of zone {zone} belongs to inodes {other} and {ino}"));
        }
        last = Some((zone, end, ino));
    }
}

async fn check_log(
    dev: &Arc<dyn ZonedDevice>,
    sb: &Superblock,
    file: &File,
    out: &mut CheckReport,
) -> Result<()> {
    let (cuts, segments, sealed) = {
        let log = &file.content.read().log;
        (log.cuts.clone(), log.segments.clone(), log.sealed)
    };
    let found = recover(dev, sb.uuid, file.ino, &cuts, &segments).await?;
    if let Some(missing) = found.missing {
        out.problems.push(format!("log {} lost entry {missing}", file.ino));
    }
    if let Some((size, _)) = sealed
        && found.size != size
    {
        out.problems.push(format!("log {} has {} bytes and was closed with {size}", file.ino, found.size));
    }
    Ok(())
}

async fn check_parallel_log(
    dev: &Arc<dyn ZonedDevice>,
    sb: &Superblock,
    file: &File,
    out: &mut CheckReport,
) -> Result<()> {
    let (epochs, retired, segments) = {
        let log = &file.content.read().log;
        (log.epochs.clone(), log.retired, log.segments.clone())
    };
    if !epochs.is_sorted_by(|a, b| a.epoch < b.epoch && a.first <= b.first && b.settled <= b.first) {
        out.problems.push(format!("the epochs of parallel log {} are not in order", file.ino));
    }
    let found =
        parallel::recover::recover(dev, sb.uuid, file.ino, &epochs, retired, &segments, Rules::default())
            .await?;
    if let Some(missing) = found.missing {
        out.problems.push(format!("parallel log {} lost ticket {missing}", file.ino));
    }
    Ok(())
}

/// A file system's superblock, and the metadata records that a mount would replay, one per line.
pub(crate) async fn dump(dev: &Arc<dyn ZonedDevice>) -> Result<Vec<String>> {
    let (superblock, report, problems) = open(dev).await?;
    let mut lines = vec![format!("{superblock:?}")];
    lines.extend(problems.into_iter().map(|problem| format!("problem: {problem}")));
    let mut records: Vec<(u64, String)> = Vec::new();
    let replayed = replay(dev, &superblock, &report, &mut |epoch, record| {
        records.push((epoch, format!("{record:?}")));
    })
    .await?;
    let epoch = replayed.chain.epoch();
    let counted = records.into_iter().filter(|(of, _)| *of == epoch);
    lines.extend(counted.enumerate().map(|(n, (_, record))| format!("epoch {epoch} record {n}: {record}")));
    if replayed.torn {
        lines.push("a torn tail follows the last record; the next mount rolls the log".into());
    }
    Ok(lines)
}
