//! Tests with unmodified programs and Furrow's own, on drives with eight open zones and a zone capacity below
//! the zone size.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::server::{PORT, Server, answer};
use crate::checks::Checks;
use crate::control::Control;
use crate::shell;

/// The drives under test: one through NVMe appends, one through the block layer.
const DEVICES: &[&str] = &["nvme:/dev/furrow/ng-zns0", "blk:/dev/furrow/zns1"];

/// Time limit of one program on the emulated machine.
const PROGRAM_LIMIT: Duration = Duration::from_secs(300);

pub fn run(checks: &mut Checks, device: &str) -> Result<()> {
    let one = [device];
    for device in if device == "-" { DEVICES } else { &one } {
        checks.check(&format!("files on {device}"), PROGRAM_LIMIT, |_| files(device))?;
        checks.check(&format!("db_bench on {device}"), PROGRAM_LIMIT, |control| db_bench(control, device))?;
        checks.check(&format!("redis-cli on {device}"), PROGRAM_LIMIT, |_| redis_cli(device))?;
        checks.check(&format!("redis-benchmark on {device}"), PROGRAM_LIMIT, |control| {
            redis_benchmark(control, device)
        })?;
        checks.check(&format!("a log by appends and by writes on {device}"), PROGRAM_LIMIT, |control| {
            log(control, device)
        })?;
    }
    Ok(())
}

fn files(device: &str) -> Result<()> {
    let bytes: Vec<u8> = (0_u32..3_000_000).flat_map(u32::to_le_bytes).collect();
    fs::write("/tmp/file", &bytes)?;
    shell::run_successfully(&["furrow", "fs", "mkfs", "-d", device], PROGRAM_LIMIT)?;
    shell::run_successfully(&["furrow", "fs", "cp", "-d", device, "/tmp/file", "fs:/file"], PROGRAM_LIMIT)?;
    let listed = shell::run_successfully(&["furrow", "fs", "ls", "-d", device], PROGRAM_LIMIT)?;
    ensure!(listed.contains("file"), "the file is not listed: {listed}");
    shell::run_successfully(&["furrow", "fs", "cp", "-d", device, "fs:/file", "/tmp/back"], PROGRAM_LIMIT)?;
    ensure!(fs::read("/tmp/back")? == bytes, "the file came back changed");
    check(device)?;
    let again = shell::run(&["furrow", "fs", "mkfs", "-d", device], PROGRAM_LIMIT)?;
    ensure!(again.code != Some(0), "a drive that holds data was formatted without --force");
    Ok(())
}

fn check(device: &str) -> Result<()> {
    shell::run_successfully(&["furrow", "fs", "check", "-d", device], PROGRAM_LIMIT)?;
    Ok(())
}

fn db_bench(control: &mut Control, device: &str) -> Result<()> {
    let common = ["furrow", "db-bench", "-d", device, "--", "--db=/db", "--write_buffer_size=1048576"];
    for rest in [
        ["--benchmarks=fillrandom,readrandom", "--num=20000", "--sync=0"],
        ["--benchmarks=fillrandom,readrandom", "--num=500", "--sync=1"],
    ] {
        let line: Vec<&str> = common.into_iter().chain(rest).collect();
        let text = shell::run_successfully(&line, PROGRAM_LIMIT)?;
        for benchmark in ["fillrandom", "readrandom"] {
            let figure = text
                .lines()
                .find(|line| line.starts_with(benchmark) && line.contains(" ops/sec"))
                .with_context(|| format!("db_bench says nothing of {benchmark}:\n{text}"))?;
            let figure: String = figure.split_whitespace().collect::<Vec<_>>().join(" ");
            control.note(format!("{}: {figure}", rest.get(2).copied().unwrap_or_default()))?;
        }
    }
    check(device)
}

fn redis_cli(device: &str) -> Result<()> {
    let server = Server::start(device, "none")?;
    answer("OK", &["set", "greeting", "hello"])?;
    answer("hello", &["get", "greeting"])?;
    answer("2", &["append", "counter", "41"])?;
    answer("42", &["incr", "counter"])?;
    answer("OK", &["mset", "a", "1", "b", "2", "c", "3"])?;
    answer("1", &["del", "a"])?;
    server.kill()?;
    let server = Server::start(device, "none")?;
    answer("hello", &["get", "greeting"])?;
    answer("42", &["get", "counter"])?;
    answer("0", &["exists", "a"])?;
    answer("3", &["get", "c"])?;
    server.shut_down()?;
    check(device)
}

fn redis_benchmark(control: &mut Control, device: &str) -> Result<()> {
    let server = Server::start(device, "none")?;
    let line =
        ["redis-benchmark", "-p", PORT, "-t", "set,get", "-P", "16", "-n", "4000", "-r", "1000", "--csv"];
    let text = shell::run_successfully(&line, PROGRAM_LIMIT)?;
    for test in ["\"SET\"", "\"GET\""] {
        let figure =
            text.lines().find(|line| line.starts_with(test)).with_context(|| format!("no {test}: {text}"))?;
        let rate = figure.split(',').nth(1).unwrap_or_default().trim_matches('"');
        control.note(format!("redis-benchmark {test}: {rate} requests/s"))?;
    }
    server.kill()?;
    check(device)
}

fn log(control: &mut Control, device: &str) -> Result<()> {
    for io in ["append", "write"] {
        let line = [
            "furrow", "bench", "wal", "--force", "-d", device, "--io", io, "--total", "8MiB", "--sync",
            "every=64", "--json",
        ];
        let text = shell::run_successfully(&line, PROGRAM_LIMIT)?;
        let found: Value = serde_json::from_str(&text).with_context(|| format!("it printed {text}"))?;
        let number = |key: &str| found.pointer(key).and_then(Value::as_f64).unwrap_or_default();
        let (appends, writes) = (number("/device_operations/appends"), number("/device_operations/writes"));
        let rate = number("/ops_per_s");
        control.note(format!("--io {io}: {appends} appends, {writes} writes, {rate:.0} records/s"))?;
        // A log may use writes instead of appends while nothing is queued.
        ensure!((appends > 0.0) == (io == "append"), "the log did not write as configured");
    }
    Ok(())
}
