//! Reads: each piece from its drive, or reconstructed from the other drives.
//!
//! A read of several units of a stripe of which one drive is missing reads each row of the other drives once: for the client
//! and for the reconstruction of missing units. Reads of all other pieces end first, and the reconstruction combines
//! their content with parity and with rows that the client did not ask for. If a piece with shared rows could not be read, the
//! missing unit is reconstructed without shared rows.

use std::sync::Arc;

use zoned::{Blocks, Buf, BufMut, Completer, Done, Error, ErrorKind, Io, IoClass, Result, ZoneId, ZoneState};

use crate::context::Context;
use crate::deferred::Deferred;
use crate::degraded::errors::{fails_the_drive, is_transient};
use crate::degraded::failures::Failures;
use crate::degraded::read_repair::ReadRepair;
use crate::degraded::reconstruct::{ReadRows, Reconstruct, Reconstruction, SharedRows};
use crate::layout::Piece;
use crate::member::bad_rows;
use crate::membership::Membership;
use crate::metrics::add;
use crate::zone::Zone;
use crate::zone::stale_rows::Overlay;
use crate::zone::zone_table::ZoneTable;

/// One piece of a client's read, under way.
enum ReadPart {
    /// Content from memory: of a piece, or zeros above the zone's content (`None`).
    Ready(Option<Piece>, BufMut),
    /// A read of the piece's drive.
    Read(Piece, Io<BufMut>, Overlay),
    /// The piece's reconstruction from the other drives, and the buffer for its result.
    Reconstruct(Piece, BufMut, Result<Reconstruction>),
}

/// One piece of a client's read. A piece of a missing drive is reconstructed after all other pieces were read.
struct JoinedPart {
    /// `None` for zeros above the zone's content.
    piece: Option<Piece>,
    buf: BufMut,
    /// True if drives were read for the piece.
    from_drives: bool,
    result: Result<()>,
    /// The reconstruction of the piece, until it is complete.
    missing: Option<Reconstruction>,
}

/// The read path.
pub(crate) struct Reads {
    pub ctx: Arc<Context>,
    pub members: Arc<Membership>,
    pub zones: Arc<ZoneTable>,
    pub failures: Arc<Failures>,
    pub reconstruct: Arc<Reconstruct>,
    pub repair: Arc<ReadRepair>,
}

impl Reads {
    /// Gives operations of drives' schedulers on `blocks` of a zone, from `offset` on, the class of a caller who waits for them. Operations on the same rows of the zone's other parts get the class too: a write waits for its parity, and a read from a lacking drive waits for the other drives.
    pub(crate) fn raise(&self, class: IoClass, id: ZoneId, offset: Blocks, blocks: u64) {
        for piece in self.ctx.layout.pieces(offset, blocks) {
            let row = self.ctx.layout.row(piece.stripe) + piece.row;
            let rows = row..row + piece.len;
            self.members.parts(id).for_each(|part| part.raise(class, rows.clone()));
        }
    }

    /// Begins a read of a locked zone: submits the reads of all pieces.
    pub(crate) fn begin_read(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        (class, offset, into): (IoClass, Blocks, BufMut),
        completer: Completer,
        deferred: &mut Deferred,
    ) {
        if zone.state == ZoneState::Offline {
            let at = self.ctx.geometry.start(id).plus(offset);
            let error = self.zones.failed_zone_error(id, "read").at(at);
            return deferred.complete(completer, Err(error.with_buffer(into)));
        }
        let mut rest = into;
        let blocks = rest.len() as u64 / u64::from(self.ctx.geometry.block_size);
        let written = zone.readable().minus(offset).0.min(blocks);
        let (mut parts, mut read_rows) = (Vec::new(), Vec::new());
        let pieces: Vec<Piece> = self.ctx.layout.pieces(offset, written).collect();
        for piece in &pieces {
            let piece = *piece;
            let mut part = rest.split_to(self.ctx.bytes(piece.len));
            let row = self.ctx.layout.row(piece.stripe) + piece.row;
            if let Some(relocated) =
                zone.stale.overlay_if_all_relocated(self.ctx.bytes(1), piece.role, row, piece.len)
            {
                relocated.apply(&mut part);
                parts.push(ReadPart::Ready(Some(piece), part));
                continue;
            }
            let read = match self.members.part(id, piece.role) {
                Some(from) => from.read(class, row, part),
                None => Err(part),
            };
            parts.push(match read {
                Ok(io) => {
                    let overlay = zone.stale.overlay(self.ctx.bytes(1), piece.role, row, piece.len);
                    ReadPart::Read(piece, io, overlay)
                }
                Err(part) => {
                    add(&self.ctx.metrics.degraded_reads, 1);
                    let reconstruction = self.reconstruct.piece_beside(zone, id, piece, &pieces, &read_rows);
                    read_rows.extend(reconstruction.iter().flat_map(Reconstruction::reads));
                    ReadPart::Reconstruct(piece, part, reconstruction)
                }
            });
        }
        if !rest.is_empty() {
            rest.fill(0);
            parts.push(ReadPart::Ready(None, rest));
        }
        let (this, generation, guard) = (Arc::clone(self), zone.generation, zone.readers.begin());
        deferred.run(async move {
            let result = this.join_parts(id, generation, parts).await;
            drop(guard);
            completer.complete(result.map(Done::Read));
        });
    }

    /// Waits for the parts of a read and joins them.
    async fn join_parts(
        self: &Arc<Self>,
        id: ZoneId,
        generation: u64,
        parts: Vec<ReadPart>,
    ) -> Result<BufMut> {
        let mut joined = Vec::with_capacity(parts.len());
        for part in parts {
            let from_drives = !matches!(part, ReadPart::Ready(..));
            let (piece, buf, result, missing) = match part {
                ReadPart::Ready(piece, buf) => (piece, buf, Ok(()), None),
                ReadPart::Read(piece, io, overlay) => {
                    let (buf, result) = self.read_or_reconstruct(id, generation, piece, io, overlay).await;
                    (Some(piece), buf, result, None)
                }
                ReadPart::Reconstruct(piece, buf, Ok(missing)) => (Some(piece), buf, Ok(()), Some(missing)),
                ReadPart::Reconstruct(piece, buf, Err(e)) => (Some(piece), buf, Err(e), None),
            };
            joined.push(JoinedPart { piece, buf, from_drives, result, missing });
        }
        self.reconstruct_missing(id, generation, &mut joined).await;
        let mut whole: Option<BufMut> = None;
        let mut failed: Option<Error> = None;
        for JoinedPart { buf, from_drives, result, .. } in joined {
            let (buf, result) = match result {
                // The zone was reset during the read: the drives may have been read before and after the
                // reset.
                _ if from_drives && self.zones.was_reset(id, generation) => {
                    // After a failed reset the content of the zone is unknown.
                    let failed = self.zones.zone(id).poison.as_ref().map_or(Ok(()), |e| Err(e.duplicate()));
                    (BufMut::zeroed(buf.len()), failed)
                }
                result => (buf, result),
            };
            failed = failed.or(result.err().map(|error| self.unreadable_error(id, error)));
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

    /// Completes the reconstructions of a read, all of whose other parts were read.
    async fn reconstruct_missing(&self, id: ZoneId, generation: u64, joined: &mut [JoinedPart]) {
        let mut read_rows: Vec<(ReadRows, Buf)> = Vec::new();
        for at in 0..joined.len() {
            let Some(JoinedPart { piece: Some(piece), buf, missing, .. }) = joined.get_mut(at) else {
                continue;
            };
            let Some(reconstruction) = missing.take() else { continue };
            let (piece, mut buf) = (*piece, std::mem::take(buf));
            let shared: Option<Vec<&[u8]>> =
                reconstruction.shared.iter().map(|rows| self.content_of(joined, &read_rows, rows)).collect();
            let result = match shared {
                Some(shared) => match self.reconstruct.combine(id, reconstruction, &shared, &mut buf).await {
                    Ok(read) => {
                        read_rows.extend(read);
                        Ok(())
                    }
                    // Another parity may take the place of the parts that could not be read.
                    Err(_) if self.ctx.layout.parities > 1 => {
                        self.reconstruct_alone(id, generation, piece, &mut buf).await.unwrap_or(Ok(()))
                    }
                    Err(failed) => Err(failed.error),
                },
                None => self.reconstruct_alone(id, generation, piece, &mut buf).await.unwrap_or(Ok(())),
            };
            if let Some(part) = joined.get_mut(at) {
                (part.buf, part.result) = (buf, result);
            }
        }
    }

    /// The content of rows of a part, from the piece of the read that has them, or from another reconstruction (`read_rows`). `None` if
    /// neither was read.
    fn content_of<'a>(
        &self,
        joined: &'a [JoinedPart],
        read_rows: &'a [(ReadRows, Buf)],
        rows: &SharedRows,
    ) -> Option<&'a [u8]> {
        let there = |(of, _): &&(ReadRows, Buf)| of.contain(rows.role, rows.row, rows.rows);
        if let Some((of, content)) = read_rows.iter().find(there) {
            let from = rows.row - of.row;
            return content.get(self.ctx.bytes(from)..self.ctx.bytes(from + rows.rows));
        }
        let read = |part: &&JoinedPart| part.result.is_ok() && part.missing.is_none();
        joined.iter().filter(read).find_map(|part| {
            let piece = part.piece.filter(|piece| piece.role == rows.role)?;
            let from = rows.row.checked_sub(self.ctx.layout.row(piece.stripe) + piece.row)?;
            part.buf.get(self.ctx.bytes(from)..self.ctx.bytes(from + rows.rows))
        })
    }

    /// Reconstructs a piece from rows of the other drives that are read for the piece alone. `None` if the zone was reset during
    /// the read: its blocks read as zeros then, as in `buf`.
    async fn reconstruct_alone(
        &self,
        id: ZoneId,
        generation: u64,
        piece: Piece,
        buf: &mut BufMut,
    ) -> Option<Result<()>> {
        if self.zones.zone(id).generation != generation {
            buf.fill(0);
            return None;
        }
        Some(self.reconstruct.piece_into(id, piece, buf).await)
    }

    /// The error of blocks that cannot be reconstructed. If a drive's part of the zone is offline, that is the cause, but the
    /// logical zone is not offline: other blocks can be read.
    fn unreadable_error(&self, id: ZoneId, error: Error) -> Error {
        if error.kind() != ErrorKind::ZoneOffline {
            return error;
        }
        self.ctx.error(ErrorKind::Media, "read").in_zone(id).because(error.to_string())
    }

    /// The result of a read of one drive, or the reconstructed piece if the drive's read failed.
    async fn read_or_reconstruct(
        self: &Arc<Self>,
        id: ZoneId,
        generation: u64,
        piece: Piece,
        io: Io<BufMut>,
        overlay: Overlay,
    ) -> (BufMut, Result<()>) {
        let row = self.ctx.layout.row(piece.stripe) + piece.row;
        let part = self.members.part(id, piece.role);
        let buffer = |error: &mut Error| {
            error.take_buffer().unwrap_or_else(|| BufMut::zeroed(self.ctx.bytes(piece.len)))
        };
        let mut read = io.await;
        if let Err(error) = &mut read
            && is_transient(error.kind())
            && let Some(part) = part
            && let Ok(io) = part.read(IoClass::Read, row, buffer(error))
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
        let mut buf = buffer(&mut error);
        if let Some(part) = part
            && fails_the_drive(error.kind())
        {
            // The failure may break the array, which then refuses writes only. The read needs the other
            // drives only.
            let _broken = self.members.fail(part.slot(), &error).await;
        }
        tracing::warn!(zone = id.0, block = piece.offset.0, %error, "read from the other drives");
        add(&self.ctx.metrics.degraded_reads, 1);
        let medium = self.failures.count_read_error(id, piece.role, row..row + piece.len, &error);
        let Some(result) = self.reconstruct_alone(id, generation, piece, &mut buf).await else {
            return (buf, Ok(()));
        };
        if medium && result.is_ok() {
            add(&self.ctx.metrics.read_repairs, 1);
            self.repair.relocate_later(id, generation, piece, Buf::copy_from(&buf));
        }
        let rows = row..row + piece.len;
        let why = |second: Error| match part.is_some_and(|part| part.has_bad_rows(&rows)) {
            true => format!("{}: {second}", bad_rows::BAD_ROWS_REASON),
            false => second.to_string(),
        };
        // The drive's own error is the cause, and the failed reconstruction the context.
        (buf, result.map_err(|second| error.because(why(second))))
    }
}
