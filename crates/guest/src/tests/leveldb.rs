//! Unmodified LevelDB programs on the drives of a stock kernel: the machine is reset, or the program killed, during its synced writes, and
//! finds all that it was told to be durable; the bytes that LevelDB's work costs the drive, beside zoned btrfs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xtask::guest::job::Event;

use super::exported::Mounted;
use crate::checks::Checks;
use crate::control::Control;
use crate::shell;

/// The program of `crates/leveldb/tests/programs/synced.c`.
const SYNCED: &str = "leveldb-synced";
/// The program of `fill.c` there.
const FILL: &str = "leveldb-fill";
/// The directory whose names lie on the drive, and the database in it.
const ROOT: &str = "/tmp/leveldb";
const DATABASE: &str = "/tmp/leveldb/db";
/// The path by which the harness keeps the number of acknowledged batches.
const BATCHES: &str = "batches";

/// Time limit of one opening with its verification, and of a round's writes.
const LIMIT: Duration = Duration::from_secs(120);

/// Number of times that the program is killed.
const KILLS: u64 = 10;
/// Most batches between two kills.
const BATCHES_PER_KILL: u64 = 150;

/// Records of 1,000 bytes of the comparison, and of how many writes one is synced.
const RECORDS: &str = "16384";
const WRITES_PER_SYNC: &str = "64";
/// Bytes of a sector in a block device's counts.
const SECTOR: u64 = 512;

/// The program, running on a drive.
struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    /// Starts the program, which first reads the batches below `acknowledged`. `zones`: where its logs lie, as FURROW_WAL_ZONES says it.
    fn start(device: &str, zones: &str, acknowledged: u64) -> Result<Program> {
        std::fs::create_dir_all(ROOT)?;
        let mut command = Command::new("furrow");
        command
            .args(["leveldb", "-d", device, "--root", ROOT, "--", SYNCED, DATABASE])
            .arg(acknowledged.to_string());
        command
            .env("FURROW_WAL_ZONES", zones)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot run furrow")?;
        let lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        Ok(Program { child, lines })
    }

    /// The number of the next acknowledged batch.
    fn next_batch(&mut self) -> Result<u64> {
        if let Some(line) = self.lines.next() {
            return line?.parse().context("the program prints numbers");
        }
        let status = self.child.wait()?;
        let mut said = String::new();
        if let Some(mut error) = self.child.stderr.take() {
            error.read_to_string(&mut said)?;
        }
        anyhow::bail!("the program ended with {status}: {said}")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn format(device: &str) -> Result<()> {
    shell::run_successfully(&["furrow", "fs", "mkfs", "--force", "-d", device], LIMIT)?;
    Ok(())
}

/// Reads the batches that were acknowledged, then writes until the machine is reset.
pub fn run_until_reset(checks: &mut Checks, device: &str) -> Result<()> {
    let state: BTreeMap<String, u64> = {
        let answer = checks.control.ask("state")?;
        serde_json::from_str(&answer).with_context(|| format!("the harness said {answer}"))?
    };
    let acknowledged = state.get(BATCHES).copied().unwrap_or_default();
    let mut opened = None;
    checks.check("LevelDB opens after a reset", LIMIT, |control| {
        if acknowledged == 0 {
            format(device)?;
        }
        let mut program = Program::start(device, "auto", acknowledged)?;
        let first = program.next_batch()?;
        control.note(format!("{acknowledged} batches acknowledged and there"))?;
        opened = Some((program, first));
        Ok(())
    })?;
    let Some((mut program, mut batch)) = opened else { return Ok(()) };
    checks.check("LevelDB's synced writes", LIMIT, |control| {
        loop {
            control.say(&Event::Acknowledged { path: BATCHES.to_owned(), size: batch + 1 })?;
            batch = program.next_batch()?;
        }
    })
}

/// Kills the program again and again on a drive with conventional zones; then counts the bytes of a database on a drive without.
pub fn run(checks: &mut Checks) -> Result<()> {
    let null_blk = "blk:/dev/furrow/nullb0";
    let name = "LevelDB's program killed ten times, its logs in conventional zones";
    checks.check(name, LIMIT, |control| {
        format(null_blk)?;
        let mut acknowledged = 0;
        for kill in 0..KILLS {
            let mut program = Program::start(null_blk, "conventional", acknowledged)?;
            for _ in 0..=kill * 67 % BATCHES_PER_KILL {
                acknowledged = program.next_batch()? + 1;
            }
        }
        // The last opening reads all of them.
        ensure!(
            Program::start(null_blk, "conventional", acknowledged)?.next_batch()? == acknowledged,
            "batches are missing"
        );
        control.note(format!("{acknowledged} batches, each there after each kill"))
    })?;
    checks.check("the bytes of LevelDB's work, beside zoned btrfs", 3 * LIMIT, bytes_beside_btrfs)
}

fn bytes_beside_btrfs(control: &mut Control) -> Result<()> {
    let drives = ["/dev/furrow/zns0", "/dev/furrow/zns1"];
    let [ours, btrfs] = drives;
    let url = format!("blk:{ours}");
    format(&url)?;
    std::fs::create_dir_all(ROOT)?;
    shell::run_successfully(&["mkfs.btrfs", "-q", "-f", "-d", "single", "-m", "single", btrfs], LIMIT)?;
    let before = (Counts::of(ours)?, Counts::of(btrfs)?);
    let line =
        ["furrow", "leveldb", "-d", &url, "--root", ROOT, "--", FILL, DATABASE, RECORDS, WRITES_PER_SYNC];
    shell::run_successfully(&line, LIMIT)?;
    let mounted = Mounted::btrfs(btrfs)?;
    let directory = mounted.at.join("db");
    let directory = directory.to_str().context("a path of the guest")?;
    shell::run_successfully(&[FILL, directory, RECORDS, WRITES_PER_SYNC], LIMIT)?;
    mounted.unmount()?;
    for (name, before, after) in
        [("furrow", before.0, Counts::of(ours)?), ("btrfs", before.1, Counts::of(btrfs)?)]
    {
        ensure!(after.written > before.written, "{name} wrote nothing to its drive");
        control.measured(&format!("bytes written, {name}"), mib(after.written - before.written), "MiB")?;
        control.measured(&format!("bytes read, {name}"), mib(after.read - before.read), "MiB")?;
    }
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Bytes that a block device has read and written since the boot.
#[derive(Clone, Copy)]
struct Counts {
    read: u64,
    written: u64,
}

impl Counts {
    fn of(path: &str) -> Result<Counts> {
        let device = std::fs::canonicalize(path)?;
        let name = device.file_name().and_then(|name| name.to_str()).context("a device has a name")?;
        let text = std::fs::read_to_string(format!("/sys/block/{name}/stat"))?;
        let sectors = |field: usize| {
            let number = text.split_whitespace().nth(field).and_then(|number| number.parse::<u64>().ok());
            number.with_context(|| format!("field {field} of {name}'s counts: {text}"))
        };
        Ok(Counts { read: sectors(2)? * SECTOR, written: sectors(6)? * SECTOR })
    }
}
