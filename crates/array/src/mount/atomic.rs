//! Atomic writes at a mount (ADR 0022): a zone ends behind the last write that is there as a whole.
//!
//! `decide` puts the pointer at the first block that is not there. From the highest mark at or below that block on, the frames of
//! the logs give one write after the other. The zone ends before the first write that has no frame, reaches above the pointer, or
//! has other content than was written. Blocks above become stale rows, as those above any pointer do.
//!
//! All acknowledged writes below the end of a durable one are there, with their frames or a mark above them: a log is reset only
//! once every write of its frames is durable, and a mark behind these writes is in the log's checkpoint. A drive that fills its part
//! of a zone as it loses power hides which blocks it lost: what the frames do not confirm does not count.

use std::collections::{BTreeMap, BTreeSet};

use zoned::{Blocks, ZoneId};

use crate::format::crc32c;
use crate::format::frames::Frame;
use crate::format::superblock::FEATURE_FRAMES;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::Stripe;
use crate::mount::decide::{Decision, PartState, Verdict};
use crate::mount::errors::MountError;
use crate::mount::gather::Mount;
use crate::mount::resync::Resync;

/// The frames of a zone's newest generation that the logs hold.
#[derive(Default, Debug)]
struct ZoneFrames {
    /// Frames of writes, by start.
    writes: BTreeMap<Blocks, Vec<Frame>>,
    /// Blocks at which a write begins, and below which all writes are durable, or were acknowledged long ago.
    marks: Vec<Blocks>,
}

impl ZoneFrames {
    fn add(&mut self, frame: Frame) {
        let known = self.writes.entry(frame.start).or_default();
        if !known.contains(&frame) {
            known.push(frame);
        }
    }

    /// The highest mark at or below `pointer`.
    fn mark_below(&self, pointer: Blocks) -> Blocks {
        self.marks.iter().copied().filter(|mark| *mark <= pointer).max().unwrap_or(Blocks::ZERO)
    }

    /// The frames of writes that begin at `at` and end at or below `pointer`.
    fn writes_from(&self, at: Blocks, pointer: Blocks) -> impl Iterator<Item = &Frame> {
        self.writes.get(&at).into_iter().flatten().filter(move |frame| frame.end <= pointer)
    }

    /// All known blocks at which a write begins or ends.
    fn ends(&self) -> BTreeSet<Blocks> {
        let ends = self.writes.values().flatten().flat_map(|frame| [frame.start, frame.end]);
        ends.chain(self.marks.iter().copied()).collect()
    }
}

/// Content of a zone, read stripe by stripe.
struct StripeReader {
    resync: Resync,
    /// The data units of the stripes that were read, and whether blocks are unknown.
    stripes: BTreeMap<Stripe, (Vec<zoned::BufMut>, bool)>,
}

impl StripeReader {
    /// True if the blocks of a frame have the content that was written. Blocks that two drives lack prove nothing.
    async fn matches(&mut self, frame: &Frame) -> Result<bool, MountError> {
        let layout = self.resync.layout;
        let block = self.resync.block_size as usize;
        let first = layout.stripe_of(frame.start);
        self.stripes = self.stripes.split_off(&first);
        let pieces = || layout.pieces(frame.start, frame.end.minus(frame.start).0);
        for piece in pieces() {
            if !self.stripes.contains_key(&piece.stripe) {
                let (units, unknown) =
                    self.resync.read_units(piece.stripe, self.resync.first_missing).await?;
                self.stripes.insert(piece.stripe, (units, !unknown.is_empty()));
            }
        }
        let content = |(stripe, index, row, len): (Stripe, u64, u64, u64)| -> Option<&[u8]> {
            let (units, _) = self.stripes.get(&stripe)?;
            let unit = units.get(usize::try_from(index).ok()?)?;
            unit.get(row as usize * block..(row + len) as usize * block)
        };
        let parts: Option<Vec<&[u8]>> =
            pieces().map(|piece| content((piece.stripe, piece.index, piece.row, piece.len))).collect();
        let unknown =
            pieces().any(|piece| self.stripes.get(&piece.stripe).is_some_and(|(_, unknown)| *unknown));
        Ok(unknown || parts.is_some_and(|parts| crc32c(&parts) == frame.crc))
    }
}

impl Mount {
    /// True if the array's writes are atomic.
    pub(crate) fn has_atomic_writes(&self) -> bool {
        self.superblock.incompat & FEATURE_FRAMES != 0
    }

    /// The frames that the logs hold of a zone.
    fn zone_frames(&self, id: ZoneId, generation: u64) -> ZoneFrames {
        let mut all = ZoneFrames::default();
        for contents in self.places.slots().filter_map(|slot| self.contents(slot)) {
            let known = contents.frames.get(&id).filter(|known| known.generation == generation);
            let Some(known) = known else { continue };
            known.frames.iter().for_each(|frame| all.add(*frame));
            all.marks.extend(contents.marks(id));
            all.marks.extend((known.dropped > Blocks::ZERO).then_some(known.dropped));
        }
        all
    }

    /// All blocks of a zone at which a write is known to begin or end; `None` if the array's writes are not atomic.
    pub(crate) fn ends_of_writes(&self, id: ZoneId, generation: u64) -> Option<BTreeSet<Blocks>> {
        self.has_atomic_writes().then(|| self.zone_frames(id, generation).ends())
    }

    /// The decision about a zone whose writes are atomic: the zone ends behind its last whole write.
    pub(crate) async fn end_at_whole_write(
        &self,
        id: ZoneId,
        entry: &ZoneEntry,
        decision: Decision,
    ) -> Result<Decision, MountError> {
        let in_doubt = decision.verdict.is_open() || decision.verdict == Verdict::Full;
        if !in_doubt || !self.has_atomic_writes() {
            return Ok(decision);
        }
        let pointer = decision.pointer;
        let frames = self.zone_frames(id, entry.generation);
        let resync = self.resync(id, entry.generation, pointer, decision.verdict);
        let mut reader = StripeReader { resync, stripes: BTreeMap::new() };
        // The blocks of stripes below were acknowledged, and are there unless a drive filled its part as it lost power.
        let is_filled = reader.resync.parts.contains(&PartState::Full);
        let sure = if is_filled { Blocks::ZERO } else { self.layout.start(decision.from) };
        let mut at = frames.mark_below(pointer);
        'writes: while at < pointer {
            for frame in frames.writes_from(at, pointer) {
                if frame.end <= sure || reader.matches(frame).await? {
                    at = frame.end;
                    continue 'writes;
                }
            }
            break;
        }
        if at < pointer {
            tracing::info!(
                zone = id.0,
                from = at.0,
                to = pointer.0,
                "the power cut tore a write: the zone ends before it"
            );
        }
        Ok(decision.ending_at(&self.layout, &reader.resync.parts, at))
    }
}
