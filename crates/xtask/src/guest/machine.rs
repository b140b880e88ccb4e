//! A virtual machine in QEMU, in software emulation.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::clock;
use super::initrd::Initrd;
use super::job::{CONTROL_PORT, ERROR_PORT, Event, JOB_PATH, Job, MODULES_PATH, OUTPUT_PORT};
use super::kernel::Kernel;
use super::programs::Programs;

/// The emulator.
pub const QEMU: &str = "qemu-system-x86_64";

/// Time limit of a machine's boot and device setup, also on a busy host.
const BOOT_LIMIT: Duration = Duration::from_secs(90);

/// A zoned NVMe drive of QEMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZnsDrive {
    /// Number of zones.
    pub zones: u32,
    /// Distance between the starts of two zones, in MiB.
    pub zone_size_mb: u32,
    /// The writable part of each zone, in MiB.
    pub zone_capacity_mb: u32,
    /// Zones open at once.
    pub max_open: u32,
    /// Most zones active at once on the drive.
    pub max_active: u32,
    /// The drive's longest append: 4 KiB times two to this power.
    pub append_limit: u32,
}

impl Default for ZnsDrive {
    fn default() -> ZnsDrive {
        ZnsDrive {
            zones: 64,
            zone_size_mb: 16,
            zone_capacity_mb: 12,
            max_open: 8,
            max_active: 12,
            append_limit: 5,
        }
    }
}

/// An NVMe drive of QEMU without zones. Data survive a reset of the machine, and flushes cost nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrdinaryDrive {
    /// Size in MiB.
    pub size_mb: u32,
    /// The limits of a slow drive; `None` for one as fast as the host.
    pub slow: Option<SlowDrive>,
}

/// The speed of a slow drive: it takes any number of requests at once, and serves them one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowDrive {
    /// MiB a second. What the drive may write in a tenth of a second goes at once after a rest, as into a buffer.
    pub mib_per_second: u32,
    /// The time from a request's turn to its end.
    pub latency: Duration,
}

/// The hardware of a virtual machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The machine's NVMe drives; their serial numbers are ZNS0, ZNS1 and so on.
    pub drives: Vec<ZnsDrive>,
    /// The machine's NVMe drives without zones; their serial numbers are ORDINARY0, ORDINARY1 and so on.
    pub ordinary_drives: Vec<OrdinaryDrive>,
    /// Processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// True if a reset reboots the machine; otherwise a reset ends it.
    pub survives_reset: bool,
    /// True if the machine's drives can be unplugged.
    pub pluggable: bool,
    /// Number of drives, counted from the last one, that can be plugged in again. Each of them is in an NVMe
    /// subsystem of its own.
    pub spares: usize,
    /// True if the guest loads the modules of file systems.
    pub file_systems: bool,
    /// True if the guest loads the modules of I/O schedulers.
    pub schedulers: bool,
    /// True if the kernel traces the requests that it hands to drives from its boot on. A trace event that is switched on or off later makes the kernel patch its
    /// own code, which emulated processors do not survive each time.
    pub traces_requests: bool,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            drives: Vec::new(),
            ordinary_drives: Vec::new(),
            cpus: 2,
            memory_mb: 2048,
            survives_reset: false,
            pluggable: false,
            spares: 0,
            file_systems: false,
            schedulers: false,
            traces_requests: false,
        }
    }
}

/// The serial number of drive `n`.
pub fn serial(drive: usize) -> String {
    format!("ZNS{drive}")
}

/// The serial number of the drive `n` without zones.
pub fn ordinary_serial(drive: usize) -> String {
    format!("ORDINARY{drive}")
}

/// A running virtual machine. Dropping it ends the machine.
pub struct RunningMachine {
    child: Child,
    work: tempfile::TempDir,
    events: Receiver<Event>,
    control: UnixStream,
    copiers: Vec<JoinHandle<()>>,
    /// The guest has sent an event.
    has_spoken: bool,
}

/// Attempts to start a machine. An emulated machine sometimes crashes in its first second, because the kernel patches
/// its own code while QEMU emulates several processors: one of them executes the patch's breakpoint too late (`Oops: int3`).
const MAX_BOOT_ATTEMPTS: u32 = 3;

/// The receivers of a guest's standard output and standard error.
pub type Sink = Box<dyn Write + Send>;

impl Machine {
    /// Starts the machine and waits until the command in the guest has started. `sinks` returns the receivers
    /// of the command's output and errors.
    pub fn boot(
        &self,
        kernel: &Kernel,
        programs: &Programs,
        cache: &Path,
        job: &Job,
        sinks: impl Fn() -> (Sink, Sink),
    ) -> Result<RunningMachine> {
        let mut boot = 1;
        loop {
            let (output, error) = sinks();
            let mut running = self.start(kernel, programs, cache, job, output, error)?;
            match running.ready() {
                Err(why) if boot < MAX_BOOT_ATTEMPTS && !running.has_spoken => {
                    eprintln!("guest: boot {boot} of {MAX_BOOT_ATTEMPTS} at most came to nothing: {why:#}");
                    boot += 1;
                }
                ready => return ready.map(|()| running),
            }
        }
    }

    /// Builds the initrd and starts the machine once.
    fn start(
        &self,
        kernel: &Kernel,
        programs: &Programs,
        cache: &Path,
        job: &Job,
        output: Sink,
        error: Sink,
    ) -> Result<RunningMachine> {
        let work = tempfile::Builder::new().prefix("furrow-guest-").tempdir()?;
        let initrd = work.path().join("initrd");
        let file_systems = if self.file_systems { kernel.file_systems.as_slice() } else { &[] };
        let schedulers = if self.schedulers { kernel.schedulers.as_slice() } else { &[] };
        let modules = kernel.modules.iter().chain(file_systems).chain(schedulers);
        write_initrd(&initrd, modules, programs, cache, job)?;
        let mut command = Command::new(QEMU);
        let memory = self.memory_mb.to_string();
        let cpus = self.cpus.to_string();
        command
            .args([
                "-accel",
                "tcg,thread=multi",
                "-M",
                "q35",
                "-cpu",
                "max",
                "-nodefaults",
                "-display",
                "none",
            ])
            .args(["-smp", &cpus, "-m", &memory])
            .arg("-serial")
            .arg(format!("file:{}", work.path().join("console").display()))
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", work.path().join("qmp").display()))
            .args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci,id=ports"])
            .arg("-kernel")
            .arg(&kernel.vmlinux)
            .arg("-initrd")
            .arg(&initrd)
            .args(["-append", &self.kernel_options()]);
        if !self.survives_reset {
            command.arg("-no-reboot");
        }
        let mut listeners = Vec::new();
        for port in [CONTROL_PORT, OUTPUT_PORT, ERROR_PORT] {
            let path = work.path().join(port);
            listeners.push(UnixListener::bind(&path)?);
            command
                .arg("-chardev")
                .arg(format!("socket,id={port},path={}", path.display()))
                .arg("-device")
                .arg(format!("virtserialport,bus=ports.0,chardev={port},name={port}"));
        }
        for (number, drive) in self.drives.iter().enumerate() {
            let image = work.path().join(format!("zns{number}"));
            let size = u64::from(drive.zones) * (u64::from(drive.zone_size_mb) << 20);
            File::create(&image)?.set_len(size)?;
            self.add_drive(&mut command, number, drive, &image);
        }
        for (number, drive) in self.ordinary_drives.iter().enumerate() {
            let image = work.path().join(format!("ordinary{number}"));
            File::create(&image)?.set_len(u64::from(drive.size_mb) << 20)?;
            add_ordinary_drive(&mut command, number, drive, &image);
        }
        let log = File::create(work.path().join("qemu"))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {QEMU}: scripts/setup.sh guest installs it"))?;
        let mut streams = Vec::new();
        for listener in &listeners {
            match accept(listener, &mut child) {
                Ok(stream) => streams.push(stream),
                Err(why) => {
                    child.kill().ok();
                    child.wait().ok();
                    let said = fs::read_to_string(work.path().join("qemu")).unwrap_or_default();
                    return Err(why.context(format!("{QEMU} did not start: {}", said.trim())));
                }
            }
        }
        let [control, out, err] =
            <[UnixStream; 3]>::try_from(streams).ok().context("three ports were connected")?;
        let (sender, events) = mpsc::channel();
        let lines = BufReader::new(control.try_clone()?);
        let mut copiers = vec![copier("guest-output", out, output)?, copier("guest-error", err, error)?];
        copiers.push(std::thread::Builder::new().name("guest-control".into()).spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if line.is_empty() {
                    continue;
                }
                let event = serde_json::from_str(&line).unwrap_or(Event::Noise { text: line });
                if sender.send(event).is_err() {
                    return;
                }
            }
        })?);
        Ok(RunningMachine { child, work, events, control, copiers, has_spoken: false })
    }

    /// The kernel's command line.
    fn kernel_options(&self) -> String {
        let trace = if self.traces_requests { " trace_event=block:block_rq_issue" } else { "" };
        format!("console=ttyS0 quiet panic=-1 mitigations=off{trace}")
    }

    fn add_drive(&self, command: &mut Command, number: usize, drive: &ZnsDrive, image: &Path) {
        let serial = serial(number);
        let mut controller =
            format!("nvme,id=nvme{number},serial={serial},zoned.zasl={}", drive.append_limit);
        if self.pluggable {
            let chassis = number + 1;
            command
                .arg("-device")
                .arg(format!("pcie-root-port,id=slot{number},chassis={chassis},slot={chassis}"));
            controller.push_str(&format!(",bus=slot{number}"));
        }
        if number + self.spares >= self.drives.len() {
            // QEMU cannot plug in a namespace alone. The namespace of an NVMe subsystem stays when its
            // controller is unplugged.
            command.arg("-device").arg(format!("nvme-subsys,id=subsystem{number}"));
            controller.push_str(&format!(",subsys=subsystem{number}"));
        }
        command
            .arg("-blockdev")
            .arg(format!("driver=file,node-name=file{number},filename={},discard=unmap", image.display()))
            .arg("-blockdev")
            .arg(format!("driver=raw,node-name=drive{number},file=file{number},discard=unmap"))
            .args(["-device", &controller, "-device"])
            .arg(format!(
                "nvme-ns,drive=drive{number},bus=nvme{number},nsid=1,zoned=true,zoned.zone_size={}M,\
                 zoned.zone_capacity={}M,zoned.max_open={},zoned.max_active={},logical_block_size=4096,\
                 physical_block_size=4096",
                drive.zone_size_mb, drive.zone_capacity_mb, drive.max_open, drive.max_active
            ));
    }
}

impl RunningMachine {
    /// The guest's next event; `None` after the time limit. Fails if the machine has ended.
    pub fn poll(&mut self, limit: Duration) -> Result<Option<Event>> {
        match self.events.recv_timeout(limit) {
            Ok(event) => {
                self.has_spoken = true;
                Ok(Some(event))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the machine ended without a result; its console: {}", self.console())
            }
        }
    }

    /// The guest's next event. Fails after the time limit.
    pub fn next(&mut self, limit: Duration) -> Result<Event> {
        self.poll(limit)?.with_context(|| {
            format!(
                "the guest said nothing for {:.1} s; its console: {}",
                limit.as_secs_f64(),
                self.console()
            )
        })
    }

    /// Waits until the guest's command has started.
    fn ready(&mut self) -> Result<()> {
        match self.next(BOOT_LIMIT)? {
            Event::Ready { .. } => Ok(()),
            Event::Failed { why } => bail!("the guest could not be set up: {why}"),
            other => bail!("the guest said {other:?} before it was ready"),
        }
    }

    /// Waits for the end of the guest's command, at most `limit`; returns its exit code.
    pub fn exit(&mut self, limit: Duration) -> Result<u8> {
        let end = clock::now() + limit;
        loop {
            let left = end.saturating_duration_since(clock::now());
            match self.poll(left)? {
                Some(Event::Exit { code }) => return Ok(code),
                Some(Event::Failed { why }) => bail!("the guest gave up: {why}"),
                Some(_) => {}
                None => bail!(
                    "the command has not ended after {} s; the console: {}",
                    limit.as_secs(),
                    self.console()
                ),
            }
        }
    }

    /// Sends a line to the test program in the guest.
    pub fn send_line(&mut self, line: &str) -> Result<()> {
        self.control.write_all(format!("{line}\n").as_bytes()).context("the guest does not listen")
    }

    /// The socket of QEMU's monitor.
    pub fn monitor(&self) -> PathBuf {
        self.work.path().join("qmp")
    }

    /// The host's file that holds a drive's content.
    pub fn image(&self, drive: usize) -> PathBuf {
        self.work.path().join(format!("zns{drive}"))
    }

    /// The end of the guest kernel's console output.
    pub fn console(&self) -> String {
        const CONSOLE_BYTES_SHOWN: usize = 4000;
        let bytes = fs::read(self.work.path().join("console")).unwrap_or_default();
        let text = String::from_utf8_lossy(
            bytes.get(bytes.len().saturating_sub(CONSOLE_BYTES_SHOWN)..).unwrap_or_default(),
        );
        if text.trim().is_empty() { "(nothing)".to_owned() } else { format!("\n{}", text.trim()) }
    }
}

impl Drop for RunningMachine {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        // The guest's ports are closed, so the threads that copy its output end after the remaining bytes.
        for copier in self.copiers.drain(..) {
            copier.join().ok();
        }
    }
}

fn add_ordinary_drive(command: &mut Command, number: usize, drive: &OrdinaryDrive, image: &Path) {
    let mut blockdev = |options: &str| {
        command.args(["-blockdev", options]);
    };
    let file = format!("ordinary-file{number}");
    blockdev(&format!("driver=file,node-name={file},filename={},cache.no-flush=on", image.display()));
    let mut top = file.clone();
    if let Some(slow) = drive.slow {
        // A quorum's write ends when both children's have: the second child keeps nothing, and has the latency.
        let (delay, slowed) = (format!("ordinary-delay{number}"), format!("ordinary-slow{number}"));
        let (bytes, nanos) = (u64::from(drive.size_mb) << 20, slow.latency.as_nanos());
        blockdev(&format!("driver=null-co,node-name={delay},size={bytes},latency-ns={nanos}"));
        blockdev(&format!(
            "driver=quorum,node-name={slowed},vote-threshold=1,read-pattern=fifo,children.0={file},children.1={delay}"
        ));
        top = format!("ordinary{number}");
        let (group, rate) = (format!("ordinary-rate{number}"), u64::from(slow.mib_per_second) << 20);
        blockdev(&format!("driver=throttle,node-name={top},throttle-group={group},file={slowed}"));
        let limits =
            serde_json::json!({ "qom-type": "throttle-group", "id": group, "limits": { "bps-total": rate } });
        command.arg("-object").arg(limits.to_string());
    }
    let serial = ordinary_serial(number);
    command
        .arg("-device")
        .arg(format!("nvme,id=ordinary-nvme{number},serial={serial}"))
        .arg("-device")
        .arg(format!("nvme-ns,drive={top},bus=ordinary-nvme{number},nsid=1"));
}

fn copier(name: &str, mut from: UnixStream, mut to: Sink) -> Result<JoinHandle<()>> {
    let copy = move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let Some(part) = buffer.get(..count) else { return };
            if to.write_all(part).and_then(|()| to.flush()).is_err() {
                return;
            }
        }
    };
    Ok(std::thread::Builder::new().name(name.into()).spawn(copy)?)
}

/// Connects to QEMU's end of a port, unless QEMU ends first.
fn accept(listener: &UnixListener, child: &mut Child) -> Result<UnixStream> {
    const POLL_INTERVAL: Duration = Duration::from_millis(20);
    const MAX_POLLS: u32 = 1500;
    listener.set_nonblocking(true)?;
    for _ in 0..MAX_POLLS {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(status) = child.try_wait()? {
            bail!("it ended with {status}");
        }
        clock::sleep(POLL_INTERVAL);
    }
    bail!("it does not connect its ports")
}

fn write_initrd<'a>(
    to: &Path,
    modules: impl Iterator<Item = &'a PathBuf>,
    programs: &Programs,
    cache: &Path,
    job: &Job,
) -> Result<()> {
    let mut initrd = Initrd::new(std::io::BufWriter::with_capacity(1 << 20, File::create(to)?));
    for directory in ["/dev", "/proc", "/sys", "/tmp", "/run", "/root", "/bin", "/etc"] {
        initrd.directory(directory)?;
    }
    for module in modules {
        let name = module.file_name().and_then(|name| name.to_str()).context("a module without a name")?;
        initrd.file(&format!("{MODULES_PATH}/{name}"), module)?;
    }
    initrd.bytes("/etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", false)?;
    initrd.bytes("/etc/hosts", b"127.0.0.1 localhost\n", false)?;
    programs.write(&mut initrd, &cache.join("stripped"))?;
    initrd.bytes(JOB_PATH, &serde_json::to_vec(job)?, false)?;
    initrd.finish()?;
    Ok(())
}
