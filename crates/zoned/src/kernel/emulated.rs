//! An emulated drive behind zone queues: one write of a zone in flight at a time, as on the drives of the kernel.

use std::sync::Arc;

use crate::emu::{Emu, EmuOptions};
use crate::kernel::{Backend, DriveOp, Failure, OpenedDevice, QueueRules, QueuedDevice};
use crate::{Buf, Done, Driver, Durability, Op, Result, ZonedDevice};

/// The emulated drive with the order of a drive that the kernel serves (`nvme:`): a zone has one write in flight at a time, and
/// adjacent writes that wait go out as one. Appends are the drive's own, and any number of them is in flight.
pub(crate) fn one_write_per_zone(emu: Arc<Emu>) -> Arc<dyn ZonedDevice> {
    let (geometry, driver) = (emu.geometry().clone(), Arc::clone(emu.driver()));
    let report = emu.all_zones();
    let rules = QueueRules::of(&geometry, true);
    let details = vec![("writes", "one at a time in each zone".to_owned())];
    let backend = EmulatedBackend { emu };
    QueuedDevice::new(OpenedDevice { geometry, rules, report, backend, details }, driver)
}

/// An emulated drive in memory, as its options say: behind zone queues if [`EmuOptions::one_write`] is set.
pub fn emulated(options: EmuOptions, driver: Arc<dyn Driver>) -> Arc<dyn ZonedDevice> {
    let one_write = options.one_write;
    let emu = Emu::memory(options, driver);
    if one_write { one_write_per_zone(emu) } else { emu }
}

/// An emulated drive that zone queues order.
struct EmulatedBackend {
    emu: Arc<Emu>,
}

impl Backend for EmulatedBackend {
    type Reply = Result<Done>;

    fn send(&self, op: DriveOp, finish: impl FnOnce(Self::Reply) + Send + 'static) {
        let how = |durable| if durable { Durability::Durable } else { Durability::Cached };
        let op = match op {
            DriveOp::Read { at, into, .. } => Op::Read { at, into },
            DriveOp::Write { at, data, durable, .. } => {
                Op::Write { at, data: Buf::joined(data), how: how(durable) }
            }
            DriveOp::Append { zone, data, durable } => Op::Append { zone, data, how: how(durable) },
            DriveOp::Zone { zone, action } => Op::Zone { zone, action },
            DriveOp::Flush => Op::Flush,
            DriveOp::Report { zones } => Op::Report { zones },
        };
        let io = self.emu.submit(op);
        self.emu.driver().drive(Box::pin(async move { finish(io.await) }));
    }

    fn interpret(&self, reply: Self::Reply) -> std::result::Result<Done, Failure> {
        reply.map_err(|mut error| {
            let buffer = error.take_buffer();
            Failure { buffer, ..Failure::new(error.kind(), error.detail().to_owned()) }
        })
    }

    fn is_gone(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use units::{VirtualDriver, block_on};

    use super::*;
    use crate::conformance::failures;
    use crate::emu::Latency;
    use crate::kernel::fake::{SHAPES, block, options};
    use crate::{Io, Lba, ZoneId, join_all};

    #[test]
    fn the_device_conforms_to_the_contract() {
        let timed =
            ["zones=24&zone-size=1MiB&profile=zn540", "zones=24&zone-size=1MiB&profile=smallzone&reorder=on"];
        for shape in SHAPES.iter().chain(&timed) {
            let options = EmuOptions { one_write: true, ..options(shape) };
            let found = failures(&emulated(options, VirtualDriver::new(1)));
            assert!(found.is_empty(), "{shape}:\n{}", found.join("\n"));
        }
    }

    /// Operations of 10 us each: the time until eight of them, submitted at once, have completed.
    fn time_of_eight(one_write: bool, submit: fn(&dyn ZonedDevice, u64) -> Io) -> Duration {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let latency = Latency { write: Duration::from_micros(10), ..Latency::NONE };
        let options = EmuOptions { one_write, latency, ..EmuOptions::default() };
        let device = emulated(options, Arc::clone(&driver));
        block_on(&*driver, async {
            let all: Vec<Io> = (0..8).map(|n| submit(&*device, n)).collect();
            join_all(all).await.into_iter().for_each(|done| drop(done.expect("done")));
            let zone = device.report(0..1).await.expect("reported")[0];
            assert_eq!(zone.pointer.0, 8);
        });
        Duration::from_nanos(driver.now().0)
    }

    #[test]
    fn writes_that_wait_for_one_in_flight_go_out_together_and_appends_do_not_wait() {
        let write: fn(&dyn ZonedDevice, u64) -> Io = |device, n| {
            device.submit(Op::Write { at: Lba(n), data: block(4096, n), how: Durability::Cached })
        };
        let append: fn(&dyn ZonedDevice, u64) -> Io = |device, n| {
            device.submit(Op::Append { zone: ZoneId(0), data: block(4096, n), how: Durability::Cached })
        };
        let times = [(false, write), (true, write), (true, append)]
            .map(|(one, op)| time_of_eight(one, op).as_micros());
        assert_eq!(times, [10, 20, 10]);
    }
}
