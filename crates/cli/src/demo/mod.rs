//! `furrow demo`: loads this machine's package lists, pulls the plug halfway through a second load, and looks for
//! what was lost.

pub mod array;
mod load;
mod packages;
mod resp;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::server::WalMode;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::json;
use units::Bytes;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::demo::load::Write;
use crate::demo::server::Server;
use crate::exit::Code;
use crate::zones::{self, Map};
use crate::{output, progress, size};

/// How often the second load's progress is looked at.
const WATCH: Duration = Duration::from_millis(2);

/// At most this many losses are listed.
const LISTED: usize = 10;

/// `furrow demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Where the demo keeps its drive; an older one there is replaced.
    #[arg(long, default_value = "furrow-data", value_name = "DIR")]
    directory: PathBuf,
    /// The drive's parameters.
    #[arg(long, default_value = "zones=128&zone-size=16MiB", value_name = "PARAMETERS")]
    drive: String,
    /// The server's log: see `furrow serve --help`.
    #[arg(long, default_value_t = WalMode::Auto, value_name = "group|waltz|auto")]
    wal: WalMode,
}

/// Runs the demo: exit code 1 where anything was lost.
pub fn run(context: &Context, args: &DemoArgs) -> Result<ExitCode> {
    let say = |text: String| if context.json { Ok(()) } else { output::line(text) };
    let began = context.now();
    let directory = &args.directory;
    std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let image = directory.join("demo.img");
    if image.exists() {
        std::fs::remove_file(&image)
            .with_context(|| format!("removing the last demo's {}", image.display()))?;
    }
    let device = format!("emu:{}?{}", image.display(), args.drive);

    let records = packages::load()?;
    let bytes: u64 = records.values().map(|record| record.len() as u64).sum();
    say(format!(
        "{} records, {}, in the package lists of this machine",
        records.len(),
        size::show(Bytes(bytes))
    ))?;

    let mut server = Server::start(context, &device, args.wal)?;
    say(format!("server started on {} (pid {}), its data on {device}", server.address, server.pid()))?;

    let mut first: Vec<Write> =
        records.into_iter().map(|(key, value)| Write { key, value, acknowledged: false }).collect();
    let start = context.now();
    let bar = progress::bar(first.len() as u64, "first load ");
    load::set(server.address, &mut first, &bar, &AtomicU64::new(0))?;
    bar.finish_and_clear();
    let took = context.now().since(start);
    let acknowledged = first.iter().filter(|write| write.acknowledged).count();
    ensure!(acknowledged == first.len(), "the server went away during the first load");
    say(format!("first load: {acknowledged} records acknowledged as durable, {}", rate(acknowledged, took)))?;

    // Every second record gets a new value, every second one a companion under a new key.
    let mut second: Vec<Write> =
        first.iter().enumerate().map(|(index, write)| revise(index, write)).collect();
    let acknowledged = cut_halfway(context, &mut server, &mut second)?;
    say(format!(
        "second load: SIGKILL to pid {} after {acknowledged} of {} writes were acknowledged",
        server.pid(),
        second.len()
    ))?;
    drop(server);

    let start = context.now();
    let server = Server::start(context, &device, args.wal)?;
    say(format!("server started again in {}", seconds(context.now().since(start))))?;
    let start = context.now();
    let (checked, lost) = verify(&server, &first, &second)?;
    say(format!("{checked} keys read back, {}", rate(checked, context.now().since(start))))?;
    server.shut_down(context)?;

    for problem in lost.iter().take(LISTED) {
        eprintln!("furrow: lost: {problem}");
    }
    let promised = first.len() + acknowledged;
    if context.json {
        output::json(&json!({
            "records": first.len(), "second_load_acknowledged": acknowledged, "checked": checked,
            "lost": lost.len(), "seconds": context.now().since(began).as_secs_f64(),
        }))?;
    } else {
        let device = context.open(&DeviceArg { device })?;
        output::line(Map::read(context, &device)?.text(zones::colourful()))?;
        output::line(format!(
            "{promised} acknowledged writes, {} lost; {} in all",
            lost.len(),
            seconds(context.now().since(began))
        ))?;
    }
    Ok(if lost.is_empty() { ExitCode::SUCCESS } else { Code::Failure.into() })
}

fn revise(index: usize, write: &Write) -> Write {
    if index.is_multiple_of(2) {
        Write { key: write.key.clone(), value: format!("Revision: 2\n{}", write.value), acknowledged: false }
    } else {
        Write { key: format!("seen:{}", write.key), value: write.key.clone(), acknowledged: false }
    }
}

/// Loads, and kills the server when half of the load is acknowledged.
fn cut_halfway(context: &Context, server: &mut Server, writes: &mut [Write]) -> Result<usize> {
    let half = writes.len() as u64 / 2;
    let acknowledged = AtomicU64::new(0);
    let ended = AtomicBool::new(false);
    let bar = progress::bar(writes.len() as u64, "second load");
    let address = server.address;
    std::thread::scope(|scope| {
        let loader = scope.spawn(|| {
            let loaded = load::set(address, writes, &bar, &acknowledged);
            ended.store(true, Ordering::Release);
            loaded
        });
        while acknowledged.load(Ordering::Relaxed) < half && !ended.load(Ordering::Acquire) {
            context.sleep(WATCH);
        }
        let killed = server.kill();
        loader.join().expect("the loader does not panic")?;
        killed
    })?;
    bar.abandon();
    let count = writes.iter().filter(|write| write.acknowledged).count();
    ensure!(count < writes.len(), "the second load ended before the power was cut");
    Ok(count)
}

/// What must be there after the cut.
struct Promise<'a> {
    key: &'a str,
    /// The value acknowledged last; none where no write of the key was.
    value: Option<&'a str>,
    /// A value that was sent later and never acknowledged: it may be there or not.
    attempted: Option<&'a str>,
}

/// Reads everything back; gives the number of keys and what is wrong.
fn verify(server: &Server, first: &[Write], second: &[Write]) -> Result<(usize, Vec<String>)> {
    let mut promises: Vec<Promise<'_>> = first
        .iter()
        .zip(second)
        .map(|(first, second)| match second {
            _ if second.key != first.key => promise(first, None),
            second if second.acknowledged => promise(second, None),
            second => promise(first, Some(&second.value)),
        })
        .collect();
    promises.extend(first.iter().zip(second).filter(|(first, second)| first.key != second.key).map(
        |(_, second)| {
            let attempted = (!second.acknowledged).then_some(second.value.as_str());
            Promise { key: &second.key, value: second.acknowledged.then_some(&second.value), attempted }
        },
    ));
    let bar = progress::bar(promises.len() as u64, "reading    ");
    let verdict = |promise: &Promise<'_>, found: Option<&[u8]>| {
        let fits = |value: Option<&str>| found == value.map(str::as_bytes);
        let fine = fits(promise.value) || (promise.attempted.is_some() && fits(promise.attempted));
        let what = if found.is_none() { "is gone" } else { "has another value" };
        (!fine).then(|| format!("{} {what}", promise.key))
    };
    let lost = load::check(server.address, &promises, |promise| promise.key, verdict, &bar)?;
    bar.finish_and_clear();
    Ok((promises.len(), lost))
}

fn promise<'a>(write: &'a Write, attempted: Option<&'a str>) -> Promise<'a> {
    Promise { key: &write.key, value: Some(&write.value), attempted }
}

fn rate(count: usize, took: Duration) -> String {
    format!("{} ({:.0}/s)", seconds(took), count as f64 / took.as_secs_f64().max(1e-6))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
