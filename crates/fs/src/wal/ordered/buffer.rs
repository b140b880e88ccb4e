//! The buffer of an ordered log: appended bytes are copied once, to their place in the device operation that
//! will carry them.

use std::collections::VecDeque;

use units::{Blocks, Lba, ZoneId};
use zoned::{Buf, BufMut, Geometry};

use crate::wal::entry::{EntryHeader, HEADER_SIZE, Home, MAX_PART, copy_unmasked};
use crate::wal::options::{IoMode, LogOptions};
use crate::wal::segment::{Next, Segment};

/// The log's last block in a conventional zone is rewritten only if a block divided by this number is free in it.
const LEAST_ROOM_DIVISOR: usize = 8;

/// Sizes of a log's entries and regions that stay the same while the log is open.
#[derive(Clone, Debug)]
pub(super) struct EntryLimits {
    pub(super) block_size: usize,
    /// The longest part.
    part: Blocks,
    /// Blocks of the longest entry, all parts together.
    entry: Blocks,
    /// Long entries end at multiples of this many blocks within their zone.
    optimal: u64,
    zone_size: Blocks,
    /// Zones below this number are conventional.
    conventional: u32,
    /// Blocks of the log's longest region; zero for no bound.
    region: u64,
    /// Broken rule: a block that is rewritten keeps its sequence.
    keeps_sequences: bool,
}

impl EntryLimits {
    /// The most blocks of an entry, so that its parts can be counted in 16 bits.
    const MAX_ENTRY_BLOCKS: u64 = 1 << 15;

    pub(super) fn new(geometry: &Geometry, options: &LogOptions) -> EntryLimits {
        let block_size = geometry.block_size as usize;
        let device = match options.mode {
            IoMode::Write => geometry.max_transfer,
            IoMode::Append => geometry.max_append.min(geometry.max_transfer),
        };
        let entry = options.buffer.div_ceil(block_size) as u64;
        let barrier = options.barrier_bytes();
        EntryLimits {
            block_size,
            part: Blocks(device.0.clamp(1, (MAX_PART / block_size) as u64)),
            entry: Blocks(entry.clamp(1, EntryLimits::MAX_ENTRY_BLOCKS)),
            optimal: geometry.optimal_write.0.max(1),
            zone_size: geometry.zone_size,
            conventional: geometry.conventional,
            keeps_sequences: options.rules().keeps_sequences_of_rewritten_blocks(),
            region: (barrier / block_size).max(usize::from(barrier > 0)) as u64,
        }
    }

    /// True if blocks of `zone` can be rewritten in place.
    pub(super) fn is_conventional(&self, zone: ZoneId) -> bool {
        zone.0 < self.conventional
    }

    /// Bytes of the log's longest entry.
    pub(super) fn entry_bytes(&self) -> usize {
        self.bytes(self.entry)
    }

    /// Blocks of the longest entry at the start of `segment`. The entry ends at one of the device's optimal
    /// boundaries if it reaches one, and at the segment's end at the latest.
    fn entry_in(&self, segment: &Segment) -> Blocks {
        if self.optimal == 1 {
            return self.entry;
        }
        let room = segment.end.minus(segment.start);
        if room < self.entry { room } else { self.cut(segment.start, self.entry) }
    }

    /// Blocks of the longest part at the start of `segment`, for an entry with `left` blocks still to be
    /// placed.
    fn part_in(&self, segment: &Segment, left: Blocks) -> Blocks {
        let most = left.min(segment.end.minus(segment.start));
        if most <= self.part { most } else { self.cut(segment.start, self.part) }
    }

    /// How many of `most` blocks, counted from block `at`, reach the last optimal write boundary; all of them
    /// if they reach none.
    fn cut(&self, at: Blocks, most: Blocks) -> Blocks {
        let over = at.plus(most).0 % self.optimal;
        if over < most.0 { most.minus(Blocks(over)) } else { most }
    }

    /// Bytes that a caller may append to the log at a time: bounds the bytes that are sealed but not sent.
    pub(super) fn stride(&self) -> usize {
        self.entry_bytes().max(1 << 20)
    }

    fn bytes(&self, blocks: Blocks) -> usize {
        usize::try_from(blocks.0).expect("a buffer fits the memory") * self.block_size
    }
}

/// The header fields that all entries of a log's writer share.
#[derive(Clone, Copy, Debug)]
pub struct LogIdentity {
    /// The file system.
    pub uuid: uuid::Uuid,
    /// The log's id.
    pub log: u64,
    /// The number of times that the log was opened for append.
    pub epoch: u32,
}

/// A part of an entry that is in the log's buffer or in the queue.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) zone: ZoneId,
    generation: u64,
    /// The address of the part's header: expected if no append is reordered, and known once the device has
    /// acknowledged the part.
    pub(super) lba: Lba,
    /// The offset of the part's header in the buffer, in bytes.
    pub(super) at: usize,
    /// The most bytes that the part may have, header included: whole blocks.
    room: usize,
    /// Bytes of the log's stream in the part.
    pub(super) length: usize,
    pub(super) mask: u32,
    /// The part is submitted when no earlier part is in flight.
    pub(super) waits_for_earlier: bool,
}

impl Part {
    /// The part's blocks.
    pub(super) fn blocks(&self, block_size: usize) -> usize {
        self.room / block_size
    }
}

/// A sealed entry of the log, ready for the device.
#[derive(Debug)]
pub(super) struct SealedEntry {
    pub(super) sequence: u64,
    /// The number of the entry's region: the first entry of a region is submitted when nothing is in flight.
    pub(super) region: u64,
    /// True if the entry is the only one of its region.
    pub(super) alone: bool,
    pub(super) data: Buf,
    pub(super) parts: Vec<Part>,
    /// Stream bytes at the entry's start that the version before of the same block holds too; 0 unless the entry rewrites a block.
    carried: usize,
    /// Number of the entry's parts that the device has acknowledged.
    pub(super) acknowledged: usize,
}

/// Why [`EntryBuffer::append`] stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AppendStop {
    /// All appended bytes are in the buffer.
    Done,
    /// The segment is full: the caller gives the buffer another segment and appends the rest.
    NeedsSegment,
}

/// The log's last block, in a conventional zone, while it has room: the next entry rewrites the block.
#[derive(Debug)]
struct Tail {
    zone: ZoneId,
    generation: u64,
    lba: Lba,
    /// The lowest sequence that the block stands for.
    first: u64,
    /// The block's stream bytes.
    bytes: Vec<u8>,
}

/// The open entry of an ordered log, which takes the appended bytes, and the segment for its parts.
#[derive(Debug)]
pub(super) struct EntryBuffer {
    pub(super) limits: EntryLimits,
    data: Option<BufMut>,
    /// The most blocks that the open entry may have.
    most: Blocks,
    parts: Vec<Part>,
    /// Memory for later entries, and the most pieces of it to keep.
    spare: Vec<BufMut>,
    keep: usize,
    /// The region of the last sealed entry, and the number of blocks in the region so far.
    region: u64,
    filled: u64,
    segment: Option<Segment>,
    /// True if the next part may be submitted only when no earlier part is in flight.
    waits_for_earlier: bool,
    /// The log rewrites its last block while the block has room, in a conventional zone.
    pub(super) prefers_rewrites: bool,
    /// The log's last block, if the next entry rewrites it.
    tail: Option<Tail>,
    /// If the open entry rewrites a block: the lowest sequence that the block stands for, and the number of bytes that the block holds already.
    rewrites: Option<(u64, usize)>,
    /// The first block of the open entry's next part, within the segment's zone.
    next: Blocks,
    pub(super) next_sequence: u64,
    /// Number of versions of blocks that got no sequence of their own, under the broken rule.
    without_sequence: u64,
    /// Every entry below this sequence is safe from a power cut.
    pub(super) durable: u64,
}

impl EntryBuffer {
    pub(super) fn new(limits: EntryLimits, first_sequence: u64, keep: usize) -> EntryBuffer {
        EntryBuffer {
            limits,
            data: None,
            most: Blocks::ZERO,
            parts: Vec::new(),
            spare: Vec::new(),
            keep,
            region: 0,
            filled: 0,
            segment: None,
            waits_for_earlier: false,
            prefers_rewrites: false,
            tail: None,
            rewrites: None,
            next: Blocks::ZERO,
            next_sequence: first_sequence,
            without_sequence: 0,
            durable: first_sequence,
        }
    }

    /// Continues the log in the next segment. The unused rest of the previous segment stays unused.
    pub(super) fn use_segment(&mut self, Next { segment, beside }: Next) {
        self.next = segment.start;
        self.segment = Some(segment);
        self.waits_for_earlier = !beside;
    }

    /// The unused rest of the log's segment; `None` if no block is left.
    pub(super) fn unused(&self) -> Option<Segment> {
        self.segment.map(|s| Segment { start: self.next, ..s }).filter(|s| s.start < s.end)
    }

    /// Gives up the log's segment: the next entry needs another one. Returns the segment's unused rest, which
    /// may be empty.
    pub(super) fn release(&mut self) -> Option<Segment> {
        self.segment.take().map(|s| Segment { start: self.next, ..s })
    }

    fn len(&self) -> usize {
        self.data.as_ref().map_or(0, |d| d.len())
    }

    /// Bytes of the log's stream in the buffer that no sealed entry holds.
    pub(super) fn pending(&self) -> u64 {
        self.parts.iter().map(|part| part.length as u64).sum::<u64>() - self.carried() as u64
    }

    fn carried(&self) -> usize {
        self.rewrites.map_or(0, |(_, carried)| carried)
    }

    /// True if the next entry rewrites the log's last block.
    pub(super) fn keeps_tail(&self) -> bool {
        self.tail.is_some()
    }

    /// True if the next part goes to a conventional zone.
    pub(super) fn is_in_conventional_zone(&self) -> bool {
        self.segment.is_some_and(|segment| self.limits.is_conventional(segment.zone))
    }

    /// True if the open entry rewrites the log's last block.
    pub(super) fn rewrites_a_block(&self) -> bool {
        self.rewrites.is_some()
    }

    /// The stream bytes of the log's last block, if that block has been written and is to be rewritten.
    pub(super) fn rewritten_bytes(&self) -> &[u8] {
        match (&self.tail, self.rewrites, &self.data) {
            (Some(tail), ..) => &tail.bytes,
            (None, Some((_, carried)), Some(data)) => {
                data.get(HEADER_SIZE..HEADER_SIZE + carried).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// Copies as much of `data` into the buffer as the segment has room for, and seals full entries into
    /// `queue`; returns the number of bytes taken.
    pub(super) fn append(
        &mut self,
        data: &[u8],
        identity: &LogIdentity,
        queue: &mut VecDeque<SealedEntry>,
    ) -> (usize, AppendStop) {
        let mut taken = 0;
        loop {
            let rest = data.get(taken..).unwrap_or_default();
            if rest.is_empty() {
                return (taken, AppendStop::Done);
            }
            if let (Some(part), Some(buffer)) = (self.parts.last_mut(), self.data.as_mut())
                && HEADER_SIZE + part.length < part.room
            {
                let n = rest.len().min(part.room - HEADER_SIZE - part.length);
                buffer.extend_from_slice(rest.get(..n).unwrap_or_default());
                part.length += n;
                taken += n;
                continue;
            }
            // The buffer ends at a block boundary here, because every part of an entry but the last is full.
            let len = Blocks((self.len() / self.limits.block_size) as u64);
            if !self.parts.is_empty() && len == self.most {
                self.seal(identity, queue);
                continue;
            }
            if self.parts.is_empty()
                && let Some(tail) = self.tail.take()
            {
                self.continue_block(tail);
                continue;
            }
            let Some(segment) = self.unused() else {
                return (taken, AppendStop::NeedsSegment);
            };
            if self.parts.is_empty() {
                self.most = self.limits.entry_in(&segment);
            }
            let left = self.most.minus(len);
            self.begin_part(&segment, self.limits.part_in(&segment, left));
        }
    }

    /// Begins an entry that rewrites the log's last block, with the bytes that the block holds.
    fn continue_block(&mut self, tail: Tail) {
        let Tail { zone, generation, lba, first, bytes } = tail;
        let room = self.limits.block_size;
        let data = self.data();
        data.resize(HEADER_SIZE, 0);
        data.extend_from_slice(&bytes);
        self.most = Blocks(1);
        self.rewrites = Some((first, bytes.len()));
        // Two writes of one block in flight may land in either order.
        let waits_for_earlier = true;
        self.parts.push(Part {
            zone,
            generation,
            lba,
            at: 0,
            room,
            length: bytes.len(),
            mask: 0,
            waits_for_earlier,
        });
    }

    /// The memory of the open entry.
    fn data(&mut self) -> &mut BufMut {
        let capacity = self.limits.bytes(self.limits.entry);
        let spare = &mut self.spare;
        self.data.get_or_insert_with(|| spare.pop().unwrap_or_else(|| BufMut::with_capacity(capacity)))
    }

    fn begin_part(&mut self, segment: &Segment, blocks: Blocks) {
        let data = self.data();
        let at = data.len();
        data.resize(at + HEADER_SIZE, 0);
        let zone_start = Lba(u64::from(segment.zone.0) * self.limits.zone_size.0);
        self.parts.push(Part {
            zone: segment.zone,
            generation: segment.generation,
            lba: zone_start.plus(segment.start),
            at,
            room: self.limits.bytes(blocks),
            length: 0,
            mask: 0,
            waits_for_earlier: std::mem::take(&mut self.waits_for_earlier),
        });
        self.next = segment.start.plus(blocks);
    }

    /// Seals the open entry: the buffered bytes go to `queue` under one sequence.
    pub(super) fn seal(&mut self, identity: &LogIdentity, queue: &mut VecDeque<SealedEntry>) {
        let Some(mut data) = self.data.take() else { return };
        let block_size = self.limits.block_size;
        data.resize(data.len().next_multiple_of(block_size), 0);
        let mut parts = std::mem::take(&mut self.parts);
        if let Some(last) = parts.last_mut() {
            let unused = (last.room - (data.len() - last.at)) / block_size;
            self.next = self.next.minus(Blocks(unused as u64));
            last.room = data.len() - last.at;
        }
        let count = u16::try_from(parts.len()).expect("an entry has fewer blocks than 16 bits count");
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let blocks = (data.len() / block_size) as u64;
        if self.limits.region > 0 && self.filled > 0 && self.filled + blocks > self.limits.region {
            self.region += 1;
            self.filled = 0;
        }
        let alone = self.limits.region > 0 && self.filled == 0 && 2 * blocks > self.limits.region;
        self.filled += blocks;
        let rewrites = self.rewrites.take();
        for (part, number) in parts.iter_mut().zip(0_u16..) {
            let header = EntryHeader {
                padding: false,
                odd: self.region % 2 == 1,
                void: false,
                known: false,
                rewritten: rewrites.is_some(),
                log: identity.log,
                generation: part.generation,
                sequence,
                // An entry of an ordered log counts only if every entry before it exists.
                needs: rewrites.map_or(sequence, |(first, _)| first),
                epoch: identity.epoch,
                part: number,
                parts: count,
                length: u32::try_from(part.length).expect("a part is shorter than MAX_PART"),
                mask: 0,
                open: u32::try_from(sequence - self.durable).unwrap_or(u32::MAX),
                crc: 0,
            };
            let header = self.under_rules(header);
            let home = Home { uuid: identity.uuid, zone: part.zone };
            if let Some(bytes) = data.get_mut(part.at..part.at + part.room) {
                part.mask = header.seal(bytes, &home, block_size).mask;
            }
        }
        let (region, data) = (self.region, data.freeze());
        let (first, carried) = rewrites.unwrap_or((sequence, 0));
        let entry = SealedEntry { sequence, region, alone, data, parts, acknowledged: 0, carried };
        self.tail = self.tail_of(&entry, first);
        queue.push_back(entry);
    }

    /// The header as the rules have it: unchanged, unless the rule for rewritten blocks is broken.
    fn under_rules(&mut self, header: EntryHeader) -> EntryHeader {
        if !self.limits.keeps_sequences {
            return header;
        }
        self.without_sequence += u64::from(header.rewritten);
        let sequence = header.sequence - self.without_sequence;
        EntryHeader { rewritten: false, sequence, needs: sequence, open: u32::MAX, ..header }
    }

    /// The block of `entry` as the log's tail, if the entry has one block, in a conventional zone, with enough room to rewrite it.
    fn tail_of(&self, entry: &SealedEntry, first: u64) -> Option<Tail> {
        let [part] = entry.parts.as_slice() else { return None };
        let used = HEADER_SIZE + part.length;
        let one = part.room == self.limits.block_size && self.limits.is_conventional(part.zone);
        let worth_it = used + self.limits.block_size / LEAST_ROOM_DIVISOR <= part.room;
        let bytes = entry.data.get(part.at + HEADER_SIZE..part.at + used)?;
        let &Part { zone, generation, lba, .. } = part;
        (one && worth_it && self.prefers_rewrites).then(|| Tail {
            zone,
            generation,
            lba,
            first,
            bytes: bytes.to_vec(),
        })
    }

    /// Keeps the memory of a written entry for a later entry.
    pub(super) fn recycle(&mut self, data: Buf) {
        if self.spare.len() < self.keep
            && let Ok(mut data) = data.try_into_mut()
        {
            data.truncate(0);
            self.spare.push(data);
        }
    }

    /// Copies the buffered stream bytes from offset `skip` on into `into`; returns their number.
    pub(super) fn copy_to(&self, skip: u64, into: &mut [u8]) -> usize {
        let data = self.data.as_deref().unwrap_or_default();
        copy_parts(data, &self.parts, self.limits.block_size, skip + self.carried() as u64, into)
    }
}

impl SealedEntry {
    /// Bytes of the log's stream in the entry that no entry before holds.
    pub(super) fn length(&self) -> u64 {
        self.parts.iter().map(|p| p.length as u64).sum::<u64>() - self.carried as u64
    }

    /// True if the entry rewrites a block.
    pub(super) fn rewrites_a_block(&self) -> bool {
        self.carried > 0
    }

    /// The stream bytes at the entry's start that the previous version of the block holds already.
    pub(super) fn rewritten_bytes(&self) -> &[u8] {
        self.data.get(HEADER_SIZE..HEADER_SIZE + self.carried).unwrap_or_default()
    }

    /// The blocks of `part`, as they are written to the device.
    pub(super) fn bytes_of(&self, part: &Part) -> Buf {
        self.data.slice(part.at..part.at + part.room)
    }

    /// Copies the entry's stream bytes that no entry before holds, from offset `skip` on, into `into`; returns their number.
    pub(super) fn copy_to(&self, block_size: usize, skip: u64, into: &mut [u8]) -> usize {
        copy_parts(&self.data, &self.parts, block_size, skip + self.carried as u64, into)
    }
}

fn copy_parts(data: &[u8], parts: &[Part], block_size: usize, skip: u64, into: &mut [u8]) -> usize {
    let mut skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let mut filled = 0;
    for part in parts {
        if skip >= part.length {
            skip -= part.length;
            continue;
        }
        let phase = HEADER_SIZE + skip;
        let from = data.get(part.at + phase..part.at + HEADER_SIZE + part.length).unwrap_or_default();
        let to = into.get_mut(filled..).unwrap_or_default();
        copy_unmasked(from, phase, block_size, part.mask, to);
        filled += from.len().min(to.len());
        skip = 0;
    }
    filled
}
