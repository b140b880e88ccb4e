//! The loads of a log and of bulk on one drive.

use std::time::Duration;

use serde::Serialize;
use zoned::{Goal, ZoneId};

/// When the log's operations begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLoad {
    /// An operation begins when the one before has ended.
    OneAfterTheOther,
    /// This many operations are due a second, evenly; one that is due waits for the one before.
    Rate(u32),
    /// This many writers of the file system's parallel log (`auto`), each with one synced record of a block after the other. Bulk goes to files then.
    Writers(u32),
}

/// How bulk is admitted to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Admit {
    /// At once.
    Unbounded,
    /// By the controller of the drive's scheduler.
    Controller,
    /// At this many bytes a second, by the drive's scheduler without its controller.
    Fixed(f64),
}

/// A drive, and the loads on it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareLoad {
    /// The profile of the emulated drive. Default `zn540`.
    pub profile: String,
    /// The log: appends of 4 KiB, each durable before it counts. Default one after the other.
    pub log: LogLoad,
    /// Zones that bulk writes side by side. Default 4.
    pub bulk_zones: u32,
    /// The zone that the last of these is, where the log has zone 0. `None`: they follow the log's zone. On `smallzone`, zone 384 is on the log's die.
    pub last_bulk_zone: Option<u32>,
    /// Bulk writes of 256 KiB in flight, in all zones together. Default 32.
    pub bulk_in_flight: u32,
    /// The time that is measured, after half as much of warm-up. Default 4 s.
    pub time: Duration,
    /// The limits of the log's latency and of the bulk's rate that the scheduler gets.
    pub goal: Goal,
}

impl ShareLoad {
    /// The zones of bulk.
    pub(super) fn zones(&self) -> Vec<ZoneId> {
        let last = self.last_bulk_zone.unwrap_or(self.bulk_zones).max(self.bulk_zones);
        (1..self.bulk_zones).chain([last]).map(ZoneId).collect()
    }
}

impl Default for ShareLoad {
    fn default() -> ShareLoad {
        ShareLoad {
            profile: "zn540".into(),
            log: LogLoad::OneAfterTheOther,
            bulk_zones: 4,
            last_bulk_zone: None,
            bulk_in_flight: 32,
            time: Duration::from_secs(4),
            goal: Goal::default(),
        }
    }
}
