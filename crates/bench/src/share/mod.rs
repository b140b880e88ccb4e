//! A log beside bulk writes on one drive, without and with the drive's scheduler ([`zoned::Share`]), in virtual time: the results are functions of the
//! load.
//!
//! Latencies are given as multiples of those of the log alone, from a run of its own. *Kept* is the bulk's rate by its rate alone, less the log's bytes: 1 says that the log
//! costs the bulk no more than its bytes.

mod drive;
mod files;
mod load;
mod outcome;
mod run;

use serde::Serialize;

pub use load::{Admit, LogLoad, ShareLoad};
pub use outcome::Measured;

use crate::Result;
use crate::share::outcome::Parts;

/// A log beside bulk, with the rates and latencies of each alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The profile of the drive.
    pub profile: String,
    /// When the log's operations began.
    pub log: LogLoad,
    /// How bulk was admitted.
    pub admit: Admit,
    /// The log's mean latency by that alone.
    pub mean: f64,
    /// The log's 99th percentile latency by that alone.
    pub p99: f64,
    /// The bulk's bytes a second by its own alone, less the log's bytes.
    pub kept: f64,
    /// The log alone.
    pub log_alone: Measured,
    /// The bulk alone.
    pub bulk_alone: Measured,
    /// Both.
    pub beside: Measured,
}

/// The log and the bulk of a load, each measured on a drive of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    log: Measured,
    bulk: Measured,
}

impl Alone {
    /// The bulk's bytes a second.
    pub fn bulk_rate(&self) -> f64 {
        self.bulk.bulk_rate
    }
}

/// Measures the log and the bulk of `load`, each alone.
///
/// # Errors
/// An unknown profile, or the drive's error.
pub fn measure_alone(load: &ShareLoad) -> Result<Alone> {
    let log = run::run(load, Admit::Unbounded, Parts { log: true, bulk: false })?;
    let bulk = run::run(load, Admit::Unbounded, Parts { log: false, bulk: true })?;
    Ok(Alone { log, bulk })
}

/// Measures the log of `load` beside its bulk.
///
/// # Errors
/// An unknown profile, or the drive's error.
pub fn measure(load: &ShareLoad, admit: Admit, alone: &Alone) -> Result<Line> {
    let beside = run::run(load, admit, Parts { log: true, bulk: true })?;
    Ok(Line {
        profile: load.profile.clone(),
        log: load.log,
        admit,
        mean: beside.log_latency.mean / alone.log.log_latency.mean,
        p99: beside.log_latency.p99 / alone.log.log_latency.p99,
        kept: beside.bulk_rate / (alone.bulk.bulk_rate - beside.log_rate),
        log_alone: alone.log.clone(),
        bulk_alone: alone.bulk.clone(),
        beside,
    })
}

/// Measures the bulk alone, and the log alone, behind the drive's scheduler. Returns the bulk's rate and the log's mean latency, each by that without the scheduler.
///
/// # Errors
/// An unknown profile, or the drive's error.
pub fn measure_scheduler_alone(load: &ShareLoad, alone: &Alone) -> Result<(f64, f64)> {
    let bulk = run::run(load, Admit::Controller, Parts { log: false, bulk: true })?;
    let log = run::run(load, Admit::Controller, Parts { log: true, bulk: false })?;
    Ok((bulk.bulk_rate / alone.bulk.bulk_rate, log.log_latency.mean / alone.log.log_latency.mean))
}
