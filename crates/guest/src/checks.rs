//! Named tests of a guest, each with a time limit, so that a test that hangs fails.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::fs::OFlags;
use xtask::guest::job::{Event, ONLY};

use crate::control::{Control, say};
use crate::{clock, text};

/// Interval at which the watchdog checks the time limit of a running test.
const WATCHDOG_INTERVAL: Duration = Duration::from_millis(100);

/// Runs tests and reports their results to the harness.
pub struct Checks {
    /// Connection to the harness.
    pub control: Control,
    current: Arc<Mutex<Option<RunningTest>>>,
    failed: u32,
    /// Text in the names of the only tests to run, if given.
    only: Option<String>,
}

struct RunningTest {
    name: String,
    start: Instant,
    limit: Duration,
}

impl Checks {
    /// Starts the watchdog.
    pub fn new(control: Control) -> Result<Checks> {
        let current = Arc::new(Mutex::new(None));
        let watched = Arc::clone(&current);
        let port = control.port()?;
        std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || watch_time_limit(&watched, port))?;
        Ok(Checks { control, current, failed: 0, only: std::env::var(ONLY).ok() })
    }

    /// Runs a test, unless the harness asked for others only.
    pub fn check(
        &mut self,
        name: &str,
        limit: Duration,
        test: impl FnOnce(&mut Control) -> Result<()>,
    ) -> Result<()> {
        if self.only.as_ref().is_some_and(|text| !name.contains(text.as_str())) {
            return Ok(());
        }
        let start = clock::now();
        *lock(&self.current) = Some(RunningTest { name: name.into(), start, limit });
        let failure = test(&mut self.control).err().map(|why| format!("{why:#}"));
        *lock(&self.current) = None;
        self.failed += u32::from(failure.is_some());
        self.control.say(&Event::Test { name: name.into(), millis: millis(start), failure })
    }

    /// Number of tests that failed.
    pub fn failed(&self) -> u32 {
        self.failed
    }
}

fn watch_time_limit(current: &Mutex<Option<RunningTest>>, mut port: File) {
    loop {
        clock::sleep(WATCHDOG_INTERVAL);
        if let Some(test) = &*lock(current)
            && test.start.elapsed() > test.limit
        {
            let failure = Some(format!("it has not ended after {} s", test.limit.as_secs()));
            let event = Event::Test { name: test.name.clone(), millis: millis(test.start), failure };
            say(&mut port, &event).ok();
            say(&mut port, &Event::Note { text: blocked_tasks() }).ok();
            std::process::exit(1);
        }
    }
}

/// The tasks that wait in the kernel and no signal ends, with their stacks, as the kernel's log has them.
fn blocked_tasks() -> String {
    const HEADING: &str = "sysrq: Show Blocked State";
    text::put("/proc/sysrq-trigger", "w").ok();
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let Ok(mut log) = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg") else {
        return "the kernel's log cannot be read".to_owned();
    };
    let (mut record, mut found) = (vec![0; 8192], Vec::new());
    // One record a read: its header, then `;` and the message. The read behind the last record fails.
    while let Ok(length @ 1..) = log.read(&mut record) {
        let line = String::from_utf8_lossy(record.get(..length).unwrap_or_default()).into_owned();
        let message = line.split_once(';').map_or("", |(_, message)| message).trim_end();
        if message == HEADING {
            found.clear();
        }
        found.push(message.to_owned());
    }
    found.join("\n")
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn lock(current: &Mutex<Option<RunningTest>>) -> std::sync::MutexGuard<'_, Option<RunningTest>> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}
