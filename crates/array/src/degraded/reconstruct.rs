//! Content of a part's rows, read from the part's drive or reconstructed from the other parts.
//!
//! [`Reconstruct`] is the only place that combines drives of a zone in use: degraded reads, read repair, rebuilds, scrubs and
//! zone rewrites call it. It combines rows by `degraded::equation`, as a mount does.
//!
//! A row of one part is a sum of rows of other parts, be it data or parity; with one parity, the XOR of all others. For a stripe
//! that is not whole, parity comes from memory, and data above the logical pointer counts as zeros ([`Reconstruct::piece_beside`]).

use std::ops::Range;
use std::sync::Arc;

use zoned::{Blocks, Buf, BufMut, Done, Error, ErrorKind, Io, IoClass, Result, ZoneId, join_all};

use crate::context::Context;
use crate::degraded::equation::{Equations, Term, Unit};
use crate::degraded::errors::{Retries, fails_the_drive, is_transient};
use crate::degraded::failures::Failures;
use crate::layout::gf256::add_products;
use crate::layout::running_parity::add_to;
use crate::layout::xor::xor;
use crate::layout::{Parity, Piece, Role, Stripe};
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
    /// The factor of the rows in the sum.
    factor: u8,
    io: Io<BufMut>,
    overlay: Overlay,
}

/// Rows of one part that a reconstruction has read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRows {
    pub role: Role,
    /// The first row, from the start of the part.
    pub row: u64,
    pub rows: u64,
}

impl ReadRows {
    /// True if the rows are among these.
    pub(crate) fn contain(&self, role: Role, row: u64, rows: u64) -> bool {
        self.role == role && self.row <= row && row + rows <= self.row + self.rows
    }
}

/// Rows of one part that a reconstruction takes from a read of its caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedRows {
    pub role: Role,
    /// The first row, from the start of the part.
    pub row: u64,
    pub rows: u64,
    factor: u8,
}

/// A reconstruction of a piece whose reads have been submitted.
pub(crate) struct Reconstruction {
    /// The first row of the piece, from the start of the part.
    first: u64,
    /// Rows of parity that memory holds, each with its first row and its factor in the sum.
    parities: Vec<(u64, u8, Buf)>,
    sources: Vec<SourceRows>,
    /// Rows that the caller reads for itself: [`Reconstruct::combine`] gets their content.
    pub shared: Vec<SharedRows>,
    /// Blocks of the piece that are in flight: their content is in memory.
    in_flight: Overlay,
}

impl Reconstruction {
    /// The rows that the reconstruction reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = ReadRows> + '_ {
        self.sources.iter().map(|source| ReadRows { role: source.role, row: source.row, rows: source.rows })
    }
}

/// A parity of a stripe that a reconstruction may use.
struct KnownParity {
    /// The end of the data that the parity was computed from.
    end: Blocks,
    /// The parity from the stripe's first row on; `None` if it is in its place.
    unit: Option<Buf>,
}

/// Parts that a reconstruction could not read, and the first part's error.
pub(crate) struct Unreadable {
    roles: Vec<Role>,
    pub error: Error,
}

/// A sum of rows, each times a factor.
struct RowSum<'a> {
    into: &'a mut BufMut,
    /// The row of the first byte of `into`.
    first: u64,
    /// Bytes in a row.
    block: usize,
    /// Rows whose factor is not 1: first byte in `into`, factor, content.
    products: Vec<(usize, u8, Buf)>,
}

impl RowSum<'_> {
    fn place(&self, row: u64) -> usize {
        usize::try_from(row - self.first).expect("fits memory") * self.block
    }

    /// Adds rows from `row` on.
    fn add(&mut self, row: u64, factor: u8, rows: Buf) {
        let at = self.place(row);
        match factor {
            1 => xor(self.into.get_mut(at..).unwrap_or_default(), &rows),
            _ => self.products.push((at, factor, rows)),
        }
    }

    /// Adds rows that another reader has.
    fn add_shared(&mut self, row: u64, factor: u8, rows: &[u8]) {
        let at = self.place(row);
        match factor {
            1 => xor(self.into.get_mut(at..).unwrap_or_default(), rows),
            _ => self.products.push((at, factor, Buf::copy_from(rows))),
        }
    }

    /// Adds all rows whose factor is not 1.
    fn add_products(self) {
        let mut cuts: Vec<usize> =
            self.products.iter().flat_map(|(at, _, rows)| [*at, at + rows.len()]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        for (from, to) in cuts.iter().zip(cuts.iter().skip(1)) {
            let mut sources: Vec<(u8, &[u8])> = Vec::with_capacity(self.products.len());
            for (at, factor, rows) in &self.products {
                let bytes = from.checked_sub(*at).zip(to.checked_sub(*at));
                let rows = bytes.and_then(|(from, to)| rows.get(from..to));
                sources.extend(rows.map(|rows| (*factor, rows)));
            }
            add_products(self.into.get_mut(*from..*to).unwrap_or_default(), &sources);
        }
    }
}

/// Reads and reconstructs rows.
pub(crate) struct Reconstruct {
    pub ctx: Arc<Context>,
    pub members: Arc<Membership>,
    pub zones: Arc<ZoneTable>,
    pub failures: Arc<Failures>,
}

impl Reconstruct {
    /// Submits the reads that the blocks of `piece` are reconstructed from, beside the caller's reads of other pieces: rows of the same
    /// stripe that the caller reads, or that other reconstructions read (`read`), are not read again, and are in
    /// [`Reconstruction::shared`]. The caller holds the zone's lock, so that
    /// parity and pointer agree. Blocks in flight may be on their drives or not: they count neither in data nor in parity.
    ///
    /// Errors: [`ErrorKind::Media`] if more drives are needed than the parities replace, or the parity is in bad rows.
    pub(crate) fn piece_beside(
        &self,
        zone: &Zone,
        id: ZoneId,
        piece: Piece,
        beside: &[Piece],
        read: &[ReadRows],
    ) -> Result<Reconstruction> {
        self.piece_without(zone, id, piece, (beside, read), &[])
    }

    /// As [`piece_beside`](Reconstruct::piece_beside), without the parts `unreadable`, whose rows could not be read.
    fn piece_without(
        &self,
        zone: &Zone,
        id: ZoneId,
        piece: Piece,
        (beside, read_rows): (&[Piece], &[ReadRows]),
        unreadable: &[Role],
    ) -> Result<Reconstruction> {
        let is_read = |role, row, rows| read_rows.iter().any(|read| read.contain(role, row, rows));
        let layout = &self.ctx.layout;
        let first = layout.row(piece.stripe) + piece.row;
        let rows = piece.row..piece.row + piece.len;
        let parities = self.known_parities(zone, id, &piece, unreadable);
        let limit = zone.readable().min(zone.acknowledged());
        let lacking = self.lacking_units(zone, id, &piece, unreadable);
        let equations = Equations {
            layout,
            stripe: piece.stripe,
            limit,
            ends: [Parity::P, Parity::Q].map(|parity| Some(parities.get(parity.index())?.as_ref()?.end)),
            lacking: &lacking,
        };
        let Some(terms) = equations.terms(rows, Unit::Data(piece.index)) else {
            return Err(self.lacking_error(zone, id, piece, &parities, &lacking));
        };
        let gone = |role| self.gone_error(id, piece, role);
        let mut reconstruction = Reconstruction {
            first,
            parities: Vec::new(),
            sources: Vec::new(),
            shared: Vec::new(),
            in_flight: self.content_in_flight(zone, piece),
        };
        for Term { unit, role, rows, factor } in terms {
            let index = match unit {
                Unit::Data(index) => index,
                Unit::Parity(parity) => {
                    let row = layout.row(piece.stripe) + rows.start;
                    let known = parities.get(parity.index()).and_then(|known| known.as_ref()?.unit.as_ref());
                    if let Some(unit) = known {
                        // Zeros follow beyond the filled part of the first unit.
                        let bytes = self.ctx.bytes(rows.start)..self.ctx.bytes(rows.end);
                        let part = unit.slice(bytes.start.min(unit.len())..bytes.end.min(unit.len()));
                        reconstruction.parities.push((row, factor, part));
                    } else {
                        let rows = rows.end - rows.start;
                        if is_read(role, row, rows) {
                            reconstruction.shared.push(SharedRows { role, row, rows, factor });
                            continue;
                        }
                        let io =
                            self.read_rows(IoClass::Read, id, role, row, rows).ok_or_else(|| gone(role))?;
                        let overlay = Overlay::default();
                        reconstruction.sources.push(SourceRows { role, row, rows, factor, io, overlay });
                    }
                    continue;
                }
            };
            let read = beside.iter().find(|read| {
                read.stripe == piece.stripe && read.index == index && !unreadable.contains(&read.role)
            });
            let rows = layout.row(piece.stripe) + rows.start..layout.row(piece.stripe) + rows.end;
            let (from, to) = read.map_or((rows.end, rows.end), |read| {
                let start = layout.row(read.stripe) + read.row;
                (start.clamp(rows.start, rows.end), (start + read.len).clamp(rows.start, rows.end))
            });
            if from < to {
                reconstruction.shared.push(SharedRows { role, row: from, rows: to - from, factor });
            }
            // Without rows to share, the first range is the whole term and the second one is empty.
            for Range { start: row, end } in [rows.start..from, to.max(from)..rows.end] {
                let rows = end - row;
                if rows == 0 {
                    continue;
                }
                if is_read(role, row, rows) {
                    reconstruction.shared.push(SharedRows { role, row, rows, factor });
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
                            let io = self
                                .read_rows(IoClass::Read, id, role, row, rows)
                                .ok_or_else(|| gone(role))?;
                            (io, zone.stale.overlay(self.ctx.bytes(1), role, row, rows))
                        }
                    };
                reconstruction.sources.push(SourceRows { role, row, rows, factor, io, overlay });
            }
        }
        Ok(reconstruction)
    }

    /// The blocks of a piece that are in flight, from memory.
    fn content_in_flight(&self, zone: &Zone, piece: Piece) -> Overlay {
        if !zone.is_in_flight(&self.ctx.layout, piece.stripe) {
            return Overlay::default();
        }
        let runs = zone.in_flight_of(piece.offset, piece.offset.plus(Blocks(piece.len)));
        Overlay::new(runs.map(|(at, data)| (self.ctx.bytes(at.minus(piece.offset).0), data)).collect())
    }

    /// The parities of a piece's stripe that are available, by parity.
    fn known_parities(
        &self,
        zone: &Zone,
        id: ZoneId,
        piece: &Piece,
        unreadable: &[Role],
    ) -> Vec<Option<KnownParity>> {
        let (layout, stripe) = (&self.ctx.layout, piece.stripe);
        let limit = zone.readable().min(zone.acknowledged());
        let first = layout.row(stripe) + piece.row;
        let known = |parity| {
            if zone.is_in_flight(layout, stripe) {
                let unit = zone.acknowledged_parity(layout, self.ctx.bytes(1), stripe, parity);
                return Some(KnownParity { end: limit, unit: Some(unit.freeze()) });
            }
            let role = layout.parity(stripe, parity);
            if let Some(relocated) = zone.relocated.get(&(stripe, parity)) {
                let known = KnownParity { end: relocated.end, unit: Some(relocated.unit.clone()) };
                let part = self.members.part(id, role);
                let is_bad = part.is_some_and(|part| part.has_bad_rows(&(first..first + piece.len)));
                return Some(known).filter(|_| !is_bad);
            }
            if zone.open_stripe(layout) == Some(stripe) {
                let unit = Buf::copy_from(zone.parity.of(parity));
                return Some(KnownParity { end: zone.pointer, unit: Some(unit) });
            }
            let usable = self.members.has_part(id, role) && !unreadable.contains(&role);
            usable.then(|| KnownParity { end: layout.end(stripe), unit: None })
        };
        layout.parities().map(known).collect()
    }

    /// The other data units of a piece's stripe whose rows neither a drive nor memory has.
    fn lacking_units(&self, zone: &Zone, id: ZoneId, piece: &Piece, unreadable: &[Role]) -> Vec<u64> {
        let (layout, block) = (&self.ctx.layout, self.ctx.bytes(1));
        let row = layout.row(piece.stripe) + piece.row;
        let limit = zone.readable().min(zone.acknowledged());
        let lacks = |index: &u64| {
            let role = layout.data(piece.stripe, *index);
            let good = self.members.has_part(id, role) && !unreadable.contains(&role);
            let filled = layout.filled(piece.stripe, *index, limit).min(piece.row + piece.len);
            let rows = filled.saturating_sub(piece.row);
            *index != piece.index
                && !good
                && rows > 0
                && zone.stale.overlay_if_all_relocated(block, role, row, rows).is_none()
        };
        (0..layout.data_units()).filter(lacks).collect()
    }

    /// The error of a piece that too many parts of its stripe lack.
    fn lacking_error(
        &self,
        zone: &Zone,
        id: ZoneId,
        piece: Piece,
        parities: &[Option<KnownParity>],
        lacking: &[u64],
    ) -> Error {
        let layout = &self.ctx.layout;
        let gone = layout.parities().zip(parities).find(|(_, known)| known.is_none());
        let Some((parity, _)) = gone else {
            let role = lacking.first().map_or(piece.role, |index| layout.data(piece.stripe, *index));
            return self.gone_error(id, piece, role);
        };
        if zone.relocated.contains_key(&(piece.stripe, parity)) {
            return self.read_error(id, piece).because(bad_rows::BAD_ROWS_REASON);
        }
        self.gone_error(id, piece, layout.parity(piece.stripe, parity))
    }

    fn read_error(&self, id: ZoneId, piece: Piece) -> Error {
        let at = self.ctx.geometry.start(id).plus(piece.offset);
        self.ctx.error(ErrorKind::Media, "read").in_zone(id).at(at)
    }

    /// The error of a piece whose reconstruction needs the missing part `role`.
    fn gone_error(&self, id: ZoneId, piece: Piece, role: Role) -> Error {
        let slot = |role: Role| self.ctx.places.slot(id, role).unwrap_or_default().0;
        let what = if self.ctx.layout.index_on(piece.stripe, role).is_none() { "parity" } else { "data" };
        let all = if self.ctx.layout.parities == 1 { "both" } else { "the missing" };
        self.read_error(id, piece).because(format!(
            "{what} on drive {} is needed to reconstruct drive {}, and is not available: replace {all} drives and restore \
             the lost data",
            slot(role),
            slot(piece.role)
        ))
    }

    /// Waits for the reads of a reconstruction and combines them in `into`; returns what was read. `shared`: the content of
    /// [`Reconstruction::shared`], in the same order. A drive that is gone is failed here too.
    pub(crate) async fn combine(
        &self,
        id: ZoneId,
        reconstruction: Reconstruction,
        shared: &[&[u8]],
        into: &mut BufMut,
    ) -> Result<Vec<(ReadRows, Buf)>, Unreadable> {
        let Reconstruction { first, parities, sources, shared: of, in_flight } = reconstruction;
        assert_eq!(of.len(), shared.len(), "the caller gives the content of all shared rows");
        into.fill(0);
        let mut sum = RowSum { into, first, block: self.ctx.bytes(1), products: Vec::new() };
        for (row, factor, parity) in &parities {
            sum.add(*row, *factor, parity.clone());
        }
        for (SharedRows { row, factor, .. }, content) in of.iter().zip(shared) {
            sum.add_shared(*row, *factor, content);
        }
        let (mut content, mut failed): (Vec<(ReadRows, Buf)>, Option<Unreadable>) = (Vec::new(), None);
        for SourceRows { role, row, rows, factor, io, overlay } in sources {
            match self.retry_read(id, role, (row, rows), io.await).await {
                Ok(mut read) => {
                    overlay.apply(&mut read);
                    let read = read.freeze();
                    content.push((ReadRows { role, row, rows }, read.clone()));
                    sum.add(row, factor, read);
                }
                Err(error) => {
                    self.failures.count_read_error(id, role, row..row + rows, &error);
                    if fails_the_drive(error.kind())
                        && let Some(slot) = self.ctx.places.slot(id, role)
                    {
                        let _broken = self.members.fail(slot, &error).await;
                    }
                    failed.get_or_insert(Unreadable { roles: Vec::new(), error }).roles.push(role);
                }
            }
        }
        sum.add_products();
        in_flight.apply(into);
        failed.map_or(Ok(content), Err)
    }

    /// Reconstructs the blocks of a piece.
    pub(crate) async fn piece_now(&self, id: ZoneId, piece: Piece) -> Result<BufMut> {
        let mut part = BufMut::zeroed(self.ctx.bytes(piece.len));
        self.piece_into(id, piece, &mut part).await.map(|()| part)
    }

    /// Reconstructs the blocks of a piece. With two parities: without the parts that turn out to be unreadable, and row by row if
    /// different parts are in different rows.
    pub(crate) async fn piece_into(&self, id: ZoneId, piece: Piece, into: &mut BufMut) -> Result<()> {
        match self.piece_of_readable_parts(id, piece, into).await {
            Err(error)
                if self.ctx.layout.parities > 1 && piece.len > 1 && error.kind() == ErrorKind::Media => {}
            result => return result,
        }
        for n in 0..piece.len {
            let one = Piece { row: piece.row + n, offset: piece.offset.plus(Blocks(n)), len: 1, ..piece };
            let mut row = BufMut::zeroed(self.ctx.bytes(1));
            self.piece_of_readable_parts(id, one, &mut row).await?;
            if let Some(place) = into.get_mut(self.ctx.bytes(n)..self.ctx.bytes(n + 1)) {
                place.copy_from_slice(&row);
            }
        }
        Ok(())
    }

    async fn piece_of_readable_parts(&self, id: ZoneId, piece: Piece, into: &mut BufMut) -> Result<()> {
        let (mut unreadable, mut medium): (Vec<Role>, Option<Error>) = (Vec::new(), None);
        loop {
            let reconstruction =
                self.piece_without(&self.zones.zone(id), id, piece, (&[], &[]), &unreadable)?;
            match self.combine(id, reconstruction, &[], into).await {
                Ok(_) => return Ok(()),
                Err(failed) if unreadable.len() + 1 >= self.ctx.layout.parities as usize => {
                    // With a readable medium, the piece would follow: the zone is not lost with one part.
                    return Err(medium.unwrap_or(failed.error));
                }
                Err(failed) => {
                    unreadable.extend(failed.roles);
                    medium = Some(failed.error).filter(|error| error.kind() == ErrorKind::Media);
                }
            }
        }
    }

    /// Rows of a parity of a stripe, computed from the stripe's data below `end`.
    pub(crate) async fn parity(
        &self,
        id: ZoneId,
        (stripe, parity): (Stripe, Parity),
        end: Blocks,
        rows: Range<u64>,
    ) -> Result<BufMut> {
        let layout = &self.ctx.layout;
        let mut sum = BufMut::zeroed(self.ctx.bytes(rows.end - rows.start));
        let (mut ios, mut parts) = (Vec::new(), Vec::new());
        let row = layout.row(stripe) + rows.start;
        for index in 0..layout.data_units() {
            let count = layout.filled(stripe, index, end).min(rows.end).saturating_sub(rows.start);
            if count == 0 {
                continue;
            }
            let role = layout.data(stripe, index);
            let io = self.read_rows(IoClass::Read, id, role, row, count);
            let overlay = self.zones.zone(id).stale.overlay(self.ctx.bytes(1), role, row, count);
            let offset = layout.unit_start(stripe, index).plus(Blocks(rows.start));
            parts.push((Piece { role, stripe, index, row: rows.start, offset, len: count }, overlay));
            ios.push(io.unwrap_or_else(|| Io::ready(Err(self.members.broken_error("rebuild"))).typed()));
        }
        for (data, (piece, overlay)) in join_all(ios).await.into_iter().zip(parts) {
            let data = match data {
                Ok(mut data) => {
                    overlay.apply(&mut data);
                    Ok(data)
                }
                Err(e) if is_read_again(e.kind()) => self.rows_of(id, piece.role, row, piece.len).await,
                Err(e) => Err(e),
            };
            let data = match data {
                Err(e) if layout.parities > 1 && !is_transient(e.kind()) => self.piece_now(id, piece).await?,
                data => data?,
            };
            add_to(parity, sum.get_mut(..data.len()).unwrap_or_default(), &data);
        }
        Ok(sum)
    }

    /// The longest read, in rows, that every drive takes at once.
    pub(crate) fn longest_read(&self) -> u64 {
        let devices = self.members.iter().filter_map(|member| member.device());
        devices.map(|device| device.geometry().max_transfer.0).min().unwrap_or(u64::MAX).max(1)
    }

    /// Submits a read of a part's rows. `None` if the part's drive is missing.
    pub(crate) fn read_rows(
        &self,
        class: IoClass,
        id: ZoneId,
        role: Role,
        row: u64,
        rows: u64,
    ) -> Option<Io<BufMut>> {
        self.members.part(id, role)?.read(class, row, BufMut::zeroed(self.ctx.bytes(rows))).ok()
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
            let Some(again) = self.read_rows(IoClass::Read, id, role, row, rows) else { break };
            read = again.await;
        }
        read
    }

    /// The content of a part's rows, relocated content included. Rows that the drive cannot read are served from memory
    /// if they are relocated.
    pub(crate) async fn rows_of(&self, id: ZoneId, role: Role, row: u64, rows: u64) -> Result<BufMut> {
        let mut data = self.rows_without_memory(id, role, row, rows).await?;
        self.apply_memory(id, role, row, &mut data);
        Ok(data)
    }

    /// As [`rows_of`](Reconstruct::rows_of), of stripes that were whole when the caller looked at the zone.
    pub(crate) async fn rows_of_whole_stripes(
        &self,
        id: ZoneId,
        role: Role,
        row: u64,
        rows: u64,
    ) -> Result<BufMut> {
        let mut data = self.rows_without_memory(id, role, row, rows).await?;
        self.apply_relocated_content(id, role, row, &mut data);
        Ok(data)
    }

    /// A part's rows as the drive has them. Zeros stand for rows that the drive cannot read and that are relocated.
    async fn rows_without_memory(&self, id: ZoneId, role: Role, row: u64, rows: u64) -> Result<BufMut> {
        let gone = || self.ctx.error(ErrorKind::Gone, "read").in_zone(id);
        let read = self.read_rows(IoClass::Read, id, role, row, rows).ok_or_else(gone)?.await;
        match self.retry_read(id, role, (row, rows), read).await {
            Ok(data) => Ok(data),
            Err(e) if e.kind() != ErrorKind::Media => Err(e),
            Err(_) => {
                let mut data = BufMut::with_capacity(self.ctx.bytes(rows));
                for row in row..row + rows {
                    if self.is_relocated(id, role, row) {
                        data.extend_from_slice(&BufMut::zeroed(self.ctx.bytes(1)));
                    } else {
                        let read = self.read_rows(IoClass::Read, id, role, row, 1).ok_or_else(gone)?.await;
                        data.extend_from_slice(&self.retry_read(id, role, (row, 1), read).await?);
                    }
                }
                Ok(data)
            }
        }
    }

    /// True if memory holds the content of a row, so that the drive is not needed.
    fn is_relocated(&self, id: ZoneId, role: Role, row: u64) -> bool {
        let zone = self.zones.zone(id);
        let stripe = Stripe(row / self.ctx.layout.unit);
        let parity = self.ctx.layout.parity_on(stripe, role);
        let parity = parity.is_some_and(|parity| zone.relocated.contains_key(&(stripe, parity)))
            && !self.members.part(id, role).is_some_and(|part| part.has_bad_rows(&(row..row + 1)));
        parity || zone.stale.overlay_if_all_relocated(self.ctx.bytes(1), role, row, 1).is_some()
    }

    /// Puts relocated content over rows that were read from the part `role`, of stripes that were whole when the caller looked at the zone.
    ///
    /// The parity of the stripe at the pointer does not count here. A refused write takes the pointer back, so that a stripe that was whole is the one at the pointer: its
    /// parity in memory covers the data below the pointer alone, and the drives have the whole stripe's data and parity.
    pub(crate) fn apply_relocated_content(&self, id: ZoneId, role: Role, row: u64, data: &mut BufMut) {
        let zone = self.zones.zone(id);
        apply_relocated(&self.ctx.layout, self.ctx.bytes(1), (&zone.stale, &zone.relocated), role, row, data);
    }

    /// Puts the content that memory holds over rows that were read from the part `role`: relocated content, and the parity of the
    /// stripe at the pointer.
    pub(crate) fn apply_memory(&self, id: ZoneId, role: Role, row: u64, data: &mut BufMut) {
        self.apply_relocated_content(id, role, row, data);
        let zone = self.zones.zone(id);
        let (ctx, layout) = (&self.ctx, &self.ctx.layout);
        // The parity of the stripe at the write pointer is in memory only where its rows are stale.
        let Some(stripe) = zone.open_stripe(layout) else { return };
        let end = row + (data.len() / ctx.bytes(1)) as u64;
        let first = layout.row(stripe);
        let (from, to) = (first.max(row), (first + layout.unit_of(stripe)).min(end));
        let Some(parity) = layout.parity_on(stripe, role).filter(|_| from < to) else { return };
        let place = data.get_mut(ctx.bytes(from - row)..ctx.bytes(to - row));
        let rows = zone.parity.get(parity, ctx.bytes(from - first)..ctx.bytes(to - first));
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
