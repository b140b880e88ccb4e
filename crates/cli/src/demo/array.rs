//! `furrow demo-array`: a server on five drives. One fails in the middle of a load and is replaced while clients go
//! on; the server is killed in the middle of the rebuild; then another drive fails, so that what the new one holds is
//! needed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::array::CreateOptions;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use server::array::{ArrayView, FailOrder, ReplaceOrder};
use units::Bytes;
use zoned::ZonedDevice;

use super::load::{self, Write};
use super::server::Server;
use super::{LISTED, WATCH, packages, rate, seconds};
use crate::args::DeviceArg;
use crate::array::{Remote, absolute};
use crate::context::Context;
use crate::exit::Code;
use crate::{output, progress, size};

/// The drives of the array.
const DRIVES: usize = 5;
/// The drive that fails, and the one that fails after the rebuild.
const FIRST: usize = 2;
const SECOND: usize = 0;
/// The rebuild's bytes a second, so that it can be watched; after the restart it is as fast as it can.
const RATE: u64 = 8 << 20;
/// How far the rebuild is when the server is killed.
const CUT: f64 = 0.4;
/// Between two lines about the rebuild.
const LOOK: Duration = Duration::from_millis(500);
/// How long a rebuild may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// `furrow demo-array`
#[derive(Debug, Args)]
pub struct DemoArrayArgs {
    /// Where the demo keeps its drives; older ones there are replaced.
    #[arg(long, default_value = "furrow-data", value_name = "DIR")]
    directory: PathBuf,
    /// The parameters of each drive.
    #[arg(long, default_value = "zones=96&zone-size=8MiB", value_name = "PARAMETERS")]
    drive: String,
}

/// The array and its server.
struct Demo<'a> {
    context: &'a Context,
    args: &'a DemoArrayArgs,
    /// The file that lists the members.
    list: PathBuf,
}

/// Runs the demo: exit code 1 where anything was lost.
pub fn run(context: &Context, args: &DemoArrayArgs) -> Result<ExitCode> {
    let began = context.now();
    let directory = &args.directory;
    std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let demo = Demo { context, args, list: directory.join("demo.array") };
    let device = demo.create()?;

    let records = packages::load()?;
    let bytes: u64 = records.values().map(|record| record.len() as u64).sum();
    demo.say(format!(
        "{} records, {}, in the package lists of this machine",
        records.len(),
        size::show(Bytes(bytes))
    ))?;
    let mut first: Vec<Write> =
        records.into_iter().map(|(key, value)| Write { key, value, acknowledged: false }).collect();
    let mut second: Vec<Write> = first
        .iter()
        .map(|write| Write {
            key: format!("again:{}", write.key),
            value: write.value.clone(),
            acknowledged: false,
        })
        .collect();

    let server = Server::start_with_pages(context, &device)?;
    demo.say(format!("server started on {} (pid {}), its data on {device}", server.address, server.pid()))?;

    // A drive fails in the middle of the first load.
    let start = context.now();
    let loaded = demo.load(&server, &mut first, |acknowledged| {
        demo.fail(&server, FIRST)?;
        demo.say(format!(
            "drive {FIRST} failed after {acknowledged} writes, and its file is gone; the load goes on"
        ))
    })?;
    ensure!(loaded == first.len(), "the server went away during the first load");
    demo.say(format!(
        "first load: {loaded} acknowledged as durable, {}",
        rate(loaded, context.now().since(start))
    ))?;
    let mut lost = demo.verify(&server, "without the drive", &[&first])?;

    // The server is killed in the middle of the rebuild and of the second load.
    let new = demo.drive(DRIVES);
    demo.say(format!(
        "drive {FIRST} is replaced by {new}; the rebuild writes {}/s, clients go on",
        size::show(Bytes(RATE))
    ))?;
    let order = ReplaceOrder {
        slot: u32::try_from(FIRST)?,
        device: absolute(&format!("{new}?{}", args.drive))?,
        force: false,
        dry_run: false,
        max_rate: Some(RATE),
    };
    let _said: Value = server.pages()?.order("replace", &order)?;
    let mut server = server;
    let acknowledged = demo.cut_rebuild(&mut server, &mut second)?;
    demo.say(format!(
        "SIGKILL to pid {} in the middle of the rebuild, after {acknowledged} of {} writes of the second load",
        server.pid(),
        second.len()
    ))?;
    drop(server);
    let start = context.now();
    let server = Server::start_with_pages(context, &device)?;
    demo.say(format!("server started again in {}", seconds(context.now().since(start))))?;
    let view = demo.rebuilt(&server)?;
    demo.say(format!("the rebuild went on to its end: the array is {}", view.health))?;
    ensure!(view.health == "clean", "the array is {} after the rebuild", view.health);
    lost.extend(demo.verify(&server, "with the new drive", &[&first, &second])?);
    let loaded = demo.load(&server, &mut second, |_| Ok(()))?;
    ensure!(loaded == second.len(), "the server went away during the second load");

    // Was the rebuild true? Another drive fails: a quarter of what is read now follows from the new one.
    demo.fail(&server, SECOND)?;
    demo.say(format!("drive {SECOND} failed, and its file is gone: what the new drive holds is needed now"))?;
    lost.extend(demo.verify(&server, "without another drive", &[&first, &second])?);
    let counters = server.pages()?.view()?.counters;
    server.shut_down(context)?;
    let server = Server::start_with_pages(context, &device)?;
    lost.extend(demo.verify(&server, "the same after a restart", &[&first, &second])?);
    server.shut_down(context)?;

    for problem in lost.iter().take(LISTED) {
        eprintln!("furrow: lost: {problem}");
    }
    let promised = first.len() + second.len();
    let took = context.now().since(began);
    if context.json {
        output::json(&json!({
            "records": first.len(), "acknowledged": promised, "lost": lost.len(), "counters": counters,
            "seconds": took.as_secs_f64(),
        }))?;
    } else {
        output::line(format!(
            "{promised} acknowledged writes, two drives and a server lost, {} records lost; {} in all",
            lost.len(),
            seconds(took)
        ))?;
    }
    Ok(if lost.is_empty() { ExitCode::SUCCESS } else { Code::Failure.into() })
}

impl Demo<'_> {
    fn say(&self, text: String) -> Result<()> {
        if self.context.json { Ok(()) } else { output::line(text) }
    }

    fn image(&self, drive: usize) -> PathBuf {
        self.args.directory.join(format!("drive{drive}.img"))
    }

    fn drive(&self, drive: usize) -> String {
        format!("emu:{}", self.image(drive).display())
    }

    /// A new array; its URL.
    fn create(&self) -> Result<String> {
        for old in (0..=DRIVES).map(|drive| self.image(drive)).chain([self.list.clone()]) {
            remove(&old)?;
        }
        let mut devices: Vec<Arc<dyn ZonedDevice>> = Vec::new();
        let mut list = String::new();
        for drive in 0..DRIVES {
            let device = DeviceArg { device: format!("{}?{}", self.drive(drive), self.args.drive) };
            devices.push(self.context.open_or_create(&device)?);
            list.push_str(&format!("{}\n", self.drive(drive)));
        }
        let options = CreateOptions { label: "demo".into(), ..CreateOptions::default() };
        let made = self.context.wait(::array::create(&devices, &options))?;
        std::fs::write(&self.list, list).with_context(|| format!("writing {}", self.list.display()))?;
        self.say(format!("array {} of {DRIVES} drives; {} lists them", made.uuid, self.list.display()))?;
        Ok(format!("array:{}", self.list.display()))
    }

    /// Loads what is not acknowledged yet, and does `halfway` when half of it is. How many are acknowledged then.
    fn load(
        &self,
        server: &Server,
        writes: &mut [Write],
        halfway: impl FnOnce(u64) -> Result<()>,
    ) -> Result<usize> {
        let mut rest: Vec<Write> = writes.iter().filter(|write| !write.acknowledged).cloned().collect();
        let acknowledged = AtomicU64::new(0);
        let ended = AtomicBool::new(false);
        let bar = progress::bar(rest.len() as u64, "load   ");
        let half = rest.len() as u64 / 2;
        let done = std::thread::scope(|scope| {
            let loader = scope.spawn(|| {
                let loaded = load::set(server.address, &mut rest, &bar, &acknowledged);
                ended.store(true, Ordering::Release);
                loaded
            });
            while acknowledged.load(Ordering::Relaxed) < half && !ended.load(Ordering::Acquire) {
                self.context.sleep(WATCH);
            }
            let done = halfway(acknowledged.load(Ordering::Relaxed));
            loader.join().expect("the loader does not panic").and(done)
        });
        bar.finish_and_clear();
        done?;
        mark(writes, &rest);
        Ok(writes.iter().filter(|write| write.acknowledged).count())
    }

    /// A drive fails: the array does without it, and its file goes.
    fn fail(&self, server: &Server, drive: usize) -> Result<()> {
        let order = FailOrder { slot: u32::try_from(drive)? };
        let _view: ArrayView = server.pages()?.order("fail", &order)?;
        remove(&self.image(drive))
    }

    /// Loads while the rebuild runs, and kills the server when that is some way on.
    fn cut_rebuild(&self, server: &mut Server, writes: &mut [Write]) -> Result<usize> {
        let pages = server.pages()?;
        let address = server.address;
        let bar = progress::bar(writes.len() as u64, "load   ");
        let acknowledged = AtomicU64::new(0);
        let gone = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let loader = scope.spawn(|| {
                // Slowly: there is to be a load when the server is killed.
                for part in writes.chunks_mut(PART) {
                    match load::set(address, part, &bar, &acknowledged) {
                        // Killed between two parts: nobody is there to connect to.
                        Err(_) if gone.load(Ordering::Acquire) => break,
                        set => set?,
                    }
                    if part.iter().any(|write| !write.acknowledged) {
                        break;
                    }
                    self.context.sleep(PAUSE);
                }
                anyhow::Ok(())
            });
            let killed = self.until(&pages, CUT).and_then(|_| {
                gone.store(true, Ordering::Release);
                server.kill()
            });
            let loaded = loader.join().expect("the loader does not panic");
            killed.and(loaded)
        })?;
        bar.abandon();
        Ok(writes.iter().filter(|write| write.acknowledged).count())
    }

    /// Waits for the end of the rebuild.
    fn rebuilt(&self, server: &Server) -> Result<ArrayView> {
        let pages = server.pages()?;
        let view = pages.view()?;
        ensure!(
            view.rebuild.is_some() || view.last_rebuild.is_some() || view.health == "clean",
            "the rebuild did not go on after the restart"
        );
        self.until(&pages, 2.0)
    }

    /// Tells how far the rebuild is until it is that far, or over.
    fn until(&self, pages: &Remote, share: f64) -> Result<ArrayView> {
        let give_up = self.context.now().after(PATIENCE);
        let mut next = self.context.now();
        loop {
            let view = pages.view()?;
            let Some(rebuild) = &view.rebuild else {
                ensure!(share > 1.0, "the rebuild was over before the server was killed");
                return Ok(view);
            };
            if rebuild.total > 0 && self.context.now() >= next {
                self.say(format!("  rebuild: {}", rebuild.words()))?;
                next = self.context.now().after(LOOK);
            }
            if rebuild.bytes as f64 >= share * rebuild.total as f64 && rebuild.total > 0 {
                return Ok(view);
            }
            ensure!(self.context.now() < give_up, "the rebuild has not ended after {PATIENCE:?}");
            self.context.sleep(STEP);
        }
    }

    /// Reads everything back; what is wrong.
    fn verify(&self, server: &Server, when: &str, loads: &[&[Write]]) -> Result<Vec<String>> {
        let start = self.context.now();
        let writes: Vec<&Write> = loads.iter().copied().flatten().collect();
        let bar = progress::bar(writes.len() as u64, "reading");
        let verdict = |write: &&Write, found: Option<&[u8]>| {
            let fine = match found {
                Some(found) => found == write.value.as_bytes(),
                None => !write.acknowledged,
            };
            let what = if found.is_none() { "is gone" } else { "has another value" };
            (!fine).then(|| format!("{} {what} ({when})", write.key))
        };
        let lost = load::check(server.address, &writes, |write| &write.key, verdict, &bar)?;
        bar.finish_and_clear();
        let acknowledged = writes.iter().filter(|write| write.acknowledged).count();
        let rate = rate(writes.len(), self.context.now().since(start));
        self.say(format!(
            "{when}: {acknowledged} acknowledged records read back, {} lost, {rate}",
            lost.len()
        ))?;
        Ok(lost)
    }
}

/// Records between two pauses of the slow load, the pause, and how often the rebuild is looked at.
const PART: usize = 1024;
const PAUSE: Duration = Duration::from_millis(50);
const STEP: Duration = Duration::from_millis(10);

fn remove(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// Marks in `writes` what is acknowledged in `done`, which has some of them in the same order.
fn mark(writes: &mut [Write], done: &[Write]) {
    let mut done = done.iter();
    for write in writes.iter_mut().filter(|write| !write.acknowledged) {
        write.acknowledged = done.next().is_some_and(|done| done.acknowledged);
    }
}
