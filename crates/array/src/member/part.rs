//! A drive's part of a logical zone in use.

use std::ops::Range;

use zoned::{Action, Buf, BufMut, Io, IoClass, Lba, Result, ZoneId, ZoneInfo};

use crate::layout::Slot;
use crate::layout::placement::Place;
use crate::member::Member;
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;

/// A drive's part of a logical zone.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    id: ZoneId,
    member: &'a Member,
    /// Where the part lies.
    place: Place,
}

impl<'a> Part<'a> {
    /// The part of logical zone `id` at `place`, on the drive of `member`.
    pub(crate) fn new(id: ZoneId, member: &'a Member, place: Place) -> Part<'a> {
        Part { id, member, place }
    }

    /// The member with the part.
    pub(crate) fn member(self) -> &'a Member {
        self.member
    }

    /// The slot of the member with the part.
    pub(crate) fn slot(self) -> Slot {
        self.member.slot
    }

    /// Where the part lies.
    pub(crate) fn place(self) -> Place {
        self.place
    }

    /// The drive that takes the part's writes: also a new drive, once it holds the part.
    pub(crate) fn device(self) -> Option<MemberDrive> {
        self.member.device_for_zone(self.id)
    }

    /// Writes rows. `None` if the drive is missing or failed.
    pub(crate) fn write(self, class: IoClass, row: u64, data: Buf) -> Option<Io<()>> {
        self.member.write(class, self.id, self.place, row, data)
    }

    /// Appends rows behind all that was submitted. Returns the address of row 0 beside the operation. `None` if the drive is missing
    /// or failed, or takes no append of this length.
    pub(crate) fn append(self, class: IoClass, data: Buf) -> Option<(Lba, Io<Lba>)> {
        self.member.append_rows(class, self.place, data)
    }

    /// Reads rows. Gives the buffer back if the drive is missing or failed.
    pub(crate) fn read(self, class: IoClass, row: u64, into: BufMut) -> Result<Io<BufMut>, BufMut> {
        self.member.read(class, self.id, self.place, row, into)
    }

    /// Gives operations on `rows` that the drive's scheduler holds the class of a caller who waits for them.
    pub(crate) fn raise(self, class: IoClass, rows: Range<u64>) {
        if let Some(device) = self.device() {
            PhysicalZone::with_part(&*device, self.place).of_class(class).raise(rows);
        }
    }

    /// Sends a command to the physical zone. `None` if the drive is missing or failed.
    pub(crate) fn act(self, action: Action) -> Option<Io<()>> {
        self.member.act(self.id, self.place, action)
    }

    /// The physical zone's entry in a zone report; `None` if the drive is missing or failed.
    pub(crate) async fn info(self) -> Result<Option<ZoneInfo>> {
        let Some(device) = self.member.device() else { return Ok(None) };
        PhysicalZone::with_part(&*device, self.place).info().await
    }

    /// True if the content of any of `rows` is not recoverable.
    pub(crate) fn has_bad_rows(self, rows: &Range<u64>) -> bool {
        self.member.bad_rows.intersects(self.id, rows)
    }
}
