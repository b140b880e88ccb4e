//! Reads: each piece from its drive, or from what the others say.

use std::sync::Arc;

use zoned::{Blocks, Buf, BufMut, Completer, Done, Error, ErrorKind, Io, Result, ZoneId, ZoneState};

use crate::core::{After, Core};
use crate::degraded::failure::{fails_the_drive, may_pass};
use crate::layout::xor::xor;
use crate::layout::{Piece, Slot};
use crate::member::bad_rows;
use crate::metrics::add;
use crate::zone::Zone;
use crate::zone::stale_rows::Overlay;

/// A part of a read.
enum Part {
    /// It is there.
    Ready(BufMut),
    /// It comes from its drive.
    Read(Piece, Io<BufMut>, Overlay),
    /// It is put together from the other drives.
    Rebuild(BufMut, Result<Rebuild>),
}

/// Rows of a drive that a rebuilt piece follows from.
struct Source {
    slot: Slot,
    row: u64,
    rows: u64,
    io: Io<BufMut>,
    overlay: Overlay,
}

/// What the blocks of one piece follow from.
pub(crate) struct Rebuild {
    /// Parity that memory holds.
    held: Option<Buf>,
    sources: Vec<Source>,
    /// What is in flight of the piece.
    flying: Overlay,
}

impl Rebuild {
    /// The blocks, in `into`. A drive that is lost says so here too: it is the second, then, or the first that a repair
    /// of a read came upon.
    pub(crate) async fn run(self, core: &Arc<Core>, id: ZoneId, into: &mut BufMut) -> Result<()> {
        into.fill(0);
        if let Some(held) = &self.held {
            xor(into, held);
        }
        let mut failed = Ok(());
        for Source { slot, row, rows, io, overlay } in self.sources {
            match core.patiently(id, slot, (row, rows), io.await).await {
                Ok(mut read) => {
                    overlay.apply(&mut read);
                    xor(into, &read);
                }
                Err(e) => {
                    core.misread(id, slot, row..row + rows, &e);
                    if fails_the_drive(e.kind()) {
                        let _broken = core.fail(slot, &e).await;
                    }
                    failed = failed.and(Err(e));
                }
            }
        }
        self.flying.apply(into);
        failed
    }
}

impl Core {
    pub(crate) fn begin_read(
        self: &Arc<Core>,
        zone: &mut Zone,
        id: ZoneId,
        offset: Blocks,
        into: BufMut,
        completer: Completer,
        after: &mut After,
    ) {
        if zone.state == ZoneState::Offline {
            let at = self.geometry.start(id).plus(offset);
            let error = self.lost_error(id, "read").at(at);
            return after.complete(completer, Err(error.with_buffer(into)));
        }
        let mut rest = into;
        let blocks = rest.len() as u64 / u64::from(self.geometry.block_size);
        let there = zone.readable().minus(offset).0.min(blocks);
        let mut parts = Vec::new();
        for piece in self.layout.pieces(id, offset, there) {
            let mut part = rest.split_to(self.bytes(piece.len));
            let row = self.layout.row(piece.stripe) + piece.row;
            if let Some(held) = zone.patches.held(self.bytes(1), piece.slot, row, piece.len) {
                held.apply(&mut part);
                parts.push(Part::Ready(part));
                continue;
            }
            parts.push(match self.member(piece.slot).read(id, row, part) {
                Ok(io) => {
                    let overlay = zone.patches.over(self.bytes(1), piece.slot, row, piece.len);
                    Part::Read(piece, io, overlay)
                }
                Err(part) => {
                    add(&self.tally.degraded_reads, 1);
                    Part::Rebuild(part, self.rebuild(zone, id, piece))
                }
            });
        }
        if !rest.is_empty() {
            rest.fill(0);
            parts.push(Part::Ready(rest));
        }
        let (core, generation) = (Arc::clone(self), zone.generation);
        after.run(async move {
            let result = core.gather(id, generation, parts).await;
            completer.complete(result.map(Done::Read));
        });
    }

    /// Waits for the parts and joins them.
    async fn gather(self: &Arc<Core>, id: ZoneId, generation: u64, parts: Vec<Part>) -> Result<BufMut> {
        let mut whole: Option<BufMut> = None;
        let mut failed: Option<Error> = None;
        for part in parts {
            let rebuilt = !matches!(part, Part::Ready(_));
            let (buf, result) = match part {
                Part::Ready(buf) => (buf, Ok(())),
                Part::Read(piece, io, overlay) => {
                    self.read_or_rebuild(id, generation, piece, io, overlay).await
                }
                Part::Rebuild(mut buf, Ok(rebuild)) => {
                    let result = rebuild.run(self, id, &mut buf).await;
                    (buf, result)
                }
                Part::Rebuild(buf, Err(e)) => (buf, Err(e)),
            };
            let (buf, result) = match result {
                // What the others hold may be of two lives of the zone.
                _ if rebuilt && self.is_another(id, generation) => {
                    // A reset that failed may have left all as it was, or not.
                    let failed = self.zone(id).poison.as_ref().map_or(Ok(()), |e| Err(e.duplicate()));
                    (BufMut::zeroed(buf.len()), failed)
                }
                result => (buf, result),
            };
            failed = failed.or(result.err().map(|error| self.unanswered(id, error)));
            match &mut whole {
                Some(whole) => whole.unsplit(buf),
                None => whole = Some(buf),
            }
        }
        let whole = whole.unwrap_or_default();
        match failed {
            None => Ok(whole),
            Some(e) => Err(e.with_buffer(whole)),
        }
    }

    /// The error of blocks that follow from nothing. That a drive's part of the zone is offline says why: the array's zone is
    /// not, and its other blocks can be read.
    fn unanswered(&self, id: ZoneId, error: Error) -> Error {
        if error.kind() != ErrorKind::ZoneOffline {
            return error;
        }
        self.error(ErrorKind::Media, "read").in_zone(id).because(error.to_string())
    }

    /// What a drive gave, or the same from the others where it failed.
    async fn read_or_rebuild(
        self: &Arc<Core>,
        id: ZoneId,
        generation: u64,
        piece: Piece,
        io: Io<BufMut>,
        overlay: Overlay,
    ) -> (BufMut, Result<()>) {
        let row = self.layout.row(piece.stripe) + piece.row;
        let again = |error: &mut Error| {
            let into = error.take_buffer().unwrap_or_else(|| BufMut::zeroed(self.bytes(piece.len)));
            self.member(piece.slot).read(id, row, into).ok()
        };
        let mut read = io.await;
        if let Err(error) = &mut read
            && may_pass(error.kind())
            && let Some(io) = again(error)
        {
            read = io.await;
        }
        let mut error = match read {
            Ok(mut buf) => {
                overlay.apply(&mut buf);
                return (buf, Ok(()));
            }
            Err(e) => e,
        };
        let mut buf = error.take_buffer().unwrap_or_else(|| BufMut::zeroed(self.bytes(piece.len)));
        if fails_the_drive(error.kind()) {
            // That it is lost is for writes to know; this read needs the others only.
            let _broken = self.fail(piece.slot, &error).await;
        }
        tracing::warn!(zone = id.0, block = piece.offset.0, %error, "read from the other drives");
        add(&self.tally.degraded_reads, 1);
        let medium = self.misread(id, piece.slot, row..row + piece.len, &error);
        let rebuild = {
            let zone = self.zone(id);
            if zone.generation != generation {
                // It was reset meanwhile.
                buf.fill(0);
                return (buf, Ok(()));
            }
            self.rebuild(&zone, id, piece)
        };
        let result = match rebuild {
            Ok(rebuild) => rebuild.run(self, id, &mut buf).await,
            Err(e) => Err(e),
        };
        if medium && result.is_ok() {
            add(&self.tally.read_repairs, 1);
            self.mend_later(id, generation, piece, Buf::copy_from(&buf));
        }
        let rows = row..row + piece.len;
        let why = |second: Error| match self.member(piece.slot).lost.hits(id, &rows) {
            true => format!("{}: {second}", bad_rows::WORDS),
            false => second.to_string(),
        };
        // The first error says more than that its remedy failed too.
        (buf, result.map_err(|second| error.because(why(second))))
    }

    /// Reads whatever the blocks of `piece` follow from. Under the zone's lock, so that parity and pointer fit. What is
    /// in flight may be on its drives or not: it counts neither in data nor in parity, and is taken from memory.
    pub(crate) fn rebuild(&self, zone: &Zone, id: ZoneId, piece: Piece) -> Result<Rebuild> {
        let layout = &self.layout;
        let gone = |slot: Slot, what: &str| {
            let at = self.geometry.start(id).plus(piece.offset);
            self.error(ErrorKind::Media, "read").in_zone(id).at(at).because(format!(
                "{what} on drive {} is needed to make up for drive {}, and is not to be had: replace both drives and restore \
                 what is lost",
                slot.0, piece.slot.0
            ))
        };
        let (row, len) = (piece.row, piece.len);
        let mut limit = zone.readable().min(zone.acknowledged());
        let mut held = None;
        let mut sources = Vec::new();
        let rows = self.bytes(row)..self.bytes(row + len);
        let mut flying = Vec::new();
        if zone.flies_over(layout, piece.stripe) {
            let mut part = BufMut::zeroed(rows.len());
            let parity = zone.parity_below(layout, self.bytes(1), piece.stripe);
            let below = parity.get(rows.start.min(parity.len())..rows.end.min(parity.len()));
            xor(&mut part, below.unwrap_or_default());
            held = Some(part.freeze());
            let runs = zone.flying(piece.offset, piece.offset.plus(Blocks(len)));
            flying.extend(runs.map(|(at, data)| (self.bytes(at.minus(piece.offset).0), data)));
        } else if let Some(relocated) = zone.relocated.get(&piece.stripe) {
            let first = layout.row(piece.stripe) + row;
            let slot = layout.parity(id, piece.stripe);
            if self.member(slot).lost.hits(id, &(first..first + len)) {
                let at = self.geometry.start(id).plus(piece.offset);
                return Err(self.error(ErrorKind::Media, "read").in_zone(id).at(at).because(bad_rows::WORDS));
            }
            limit = limit.min(relocated.end);
            held = Some(relocated.unit.slice(rows));
        } else if zone.open_stripe(layout) == Some(piece.stripe) {
            held = zone.parity.get(rows).map(Buf::copy_from);
        } else {
            let slot = layout.parity(id, piece.stripe);
            let row = layout.row(piece.stripe) + row;
            let io = self.read_rows(id, slot, row, len).ok_or_else(|| gone(slot, "parity"))?;
            sources.push(Source { slot, row, rows: len, io, overlay: Overlay::default() });
        }
        for index in (0..layout.data_units()).filter(|index| *index != piece.index) {
            let filled = layout.filled(piece.stripe, index, limit);
            let count = filled.min(row + len).saturating_sub(row);
            if count == 0 {
                continue;
            }
            let slot = layout.data(id, piece.stripe, index);
            let row = layout.row(piece.stripe) + row;
            let (io, overlay) = match zone.patches.held(self.bytes(1), slot, row, count) {
                Some(known) => {
                    let mut into = BufMut::zeroed(self.bytes(count));
                    known.apply(&mut into);
                    (Io::ready(Ok(Done::Read(into))).typed(), Overlay::default())
                }
                None => {
                    let io = self.read_rows(id, slot, row, count).ok_or_else(|| gone(slot, "data"))?;
                    (io, zone.patches.over(self.bytes(1), slot, row, count))
                }
            };
            sources.push(Source { slot, row, rows: count, io, overlay });
        }
        Ok(Rebuild { held, sources, flying: Overlay::new(flying) })
    }
}
