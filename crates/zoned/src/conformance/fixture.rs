//! The device under test, and operations on it that the checks share.

use std::sync::Arc;

use crate::{
    Action, Blocks, Buf, BufMut, Durability, ErrorKind, Geometry, Lba, Result, ZoneId, ZoneInfo, ZoneState,
    ZonedDevice,
};

/// A check of the conformance suite. The error says what was wrong.
pub(super) type Check = fn(&mut Fixture<'_>) -> Outcome;
pub(super) type Outcome<T = ()> = std::result::Result<T, String>;

/// A device under the conformance suite, whose sequential zones are empty.
pub(super) struct Fixture<'a> {
    pub(super) dev: &'a Arc<dyn ZonedDevice>,
    next: u32,
}

impl<'a> Fixture<'a> {
    pub(super) fn new(dev: &'a Arc<dyn ZonedDevice>) -> Outcome<Fixture<'a>> {
        for info in dev.report_all().map_err(|e| format!("the report: {e}"))? {
            match info.state {
                ZoneState::Conventional | ZoneState::ReadOnly | ZoneState::Offline | ZoneState::Empty => {}
                _ => dev.zone(info.zone, Action::Reset).wait().map_err(|e| format!("a reset: {e}"))?,
            }
        }
        Ok(Fixture { dev, next: dev.geometry().conventional })
    }

    pub(super) fn geometry(&self) -> &Geometry {
        self.dev.geometry()
    }

    /// An empty zone that this check has not used; `None` if no such zone is left.
    pub(super) fn next_empty_zone(&mut self) -> Outcome<Option<ZoneId>> {
        while self.next < self.geometry().zones {
            let zone = ZoneId(self.next);
            self.next += 1;
            if self.zone_info(zone)?.state == ZoneState::Empty {
                return Ok(Some(zone));
            }
        }
        Ok(None)
    }

    pub(super) fn zone(&mut self) -> Outcome<ZoneId> {
        self.next_empty_zone()?.ok_or("the device has too few empty zones for this check".into())
    }

    pub(super) fn zone_info(&self, zone: ZoneId) -> Outcome<ZoneInfo> {
        let report = self.dev.report(zone.0..zone.0 + 1).wait().map_err(|e| format!("the report: {e}"))?;
        report.into_iter().next().ok_or_else(|| format!("no report for zone {zone}"))
    }

    pub(super) fn start(&self, zone: ZoneId) -> Lba {
        self.geometry().start(zone)
    }

    /// `count` blocks of data, a function of `tag`.
    pub(super) fn tagged_data(&self, tag: u64, count: u64) -> Buf {
        let size = self.geometry().block_size as usize;
        let mut bytes = Vec::with_capacity(size * count as usize);
        for block in 0..count {
            let word =
                (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ block.wrapping_mul(0xc2b2_ae3d_27d4_eb4f)) | 1;
            bytes.extend(word.to_le_bytes().iter().cycle().take(size));
        }
        Buf::copy_from(&bytes)
    }

    pub(super) fn write(&self, at: Lba, data: Buf) -> Result<()> {
        self.dev.write(at, data, Durability::Cached).wait()
    }

    pub(super) fn append(&self, zone: ZoneId, data: Buf) -> Result<Lba> {
        self.dev.append(zone, data, Durability::Cached).wait()
    }

    pub(super) fn act(&self, zone: ZoneId, action: Action) -> Result<()> {
        self.dev.zone(zone, action).wait()
    }

    pub(super) fn read(&self, at: Lba, count: u64) -> Result<BufMut> {
        self.dev.read(at, BufMut::zeroed(count as usize * self.geometry().block_size as usize)).wait()
    }

    /// Blocks of the longest append that fits into a zone.
    pub(super) fn max_append_blocks(&self) -> u64 {
        let geometry = self.geometry();
        geometry.max_append.min(geometry.zone_capacity).min(geometry.max_transfer).0
    }

    /// Fills a zone: writes small zones to the end, finishes large ones.
    pub(super) fn fill_zone(&self, zone: ZoneId) -> Outcome {
        const MAX_WRITTEN_BYTES: u64 = 64 << 20;
        let geometry = self.geometry();
        let (mut at, end) = (0, geometry.zone_capacity.0);
        if geometry.zone_capacity.bytes(geometry.block_size).0 > MAX_WRITTEN_BYTES {
            at = self.max_append_blocks();
            expect_ok("a write", self.write(self.start(zone), self.tagged_data(1, at)))?;
            return expect_ok("a finish", self.act(zone, Action::Finish));
        }
        while at < end {
            let n = geometry.max_transfer.0.min(end - at);
            expect_ok("a write", self.write(self.start(zone).plus(Blocks(at)), self.tagged_data(at, n)))?;
            at += n;
        }
        Ok(())
    }

    /// Checks that a read at `at` returns `data`.
    pub(super) fn expect_content(&self, at: Lba, data: &Buf) -> Outcome {
        let size = self.geometry().block_size as usize;
        let found = expect_ok("a read", self.read(at, (data.len() / size) as u64))?;
        ensure(*found == **data, || format!("block {at} does not read back as written"))
    }

    pub(super) fn expect_state(&self, zone: ZoneId, state: ZoneState, pointer: u64) -> Outcome {
        let info = self.zone_info(zone)?;
        ensure(info.state == state && info.pointer.0 == pointer, || {
            let (found, at) = (info.state, info.pointer.0);
            format!("zone {zone} is {found:?} with the pointer at {at}; {state:?} at {pointer} was expected")
        })
    }
}

/// Requires that an operation succeeds.
pub(super) fn expect_ok<T>(what: &str, result: Result<T>) -> Outcome<T> {
    result.map_err(|e| format!("{what} failed: {e}"))
}

/// Requires that an operation fails with one of `kinds`, and an error that names the device.
pub(super) fn expect_error<T>(what: &str, result: Result<T>, kinds: &[ErrorKind]) -> Outcome {
    match result {
        Ok(_) => Err(format!("{what} succeeded; {kinds:?} was expected")),
        Err(e) if !kinds.contains(&e.kind()) => Err(format!("{what} gave {e:?}; {kinds:?} was expected")),
        Err(e) if e.device().is_empty() => Err(format!("{what}: the error names no device: {e}")),
        Err(_) => Ok(()),
    }
}

/// Requires that an operation fails with one of `kinds`, and an error that names `zone`.
pub(super) fn expect_error_in_zone<T>(
    zone: ZoneId,
    what: &str,
    result: Result<T>,
    kinds: &[ErrorKind],
) -> Outcome {
    let named = result.as_ref().err().map(|e| (e.zone(), e.to_string()));
    expect_error(what, result, kinds)?;
    match named {
        Some((Some(found), _)) if found == zone => Ok(()),
        Some((_, text)) => Err(format!("{what}: the error does not name zone {zone}: {text}")),
        None => Ok(()),
    }
}

/// Requires that `ok` is true.
pub(super) fn ensure(ok: bool, message: impl FnOnce() -> String) -> Outcome {
    if ok { Ok(()) } else { Err(message()) }
}
