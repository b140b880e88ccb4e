//! Tests of sequential reads of logs, with read-ahead.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::Arc;

use crate::common::{Counter, Drive, bytes, log};
use fs::{Bytes, ErrorKind, Fs, MountOptions, SequentialReader, ZoneRole};
use units::Blocks;
use zoned::emu::EmuOptions;
use zoned::{Action, Buf, BufMut, Durability, ZonedDevice};

const BLOCK: u64 = 4096;

fn drive_with_large_zones() -> EmuOptions {
    let zone = Blocks(2048);
    EmuOptions { zone_size: zone, zone_capacity: zone, track_power_cuts: false, ..EmuOptions::tiny() }
}

/// A closed log of `len` bytes, mounted again on a drive that counts reads.
fn closed_log(len: usize) -> (Drive, Arc<Counter>, Fs, Vec<u8>) {
    let (drive, fs) = Drive::formatted(drive_with_large_zones());
    let content = bytes(len, 3);
    drive.run(async {
        let writer = fs.create("/a.log", &log()).await.unwrap();
        for record in content.chunks(10_000) {
            writer.append(record).await.unwrap();
        }
        writer.sync().await.unwrap();
        writer.close().await.unwrap();
        fs.unmount().await.unwrap();
    });
    let counter = Counter::over(&drive);
    let fs = drive.run(Fs::mount(counter.clone() as Arc<dyn ZonedDevice>, &MountOptions::default())).unwrap();
    counter.take();
    (drive, counter, fs, content)
}

/// All bytes of the log from `from` on, read in steps of `step` bytes.
async fn drain(reader: &mut SequentialReader, from: usize, step: usize) -> fs::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut some = vec![0; step];
        let got = reader.read_at(Bytes((from + all.len()) as u64), &mut some).await?;
        all.extend_from_slice(&some[..got]);
        if got < step {
            return Ok(all);
        }
    }
}

fn sequential_reader(fs: &Fs) -> SequentialReader {
    SequentialReader::new(fs.open("/a.log").unwrap())
}

#[test]
fn reading_a_log_recovers_it_in_the_same_pass() {
    let (drive, counter, fs, content) = closed_log(20 << 20);
    let mut reader = sequential_reader(&fs);
    assert!(drive.run(drain(&mut reader, 0, 32 << 10)).unwrap() == content);
    let (_, blocks) = counter.take();
    let most = content.len() as u64 / BLOCK * 102 / 100;
    assert!(blocks <= most, "{blocks} blocks were read, the log has about {most}");
    assert_eq!(reader.stats().bytes, Bytes(content.len() as u64));
    // The log's index is known after the first read: a random read is one device read.
    let mut some = vec![0; 100];
    drive.run(fs.open("/a.log").unwrap().read_at(Bytes(9_999_950), &mut some)).unwrap();
    assert!(some == content[9_999_950..][..100]);
    assert_eq!(counter.take().0, 1);
    // A second sequential read of the log uses the index, with read-ahead too.
    assert!(drive.run(drain(&mut sequential_reader(&fs), 0, 4096)).unwrap() == content);
    let (reads, blocks) = counter.take();
    assert!(
        blocks <= most && reads <= content.len() as u64 / (1 << 20) * 2 + 8,
        "{reads} reads, {blocks} blocks"
    );
}

#[test]
fn two_sequential_readers_and_a_random_read_at_once_give_the_same_bytes() {
    let (drive, _, fs, content) = closed_log(3 << 20);
    drive.run(async {
        let (mut one, mut two) = (sequential_reader(&fs), sequential_reader(&fs));
        let (mut first, mut other) = (vec![0; 1000], vec![0; 1000]);
        one.read_at(Bytes(0), &mut first).await.unwrap();
        two.read_at(Bytes(0), &mut other).await.unwrap();
        assert!(first == content[..1000] && other == content[..1000]);
        let mut middle = vec![0; 5000];
        fs.open("/a.log").unwrap().read_at(Bytes(2_000_000), &mut middle).await.unwrap();
        assert!(middle == content[2_000_000..][..5000]);
        // A random read does not move the log's stream: a read at the old position continues the stream.
        one.read_at(Bytes(2_000_000), &mut middle).await.unwrap();
        assert!(middle == content[2_000_000..][..5000]);
        assert!(drain(&mut one, 1000, 3000).await.unwrap() == content[1000..]);
        assert!(drain(&mut two, 1000, 100_000).await.unwrap() == content[1000..]);
    });
}

#[test]
fn a_reader_sees_bytes_that_are_appended_after_it_opened_the_log() {
    let (drive, _, fs, content) = closed_log(40 << 20);
    drive.run(async {
        let mut reader = sequential_reader(&fs);
        let mut first = vec![0; 1000];
        reader.read_at(Bytes(0), &mut first).await.unwrap();
        let writer = fs.open_append("/a.log").await.unwrap();
        let more = bytes(50_000, 9);
        writer.append(&more).await.unwrap();
        let rest = drain(&mut reader, 1000, 32 << 10).await.unwrap();
        assert!(rest[..content.len() - 1000] == content[1000..]);
        assert!(rest[content.len() - 1000..] == more);
        writer.close().await.unwrap();
        assert!(drain(&mut sequential_reader(&fs), 0, 32 << 10).await.unwrap() == [content, more].concat());
    });
    drive.run(fs.unmount()).unwrap();
    drive.check();
}

#[test]
fn an_open_reader_reads_a_removed_log_to_its_end() {
    let (drive, _, fs, content) = closed_log(40 << 20);
    drive.run(async {
        let mut reader = sequential_reader(&fs);
        let mut first = vec![0; 1000];
        reader.read_at(Bytes(0), &mut first).await.unwrap();
        fs.unlink("/a.log").await.unwrap();
        fs.sync().await.unwrap();
        units::sleep_until(&*drive.driver, fs.driver().now().after(std::time::Duration::from_secs(5))).await;
        assert!(drain(&mut reader, 1000, 32 << 10).await.unwrap() == content[1000..]);
    });
}

#[test]
fn a_reader_that_is_dropped_early_frees_a_removed_log() {
    let (drive, _, fs, content) = closed_log(40 << 20);
    let free = fs.statfs().free;
    drive.run(async {
        let mut reader = sequential_reader(&fs);
        reader.read_at(Bytes(0), &mut vec![0; 1000]).await.unwrap();
        fs.unlink("/a.log").await.unwrap();
        drop(reader);
        fs.sync().await.unwrap();
        units::sleep_until(&*drive.driver, fs.driver().now().after(std::time::Duration::from_secs(5))).await;
    });
    assert!(fs.statfs().free.0 >= free.0 + content.len() as u64, "the zones are free again");
}

#[test]
fn a_sequential_read_of_a_damaged_log_fails_instead_of_ending_early() {
    let (drive, fs) = Drive::formatted(drive_with_large_zones());
    let content = bytes(3 << 20, 5);
    let zone = drive.run(async {
        let writer = fs.create("/a.log", &log()).await.unwrap();
        writer.append(&content).await.unwrap();
        writer.sync().await.unwrap();
        writer.close().await.unwrap();
        let mut zones = fs.zone_map().into_iter().filter(|z| z.role == ZoneRole::Log);
        let zone = zones.next().unwrap().zone;
        fs.unmount().await.unwrap();
        zone
    });
    let dev = drive.dev();
    drive.run(async {
        let pointer = dev.report(zone.0..zone.0 + 1).await.unwrap()[0].pointer;
        let at = dev.geometry().start(zone);
        let mut image = dev.read(at, BufMut::zeroed((pointer.0 * BLOCK) as usize)).await.unwrap();
        image[2 << 20] ^= 1;
        dev.zone(zone, Action::Reset).await.unwrap();
        dev.write(at, Buf::copy_from(&image), Durability::Durable).await.unwrap();
    });
    let fs = drive.mount();
    for reading in 0..2 {
        let mut reader = sequential_reader(&fs);
        let mut all = Vec::new();
        let error = loop {
            let mut some = vec![0; 32 << 10];
            let read = reader.read_at(Bytes(all.len() as u64), &mut some);
            match drive.run(read) {
                Ok(got) => {
                    assert!(got > 0, "reading {reading} came to an end");
                    all.extend_from_slice(&some[..got]);
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(all.len() > 1 << 20 && all == content[..all.len()], "{} bytes", all.len());
    }
}
