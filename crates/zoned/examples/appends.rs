//! Example: appends in flight on an emulated drive, in virtual time: cargo run -p furrow-zoned --example
//! appends

use std::sync::Arc;
use std::time::Duration;

use units::{Driver, VirtualDriver};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Buf, Durability, ZoneId, ZonedDevice, join_all};

fn main() -> zoned::Result<()> {
    let clock = VirtualDriver::new(1);
    let latency = Latency { write: Duration::from_micros(15), ..Latency::default() };
    let device: Arc<dyn ZonedDevice> =
        Emu::memory(EmuOptions { latency, ..EmuOptions::default() }, clock.clone());

    // Submitting an append never blocks: all eight are in flight before the first one is waited for.
    let block = Buf::copy_from(&[7; 4096]);
    let ios = (0..8).map(|_| device.append(ZoneId(0), block.clone(), Durability::Cached)).collect();
    for landed in units::block_on(&*clock, join_all(ios)) {
        println!("landed at block {}", landed?);
    }
    device.flush().wait()?;
    println!("durable after {:?} of the drive's time", clock.now());
    Ok(())
}
