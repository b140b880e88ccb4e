//! Example: an array of four drives loses one drive, then the power, and no data: cargo run -p furrow-array
//! --example lost_drive

use std::sync::Arc;

use array::{Array, CreateOptions, OpenOptions, Slot};
use units::{VirtualDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Latency, Seeded};
use zoned::{Blocks, Buf, BufMut, Durability, ZoneId, ZonedDevice};

const BLOCK_BYTES: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = VirtualDriver::new(1);
    let (size, name) = (Blocks(1024), |n| format!("drive {n}"));
    let drive = |n: u32| {
        let options = EmuOptions {
            name: name(n),
            zones: 16,
            zone_size: size,
            zone_capacity: size,
            ..EmuOptions::default()
        };
        Emu::memory(options, clock.clone())
    };
    let drives: Vec<Arc<Emu>> = (0..4).map(drive).collect();
    let devices = |drives: &[Arc<Emu>]| {
        drives.iter().map(|d| Arc::clone(d) as Arc<dyn ZonedDevice>).collect::<Vec<_>>()
    };

    block_on(&*clock, async {
        array::create(&devices(&drives), &CreateOptions::default()).await?;
        let array = Array::open(devices(&drives), OpenOptions::default()).await?;
        let device: Arc<dyn ZonedDevice> = array.clone();
        device.append(ZoneId(0), Buf::copy_from(&[b'a'; BLOCK_BYTES]), Durability::Durable).await?;
        array.fail(Slot(1)).await?;
        device.append(ZoneId(0), Buf::copy_from(&[b'b'; BLOCK_BYTES]), Durability::Durable).await
    })?;

    // The power fails, and the array is opened without the drive in slot 1.
    let clock = VirtualDriver::new(2);
    let after = |n: u32| {
        let media = drives.get(n as usize).map(|drive| drive.power_cut(&mut Seeded::new(7 + u64::from(n))));
        media.map(|media| Emu::from_media(media, &name(n), Latency::default(), clock.clone()))
    };
    let left: Vec<Arc<Emu>> = [0, 2, 3].into_iter().filter_map(after).collect();
    let content = block_on(&*clock, async {
        let array = Array::open(devices(&left), OpenOptions::default()).await?;
        let device: Arc<dyn ZonedDevice> = array.clone();
        println!("{:?}", array.status().health());
        device.read(device.geometry().start(ZoneId(0)), BufMut::zeroed(2 * BLOCK_BYTES)).await
    })?;
    assert_eq!((content.first(), content.get(BLOCK_BYTES)), (Some(&b'a'), Some(&b'b')));
    println!("both records are there");
    Ok(())
}
