//! Messages between the harness and the init in the guest: JSON, one message a line.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Path of the job's file in the initrd.
pub const JOB_PATH: &str = "/furrow/job.json";
/// Directory of the kernel's modules in the initrd; init loads them in the order of their names.
pub const MODULES_PATH: &str = "/furrow/modules";
/// Name of the virtio-serial port for [`Event`]s, one a line, and for replies to the test program.
pub const CONTROL_PORT: &str = "furrow.control";
/// Name of the virtio-serial port of the command's standard output.
pub const OUTPUT_PORT: &str = "furrow.output";
/// Name of the virtio-serial port of the command's standard error.
pub const ERROR_PORT: &str = "furrow.error";

/// Environment variable with text in the names of the only tests that a guest runs.
pub const ONLY: &str = "FURROW_GUEST_ONLY";
/// Environment variable with the number of times that each test of exports kills the server of an array: 10 without it. The
/// server of one drive is killed half as often.
pub const EXPORT_KILLS: &str = "FURROW_EXPORT_KILLS";
/// Time limit of one of these kills, with what follows it.
pub const EXPORT_KILL_LIMIT: Duration = Duration::from_secs(20);

/// Job of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The serial numbers of the NVMe drives that init waits for.
    pub drives: Vec<String>,
    /// The serial numbers of the NVMe drives without zones that init waits for.
    pub ordinary_drives: Vec<String>,
    /// The zoned null_blk devices that init creates.
    pub null_blk: Vec<NullBlk>,
    /// The null_blk devices to create and export as NVMe drives by nvmet-loop.
    pub loops: Vec<NullBlk>,
    /// Files below /proc/sys, and the text that init writes into each.
    pub sysctl: BTreeMap<String, String>,
    /// The command that the guest runs, and its arguments.
    pub command: Vec<String>,
    /// The command's environment, besides `PATH` and `HOME`.
    pub env: BTreeMap<String, String>,
}

/// A zoned null_blk device, which keeps its data in the guest's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NullBlk {
    /// Size of the null_blk device in MiB.
    pub size_mb: u32,
    /// Distance between the starts of two zones, in MiB.
    pub zone_size_mb: u32,
    /// The writable part of each zone, in MiB.
    pub zone_capacity_mb: u32,
    /// Number of conventional zones: the first ones of the device.
    pub conventional: u32,
    /// Most zones open at once; 0 for no limit.
    pub max_open: u32,
    /// Most zones active at once; 0 for no limit.
    pub max_active: u32,
    /// Bytes in a block.
    pub block_size: u32,
    /// Zones (by number) that become read-only before the command starts.
    pub read_only: Vec<u32>,
    /// Zones (by number) that go offline before the command starts.
    pub offline: Vec<u32>,
}

impl NullBlk {
    /// The null_blk device behind nvmet-loop. It has no limits of open or active zones: nvmet passes limits
    /// on, but reports a violation as an internal error, as it does for every status that it cannot
    /// translate.
    pub fn for_loop() -> NullBlk {
        NullBlk { max_open: 0, max_active: 0, ..NullBlk::default() }
    }
}

impl Default for NullBlk {
    /// The null_blk device of `--null-blk`: a zone capacity below the zone size and few open zones, like real
    /// drives.
    fn default() -> NullBlk {
        NullBlk {
            size_mb: 1024,
            zone_size_mb: 16,
            zone_capacity_mb: 12,
            conventional: 0,
            max_open: 8,
            max_active: 12,
            block_size: 4096,
            read_only: Vec::new(),
            offline: Vec::new(),
        }
    }
}

/// A line of the guest's report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Event: the devices exist and the command starts.
    Ready {
        /// Seconds since the guest's kernel started.
        uptime: String,
    },
    /// The command has ended. This is the job's last event.
    Exit {
        /// The command's exit code; 128 plus the number of the signal that ended it.
        code: u8,
    },
    /// The guest could not be set up, and the reason. This is the job's last event.
    Failed {
        /// The reason.
        why: String,
    },
    /// A test has ended.
    Test {
        /// Name of the test.
        name: String,
        /// How long it took.
        millis: u64,
        /// The test's problem, if it failed.
        failure: Option<String>,
    },
    /// Words for people.
    Note {
        /// The words.
        text: String,
    },
    /// A figure.
    Measured {
        /// The name of the measurement.
        name: String,
        /// The number.
        value: f64,
        /// Unit of the value.
        unit: String,
    },
    /// The test sends a request to the harness and waits for a reply.
    Ask {
        /// The request.
        what: String,
    },
    /// The first `size` bytes of a file are durable, as the test reports.
    Acknowledged {
        /// The file.
        path: String,
        /// Bytes.
        size: u64,
    },
    /// The file may be missing from now on: the test is about to remove or rename it.
    Dropped {
        /// The file.
        path: String,
    },
    /// Text that is no event, such as an incomplete line after a reset.
    #[serde(skip)]
    Noise {
        /// The text.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_and_reads_back() {
        let events = [
            Event::Exit { code: 3 },
            Event::Test { name: "a\nb".into(), millis: 5, failure: Some("why".into()) },
            Event::Measured { name: "rate".into(), value: 0.5, unit: "1/s".into() },
        ];
        for event in events {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        }
    }

    #[test]
    fn half_a_line_is_no_event() {
        assert!(serde_json::from_str::<Event>("{\"event\":\"exit\",\"co").is_err());
        assert!(serde_json::from_str::<Event>("{\"event\":\"noise\",\"text\":\"\"}").is_err());
    }
}
