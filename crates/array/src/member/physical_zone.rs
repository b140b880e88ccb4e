//! Operations on one physical zone of a drive, or on one part in the zone, addressed by row.

use std::ops::Range;

use zoned::{
    Action, Blocks, Buf, BufMut, Durability, Io, IoClass, Lba, Op, Result, ZoneId, ZoneInfo, ZoneState,
    ZonedDevice,
};

use crate::layout::placement::Place;

/// A physical zone of a drive. Rows are blocks, counted from the start of the zone, or from the first row of a part in the zone.
#[derive(Clone, Copy)]
pub(crate) struct PhysicalZone<'a> {
    device: &'a dyn ZonedDevice,
    zone: ZoneId,
    /// The row of the physical zone that counts as row 0.
    first: u64,
    /// The class of the zone's operations.
    class: IoClass,
}

impl<'a> PhysicalZone<'a> {
    /// The physical zone with the number `zone`.
    pub(crate) fn at(device: &'a dyn ZonedDevice, zone: ZoneId) -> PhysicalZone<'a> {
        PhysicalZone { device, zone, first: 0, class: IoClass::default() }
    }

    /// The physical zone with a part. Rows count from the part's first one; commands are for the whole physical zone.
    pub(crate) fn with_part(device: &'a dyn ZonedDevice, place: Place) -> PhysicalZone<'a> {
        PhysicalZone { device, zone: place.zone, first: place.row, class: IoClass::default() }
    }

    /// The zone, whose operations have `class` for the drive's scheduler.
    pub(crate) fn of_class(self, class: IoClass) -> PhysicalZone<'a> {
        PhysicalZone { class, ..self }
    }

    /// The address of a row of the zone.
    pub(crate) fn address(self, row: u64) -> Lba {
        self.device.geometry().start(self.zone).plus(Blocks(self.first + row))
    }

    pub(crate) fn read(self, row: u64, into: BufMut) -> Io<BufMut> {
        self.device.read_as(self.class, self.address(row), into)
    }

    pub(crate) fn write(self, row: u64, data: Buf, how: Durability) -> Io<()> {
        self.device.write_as(self.class, self.address(row), data, how)
    }

    /// Appends blocks; returns their address.
    pub(crate) fn append(self, data: Buf, how: Durability) -> Io<Lba> {
        self.device.submit_as(self.class, Op::Append { zone: self.zone, data, how }).typed()
    }

    /// Gives operations on `rows` that the drive's scheduler holds the zone's class.
    pub(crate) fn raise(self, rows: Range<u64>) {
        self.device.raise(self.class, self.address(rows.start)..self.address(rows.end));
    }

    pub(crate) fn act(self, action: Action) -> Io<()> {
        self.device.submit_as(self.class, Op::Zone { zone: self.zone, action }).typed()
    }

    /// The zone's entry in a zone report; `None` if the drive has no such zone.
    pub(crate) async fn info(self) -> Result<Option<ZoneInfo>> {
        Ok(self.device.report(self.zone.0..self.zone.0 + 1).await?.first().copied())
    }

    /// Resets the zone unless it is empty. The reset is durable when this returns: old content does not come back between
    /// newly written rows.
    pub(crate) async fn clear(self) -> Result<()> {
        if self.info().await?.is_none_or(|info| info.state != ZoneState::Empty) {
            self.act(Action::Reset).await?;
            self.device.flush().await?;
        }
        Ok(())
    }
}
