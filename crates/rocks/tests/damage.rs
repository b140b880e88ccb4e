//! A damaged log makes the opening fail; a database never opens with fewer keys than were acknowledged.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::sync::Arc;

use fs::{FormatOptions, Fs, MountOptions, ZoneRole};
use rocks::{Db, DbOptions, WriteBatch};
use units::{Blocks, Driver, RealDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Action, Buf, BufMut, Durability, ZonedDevice};

#[test]
fn a_flipped_bit_in_the_log_fails_the_open_instead_of_losing_keys() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let zone = Blocks(1024);
    let options = EmuOptions { zones: 64, zone_size: zone, zone_capacity: zone, ..EmuOptions::default() };
    let emu = Emu::memory(options, Arc::clone(&driver));
    let device: Arc<dyn ZonedDevice> = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
    block_on(&*driver, Fs::format(&device, &FormatOptions::default())).unwrap();
    let fs = block_on(&*driver, Fs::mount(Arc::clone(&device), &MountOptions::default())).unwrap();
    let db = Db::open(&fs, "/db", &DbOptions::default()).unwrap();
    for n in 0..50_u32 {
        let mut batch = WriteBatch::new();
        batch.put(&n.to_le_bytes(), &[n as u8; 2000]);
        db.write(&batch, true).unwrap();
    }
    // The copy of the media is taken here, as if the process were killed now.
    let media = emu.media();
    let logs: Vec<_> =
        fs.zone_map().into_iter().filter(|z| z.role == ZoneRole::Log).map(|z| z.zone).collect();
    db.close().unwrap();
    block_on(&*driver, fs.unmount()).unwrap();

    let open = |flipped: bool| {
        let emu = Emu::from_media(media.clone(), "damaged", Latency::default(), Arc::clone(&driver));
        let device: Arc<dyn ZonedDevice> = emu;
        let mut pointers = Vec::new();
        for &log in logs.iter().filter(|_| flipped) {
            let at = device.geometry().start(log);
            let pointer = block_on(&*driver, device.report(log.0..log.0 + 1)).unwrap()[0].pointer;
            pointers.push(pointer);
            if pointer < Blocks(40) {
                continue;
            }
            let into = BufMut::zeroed(pointer.0 as usize * 4096);
            let mut image = block_on(&*driver, device.read(at, into)).unwrap().to_vec();
            image[25 * 4096 + 700] ^= 1;
            block_on(&*driver, device.zone(log, Action::Reset)).unwrap();
            block_on(&*driver, device.write(at, Buf::copy_from(&image), Durability::Durable)).unwrap();
        }
        assert!(!flipped || pointers.iter().any(|p| *p >= Blocks(40)), "{pointers:?}");
        let fs = block_on(&*driver, Fs::mount(device, &MountOptions::default())).unwrap();
        let opened = Db::open(&fs, "/db", &DbOptions::default()).map(|db| {
            let all = (0..50_u32).filter(|n| db.get(&n.to_le_bytes()).unwrap().is_some()).count();
            db.close().unwrap();
            all
        });
        block_on(&*driver, fs.unmount()).unwrap();
        opened
    };
    assert_eq!(open(false).unwrap(), 50);
    for attempt in 0..2 {
        let error = open(true).unwrap_err().to_string();
        assert!(error.contains("lost entry"), "attempt {attempt}: {error}");
    }
}
