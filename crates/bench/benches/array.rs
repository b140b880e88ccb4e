//! `cargo bench -p furrow-bench --bench array`: what an array costs the host. The array's drives take no time and store
//! nothing, so that parity, bookkeeping and the operations themselves are measured.
#![allow(missing_docs, reason = "a benchmark")]

use std::sync::Arc;
use std::time::Duration;

use array::{Array, CreateOptions, OpenOptions, Placement};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use units::{Driver, RealDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Action, Blocks, Buf, Done, Durability, Geometry, Io, Lba, Op, ZoneId, ZonedDevice};

/// Number of data units of a stripe.
const DATA_UNITS: u32 = 4;
/// Number of physical zones of a drive that hold metadata.
const METADATA_ZONES: u32 = 3;
/// Blocks of a zone: 1 GiB.
const ZONE_BLOCKS: u64 = 1 << 18;

/// A drive that acknowledges every operation and stores nothing, except before the array is open.
#[derive(Debug)]
struct DiscardingDrive {
    emu: Arc<Emu>,
    open: std::sync::atomic::AtomicBool,
}

impl ZonedDevice for DiscardingDrive {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        match op {
            Op::Write { .. } | Op::Zone { .. } | Op::Flush
                if self.open.load(std::sync::atomic::Ordering::Relaxed) =>
            {
                Io::ready(Ok(Done::Unit))
            }
            op => self.emu.submit(op),
        }
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

/// An array whose stripes have four data units.
fn open_array(create: &CreateOptions) -> Arc<Array> {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let drives: Vec<Arc<DiscardingDrive>> = (0..DATA_UNITS + create.parities)
        .map(|n| {
            let options = EmuOptions {
                name: format!("emu:{n}"),
                zones: METADATA_ZONES + 4,
                zone_size: Blocks(ZONE_BLOCKS),
                zone_capacity: Blocks(ZONE_BLOCKS),
                max_open: Some(8),
                max_active: Some(8),
                latency: Latency::NONE,
                ..EmuOptions::default()
            };
            let emu = Emu::memory(options, Arc::clone(&driver));
            Arc::new(DiscardingDrive { emu, open: false.into() })
        })
        .collect();
    let devices = || drives.iter().map(|drive| Arc::clone(drive) as Arc<dyn ZonedDevice>).collect::<Vec<_>>();
    let array = block_on(&*driver, async {
        array::create(&devices(), create).await.expect("created");
        Array::open(devices(), OpenOptions::default()).await.expect("opened")
    });
    drives.iter().for_each(|drive| drive.open.store(true, std::sync::atomic::Ordering::Relaxed));
    array
}

/// Writes pieces of `blocks` one after the other to a zone, and resets the zone where it is full.
struct ZoneWriter {
    array: Arc<Array>,
    data: Buf,
    blocks: u64,
    at: u64,
}

impl ZoneWriter {
    fn new(create: &CreateOptions, blocks: u64) -> ZoneWriter {
        let data = Buf::copy_from(&vec![0x5a; blocks as usize * 4096]);
        ZoneWriter { array: open_array(create), data, blocks, at: 0 }
    }

    async fn write(&mut self) {
        let device: &dyn ZonedDevice = &*self.array;
        if self.at + self.blocks > device.geometry().zone_capacity.0 {
            device.zone(ZoneId(0), Action::Reset).await.expect("reset");
            self.at = 0;
        }
        device.write(Lba(self.at), self.data.clone(), Durability::Cached).await.expect("written");
        self.at += self.blocks;
    }

    /// How long `count` writes take, one after the other, on a thread that serves their completions itself.
    fn run(&mut self, count: u64) -> Duration {
        let driver = Arc::clone(self.array.driver());
        block_on(&*driver, async {
            let start = driver.now();
            for _ in 0..count {
                self.write().await;
            }
            driver.now().since(start)
        })
    }
}

fn bench_writes(c: &mut Criterion, of: &str, create: &CreateOptions) {
    let mut group = c.benchmark_group(format!("{of}, a write"));
    for (name, blocks) in [("4 KiB", 1), ("64 KiB", 16), ("256 KiB, a whole stripe", 64), ("1 MiB", 256)] {
        let mut writer = ZoneWriter::new(create, blocks);
        group.throughput(Throughput::Bytes(blocks * 4096));
        group.bench_function(name, |b| b.iter_custom(|count| writer.run(count)));
    }
    group.finish();
}

fn bench_arrays(c: &mut Criterion) {
    let fixed = CreateOptions { placement: Placement::Fixed, ..CreateOptions::default() };
    let stored = CreateOptions { placement: Placement::Stored, ..fixed.clone() };
    bench_writes(c, "array of five", &fixed);
    bench_writes(c, "array of five, stored maps", &stored);
    bench_writes(c, "array of six, two parities", &CreateOptions { parities: 2, ..fixed });
    bench_writes(c, "array of six, two parities and stored maps", &CreateOptions { parities: 2, ..stored });
}

criterion_group!(benches, bench_arrays);
criterion_main!(benches);
