//! What an array of five zn540 writes and reads in virtual time, beside one of its drives.

use std::collections::VecDeque;
use std::sync::Arc;

use array::{Array, CreateOptions, OpenOptions};
use units::{Driver, VirtualDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Profile};
use zoned::{Blocks, Buf, BufMut, Durability, Io, Lba, ZonedDevice};

fn drive(driver: &Arc<dyn Driver>, n: u32) -> Arc<dyn ZonedDevice> {
    let profile = Profile::load("zn540").expect("there");
    let options = EmuOptions { zones: 8, name: format!("emu:{n}"), ..EmuOptions::of_profile(profile) };
    Emu::memory(options, Arc::clone(driver))
}

fn array(driver: &Arc<dyn Driver>) -> Arc<dyn ZonedDevice> {
    let drives: Vec<_> = (0..5).map(|n| drive(driver, n)).collect();
    block_on(&**driver, async {
        array::create(&drives, &CreateOptions::default()).await.expect("created");
        Array::open(drives, OpenOptions::default()).await.expect("opened") as Arc<dyn ZonedDevice>
    })
}

/// MiB/s of writing, and then of reading, `total` blocks at the start of zone 0 in pieces of `piece`, `depth` in flight.
fn rates(device: &Arc<dyn ZonedDevice>, total: u64, piece: u64, depth: usize) -> (f64, f64) {
    let driver = Arc::clone(device.driver());
    let data = Buf::copy_from(&vec![0x5a; piece as usize * 4096]);
    let rate = |blocks: u64, since| blocks as f64 / 256.0 / driver.now().since(since).as_secs_f64();
    block_on(&*driver, async {
        let start = driver.now();
        let mut flying: VecDeque<Io<()>> = VecDeque::new();
        for at in (0..total).step_by(piece as usize) {
            if flying.len() == depth {
                flying.pop_front().expect("some").await.expect("written");
            }
            flying.push_back(device.write(Lba(at), data.clone(), Durability::Cached));
        }
        for io in flying {
            io.await.expect("written");
        }
        let writes = rate(total, start);
        let start = driver.now();
        let mut flying: VecDeque<Io<BufMut>> = VecDeque::new();
        for at in (0..total).step_by(piece as usize) {
            if flying.len() == depth {
                flying.pop_front().expect("some").await.expect("read");
            }
            flying.push_back(device.read(Lba(0).plus(Blocks(at)), BufMut::zeroed(data.len())));
        }
        for io in flying {
            io.await.expect("read");
        }
        (writes, rate(total, start))
    })
}

#[test]
fn whole_stripes_are_written_at_the_bandwidth_of_four_drives() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let (one, one_read) = rates(&drive(&driver, 9), 16 << 10, 16, 32);
    let fresh = || array(&driver);
    let (stripes, reads) = rates(&fresh(), 64 << 10, 64, 32);
    let (units, unit_reads) = rates(&fresh(), 64 << 10, 16, 32);
    let (single, _) = rates(&fresh(), 4 << 10, 1, 1);
    let (alone, _) = rates(&drive(&driver, 8), 4 << 10, 1, 1);
    println!("one drive, 64 KiB, depth 32: {one:.0} MiB/s written, {one_read:.0} read");
    println!(
        "array, 256 KiB, depth 32: {stripes:.0} written ({:.3} of 4 drives), {reads:.0} read",
        stripes / one / 4.0
    );
    println!(
        "array, 64 KiB, depth 32: {units:.0} written ({:.3} of 4 drives), {unit_reads:.0} read",
        units / one / 4.0
    );
    println!("4 KiB, depth 1: {single:.1} MiB/s, one drive {alone:.1}");
    assert!(stripes > 0.98 * 4.0 * one, "{stripes:.0} MiB/s, four drives {:.0}", 4.0 * one);
}
