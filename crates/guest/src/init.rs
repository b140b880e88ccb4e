//! Process 1 of the guest: sets up the machine, runs the job's command, reports, and turns the machine off.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use rustix::mount::MountFlags;
use rustix::system::RebootCommand;
use xtask::guest::job::{CONTROL_PORT, ERROR_PORT, Event, JOB_PATH, Job, MODULES_PATH, OUTPUT_PORT};

use crate::{control, devices, network, ports, text};

/// Runs the job. Never returns, because process 1 must not end.
pub fn run() -> ! {
    let end = match run_job() {
        Ok(code) => Event::Exit { code },
        Err(why) => Event::Failed { why: format!("{why:#}") },
    };
    if let Err(why) = say(&end) {
        eprintln!("init: {end:?}, and {why:#}");
    }
    // If the machine cannot be turned off, the harness ends it.
    rustix::system::reboot(RebootCommand::PowerOff).ok();
    loop {
        std::thread::park();
    }
}

/// Mounts the kernel's file systems and loads its modules.
fn mount_and_load_modules() -> Result<()> {
    for (kind, place) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/tmp")] {
        mount(kind, place)?;
    }
    fs::create_dir_all("/dev/shm")?;
    mount("tmpfs", "/dev/shm")?;
    for path in text::list(MODULES_PATH) {
        let module = File::open(&path)?;
        // By default null_blk creates an ordinary device, which is not wanted.
        let parameters = if text::name(&path).ends_with("-null_blk.ko") { c"nr_devices=0" } else { c"" };
        rustix::system::finit_module(&module, parameters, 0)
            .with_context(|| format!("cannot load {}", path.display()))?;
    }
    mount("configfs", "/sys/kernel/config")
}

fn mount(kind: &str, place: &str) -> Result<()> {
    let kind = CString::new(kind)?;
    rustix::mount::mount(&kind, place, &kind, MountFlags::empty(), None)
        .with_context(|| format!("cannot mount {place}"))
}

/// Init closes the harness port again, because the command opens it and only one process at a time may.
fn say(event: &Event) -> Result<()> {
    let mut port = ports::open(CONTROL_PORT)?;
    // A machine reset may have left an incomplete line in the port.
    port.write_all(b"\n")?;
    control::say(&mut port, event)
}

fn run_job() -> Result<u8> {
    mount_and_load_modules()?;
    let job: Job = serde_json::from_slice(&fs::read(JOB_PATH)?).context("the job is not understood")?;
    network::loopback_up()?;
    devices::make(&job)?;
    for (name, value) in &job.sysctl {
        text::put(Path::new("/proc/sys").join(name), value)?;
    }
    let uptime = text::get("/proc/uptime").unwrap_or_default();
    let uptime = uptime.split(' ').next().unwrap_or_default().to_owned();
    say(&Event::Ready { uptime })?;
    let (program, arguments) = job.command.split_first().context("the job has no command")?;
    let status = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/bin")
        .env("HOME", "/root")
        .envs(&job.env)
        .stdin(Stdio::null())
        .stdout(ports::open(OUTPUT_PORT)?)
        .stderr(ports::open(ERROR_PORT)?)
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255);
    Ok(u8::try_from(code).unwrap_or(255))
}
