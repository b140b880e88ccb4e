//! Tests of drives' faults, injected by QEMU: a block node below the emulated drive fails on request.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::lab::{Lab, drives, follow};
use super::report::GroupReport;
use crate::guest::job::{Job, NullBlk};
use crate::guest::machine::Machine;
use crate::guest::qmp::Monitor;

/// Time limit of all fault tests together.
const FAULT_TESTS_LIMIT: Duration = Duration::from_secs(400);
/// EIO.
const EIO_ERRNO: u32 = 5;
/// Number of flushes that fail: more than the six attempts of the guest's kernel.
const FAILING_FLUSHES: usize = 8;
/// Operations per second of a drive that is slowed down.
const SLOW_DRIVE_IOPS: u32 = 20;

/// Runs the tests.
pub fn run(lab: &Lab, report: &GroupReport<'_>) -> Result<()> {
    let machine = Machine { drives: drives(4), pluggable: true, ..Machine::default() };
    let worn = NullBlk { read_only: vec![10], offline: vec![11], size_mb: 512, ..NullBlk::default() };
    let job = Job { null_blk: vec![worn], ..Job::default() };
    let mut running = lab.start(&machine, &[], "faults", "-", job)?;
    let mut faults = DriveFaults { monitor: Monitor::connect(&running.monitor())?, made: 0, node: None };
    follow(&mut running, report, FAULT_TESTS_LIMIT, |_, what| {
        faults.execute_request(what).with_context(|| format!("the order was: {what}"))?;
        Ok("done".to_owned())
    })
}

struct DriveFaults {
    monitor: Monitor,
    made: u32,
    node: Option<String>,
}

impl DriveFaults {
    /// Executes a request of the guest: `fail DRIVE read|write|flush`, `slow DRIVE`, `heal DRIVE`, `unplug DRIVE`.
    fn execute_request(&mut self, what: &str) -> Result<()> {
        match what.split(' ').collect::<Vec<_>>().as_slice() {
            // Flushes fail a limited number of times only, because QEMU flushes a drive before the node below
            // it can be exchanged: more often than the guest's kernel tries.
            ["fail", drive, "flush"] => {
                let once = json!({ "event": "none", "iotype": "flush", "errno": EIO_ERRNO, "once": true });
                self.fail(drive, json!(vec![once; FAILING_FLUSHES]))
            }
            ["fail", drive, kind] => self
                .fail(drive, json!([{ "event": "none", "iotype": kind, "errno": EIO_ERRNO, "once": false }])),
            ["slow", drive] => {
                let group = format!("slow{}", self.made);
                let limits = json!({ "iops-total": SLOW_DRIVE_IOPS });
                let arguments = json!({ "qom-type": "throttle-group", "id": group, "limits": limits });
                self.monitor.execute("object-add", arguments)?;
                let file = format!("file{drive}");
                self.insert(drive, json!({ "driver": "throttle", "throttle-group": group, "file": file }))
            }
            ["heal", drive] => self.heal(drive),
            ["unplug", drive] => {
                // Some load first.
                crate::guest::clock::sleep(Duration::from_millis(300));
                self.monitor.execute("device_del", json!({ "id": format!("nvme{drive}") }))?;
                Ok(())
            }
            _ => bail!("there is no such fault"),
        }
    }

    fn fail(&mut self, drive: &str, errors: Value) -> Result<()> {
        let image = format!("file{drive}");
        self.insert(drive, json!({ "driver": "blkdebug", "image": image, "inject-error": errors }))
    }

    /// Inserts a fault-injecting block node between a drive and its file.
    fn insert(&mut self, drive: &str, mut node: Value) -> Result<()> {
        self.made += 1;
        let name = format!("fault{}", self.made);
        if let Some(node) = node.as_object_mut() {
            node.insert("node-name".into(), json!(name));
        }
        self.monitor.execute("blockdev-add", node)?;
        self.put_on(drive, &name)?;
        self.node = Some(name);
        Ok(())
    }

    fn heal(&mut self, drive: &str) -> Result<()> {
        let file = format!("file{drive}");
        for _ in 0..FAILING_FLUSHES {
            if self.put_on(drive, &file).is_ok() {
                break;
            }
        }
        self.put_on(drive, &file)?;
        if let Some(node) = self.node.take() {
            self.monitor.execute("blockdev-del", json!({ "node-name": node }))?;
        }
        Ok(())
    }

    fn put_on(&mut self, drive: &str, below: &str) -> Result<()> {
        let name = format!("drive{drive}");
        let options = json!([{ "driver": "raw", "node-name": name, "file": below, "discard": "unmap" }]);
        self.monitor.execute("blockdev-reopen", json!({ "options": options }))?;
        Ok(())
    }
}
