//! What the preloaded library costs a program for one small write and its `fdatasync`: the same program with and without the library in turn, on a file in memory, so that no drive hides it.
//!
//! `cargo bench -p furrow-hook --bench sync_cost [-- NUMBER]`
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a measurement")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs of each way, of which the median is taken.
const RUNS: usize = 5;
/// Writes with their syncs of one run.
const NUMBER: u64 = 200_000;
/// The most that the library is to cost, in microseconds.
const GOAL_US: f64 = 2.0;

/// A way to run the program: the name, and its file, if the library is loaded.
const WAYS: [(&str, &str, bool); 4] = [
    ("without the library", "plain", false),
    ("with it, a file without a class", "other", true),
    ("with it, a log", "a.log", true),
    ("with it, bulk, no log active", "a.bulk", true),
];

fn main() {
    let number = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(NUMBER);
    let folder = tempfile::Builder::new().prefix("furrow-sync-cost-").tempdir_in("/dev/shm").unwrap();
    std::fs::create_dir(folder.path().join("pages")).unwrap();
    let (library, program) = (library(), program());
    let mut costs = WAYS.map(|_| Vec::new());
    for _ in 0..RUNS {
        for ((_, file, preloaded), costs) in WAYS.iter().zip(&mut costs) {
            costs.push(run(&program, folder.path(), file, preloaded.then_some(&library), number));
        }
    }
    println!(
        "a write of 512 bytes and its fdatasync, on a file in memory, {RUNS} runs of {number}, medians (spread):"
    );
    let plain = costs[0].clone();
    let extra = WAYS.iter().zip(costs).map(|((name, ..), costs)| {
        // The machine's speed changes from run to run, so each run is compared with the one without the library beside it.
        let (extra, ..) = median(costs.iter().zip(&plain).map(|(cost, plain)| cost - plain));
        let (ns, least, most) = median(costs.into_iter());
        println!("  {name:32} {ns:6.0} ns ({least:.0} to {most:.0}), {:+.2} us", extra / 1000.0);
        extra
    });
    let cost = extra.collect::<Vec<_>>()[2] / 1000.0;
    let kept = if cost <= GOAL_US { "kept" } else { "MISSED" };
    println!("the library costs a sync of a log {cost:.2} us; goal {GOAL_US} us at most: {kept}");
}

/// The median, the least and the most of an odd number of values.
fn median(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// Runs the program. Returns its nanoseconds for a write and its sync.
fn run(program: &Path, folder: &Path, file: &str, library: Option<&PathBuf>, number: u64) -> f64 {
    std::fs::write(folder.join("counters"), "").unwrap();
    let mut command = Command::new(program);
    command.arg(folder.join(file)).arg(number.to_string());
    if let Some(library) = library {
        command.env("LD_PRELOAD", library).env("FURROW_PRIO", "1");
        command.env("FURROW_PRIO_LOG", "*.log").env("FURROW_PRIO_BULK", "*.bulk");
        command.env("FURROW_PRIO_PAGES", folder.join("pages"));
        command.env("FURROW_PRIO_COUNTERS", folder.join("counters"));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{file}: {output:?}");
    let counters = std::fs::read_to_string(folder.join("counters")).unwrap();
    // A library that did nothing would cost nothing.
    let class = file
        .strip_prefix("a.")
        .map(|class| format!("\"{class}\":{{\"files\":1,\"writes\":{}", number + 10_000));
    assert!(class.is_none_or(|class| counters.contains(&class)), "{file}: {counters:?}");
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

/// The library as it is released, with this bench's profile.
fn library() -> PathBuf {
    let args =
        ["build", "--locked", "--offline", "--quiet", "--lib", "-p", "furrow-hook", "--profile", "bench"];
    let built = Command::new(env!("CARGO")).args(args).status().unwrap();
    assert!(built.success(), "building the library");
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    deps.parent().unwrap().join("libfurrow_prio.so")
}

fn program() -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sync_cost");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/sync_cost.c");
    let built = Command::new("cc").args(["-O2", "-Wall", "-o"]).arg(&to).arg(from).status().unwrap();
    assert!(built.success(), "building the program; apt-get install gcc");
    to
}
