//! Messages between the harness and the init in the guest: JSON, one message a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Path of the job in the initrd.
pub const JOB_PATH: &str = "/furrow/job.json";
/// Directory of the kernel's modules in the initrd; they are loaded in order of their names.
pub const MODULES_PATH: &str = "/furrow/modules";
/// The virtio-serial port for [`Event`]s, one a line, and for replies to the test program.
pub const CONTROL_PORT: &str = "furrow.control";
/// The virtio-serial port of the command's standard output.
pub const OUTPUT_PORT: &str = "furrow.output";
/// The virtio-serial port of the command's standard error.
pub const ERROR_PORT: &str = "furrow.error";

/// Job of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The serial numbers of the NVMe drives to wait for.
    pub drives: Vec<String>,
    /// The zoned null_blk devices to make.
    pub null_blk: Vec<NullBlk>,
    /// The null_blk devices to create and export as NVMe drives by nvmet-loop.
    pub loops: Vec<NullBlk>,
    /// Files below /proc/sys and what to write into them.
    pub sysctl: BTreeMap<String, String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Its environment, besides `PATH` and `HOME`.
    pub env: BTreeMap<String, String>,
}

/// A zoned null_blk device, which keeps its data in the guest's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NullBlk {
    /// Bytes of the device in MiB.
    pub size_mb: u32,
    /// Distance between the starts of two zones, in MiB.
    pub zone_size_mb: u32,
    /// The writable part of a zone, in MiB.
    pub zone_capacity_mb: u32,
    /// Conventional zones, the first ones.
    pub conventional: u32,
    /// Zones open at once; 0 for no limit.
    pub max_open: u32,
    /// Zones active at once; 0 for no limit.
    pub max_active: u32,
    /// Bytes in a block.
    pub block_size: u32,
    /// Zones (by number) that become read-only before the command starts.
    pub read_only: Vec<u32>,
    /// Zones (by number) that go offline before the command starts.
    pub offline: Vec<u32>,
}

impl NullBlk {
    /// What goes behind nvmet-loop. It has no limits on zones at once: nvmet hands them on, but answers what exceeds
    /// them with an internal error, as it does for everything that it has no word for.
    pub fn for_loop() -> NullBlk {
        NullBlk { max_open: 0, max_active: 0, ..NullBlk::default() }
    }
}

impl Default for NullBlk {
    /// What `--null-blk` makes: the capacity below the size, and few zones at once, as drives have it.
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

/// What the guest says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The devices are there and the command starts.
    Ready {
        /// Seconds since the kernel started.
        uptime: String,
    },
    /// The command has ended: the last event.
    Exit {
        /// Its exit code; 128 and the signal where one ended it.
        code: u8,
    },
    /// The guest could not be set up, and why: the last event.
    Failed {
        /// The reason.
        why: String,
    },
    /// A test has ended.
    Test {
        /// Its name.
        name: String,
        /// How long it took.
        millis: u64,
        /// What was wrong, if anything.
        failure: Option<String>,
    },
    /// Words for people.
    Note {
        /// The words.
        text: String,
    },
    /// A figure.
    Measured {
        /// What was measured.
        name: String,
        /// The number.
        value: f64,
        /// Its unit.
        unit: String,
    },
    /// The test sends a request to the harness and waits for a reply.
    Ask {
        /// What.
        what: String,
    },
    /// The first `size` bytes of a file are durable.
    Acknowledged {
        /// The file.
        path: String,
        /// Bytes.
        size: u64,
    },
    /// A file may be missing from now on.
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
