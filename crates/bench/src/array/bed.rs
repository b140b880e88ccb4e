//! An array of emulated drives on a virtual clock, and the loads that run on it.

use std::collections::VecDeque;
use std::sync::Arc;

use ::array::{AppendMode, Array, CreateOptions, OpenOptions, Placement};
use parking_lot::Mutex;
use units::{Driver, Instant, Spawned, VirtualDriver, block_on, spawn};
use zoned::emu::{EmuOptions, Profile};
use zoned::{Action, Blocks, Buf, BufMut, Bytes, Durability, Io, Lba, Result, ZoneId, ZonedDevice, emulated};

/// The begin and the end of an operation.
pub type Time = (Instant, Instant);

/// The settings of an array to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The name of the drives' profile.
    pub profile: &'static str,
    /// Number of drives of the array.
    pub drives: u32,
    /// Zones of each drive: as many as the load needs, as a drive's speed does not depend on their number.
    pub zones: u32,
    /// The size and the capacity of the drives' zones; `None` for those of the profile.
    pub zone_size: Option<Bytes>,
    /// The array's stripe unit.
    pub stripe_unit: Bytes,
    /// Units of parity in a stripe.
    pub parities: u32,
    /// Units of a stripe, parities included; `None` for one of each drive.
    pub width: Option<u32>,
    /// Drives whose capacity is left free for the parts of lost drives.
    pub spare_drives: u32,
    /// Where the drives hold the parts of logical zones.
    pub placement: Placement,
    /// Logical zones that share a physical zone.
    pub shares: u32,
    /// Physical zones of each drive in a logical zone, whose stripes take turns there.
    pub sections: u32,
    /// Whether the array's writes are atomic.
    pub atomic_writes: bool,
    /// How the array's appends go to its drives.
    pub appends: AppendMode,
    /// Whether a zone of a drive has one write in flight at a time, as on the drives of the kernel.
    pub one_write: bool,
    /// Whether the drives give appends in flight their addresses in any order.
    pub reorder: bool,
    /// The factor by which the drives' times are stretched.
    pub dilation: u32,
    /// Whether parts of zones take the first room there is on their drives, by arrival.
    #[cfg(feature = "broken-rules")]
    pub by_arrival: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            profile: "zn540",
            drives: 5,
            zones: 16,
            zone_size: None,
            stripe_unit: Bytes(64 << 10),
            parities: 1,
            width: None,
            spare_drives: 0,
            placement: Placement::Fixed,
            shares: 1,
            sections: 1,
            atomic_writes: false,
            appends: AppendMode::Ordered,
            one_write: false,
            reorder: false,
            dilation: 1,
            #[cfg(feature = "broken-rules")]
            by_arrival: false,
        }
    }
}

/// An assembled array under measurement.
pub struct Bed {
    /// The driver of the array's clock.
    pub driver: Arc<dyn Driver>,
    /// The array's drives, by slot.
    pub drives: Vec<Arc<dyn ZonedDevice>>,
    /// The array under measurement.
    pub array: Arc<Array>,
    /// The array as a zoned device.
    pub device: Arc<dyn ZonedDevice>,
    setup: Setup,
}

impl std::fmt::Debug for Bed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bed").field("setup", &self.setup).finish_non_exhaustive()
    }
}

impl Setup {
    /// Number of data units of a stripe.
    pub fn data_drives(&self) -> u32 {
        self.width.unwrap_or(self.drives) - self.parities
    }

    /// Makes one drive of the array on the driver's clock.
    pub fn drive(&self, driver: &Arc<dyn Driver>, n: u32) -> Arc<dyn ZonedDevice> {
        emulated(self.options(n), Arc::clone(driver))
    }

    fn open_options(&self) -> OpenOptions {
        OpenOptions {
            appends: self.appends,
            #[cfg(feature = "broken-rules")]
            broken_rule: self.by_arrival.then_some(::array::BrokenRule::Streams),
            ..OpenOptions::default()
        }
    }

    fn options(&self, n: u32) -> EmuOptions {
        let profile = Profile::load(self.profile).expect("the profile is built in");
        let options = EmuOptions {
            zones: self.zones,
            name: format!("emu:{n}"),
            seed: u64::from(n),
            dilation: self.dilation,
            one_write: self.one_write,
            reorder: self.reorder,
            ..EmuOptions::of_profile(profile)
        };
        let Some(size) = self.zone_size else { return options };
        let blocks = Blocks(size.0 / u64::from(options.block_size));
        EmuOptions { zone_size: blocks, zone_capacity: blocks, ..options }
    }

    /// One drive of the array's kind alone, on a clock of its own.
    pub fn alone(&self) -> Arc<dyn ZonedDevice> {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        self.drive(&driver, 0)
    }

    /// A new array, on a virtual clock of its own.
    pub fn build(self) -> Result<Bed> {
        self.build_on(VirtualDriver::new(1))
    }

    /// A new array on the driver's clock.
    pub fn build_on(self, driver: Arc<dyn Driver>) -> Result<Bed> {
        let drives: Vec<_> = (0..self.drives).map(|n| self.drive(&driver, n)).collect();
        let create = CreateOptions {
            stripe_unit: self.stripe_unit,
            parities: self.parities,
            width: self.width,
            spare_drives: self.spare_drives,
            placement: self.placement,
            shares: self.shares,
            sections: self.sections,
            interleaved: self.sections > 1,
            atomic_writes: self.atomic_writes,
            ..CreateOptions::default()
        };
        let array = block_on(&*driver, async {
            ::array::create(&drives, &create).await?;
            Array::open(drives.clone(), self.open_options()).await
        })?;
        let device = Arc::clone(&array) as Arc<dyn ZonedDevice>;
        Ok(Bed { driver, drives, array, device, setup: self })
    }
}

impl Bed {
    /// Assembles the same drives again, without the one at a place among them.
    pub fn without(mut self, place: usize) -> Result<Bed> {
        self.drives.remove(place);
        self.again()
    }

    /// Closes the array and assembles the same drives again.
    pub fn again(self) -> Result<Bed> {
        let Bed { driver, drives, array, device, setup } = self;
        drop((array, device));
        let array = block_on(&*driver, Array::open(drives.clone(), setup.open_options()))?;
        let device = Arc::clone(&array) as Arc<dyn ZonedDevice>;
        Ok(Bed { driver, drives, array, device, setup })
    }

    /// A new drive for the array, on the same clock.
    pub fn spare(&self) -> Arc<dyn ZonedDevice> {
        self.setup.drive(&self.driver, self.setup.drives)
    }
}

/// The operation of a load on an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Writes one after the other, each job in zones of its own.
    Write,
    /// Appends one after the other, each job in zones of its own.
    Append,
    /// Reads one after the other, each job in zones of its own.
    Sequential,
    /// Reads at random places of the first zones.
    Random,
}

/// A load on an array, with fio's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The operation of the load.
    pub kind: Kind,
    /// Bytes of one operation.
    pub size: Bytes,
    /// Number of jobs; job `n` begins in zone `first + n`, and goes on `jobs` zones further.
    pub jobs: u32,
    /// Operations in flight of each job.
    pub depth: usize,
    /// Number of operations of each job.
    pub count: u64,
    /// The zone in which the first job begins.
    pub first: u32,
    /// Bytes at the beginning of each job's zone that random reads are taken from.
    pub span: Bytes,
}

impl Load {
    /// A load of one job that begins in zone 0.
    pub fn new(kind: Kind, size: Bytes, depth: usize, count: u64) -> Load {
        Load { kind, size, jobs: 1, depth, count, first: 0, span: Bytes(0) }
    }

    /// Runs the load on a device; returns the time of each operation, in the order of their ends.
    pub fn run(&self, device: &Arc<dyn ZonedDevice>) -> Result<Vec<Time>> {
        let driver = Arc::clone(device.driver());
        let times: Arc<Mutex<Vec<Time>>> = Arc::default();
        let mut tasks: Vec<Spawned<Result<()>>> = Vec::new();
        for job in 0..self.jobs {
            let job = Job {
                device: Arc::clone(device),
                load: *self,
                zone: self.first + job,
                data: Buf::copy_from(&vec![0; usize::try_from(self.size.0).expect("fits memory")]),
                times: Arc::clone(&times),
                next: Arc::new(Mutex::new(0)),
            };
            match self.kind {
                Kind::Write | Kind::Append => tasks.push(spawn(&*driver, "job", job.write())),
                Kind::Sequential | Kind::Random => {
                    let job = Arc::new(job);
                    tasks.extend((0..self.depth).map(|_| {
                        let job = Arc::clone(&job);
                        spawn(&*driver, "job", async move { job.read().await })
                    }));
                }
            }
        }
        block_on(&*driver, async {
            for task in tasks {
                task.await?;
            }
            Ok::<(), zoned::Error>(())
        })?;
        let times = std::mem::take(&mut *times.lock());
        Ok(times)
    }
}

struct Job {
    device: Arc<dyn ZonedDevice>,
    load: Load,
    zone: u32,
    /// The buffer that jobs write: zeros, for which emulated drives use no memory; parity is computed as for any data.
    data: Buf,
    times: Arc<Mutex<Vec<Time>>>,
    next: Arc<Mutex<u64>>,
}

impl Job {
    /// The zone, address and blocks of operation `n` of the job: the last operation of a zone may be short.
    fn place(&self, n: u64) -> (ZoneId, Lba, u64) {
        let geometry = self.device.geometry();
        let blocks = self.load.size.0 / u64::from(geometry.block_size);
        let slots = geometry.zone_capacity.0.div_ceil(blocks);
        let zone = ZoneId(self.zone + u32::try_from(n / slots).unwrap_or(u32::MAX) * self.load.jobs);
        let offset = n % slots * blocks;
        (zone, geometry.start(zone).plus(Blocks(offset)), blocks.min(geometry.zone_capacity.0 - offset))
    }

    /// Writes the job's operations in order, `depth` of them in flight, and awaits them in order.
    async fn write(self) -> Result<()> {
        let driver = Arc::clone(self.device.driver());
        let size = self.device.geometry().block_size as usize;
        let mut flying: VecDeque<(Instant, Io)> = VecDeque::new();
        for n in 0..self.load.count {
            if flying.len() >= self.load.depth {
                self.await_oldest_write(&mut flying).await?;
            }
            let (zone, at, blocks) = self.place(n);
            let data = self.data.slice(..blocks as usize * size);
            let how = Durability::Cached;
            let begin = driver.now();
            let io = match self.load.kind {
                Kind::Append => self.device.submit(zoned::Op::Append { zone, data, how }),
                _ => self.device.submit(zoned::Op::Write { at, data, how }),
            };
            flying.push_back((begin, io));
        }
        while !flying.is_empty() {
            self.await_oldest_write(&mut flying).await?;
        }
        Ok(())
    }

    async fn await_oldest_write(&self, flying: &mut VecDeque<(Instant, Io)>) -> Result<()> {
        if let Some((begin, io)) = flying.pop_front() {
            io.await?;
            self.times.lock().push((begin, self.device.driver().now()));
        }
        Ok(())
    }

    /// Reads for a job, as one of its tasks.
    async fn read(&self) -> Result<()> {
        let driver = self.device.driver();
        let (size, block) = (self.load.size.0, u64::from(self.device.geometry().block_size));
        loop {
            let n = {
                let mut next = self.next.lock();
                *next += 1;
                *next - 1
            };
            if n >= self.load.count {
                return Ok(());
            }
            let (at, blocks) = match self.load.kind {
                Kind::Random => {
                    let slots = (self.load.span.0 / size).max(1);
                    let zone = ZoneId(self.zone + (driver.random() % 8) as u32);
                    let at = self.device.geometry().start(zone);
                    (at.plus(Blocks(driver.random() % slots * size / block)), size / block)
                }
                _ => {
                    let (_, at, blocks) = self.place(n);
                    (at, blocks)
                }
            };
            let begin = driver.now();
            let into = BufMut::zeroed(usize::try_from(blocks * block).expect("fits memory"));
            self.device.read(at, into).await?;
            self.times.lock().push((begin, driver.now()));
        }
    }
}

/// Fills the beginning of each of a device's first zones with zeros.
pub fn fill_with_zeros(device: &Arc<dyn ZonedDevice>, zones: u32, span: Bytes) -> Result<()> {
    let size = Bytes(1 << 20);
    for first in (0..zones).step_by(4) {
        let jobs = (zones - first).min(4);
        let count = span.0.div_ceil(size.0);
        Load { jobs, first, ..Load::new(Kind::Write, size, 8, count) }.run(device)?;
    }
    Ok(())
}

/// Resets a zone of the measured device.
pub fn reset(device: &Arc<dyn ZonedDevice>, zone: ZoneId) -> Result<()> {
    block_on(&**device.driver(), device.zone(zone, Action::Reset))
}
