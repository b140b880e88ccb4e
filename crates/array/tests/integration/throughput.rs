//! Rates and tail latencies of an array of five zn540 in virtual time, compared with one of its drives.
//! Virtual time is a function of the code, so that the tests assert the numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use array::{Array, CreateOptions, OpenOptions, Placement};
use parking_lot::Mutex;
use units::{Driver, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, Profile};
use zoned::{Blocks, Buf, BufMut, Durability, Lba, ZonedDevice};

/// Drives of the array.
const DRIVES: f64 = 5.0;
/// Blocks in a stripe unit of the array.
const UNIT_BLOCKS: u64 = 16;

/// Without stored maps, whose records would count.
fn fixed_placement() -> CreateOptions {
    CreateOptions { placement: Placement::Fixed, ..CreateOptions::default() }
}

fn drive(driver: &Arc<dyn Driver>, n: u32) -> Arc<dyn ZonedDevice> {
    let profile = Profile::load("zn540").expect("there");
    let options = EmuOptions { zones: 8, name: format!("emu:{n}"), ..EmuOptions::of_profile(profile) };
    Emu::memory(options, Arc::clone(driver))
}

fn one() -> Arc<dyn ZonedDevice> {
    drive(&(VirtualDriver::new(1) as Arc<dyn Driver>), 9)
}

fn array() -> Arc<Array> {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drives: Vec<_> = (0..5).map(|n| drive(&driver, n)).collect();
    block_on(&*driver, async {
        array::create(&drives, &fixed_placement()).await.expect("created");
        Array::open(drives, OpenOptions::default()).await.expect("opened")
    })
}

/// Rate and latencies that one run measured.
#[derive(Debug)]
struct Run {
    /// MiB/s.
    rate: f64,
    /// Latencies in microseconds: 99.9th percentile, and mean.
    p999: f64,
    mean: f64,
}

/// Writes or reads `total` blocks from the start of zone 0 in pieces of `piece`, `depth` of them in flight.
fn run(device: &Arc<dyn ZonedDevice>, write: bool, total: u64, piece: u64, depth: u64) -> Run {
    let driver = Arc::clone(device.driver());
    let data = Buf::copy_from(&vec![0x5a; piece as usize * 4096]);
    let next = Arc::new(AtomicU64::new(0));
    let times: Arc<Mutex<Vec<f64>>> = Arc::default();
    let start = driver.now();
    block_on(&*driver, async {
        let tasks: Vec<_> = (0..depth)
            .map(|_| {
                let (device, data) = (Arc::clone(device), data.clone());
                let (next, times) = (Arc::clone(&next), Arc::clone(&times));
                spawn(&*driver, "client", async move {
                    loop {
                        // Nothing runs between taking an address and the submission, so that writes are in
                        // order.
                        let at = next.fetch_add(piece, Ordering::Relaxed);
                        if at >= total {
                            return;
                        }
                        let begin = device.driver().now();
                        if write {
                            let io = device.write(Lba(at), data.clone(), Durability::Cached);
                            io.await.expect("written");
                        } else {
                            let io = device.read(Lba(0).plus(Blocks(at)), BufMut::zeroed(data.len()));
                            drop(io.await.expect("read"));
                        }
                        let took = device.driver().now().since(begin);
                        times.lock().push(took.as_secs_f64() * 1e6);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
    let rate = total as f64 / 256.0 / driver.now().since(start).as_secs_f64();
    let mut times = times.lock().clone();
    times.sort_by(f64::total_cmp);
    let p999 = times.get(times.len() * 999 / 1000).copied().unwrap_or(0.0);
    Run { rate, p999, mean: times.iter().sum::<f64>() / times.len() as f64 }
}

fn run_writes(device: &Arc<dyn ZonedDevice>, total: u64, piece: u64, depth: u64) -> Run {
    run(device, true, total, piece, depth)
}

fn fresh_array() -> Arc<dyn ZonedDevice> {
    array()
}

#[test]
fn whole_stripes_are_written_at_the_bandwidth_of_four_drives() {
    let one = run_writes(&one(), 16 << 10, UNIT_BLOCKS, 32).rate;
    for (name, piece) in [("whole stripes of 256 KiB", 4 * UNIT_BLOCKS), ("blocks of 64 KiB", UNIT_BLOCKS)] {
        let rate = run_writes(&fresh_array(), 64 << 10, piece, 32).rate;
        let share = rate / one / (DRIVES - 1.0);
        println!("{name}, depth 32: {rate:.0} MiB/s written, {share:.4} of four drives");
        assert!(share > 0.98, "{name}: {rate:.0} MiB/s, four drives {:.0}", 4.0 * one);
    }
}

/// Microseconds that an idle drive takes for a write of `blocks` blocks.
fn idle_write_micros(blocks: u64) -> f64 {
    let device = one();
    let driver = Arc::clone(device.driver());
    let data = Buf::copy_from(&vec![0x5a; blocks as usize * 4096]);
    block_on(&*driver, async {
        let mut sum = 0.0;
        for n in 0..100 {
            sleep_until(&*driver, driver.now().after(Duration::from_millis(1))).await;
            let begin = driver.now();
            device.write(Lba(n * blocks), data.clone(), Durability::Cached).await.expect("written");
            sum += driver.now().since(begin).as_secs_f64() * 1e6;
        }
        sum / 100.0
    })
}

#[test]
fn one_write_at_a_time_takes_as_long_as_its_slowest_drive() {
    // A record of partial parity is a block longer than its rows.
    let logged = |rows: u64| idle_write_micros(rows).max(idle_write_micros(rows + 1));
    // Writes of whole stripes keep all drives busy: the drives' bandwidth is the ceiling.
    let busy = UNIT_BLOCKS as f64 / 256.0 / run_writes(&one(), 64 << 10, UNIT_BLOCKS, 32).rate * 1e6;
    for (name, piece) in [("4 KiB", 1), ("16 KiB", 4), ("64 KiB", UNIT_BLOCKS), ("256 KiB", 4 * UNIT_BLOCKS)]
    {
        // The last of a stripe's four units sends the parity to its place, and nothing is logged.
        let ceiling = match piece {
            64 => idle_write_micros(UNIT_BLOCKS).max(busy),
            _ => (3.0 * logged(piece) + idle_write_micros(piece)) / 4.0,
        };
        let run = run_writes(&fresh_array(), 64 << 10, piece, 1);
        let share = ceiling / run.mean;
        println!(
            "{name}, depth 1: {:.2} us a write, {:.1} MiB/s; the ceiling is {ceiling:.2} us, {:.1} MiB/s: {share:.4}",
            run.mean,
            run.rate,
            piece as f64 / 256.0 / ceiling * 1e6
        );
        assert!(share > 0.98, "{name}: {:.2} us, the ceiling is {ceiling:.2}", run.mean);
    }
}

#[test]
fn all_drives_are_read_at_once() {
    let device = one();
    run_writes(&device, 16 << 10, UNIT_BLOCKS, 32);
    let one = run(&device, false, 16 << 10, UNIT_BLOCKS, 32).rate;
    let device = fresh_array();
    run_writes(&device, 64 << 10, 4 * UNIT_BLOCKS, 32);
    // The second run has as many reads in flight as five drives with 32 each.
    for (piece, depth, least) in
        [(4 * UNIT_BLOCKS, 32, 0.98), (UNIT_BLOCKS, 160, 0.98), (UNIT_BLOCKS, 32, 0.98)]
    {
        let rate = run(&device, false, 64 << 10, piece, depth).rate;
        let share = rate / one / DRIVES;
        println!("{} KiB, depth {depth}: {rate:.0} MiB/s read, {share:.4} of five drives", piece * 4);
        assert!(share > least, "{rate:.0} MiB/s, five drives {:.0}", DRIVES * one);
    }
}

#[test]
fn tails_are_those_of_one_drive_under_the_same_load() {
    for depth in [1, 8, 32] {
        // A write of a whole stripe is 64 KiB on each drive.
        let alone = one();
        let drive = run_writes(&alone, 32 << 10, UNIT_BLOCKS, depth);
        let device = fresh_array();
        let array = run_writes(&device, 128 << 10, 4 * UNIT_BLOCKS, depth);
        let share = array.p999 / drive.p999;
        println!("depth {depth}: writes p99.9 {:.1} us, one drive {:.1}: {share:.3}", array.p999, drive.p999);
        assert!(share < 1.1, "depth {depth}: {:.1} us, one drive {:.1}", array.p999, drive.p999);
        // Reads that one drive answers are as fast as the drive's own.
        let drive = run(&alone, false, 32 << 10, UNIT_BLOCKS, depth);
        let array = run(&device, false, 128 << 10, UNIT_BLOCKS, depth);
        let share = array.p999 / drive.p999;
        println!("depth {depth}: reads p99.9 {:.1} us, one drive {:.1}: {share:.3}", array.p999, drive.p999);
        assert!(share < 1.1, "depth {depth}: {:.1} us, one drive {:.1}", array.p999, drive.p999);
    }
}

#[test]
fn units_written_32_at_a_time_have_the_tail_of_one_drive() {
    // With its share of the parity, each of the five drives has 8 writes in flight.
    let drive = run_writes(&one(), 32 << 10, UNIT_BLOCKS, 8);
    let array = run_writes(&fresh_array(), 128 << 10, UNIT_BLOCKS, 32);
    let share = array.p999 / drive.p999;
    println!("64 KiB, depth 32: writes p99.9 {:.1} us, one drive {:.1}: {share:.3}", array.p999, drive.p999);
    assert!(share < 1.1, "{:.1} us, one drive {:.1}", array.p999, drive.p999);
}

#[test]
fn small_writes_have_the_tail_of_one_drive() {
    let drive = run_writes(&one(), 8 << 10, 1, 1);
    let array = run_writes(&fresh_array(), 32 << 10, 1, 1);
    let share = array.p999 / drive.p999;
    println!("4 KiB, depth 1: writes p99.9 {:.2} us, one drive {:.2}: {share:.3}", array.p999, drive.p999);
    assert!(share < 1.1, "{:.2} us, one drive {:.2}", array.p999, drive.p999);
}

#[test]
fn small_writes_far_ahead_of_the_drives_send_one_command_of_parity_a_stripe() {
    // The drives' rate in commands is the limit: 64 of the 65 commands of a stripe are data.
    let drive = run_writes(&one(), 16 << 10, 1, 102).rate;
    let array = run_writes(&fresh_array(), 64 << 10, 1, 512).rate;
    let share = array / (drive * DRIVES * 64.0 / 65.0);
    println!("4 KiB, depth 512: {array:.0} MiB/s, one drive {drive:.0} at depth 102: {share:.3}");
    assert!(array >= 3477.0, "{array:.0} MiB/s");
}

#[test]
fn a_small_write_costs_two_blocks_more() {
    let array = array();
    let device: Arc<dyn ZonedDevice> = Arc::clone(&array) as Arc<dyn ZonedDevice>;
    let mut most = 0;
    let begin = array.counters();
    let mut before = begin;
    // Three stripes are written, with one write in flight at a time.
    for at in 0..3 * 4 * UNIT_BLOCKS {
        let io = device.write(Lba(at), Buf::zeroed(4096), Durability::Cached);
        block_on(&**device.driver(), io).expect("written");
        let after = array.counters();
        most = most.max(bytes_beside_data(&after) - bytes_beside_data(&before));
        before = after;
    }
    let data = before.data_bytes - begin.data_bytes;
    let more = bytes_beside_data(&before) - bytes_beside_data(&begin);
    println!(
        "a 4 KiB write: at most {most} bytes more, {:.0} on average",
        more as f64 * 4096.0 / data as f64
    );
    assert_eq!(data, (3 * 256) << 10);
    assert_eq!((before.parity_bytes - begin.parity_bytes) * 4, data);
    assert_eq!(most, 8192);
    assert!(more * 4 <= 7 * data, "{more} bytes more for {data}");
}

/// Bytes written to drives beside clients' data.
fn bytes_beside_data(counters: &array::Counters) -> u64 {
    counters.parity_bytes + counters.partial_parity_bytes + counters.metadata_bytes
}

/// The virtual time that the opening of an array of `count` drives takes, each with as long a metadata log.
fn mount_time(count: u32) -> Duration {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drives: Vec<_> = (0..count).map(|n| drive(&driver, n)).collect();
    block_on(&*driver, async {
        array::create(&drives, &fixed_placement()).await.expect("created");
        let array = Array::open(drives.clone(), OpenOptions::default()).await.expect("opened");
        let device: &dyn ZonedDevice = &*array;
        let block = Buf::copy_from(&vec![0x5a; 4096]);
        // Each stripe logs parity on one drive: as many stripes for each drive.
        let stripe = UNIT_BLOCKS * u64::from(count - 1);
        for at in 0..20 * u64::from(count) * stripe {
            device.write(Lba(at), block.clone(), Durability::Cached).await.expect("written");
        }
        device.flush().await.expect("flushed");
        drop(array);
        let begun = driver.now();
        Array::open(drives, OpenOptions::default()).await.expect("opened again");
        driver.now().since(begun)
    })
}

/// A mount reads the superblocks and logs of all drives at the same time, resets their metadata zones so, and reads all units of a
/// stripe at the same time. One drive after the other three times as many drives took 4.4 times as long, and with units read one
/// after the other 2.6 times.
#[test]
fn a_mount_reads_the_logs_of_all_drives_at_the_same_time() {
    let (few, many) = (mount_time(3), mount_time(9));
    println!("a mount: {few:?} with 3 drives, {many:?} with 9");
    assert!(many < few * 2, "{few:?} with 3 drives, {many:?} with 9");
}
