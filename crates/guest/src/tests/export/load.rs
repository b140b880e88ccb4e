//! Writers of an export whose server is killed and replaced.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use xtask::guest::job::{EXPORT_KILL_LIMIT, EXPORT_KILLS};
use zoned::Io;

use super::super::exported::{Exported, LIMIT};
use crate::clock;

/// Number of kills of an array's server in each test, unless [`EXPORT_KILLS`] says another.
const DEFAULT_KILLS: usize = 10;
/// Writes between two kills: at least the first number, below the second.
const WRITES_BETWEEN_KILLS: (u64, u64) = (60, 160);
/// Of so many servers that take over one is killed while it does.
const TAKEOVERS_PER_KILLED_ONE: usize = 3;
/// Longest life of a server that is killed while it takes over.
const TAKEOVER: Duration = Duration::from_millis(700);

/// Number of times that a test kills the server of an array.
pub(super) fn kills() -> Result<usize> {
    match std::env::var(EXPORT_KILLS) {
        Err(_) => Ok(DEFAULT_KILLS),
        Ok(number) => number.parse().with_context(|| format!("{EXPORT_KILLS}={number} is no number")),
    }
}

/// Number of times that a test kills the server of one emulated drive, which is part of what an array's tests show.
pub(super) fn kills_of_one_drive() -> Result<usize> {
    Ok(kills()?.div_ceil(2))
}

/// Time limit of a test that kills a server so often.
pub(super) fn limit() -> Result<Duration> {
    Ok(LIMIT + EXPORT_KILL_LIMIT * u32::try_from(kills()?)?)
}

/// A number below `end` that differs from kill to kill, and is the same in each run.
pub(super) fn spread(kill: usize, end: u64) -> u64 {
    const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    ((kill as u64 + 1).wrapping_mul(GOLDEN_RATIO) >> 32) % end
}

/// State shared by the writers of an export and the thread that kills the export's server.
#[derive(Default)]
pub(super) struct Load {
    stop: AtomicBool,
    failed: AtomicBool,
    writes: AtomicU64,
    /// Number of kills and of takeovers: odd from a kill until its takeover.
    disturbances: AtomicU64,
}

impl Load {
    /// True if the writers have to end.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Counts a write that was acknowledged.
    pub(super) fn acknowledge(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    /// The moment, for [`check_failure`](Load::check_failure).
    pub(super) fn moment(&self) -> u64 {
        self.disturbances.load(Ordering::Acquire)
    }

    /// Passes on the failure of a request submitted after `moment`, unless a server was killed or taken over meanwhile.
    pub(super) fn check_failure(&self, moment: u64, failure: zoned::Error) -> Result<()> {
        let is_disturbed = moment % 2 == 1 || self.moment() != moment;
        if is_disturbed { Ok(()) } else { Err(failure).context("a request fails though its server lives") }
    }

    /// Kills the server when the writers have gone on; returns the one that took over.
    fn kill_once(&self, kill: usize, export: Exported) -> Result<Exported> {
        let (least, end) = WRITES_BETWEEN_KILLS;
        let target = self.writes.load(Ordering::Acquire) + least + spread(kill, end - least);
        clock::wait_for("progress of the writers", || {
            let is_due = self.writes.load(Ordering::Acquire) >= target;
            (is_due || self.failed.load(Ordering::Acquire)).then_some(())
        })?;
        ensure!(!self.failed.load(Ordering::Acquire), "a writer failed");
        self.disturbances.fetch_add(1, Ordering::AcqRel);
        let export = kill_and_take_over(kill, export)?;
        self.disturbances.fetch_add(1, Ordering::AcqRel);
        Ok(export)
    }
}

/// Kills a server; returns the one that took over. Some of those that take over are killed, too. A failure is also printed at
/// once, because programs whose requests wait for a server do not end.
pub(super) fn kill_and_take_over(kill: usize, export: Exported) -> Result<Exported> {
    let take_over = || {
        let id = export.kill()?;
        if kill % TAKEOVERS_PER_KILLED_ONE == TAKEOVERS_PER_KILLED_ONE - 1 {
            let life = spread(kill, TAKEOVER.as_millis().try_into()?);
            Exported::kill_while_recovering(id, Duration::from_millis(life))?;
        }
        Exported::recover(id)
    };
    take_over().inspect_err(|why| eprintln!("furrow-guest: kill {kill}: {why:#}"))
}

/// The outcome of a load under kills: the export's last server, and the results of the writers.
pub(super) struct Survived<T> {
    /// The last server.
    pub(super) export: Exported,
    /// The results of the writers.
    pub(super) results: Vec<T>,
    /// Number of writes that were acknowledged.
    pub(super) acknowledged: u64,
    /// Longest time from a kill until the next server was ready.
    pub(super) longest: Duration,
}

/// Runs `write` on several threads, each with its number, while the server is killed and replaced so many times.
pub(super) fn kill_under_load<T: Send>(
    export: Exported,
    kills: usize,
    writers: u32,
    write: impl Fn(u32, &Load) -> Result<T> + Sync,
) -> Result<Survived<T>> {
    let load = Load::default();
    let guarded = |writer| {
        let ended = write(writer, &load);
        load.failed.fetch_or(ended.is_err(), Ordering::AcqRel);
        ended
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || guarded(writer))).collect();
        let mut longest = Duration::ZERO;
        let killed = (0..kills).try_fold(export, |export, kill| {
            let start = clock::now();
            let export = load.kill_once(kill, export)?;
            longest = longest.max(start.elapsed());
            Ok::<_, Error>(export)
        });
        load.stop.store(true, Ordering::Release);
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<T>>| {
            thread.join().ok().context("a writer panicked")?
        };
        // The failure of a writer says more than that of the kills, which it ended.
        let results = threads.into_iter().map(join).collect::<Result<Vec<T>>>()?;
        let acknowledged = load.writes.load(Ordering::Acquire);
        Ok(Survived { export: killed?, results, acknowledged, longest })
    })
}

/// Submits an operation until it succeeds: what was in flight at a kill has failed. Only for operations that may be done twice.
pub(super) fn repeat<T: zoned::FromDone>(mut submit: impl FnMut() -> Io<T>) -> Result<T> {
    const ATTEMPTS: u32 = 5;
    let mut attempt = 1;
    loop {
        match submit().wait() {
            Err(error) if attempt == ATTEMPTS => {
                return Err(error).context("an operation fails again and again");
            }
            Err(_) => attempt += 1,
            Ok(done) => return Ok(done),
        }
    }
}
