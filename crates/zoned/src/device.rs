//! The trait that every zoned device implements.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use crate::{
    Action, Buf, BufMut, Driver, Durability, Geometry, Io, IoClass, Lba, Op, Result, ShareStatus, ZoneId,
    ZoneInfo,
};

/// A zoned device: the emulator, a kernel device, an NVMe character device, an array.
///
/// The contract includes which writes survive a power cut: see docs/crash-safety.md.
pub trait ZonedDevice: Send + Sync + Debug {
    /// The device's fixed properties.
    fn geometry(&self) -> &Geometry;

    /// Starts an operation on the device. Never blocks and never runs the caller's code. Operations on one
    /// zone take effect in the order of submission, except that appends may be reordered among each other.
    fn submit(&self, op: Op) -> Io;

    /// As [`submit`](ZonedDevice::submit), of an operation with a purpose. A device without a scheduler ([`Share`](crate::Share)) of its own or below it does not distinguish
    /// classes, and `submit` gives the class [`IoClass::Log`].
    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        let _ = class;
        self.submit(op)
    }

    /// Gives operations on `blocks` that were submitted, and those before them in their zone, the class of a caller who waits for them, where that is higher than theirs: a
    /// scheduler ([`Share`](crate::Share)) holds them no longer than others of that class. `blocks` lie in one zone. Without a scheduler nothing happens.
    fn raise(&self, class: IoClass, blocks: Range<Lba>) {
        let _ = (class, blocks);
    }

    /// The clock and reactor that completes this device's operations.
    fn driver(&self) -> &Arc<dyn Driver>;

    /// Further details of the device as names and values, for `furrow device info` only: model, serial
    /// number, I/O engine, whether appends are native.
    fn details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The counts of the scheduler before the drive; `None` without one.
    fn share_status(&self) -> Option<ShareStatus> {
        None
    }
}

/// Forms of [`ZonedDevice::submit`] with a typed result.
impl dyn ZonedDevice + '_ {
    /// Reads the blocks at `at`; `into` gives the length and comes back filled.
    pub fn read(&self, at: Lba, into: BufMut) -> Io<BufMut> {
        self.submit(Op::Read { at, into }).typed()
    }

    /// As [`read`](Self::read), with a class.
    pub fn read_as(&self, class: IoClass, at: Lba, into: BufMut) -> Io<BufMut> {
        self.submit_as(class, Op::Read { at, into }).typed()
    }

    /// Writes whole blocks at the write pointer.
    pub fn write(&self, at: Lba, data: Buf, how: Durability) -> Io<()> {
        self.submit(Op::Write { at, data, how }).typed()
    }

    /// As [`write`](Self::write), with a class.
    pub fn write_as(&self, class: IoClass, at: Lba, data: Buf, how: Durability) -> Io<()> {
        self.submit_as(class, Op::Write { at, data, how }).typed()
    }

    /// Appends whole blocks; returns the address that the device chose.
    pub fn append(&self, zone: ZoneId, data: Buf, how: Durability) -> Io<Lba> {
        self.submit(Op::Append { zone, data, how }).typed()
    }

    /// Makes every write durable that was acknowledged before the flush was submitted.
    pub fn flush(&self) -> Io<()> {
        self.submit(Op::Flush).typed()
    }

    /// Opens, closes, finishes or resets a zone.
    pub fn zone(&self, zone: ZoneId, action: Action) -> Io<()> {
        self.submit(Op::Zone { zone, action }).typed()
    }

    /// Reports the states of `zones`, a range that is clamped to the device.
    pub fn report(&self, zones: Range<u32>) -> Io<Vec<ZoneInfo>> {
        self.submit(Op::Report { zones }).typed()
    }

    /// Reports the states of all zones. Waits on the calling thread.
    pub fn report_all(&self) -> Result<Vec<ZoneInfo>> {
        self.report(0..self.geometry().zones).wait()
    }
}
