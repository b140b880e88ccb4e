//! The metadata in memory: names, inodes, zones, and the records that are not durable yet.
//!
//! Every change is a [`Record`], which is applied to the state and queued for the metadata log. A replay applies the same
//! records, and so reaches the same state.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use units::ZoneId;

use crate::error::{Error, ErrorKind, Result};
use crate::files::extents::{Extent, Freed};
use crate::files::file::File;
use crate::files::pages::Pages;
use crate::files::stat::ZoneRole;
use crate::metadata::format::record::{MAX_EXTENTS, Record};
use crate::options::{FileKind, Lifetime};
use crate::wal::ordered::recovered::Cut;
use crate::wal::segment::Segment;
use crate::zones::allocator::Allocator;
use crate::zones::table::ZoneTable;

/// The inode number of the root directory.
pub(crate) const ROOT_INO: u64 = 1;

/// An inode.
#[derive(Debug)]
pub(crate) enum Node {
    Directory { parent: u64, entries: BTreeMap<String, u64>, modified_ms: u64 },
    File(FileNode),
}

/// The metadata of a file that is no directory.
#[derive(Debug)]
pub(crate) struct FileNode {
    pub file: Arc<File>,
    pub links: u32,
    /// Readers and writers.
    pub handles: u32,
    pub writing: bool,
}

/// The metadata of one file system.
#[derive(Debug)]
pub(crate) struct State {
    pub block: u64,
    pub nodes: BTreeMap<u64, Node>,
    /// Open files without a name: removed, but not yet closed.
    pub orphans: BTreeMap<u64, FileNode>,
    pub next_ino: u64,
    /// Zone generations below this one are used, or set aside in `allocator.generations`.
    pub next_generation: u64,
    pub allocator: Allocator,
    pub journal: Journal,
    /// Data files without a name and without a handle since [`Shared::free_pages`](crate::shared::Shared::free_pages).
    pub released: Vec<ReleasedFile>,
    /// Number of names. With `name_bytes` and `parts`, it bounds the length of a metadata snapshot.
    names: u64,
    name_bytes: u64,
    /// Number of extents and segments of all files.
    parts: u64,
}

/// A data file that nobody can read any more.
#[derive(Clone, Debug)]
pub(crate) struct ReleasedFile {
    pub file: Arc<File>,
    /// The ranges of the file's bytes that extents named.
    pub stored: Vec<Range<u64>>,
}

/// The records queued for the metadata log.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Number of metadata records applied since the mount.
    pub applied: u64,
    /// Number of metadata records that are durable.
    pub durable: u64,
    /// The metadata records applied and not yet written.
    pub pending: VecDeque<Record>,
    /// The metadata records applied since the snapshot of the roll under way.
    pub since_snapshot: Option<Vec<Record>>,
}

fn damaged_metadata_error(problem: String) -> Error {
    Error::new(ErrorKind::Corrupt, "replaying the metadata log").because(problem)
}

impl State {
    /// The metadata of an empty file system: a root directory.
    pub(crate) fn new(block: u64, zones: ZoneTable) -> State {
        let root = Node::Directory { parent: ROOT_INO, entries: BTreeMap::new(), modified_ms: 0 };
        State {
            block,
            nodes: BTreeMap::from([(ROOT_INO, root)]),
            orphans: BTreeMap::new(),
            next_ino: ROOT_INO + 1,
            next_generation: 1,
            allocator: Allocator::new(zones, block),
            journal: Journal::default(),
            released: Vec::new(),
            names: 0,
            name_bytes: 0,
            parts: 0,
        }
    }

    /// Applies a metadata record to the state and queues it for the log. Records of files without a name are
    /// applied but not queued.
    pub(crate) fn commit(&mut self, record: Record) -> Result<()> {
        let named = match &record {
            Record::Extents { ino, .. }
            | Record::Remap { ino, .. }
            | Record::Segment { ino, .. }
            | Record::Cut { ino, .. }
            | Record::Seal { ino, .. }
            | Record::Epoch { ino, .. }
            | Record::Retire { ino, .. }
            | Record::Trim { ino, .. } => !self.orphans.contains_key(ino),
            _ => true,
        };
        // `apply` marks freed blocks with the number of the metadata record, so the number is taken first,
        // and returned if the record fails.
        let before = self.journal.applied;
        self.journal.applied += u64::from(named);
        if let Err(error) = self.apply(&record) {
            self.journal.applied = before;
            return Err(error);
        }
        if named {
            if let Some(since) = &mut self.journal.since_snapshot {
                since.push(record.clone());
            }
            self.journal.pending.push_back(record);
        }
        Ok(())
    }

    /// Applies a metadata record to the state. A record that fails changes the state only if it fails
    /// half-way through its extents.
    pub(crate) fn apply(&mut self, record: &Record) -> Result<()> {
        match record {
            &Record::Counters { next_ino, next_generation } => {
                self.next_ino = self.next_ino.max(next_ino);
                self.next_generation = self.next_generation.max(next_generation);
                Ok(())
            }
            &Record::Inode { ino, size, modified_ms, kind, lifetime } => {
                self.add_inode(ino, kind, lifetime, modified_ms)?;
                if let Some(file) = self.file(ino) {
                    let mut content = file.content.write();
                    (content.size, content.stored) = (size, size);
                }
                Ok(())
            }
            Record::Create { ino, parent, modified_ms, kind, lifetime, name } => {
                self.entries(*parent)?;
                self.add_inode(*ino, *kind, *lifetime, *modified_ms)?;
                self.link(*parent, name, *ino)
            }
            Record::Link { ino, parent, name } => self.link(*parent, name, *ino),
            Record::Unlink { parent, name } => {
                let ino = self.entries(*parent)?.remove(name);
                let ino = ino.ok_or_else(|| {
                    damaged_metadata_error(format!("'{name}' is unlinked from inode {parent}, not there"))
                })?;
                self.count_name(name, false);
                self.drop_link(ino);
                Ok(())
            }
            Record::Rename { from_parent, to_parent, from, to } => {
                let ino = self.entries(*from_parent)?.get(from).copied();
                let ino = ino.ok_or_else(|| {
                    damaged_metadata_error(format!("'{from}' is renamed in inode {from_parent}, not there"))
                })?;
                let replaced = self.entries(*to_parent)?.get(to).copied();
                if replaced == Some(ino) {
                    return Ok(());
                }
                self.entries(*from_parent)?.remove(from);
                self.entries(*to_parent)?.insert(to.clone(), ino);
                self.count_name(from, false);
                if replaced.is_none() {
                    self.count_name(to, true);
                }
                if let Some(Node::Directory { parent, .. }) = self.nodes.get_mut(&ino) {
                    *parent = *to_parent;
                }
                if let Some(replaced) = replaced {
                    self.drop_link(replaced);
                }
                Ok(())
            }
            Record::Extents { ino, from, size, modified_ms, extents } => {
                self.set_extents(*ino, *from, *size, *modified_ms, extents)
            }
            Record::Remap { ino, extents } => self.remap(*ino, extents).map(drop),
            &Record::Segment { ino, segment } => self.add_segment(ino, segment),
            &Record::Cut { ino, sequence, epoch, .. } => {
                let file = self.log_file(ino)?;
                let log = &mut file.content.write().log;
                log.cuts.push(Cut { epoch, first_sequence: sequence });
                log.sealed = None;
                Ok(())
            }
            &Record::Seal { ino, size, next_sequence, last_end, modified_ms, segments } => {
                self.seal(ino, (size, next_sequence), last_end.0, modified_ms, segments as usize)
            }
            Record::End { .. } => Ok(()),
            &Record::Epoch { ino, epoch } => {
                self.parallel_log(ino)?.content.write().log.epochs.push(epoch);
                Ok(())
            }
            &Record::Retire { ino, below, segments } => self.retire(ino, below, segments as usize),
            &Record::Trim { ino, segment, end } => self.trim(ino, segment as usize, end),
        }
    }

    /// The file with this inode, whether or not the file has a name.
    pub(crate) fn file(&self, ino: u64) -> Option<Arc<File>> {
        match (self.nodes.get(&ino), self.orphans.get(&ino)) {
            (Some(Node::File(node)), _) | (_, Some(node)) => Some(Arc::clone(&node.file)),
            _ => None,
        }
    }

    /// The metadata of a file, whether or not the file has a name.
    pub(crate) fn file_node(&mut self, ino: u64) -> Option<&mut FileNode> {
        match (self.nodes.get_mut(&ino), self.orphans.get_mut(&ino)) {
            (Some(Node::File(node)), _) | (_, Some(node)) => Some(node),
            _ => None,
        }
    }

    /// All files of the file system, those without a name included.
    pub(crate) fn files(&self) -> impl Iterator<Item = &FileNode> {
        let named = self.nodes.values().filter_map(|n| match n {
            Node::File(node) => Some(node),
            Node::Directory { .. } => None,
        });
        named.chain(self.orphans.values())
    }

    fn entries(&mut self, ino: u64) -> Result<&mut BTreeMap<String, u64>> {
        match self.nodes.get_mut(&ino) {
            Some(Node::Directory { entries, .. }) => Ok(entries),
            _ => Err(damaged_metadata_error(format!("inode {ino} is no directory"))),
        }
    }

    fn named_file(&self, ino: u64) -> Result<Arc<File>> {
        self.file(ino).ok_or_else(|| damaged_metadata_error(format!("inode {ino} is no file")))
    }

    fn log_file(&self, ino: u64) -> Result<Arc<File>> {
        let file = self.named_file(ino)?;
        match file.kind {
            FileKind::Log | FileKind::ParallelLog => Ok(file),
            _ => Err(damaged_metadata_error(format!("inode {ino} is no log"))),
        }
    }

    fn parallel_log(&self, ino: u64) -> Result<Arc<File>> {
        let file = self.named_file(ino)?;
        match file.kind {
            FileKind::ParallelLog => Ok(file),
            _ => Err(damaged_metadata_error(format!("inode {ino} is no parallel log"))),
        }
    }

    fn add_inode(&mut self, ino: u64, kind: FileKind, lifetime: Lifetime, modified_ms: u64) -> Result<()> {
        let node = if kind == FileKind::Directory {
            Node::Directory { parent: ROOT_INO, entries: BTreeMap::new(), modified_ms }
        } else {
            let file = File::new(ino, kind, lifetime, modified_ms);
            Node::File(FileNode { file, links: 0, handles: 0, writing: false })
        };
        if ino <= ROOT_INO || self.nodes.contains_key(&ino) {
            return Err(damaged_metadata_error(format!("inode {ino} is made twice")));
        }
        self.nodes.insert(ino, node);
        self.next_ino = self.next_ino.max(ino.saturating_add(1));
        Ok(())
    }

    fn link(&mut self, parent: u64, name: &str, ino: u64) -> Result<()> {
        if !self.nodes.contains_key(&ino) {
            return Err(damaged_metadata_error(format!("'{name}' names inode {ino}, which is not there")));
        }
        let replaced = self.entries(parent)?.insert(name.to_owned(), ino);
        if replaced.is_none() {
            self.count_name(name, true);
        }
        match self.nodes.get_mut(&ino) {
            Some(Node::File(node)) => node.links += 1,
            Some(Node::Directory { parent: up, .. }) => *up = parent,
            None => {}
        }
        if let Some(replaced) = replaced {
            self.drop_link(replaced);
        }
        Ok(())
    }

    fn count_name(&mut self, name: &str, added: bool) {
        let (one, bytes) = (1, name.len() as u64);
        if added {
            (self.names, self.name_bytes) = (self.names + one, self.name_bytes + bytes);
        } else {
            (self.names, self.name_bytes) = (self.names - one, self.name_bytes - bytes);
        }
    }

    fn drop_link(&mut self, ino: u64) {
        match self.nodes.get_mut(&ino) {
            Some(Node::File(node)) => {
                node.links = node.links.saturating_sub(1);
                if node.links > 0 {
                    return;
                }
                if let Some(Node::File(node)) = self.nodes.remove(&ino) {
                    if node.handles > 0 {
                        self.orphans.insert(ino, node);
                    } else {
                        self.release(&node.file);
                    }
                }
            }
            Some(Node::Directory { .. }) => {
                self.nodes.remove(&ino);
            }
            None => {}
        }
    }

    /// Drops a handle of a file. The last handle of a file without a name frees the file's blocks.
    pub(crate) fn drop_handle(&mut self, ino: u64) {
        if let Some(node) = self.file_node(ino) {
            node.handles = node.handles.saturating_sub(1);
            if node.handles > 0 {
                return;
            }
        }
        if let Some(node) = self.orphans.remove(&ino) {
            self.release(&node.file);
        }
    }

    fn release(&mut self, file: &Arc<File>) {
        let (freed, segments) = {
            let mut content = file.content.write();
            if !content.extents.as_slice().is_empty() || !content.pages.is_empty() {
                self.released
                    .push(ReleasedFile { file: Arc::clone(file), stored: content.extents.ranges_from(0) });
            }
            content.pages = Pages::default();
            content.size = content.stored;
            self.allocator.reserved_blocks -= std::mem::take(&mut content.reserved);
            self.parts -= (content.extents.as_slice().len() + content.log.segments.len()) as u64;
            (content.extents.cut(0, self.block), std::mem::take(&mut content.log.segments))
        };
        self.free(freed);
        self.free_segments(segments.iter().map(|s| (s.zone, s.start.0..s.end.0)).collect());
    }

    /// Frees blocks of segments of logs.
    fn free_segments(&mut self, freed: Vec<(ZoneId, Range<u64>)>) {
        for (zone, blocks) in &freed {
            self.allocator.conventional.free(*zone, blocks.clone(), self.journal.applied);
        }
        self.free(freed.into_iter().map(|(zone, blocks)| (zone, blocks.end - blocks.start)).collect());
    }

    fn free(&mut self, freed: Freed) {
        if !freed.is_empty() {
            self.allocator.note_reclaimable();
        }
        for (zone, blocks) in freed {
            self.allocator.table.remove_live(zone, blocks, self.journal.applied);
        }
    }

    fn take(&mut self, extent: &Extent, lifetime: Lifetime) -> Result<()> {
        let blocks = extent.bytes.div_ceil(self.block);
        let fits = self
            .allocator
            .table
            .get(extent.zone)
            .is_some_and(|z| extent.start.0.saturating_add(blocks) <= z.capacity);
        let fits = fits && !self.allocator.conventional.has(extent.zone);
        if fits && self.allocator.table.add_live(extent.zone, blocks, ZoneRole::Data { lifetime }) {
            return Ok(());
        }
        Err(damaged_metadata_error(format!(
            "an extent lies at {} of zone {}: no data zone has that",
            extent.start, extent.zone
        )))
    }

    fn set_extents(
        &mut self,
        ino: u64,
        from: u64,
        size: u64,
        modified_ms: u64,
        extents: &[Extent],
    ) -> Result<()> {
        let file = self.named_file(ino)?;
        let mut content = file.content.write();
        for extent in extents {
            if !extent.offset.is_multiple_of(self.block) || extent.offset < from || extent.bytes == 0 {
                return Err(damaged_metadata_error(format!(
                    "inode {ino} has an extent at file offset {}",
                    extent.offset
                )));
            }
            self.take(extent, content.lifetime)?;
        }
        let before = content.extents.as_slice().len() as u64;
        let freed = content.extents.cut(from, self.block);
        for extent in extents {
            content.extents.push(*extent, self.block);
        }
        self.parts = self.parts + content.extents.as_slice().len() as u64 - before;
        content.stored = size;
        content.size = if content.pages.is_empty() { size } else { content.size.max(size) };
        content.modified_ms = modified_ms;
        drop(content);
        self.free(freed);
        Ok(())
    }

    /// Points a file's content at new extents. Returns those of the new extents that replaced an old extent.
    pub(crate) fn remap(&mut self, ino: u64, extents: &[Extent]) -> Result<Vec<Extent>> {
        let file = self.named_file(ino)?;
        let (freed, taken, lifetime) = {
            let mut content = file.content.write();
            let before = content.extents.as_slice().len() as u64;
            let (freed, taken) = content.extents.remap(extents, self.block);
            self.parts = self.parts + content.extents.as_slice().len() as u64 - before;
            (freed, taken, content.lifetime)
        };
        for extent in &taken {
            self.take(extent, lifetime)?;
        }
        self.free(freed);
        Ok(taken)
    }

    fn add_segment(&mut self, ino: u64, segment: Segment) -> Result<()> {
        let file = self.log_file(ino)?;
        let fits = segment.start <= segment.end
            && self.allocator.table.get(segment.zone).is_some_and(|z| segment.end.0 <= z.capacity);
        let blocks = segment.end.0.saturating_sub(segment.start.0);
        let conventional = &mut self.allocator.conventional;
        // In a replay every record is durable.
        conventional.release_durable(self.journal.durable);
        let fits = fits
            && (!conventional.has(segment.zone)
                || file.kind == FileKind::Log
                    && conventional.take(segment.zone, segment.start.0..segment.end.0));
        if !fits || !self.allocator.table.add_live(segment.zone, blocks, ZoneRole::Log) {
            return Err(damaged_metadata_error(format!(
                "log {ino} has a segment in zone {}: no log zone has that",
                segment.zone
            )));
        }
        self.allocator.table.set_generation(segment.zone, segment.generation);
        self.next_generation = self.next_generation.max(segment.generation.saturating_add(1));
        let mut content = file.content.write();
        content.log.segments.push(segment);
        self.parts += 1;
        content.log.sealed = None;
        if file.kind == FileKind::ParallelLog {
            content.size = size_of_segments(&content.log.segments, self.block);
        }
        Ok(())
    }

    fn seal(
        &mut self,
        ino: u64,
        sealed: (u64, u64),
        last_end: u64,
        modified_ms: u64,
        keep: usize,
    ) -> Result<()> {
        let file = self.log_file(ino)?;
        let mut freed: Vec<(ZoneId, Range<u64>)> = Vec::new();
        {
            let mut content = file.content.write();
            let log = &mut content.log;
            self.parts -= (log.segments.len() - keep.min(log.segments.len())) as u64;
            for s in log.segments.drain(keep.min(log.segments.len())..) {
                freed.push((s.zone, s.start.0..s.end.0));
            }
            if let Some(last) = log.segments.last_mut() {
                let end = last_end.clamp(last.start.0, last.end.0);
                freed.push((last.zone, end..last.end.0));
                last.end.0 = end;
            }
            log.sealed = Some(sealed);
            (content.size, content.stored) = (sealed.0, sealed.0);
            content.modified_ms = modified_ms;
        }
        self.free_segments(freed);
        Ok(())
    }

    /// Retires the tickets of a parallel log below `below`, and frees its first `segments` segments.
    fn retire(&mut self, ino: u64, below: u64, segments: usize) -> Result<()> {
        let file = self.parallel_log(ino)?;
        let freed: Freed = {
            let mut content = file.content.write();
            let log = &mut content.log;
            log.retired = log.retired.max(below);
            // The metadata record of a parallel log's epoch is not needed once all tickets of the epoch are
            // retired.
            let ended = log.epochs.iter().skip(1).take_while(|next| next.first <= log.retired).count();
            log.epochs.drain(..ended);
            let segments = segments.min(log.segments.len());
            self.parts -= segments as u64;
            let freed: Freed =
                log.segments.drain(..segments).map(|s| (s.zone, s.end.minus(s.start).0)).collect();
            content.size = size_of_segments(&content.log.segments, self.block);
            freed
        };
        self.free(freed);
        Ok(())
    }

    /// Ends a segment of a parallel log at block `end`, and removes an empty segment.
    fn trim(&mut self, ino: u64, segment: usize, end: units::Blocks) -> Result<()> {
        let file = self.parallel_log(ino)?;
        let freed = {
            let mut content = file.content.write();
            let segments = &mut content.log.segments;
            let Some(s) = segments.get_mut(segment) else {
                return Err(damaged_metadata_error(format!("log {ino} has no segment number {segment}")));
            };
            let end = end.clamp(s.start, s.end);
            let freed = (s.zone, s.end.minus(end).0);
            s.end = end;
            if s.start == end {
                segments.remove(segment);
                self.parts -= 1;
            }
            content.size = size_of_segments(&content.log.segments, self.block);
            freed
        };
        self.free(vec![freed]);
        Ok(())
    }

    /// An upper bound of the length of a metadata snapshot, in bytes.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        // Bytes in a snapshot: 192 per node (the frames of an inode, and of a log's cut and seal), 72 per
        // extent or segment (a frame each).
        256 + self.nodes.len() as u64 * 192 + self.names * 56 + self.name_bytes + self.parts * 72
    }

    /// The metadata records from which a replay makes this state: a snapshot.
    pub(crate) fn snapshot(&self) -> Vec<Record> {
        let mut records =
            vec![Record::Counters { next_ino: self.next_ino, next_generation: self.next_generation }];
        let mut links = Vec::new();
        for (&ino, node) in &self.nodes {
            match node {
                Node::Directory { entries, modified_ms, .. } => {
                    if ino != ROOT_INO {
                        let (kind, lifetime) = (FileKind::Directory, Lifetime::NotSet);
                        records.push(Record::Inode {
                            ino,
                            size: 0,
                            modified_ms: *modified_ms,
                            kind,
                            lifetime,
                        });
                    }
                    links.extend(entries.iter().map(|(name, &to)| Record::Link {
                        ino: to,
                        parent: ino,
                        name: name.clone(),
                    }));
                }
                Node::File(node) => file_records(&node.file, &mut records),
            }
        }
        records.append(&mut links);
        records
    }
}

/// The size of a parallel log in bytes: all blocks of its segments.
fn size_of_segments(segments: &[Segment], block: u64) -> u64 {
    segments.iter().map(|s| s.end.minus(s.start).0 * block).sum()
}

/// The metadata records from which a replay makes `file`.
fn file_records(file: &File, records: &mut Vec<Record>) {
    let ino = file.ino;
    let content = file.content.read();
    let (modified_ms, lifetime) = (content.modified_ms, content.lifetime);
    match file.kind {
        FileKind::Directory => {}
        FileKind::Data => {
            let size = content.stored;
            records.push(Record::Inode { ino, size, modified_ms, kind: FileKind::Data, lifetime });
            for extents in content.extents.as_slice().chunks(MAX_EXTENTS) {
                let from = extents.first().map_or(0, |e| e.offset);
                records.push(Record::Extents { ino, from, size, modified_ms, extents: extents.to_vec() });
            }
        }
        FileKind::ParallelLog => {
            records.push(Record::Inode { ino, size: 0, modified_ms, kind: FileKind::ParallelLog, lifetime });
            let log = &content.log;
            records.extend(log.epochs.iter().map(|&epoch| Record::Epoch { ino, epoch }));
            records.extend(log.segments.iter().map(|&segment| Record::Segment { ino, segment }));
            records.push(Record::Retire { ino, below: log.retired, segments: 0 });
        }
        FileKind::Log => {
            records.push(Record::Inode { ino, size: 0, modified_ms, kind: FileKind::Log, lifetime });
            let log = &content.log;
            for cut in &log.cuts {
                records.push(Record::Cut { ino, sequence: cut.first_sequence, offset: 0, epoch: cut.epoch });
            }
            for &segment in &log.segments {
                records.push(Record::Segment { ino, segment });
            }
            if let Some((size, next_sequence)) = log.sealed {
                let segments = u32::try_from(log.segments.len()).expect("segments are counted in 32 bits");
                let last_end = log.segments.last().map_or(units::Blocks::ZERO, |s| s.end);
                records.push(Record::Seal { ino, size, next_sequence, last_end, modified_ms, segments });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> State {
        let geometry = zoned::emu::EmuOptions::tiny().geometry().expect("sound settings");
        State::new(4096, ZoneTable::new(&geometry, &[], 6))
    }

    #[test]
    fn a_record_that_does_not_apply_is_not_counted() {
        let mut state = empty();
        let (kind, lifetime) = (FileKind::Data, Lifetime::NotSet);
        let create =
            Record::Create { ino: 2, parent: ROOT_INO, modified_ms: 0, kind, lifetime, name: "a".to_owned() };
        state.commit(create.clone()).expect("applies");
        // A record that fails is not counted: a commit up to the number of a record that does not exist would
        // never end.
        assert!(state.commit(create).is_err());
        assert!(state.commit(Record::Unlink { parent: ROOT_INO, name: "b".to_owned() }).is_err());
        assert_eq!((state.journal.applied, state.journal.pending.len()), (1, 1));
        state.commit(Record::Unlink { parent: ROOT_INO, name: "a".to_owned() }).expect("applies");
        assert_eq!((state.journal.applied, state.journal.pending.len()), (2, 2));
    }
}
