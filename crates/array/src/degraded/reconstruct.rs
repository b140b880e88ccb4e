//! Content of a part's rows, read from the part's drive or reconstructed from the other parts.
//!
//! [`Reconstruct`] is the only place that combines drives of a zone in use: degraded reads, read repair, rebuilds, scrubs and
//! zone rewrites call it. It combines rows by `degraded::equation`, as a mount does.
//!
//! A row of one part is the XOR of the row of all other parts, be it data or parity. For a stripe that is not whole,
//! parity comes from memory, and data above the logical pointer counts as zeros ([`Reconstruct::piece`]).

use std::ops::Range;
use std::sync::Arc;

use zoned::{Blocks, Buf, BufMut, Done, ErrorKind, Io, Result, ZoneId, join_all};

use crate::context::Context;
use crate::degraded::equation::{Equation, Term};
use crate::degraded::errors::{Retries, fails_the_drive, is_transient};
use crate::degraded::failures::Failures;
use crate::layout::xor::xor;
use crate::layout::{Piece, Role, Stripe};
use crate::member::bad_rows;
use crate::membership::Membership;
use crate::zone::Zone;
use crate::zone::stale_rows::{Overlay, apply_relocated};
use crate::zone::zone_table::ZoneTable;

/// Rows of one part that a reconstruction reads.
struct SourceRows {
    role: Role,
    row: u64,
    rows: u64,
    io: Io<BufMut>,
    overlay: Overlay,
}

/// Rows of one part that a reconstruction takes from a read of its caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedRows {
    pub role: Role,
    /// The first row, from the start of the part.
    pub row: u64,
    pub rows: u64,
}

/// A reconstruction of a piece whose reads have been submitted.
pub(crate) struct Reconstruction {
    /// The first row of the piece, from the start of the part.
    first: u64,
    /// Parity of the piece's stripe, if memory holds it.
    parity: Option<Buf>,
    sources: Vec<SourceRows>,
    /// Rows that the caller reads for itself: [`Reconstruct::combine`] gets their content.
    pub shared: Vec<SharedRows>,
    /// Blocks of the piece that are in flight: their content is in memory.
    in_flight: Overlay,
}

/// Reads and reconstructs rows.
pub(crate) struct Reconstruct {
    pub ctx: Arc<Context>,
    pub members: Arc<Membership>,
    pub zones: Arc<ZoneTable>,
    pub failures: Arc<Failures>,
}

impl Reconstruct {
    /// Submits the reads that the blocks of `piece` are reconstructed from. The caller holds the zone's lock, so that
    /// parity and pointer agree. Blocks in flight may be on their drives or not: they count neither in data nor in parity.
    ///
    /// Errors: [`ErrorKind::Media`] if a second drive is needed and has failed, or the parity is in bad rows.
    pub(crate) fn piece(&self, zone: &Zone, id: ZoneId, piece: Piece) -> Result<Reconstruction> {
        self.piece_beside(zone, id, piece, &[])
    }

    /// As [`piece`](Reconstruct::piece), beside reads of other pieces: rows of the same stripe that the caller reads are not
    /// read again, and are in [`Reconstruction::shared`].
    pub(crate) fn piece_beside(
        &self,
        zone: &Zone,
        id: ZoneId,
        piece: Piece,
        beside: &[Piece],
    ) -> Result<Reconstruction> {
        let layout = &self.ctx.layout;
        let error = || {
            let at = self.ctx.geometry.start(id).plus(piece.offset);
            self.ctx.error(ErrorKind::Media, "read").in_zone(id).at(at)
        };
        let slot = |role: Role| self.ctx.placement.slot(id, role).0;
        let gone = |role: Role, what: &str| {
            error().because(format!(
                "{what} on drive {} is needed to reconstruct drive {}, and is not available: replace both drives and restore \
                 the lost data",
                slot(role),
                slot(piece.role)
            ))
        };
        let (row, len) = (piece.row, piece.len);
        let mut limit = zone.readable().min(zone.acknowledged());
        let mut parity = None;
        let mut sources = Vec::new();
        let rows = self.ctx.bytes(row)..self.ctx.bytes(row + len);
        let mut in_flight = Vec::new();
        let first = layout.row(piece.stripe) + row;
        if zone.is_in_flight(layout, piece.stripe) {
            let mut part = BufMut::zeroed(rows.len());
            let unit = zone.acknowledged_parity(layout, self.ctx.bytes(1), piece.stripe);
            let known = unit.get(rows.start.min(unit.len())..rows.end.min(unit.len()));
            xor(&mut part, known.unwrap_or_default());
            parity = Some(part.freeze());
            let runs = zone.in_flight_of(piece.offset, piece.offset.plus(Blocks(len)));
            in_flight.extend(runs.map(|(at, data)| (self.ctx.bytes(at.minus(piece.offset).0), data)));
        } else if let Some(relocated) = zone.relocated.get(&piece.stripe) {
            if self
                .members
                .member_of(id, layout.parity(piece.stripe))
                .bad_rows
                .intersects(id, &(first..first + len))
            {
                return Err(error().because(bad_rows::BAD_ROWS_REASON));
            }
            limit = limit.min(relocated.end);
            parity = Some(relocated.unit.slice(rows));
        } else if zone.open_stripe(layout) == Some(piece.stripe) {
            parity = zone.parity.get(rows).map(Buf::copy_from);
        } else {
            let role = layout.parity(piece.stripe);
            let io = self.read_rows(id, role, first, len).ok_or_else(|| gone(role, "parity"))?;
            sources.push(SourceRows { role, row: first, rows: len, io, overlay: Overlay::default() });
        }
        let equation = Equation { stripe: piece.stripe, rows: row..row + len, end: limit };
        let mut shared = Vec::new();
        for Term { index, role, count } in equation.terms(layout, Some(piece.index)) {
            let read = beside.iter().find(|read| read.stripe == piece.stripe && read.index == index);
            let rows = first..first + count;
            let (from, to) = read.map_or((rows.end, rows.end), |read| {
                let start = layout.row(read.stripe) + read.row;
                (start.clamp(rows.start, rows.end), (start + read.len).clamp(rows.start, rows.end))
            });
            if from < to {
                shared.push(SharedRows { role, row: from, rows: to - from });
            }
            // Without rows to share, the first range is the whole term and the second one is empty.
            for Range { start: row, end } in [rows.start..from, to.max(from)..rows.end] {
                let rows = end - row;
                if rows == 0 {
                    continue;
                }
                let (io, overlay) =
                    match zone.stale.overlay_if_all_relocated(self.ctx.bytes(1), role, row, rows) {
                        Some(relocated) => {
                            let mut into = BufMut::zeroed(self.ctx.bytes(rows));
                            relocated.apply(&mut into);
                            (Io::ready(Ok(Done::Read(into))).typed(), Overlay::default())
                        }
                        None => {
                            let io = self.read_rows(id, role, row, rows).ok_or_else(|| gone(role, "data"))?;
                            (io, zone.stale.overlay(self.ctx.bytes(1), role, row, rows))
                        }
                    };
                sources.push(SourceRows { role, row, rows, io, overlay });
            }
        }
        Ok(Reconstruction { first, parity, sources, shared, in_flight: Overlay::new(in_flight) })
    }

    /// Waits for the reads of a reconstruction without shared rows and combines them in `into`. A drive that is gone is failed
    /// here too.
    pub(crate) async fn complete(
        &self,
        id: ZoneId,
        reconstruction: Reconstruction,
        into: &mut BufMut,
    ) -> Result<()> {
        self.combine(id, reconstruction, &[], into).await
    }

    /// As [`complete`](Reconstruct::complete). `shared`: the content of [`Reconstruction::shared`], in the same order.
    pub(crate) async fn combine(
        &self,
        id: ZoneId,
        reconstruction: Reconstruction,
        shared: &[&[u8]],
        into: &mut BufMut,
    ) -> Result<()> {
        let Reconstruction { first, parity, sources, shared: of, in_flight } = reconstruction;
        assert_eq!(of.len(), shared.len(), "the caller gives the content of all shared rows");
        into.fill(0);
        if let Some(parity) = &parity {
            xor(into, parity);
        }
        for (SharedRows { row, .. }, content) in of.iter().zip(shared) {
            xor(into.get_mut(self.ctx.bytes(row - first)..).unwrap_or_default(), content);
        }
        let mut failed = Ok(());
        for SourceRows { role, row, rows, io, overlay } in sources {
            match self.retry_read(id, role, (row, rows), io.await).await {
                Ok(mut read) => {
                    overlay.apply(&mut read);
                    xor(into.get_mut(self.ctx.bytes(row - first)..).unwrap_or_default(), &read);
                }
                Err(e) => {
                    self.failures.count_read_error(id, role, row..row + rows, &e);
                    if fails_the_drive(e.kind()) {
                        let _broken = self.members.fail(self.ctx.placement.slot(id, role), &e).await;
                    }
                    failed = failed.and(Err(e));
                }
            }
        }
        in_flight.apply(into);
        failed
    }

    /// Reconstructs the blocks of a piece.
    pub(crate) async fn piece_now(&self, id: ZoneId, piece: Piece) -> Result<BufMut> {
        let mut part = BufMut::zeroed(self.ctx.bytes(piece.len));
        let reconstruction = self.piece(&self.zones.zone(id), id, piece)?;
        self.complete(id, reconstruction, &mut part).await.map(|()| part)
    }

    /// The parity of some rows of a stripe, computed from the stripe's data below `end`.
    pub(crate) async fn parity(
        &self,
        id: ZoneId,
        stripe: Stripe,
        end: Blocks,
        rows: Range<u64>,
    ) -> Result<BufMut> {
        let layout = &self.ctx.layout;
        let mut sum = BufMut::zeroed(self.ctx.bytes(rows.end - rows.start));
        let (mut ios, mut parts) = (Vec::new(), Vec::new());
        let row = layout.row(stripe) + rows.start;
        for Term { role, count, .. } in (Equation { stripe, rows, end }).terms(layout, None) {
            let io = self.read_rows(id, role, row, count);
            let overlay = self.zones.zone(id).stale.overlay(self.ctx.bytes(1), role, row, count);
            parts.push((role, count, overlay));
            ios.push(io.ok_or_else(|| self.members.broken_error("rebuild"))?);
        }
        for (data, (from, count, overlay)) in join_all(ios).await.into_iter().zip(parts) {
            let data = match data {
                Ok(mut data) => {
                    overlay.apply(&mut data);
                    data
                }
                Err(e) if is_read_again(e.kind()) => self.rows_of(id, from, row, count).await?,
                Err(e) => return Err(e),
            };
            xor(&mut sum, &data);
        }
        Ok(sum)
    }

    /// The longest read, in rows, that every drive takes at once.
    pub(crate) fn longest_read(&self) -> u64 {
        let devices = self.members.iter().filter_map(|member| member.device());
        devices.map(|device| device.geometry().max_transfer.0).min().unwrap_or(u64::MAX).max(1)
    }

    /// Submits a read of a part's rows. `None` if the part's drive is missing.
    pub(crate) fn read_rows(&self, id: ZoneId, role: Role, row: u64, rows: u64) -> Option<Io<BufMut>> {
        self.members.member_of(id, role).read(id, row, BufMut::zeroed(self.ctx.bytes(rows))).ok()
    }

    /// The result of a read; a read with a transient error is repeated.
    pub(crate) async fn retry_read(
        &self,
        id: ZoneId,
        role: Role,
        (row, rows): (u64, u64),
        mut read: Result<BufMut>,
    ) -> Result<BufMut> {
        let mut retries = Retries::default();
        while let Err(error) = &read
            && retries.wait(&*self.ctx.driver, error).await
        {
            let Some(again) = self.read_rows(id, role, row, rows) else { break };
            read = again.await;
        }
        read
    }

    /// The content of a part's rows, relocated content included. Rows that the drive cannot read are served from memory
    /// if they are relocated.
    pub(crate) async fn rows_of(&self, id: ZoneId, role: Role, row: u64, rows: u64) -> Result<BufMut> {
        let gone = || self.ctx.error(ErrorKind::Gone, "read").in_zone(id);
        let read = self.read_rows(id, role, row, rows).ok_or_else(gone)?.await;
        let mut data = match self.retry_read(id, role, (row, rows), read).await {
            Ok(data) => data,
            Err(e) if e.kind() != ErrorKind::Media => return Err(e),
            Err(_) => {
                let mut data = BufMut::with_capacity(self.ctx.bytes(rows));
                for row in row..row + rows {
                    if self.is_relocated(id, role, row) {
                        data.extend_from_slice(&BufMut::zeroed(self.ctx.bytes(1)));
                    } else {
                        let read = self.read_rows(id, role, row, 1).ok_or_else(gone)?.await;
                        data.extend_from_slice(&self.retry_read(id, role, (row, 1), read).await?);
                    }
                }
                data
            }
        };
        self.apply_memory(id, role, row, &mut data);
        Ok(data)
    }

    /// True if memory holds the content of a row, so that the drive is not needed.
    fn is_relocated(&self, id: ZoneId, role: Role, row: u64) -> bool {
        let zone = self.zones.zone(id);
        let stripe = Stripe(row / self.ctx.layout.unit);
        let parity = self.ctx.layout.parity(stripe) == role
            && zone.relocated.contains_key(&stripe)
            && !self.members.member_of(id, role).bad_rows.intersects(id, &(row..row + 1));
        parity || zone.stale.overlay_if_all_relocated(self.ctx.bytes(1), role, row, 1).is_some()
    }

    /// Puts the content that memory holds over rows that were read from the part `role`: relocated content, and the parity of the
    /// stripe at the pointer.
    pub(crate) fn apply_memory(&self, id: ZoneId, role: Role, row: u64, data: &mut BufMut) {
        let zone = self.zones.zone(id);
        let (ctx, layout) = (&self.ctx, &self.ctx.layout);
        apply_relocated(layout, ctx.bytes(1), (&zone.stale, &zone.relocated), role, row, data);
        // The parity of the stripe at the write pointer is in memory only where its rows are stale.
        let Some(stripe) = zone.open_stripe(layout) else { return };
        let end = row + (data.len() / ctx.bytes(1)) as u64;
        let first = layout.row(stripe);
        let (from, to) = (first.max(row), (first + layout.unit_of(stripe)).min(end));
        if layout.parity(stripe) != role || from >= to {
            return;
        }
        let place = data.get_mut(ctx.bytes(from - row)..ctx.bytes(to - row));
        let rows = zone.parity.get(ctx.bytes(from - first)..ctx.bytes(to - first));
        if let Some((place, rows)) = place.zip(rows) {
            place.copy_from_slice(rows);
        }
    }
}

/// True if a failed read of several rows is repeated row by row: the log may hold rows that the drive cannot read, and
/// a transient error may not come again.
pub(crate) fn is_read_again(kind: ErrorKind) -> bool {
    kind == ErrorKind::Media || is_transient(kind)
}
