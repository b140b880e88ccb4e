//! A closed loop on a drive in virtual time, as the published measurements were taken: warmed up, one size, one depth.

use std::sync::Arc;

use parking_lot::Mutex;
use units::{Driver, Instant, VirtualDriver, block_on, spawn};
use zoned::{Blocks, Buf, BufMut, DeviceUrl, Durability, Lba, Result, ZoneId, ZonedDevice};

/// The operation of a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Writes at the zones' write pointers, one zone per task.
    Write,
    /// Appends.
    Append,
    /// Reads at random places of the drive. The loop writes nothing first.
    Random,
    /// Reads one after the other, from the drive's first block.
    Sequential,
}

/// The settings of a closed loop: each task submits its next operation when the one before has ended.
#[derive(Clone, Copy, Debug)]
pub struct ClosedLoop {
    /// The operation of the loop.
    pub kind: Kind,
    /// Bytes of one operation: whole blocks.
    pub bytes: usize,
    /// Number of operations in flight, each of a task of its own.
    pub depth: u32,
    /// Number of zones: task `n` uses zone `n % zones`.
    pub zones: u32,
    /// Number of operations in all; the first tenth is not counted: by then zones are open and buffers full.
    pub count: usize,
}

/// The outcome of a closed loop.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The latency of each operation in us, sorted.
    latencies: Vec<f64>,
    seconds: f64,
    bytes: usize,
}

impl Measured {
    /// The mean latency in us.
    pub fn mean(&self) -> f64 {
        self.latencies.iter().sum::<f64>() / self.latencies.len().max(1) as f64
    }

    /// The 95th percentile of the latencies in us.
    pub fn p95(&self) -> f64 {
        self.latencies.get(self.latencies.len() * 95 / 100).copied().unwrap_or_default()
    }

    /// The rate in thousand operations a second.
    pub fn kiops(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds / 1e3
    }

    /// The rate in MiB a second.
    pub fn mib(&self) -> f64 {
        self.kiops() * 1e3 * self.bytes as f64 / (1024.0 * 1024.0)
    }

    /// Seconds that the counted operations took.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
}

/// A drive in memory without a scheduler, with the parameters of its URL, and the driver of its virtual clock.
pub fn drive(parameters: &str) -> Result<(Arc<dyn ZonedDevice>, Arc<dyn Driver>)> {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let url: DeviceUrl = format!("emu:mem?{parameters}&log-target=none").parse()?;
    Ok((url.open(Arc::clone(&driver))?, driver))
}

impl ClosedLoop {
    /// Runs the closed loop on a new drive with the parameters of its URL.
    pub fn on(&self, parameters: &str) -> Result<Measured> {
        self.run(&drive(parameters)?.0)
    }

    /// Runs the closed loop on a drive whose clock is virtual.
    pub fn run(&self, device: &Arc<dyn ZonedDevice>) -> Result<Measured> {
        let driver = Arc::clone(device.driver());
        let shared = Arc::new(SharedState {
            device: Arc::clone(device),
            what: *self,
            data: Buf::copy_from(&vec![7; self.bytes]),
            left: Mutex::new(self.count),
            cursor: Mutex::new(Blocks::ZERO),
            times: Mutex::default(),
        });
        let tasks: Vec<_> = (0..self.depth)
            .map(|task| {
                let shared = Arc::clone(&shared);
                spawn(&*driver, "load", async move { shared.task(task).await })
            })
            .collect();
        block_on(&*driver, async {
            for task in tasks {
                task.await?;
            }
            Ok(())
        })?;
        let times = std::mem::take(&mut *shared.times.lock());
        Ok(self.measured(&times))
    }

    fn measured(&self, times: &[(Instant, Instant)]) -> Measured {
        let (warm, counted) = times.split_at(times.len() / 10);
        let end = |times: &[(Instant, Instant)]| times.last().map_or(Instant::ORIGIN, |(_, end)| *end);
        let mut latencies: Vec<f64> =
            counted.iter().map(|(begin, end)| end.since(*begin).as_nanos() as f64 / 1e3).collect();
        latencies.sort_by(f64::total_cmp);
        Measured { latencies, seconds: end(counted).since(end(warm)).as_secs_f64(), bytes: self.bytes }
    }
}

/// State that the tasks of a closed loop share.
struct SharedState {
    device: Arc<dyn ZonedDevice>,
    what: ClosedLoop,
    data: Buf,
    left: Mutex<usize>,
    cursor: Mutex<Blocks>,
    times: Mutex<Vec<(Instant, Instant)>>,
}

impl SharedState {
    async fn task(&self, task: u32) -> Result<()> {
        let (device, driver) = (&self.device, self.device.driver());
        let geometry = device.geometry();
        let blocks = self.what.bytes as u64 / u64::from(geometry.block_size);
        let zone = ZoneId(task % self.what.zones);
        let mut at = geometry.start(zone);
        while self.take_operation() {
            let (data, into) = (self.data.clone(), || BufMut::zeroed(self.what.bytes));
            let begin = driver.now();
            match self.what.kind {
                Kind::Write => {
                    device.write(at, data, Durability::Cached).await?;
                    at = at.plus(Blocks(blocks));
                }
                Kind::Append => {
                    device.append(zone, data, Durability::Cached).await?;
                }
                Kind::Random => {
                    let slots = geometry.zone_capacity.0 / blocks;
                    let zone = ZoneId((driver.random() % u64::from(geometry.zones)) as u32);
                    let at = geometry.start(zone).plus(Blocks(driver.random() % slots * blocks));
                    device.read(at, into()).await?;
                }
                Kind::Sequential => {
                    let at = {
                        let mut cursor = self.cursor.lock();
                        cursor.0 += blocks;
                        Lba(cursor.0 - blocks)
                    };
                    device.read(at, into()).await?;
                }
            }
            self.times.lock().push((begin, driver.now()));
        }
        Ok(())
    }

    /// Claims the next operation of the measured workload; false if all are claimed.
    fn take_operation(&self) -> bool {
        let mut left = self.left.lock();
        let any = *left > 0;
        *left = left.saturating_sub(1);
        any
    }
}
