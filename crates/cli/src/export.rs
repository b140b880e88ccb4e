//! The command `furrow export`: any device as a zoned block device of the kernel.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::export::{Export, ExportInfo, ExportOptions, ServerState, UblkId};
use anyhow::{Context as _, Result};
use bytesize::ByteSize;
use clap::Args;
use serde_json::json;
use server::array::OpenArray;
use server::{ArrayPages, EndRequest, EndWatch};
use zoned::{DeviceUrl, ErrorKind, ZonedDevice};

use crate::context::Context;
use crate::exit::Failure;
use crate::output;

/// Pause between two looks at an export that is to end, or whose queues may have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);
/// Longest time that a device is waited for whose last server is still ending.
const HELD_LIMIT: Duration = Duration::from_secs(10);

const HELP_FOOTER: &str = "\
The block device /dev/ublkbN exists until this process gets SIGTERM, SIGINT or SIGHUP, or `furrow export --stop N`. While
it is mounted or open, --stop is refused, and a signal waits for its users; another one, a second or more later, ends it at once.
After a kill -9, `furrow export --recover N` goes on where the device keeps what its process wrote: requests that were in
flight fail, later ones wait for the new server.
Needed: root, Linux 6.6 or newer, modprobe ublk_drv.";

/// `furrow export`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = HELP_FOOTER)]
pub struct ExportArgs {
    /// The device: emu:FILE?zones=..., emu:mem?zones=..., array:URL,URL,URL, nvme:/dev/ng0n1, blk:/dev/nvme0n1
    #[arg(short, long, env = "FURROW_DEVICE", value_name = "URL",
          required_unless_present_any = ["list", "stop", "recover"])]
    device: Option<String>,
    /// Address for orders to an array: furrow array ... --url http://ADDRESS
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["list", "stop"])]
    http: Option<SocketAddr>,
    /// Queues, each with a thread; the kernel gives no more than there are processors.
    #[arg(long, default_value_t = 4, value_name = "N")]
    queues: u16,
    /// Requests of each queue in flight at once.
    #[arg(long, default_value_t = 128, value_name = "N")]
    depth: u16,
    /// Show the exports of this machine.
    #[arg(long, conflicts_with_all = ["stop", "recover"])]
    list: bool,
    /// Stop an export, unless its block device is mounted or open.
    #[arg(long, value_name = "ID", conflicts_with = "recover")]
    stop: Option<u32>,
    /// Take over the block device of a server that was killed; the device is the one that it had.
    #[arg(long, value_name = "ID")]
    recover: Option<u32>,
}

/// Runs `furrow export`.
pub fn run(context: &Context, args: &ExportArgs) -> Result<ExitCode> {
    if args.list {
        return list(context);
    }
    if let Some(id) = args.stop {
        ::export::stop(UblkId(id), &**context.driver())?;
        return Ok(ExitCode::SUCCESS);
    }
    // A signal from here on ends the export in order.
    let mut end = EndWatch::begin().context("listening for signals")?;
    let opened = match args.recover {
        Some(id) => open_to_recover(context, args, UblkId(id))?,
        None => {
            let url = args.device.as_deref().unwrap_or_default();
            check_http(args, url)?;
            Opened::open(context, url)?
        }
    };
    // A port that is taken leaves no block device behind.
    let pages = opened.pages(args)?;
    let options = opened.options(args);
    let export = match args.recover {
        Some(id) => Export::recover(UblkId(id), &opened.device, &options)?,
        None => Export::start(&opened.device, &options)?,
    };
    if let Err(error) = print_ready_line(context, &export, &opened.url, pages.as_ref()) {
        // The block device is there all the same.
        tracing::warn!(%error, "nobody reads that the export is ready");
    }
    serve(&mut end, &export)
}

/// A device that is open for an export.
struct Opened {
    url: String,
    device: Arc<dyn ZonedDevice>,
    /// The array that the device is, and the part of its URL after `array:`.
    array: Option<(Arc<::array::Array>, String)>,
}

impl Opened {
    fn open(context: &Context, url: &str) -> Result<Opened> {
        let driver = context.driver();
        let (device, array): (Arc<dyn ZonedDevice>, _) = match url.parse()? {
            DeviceUrl::Array(rest) => {
                let opened = ::array::url::assemble(&rest, driver)?;
                (opened.device, Some((opened.array, rest)))
            }
            other => {
                let device = other.open_or_create(Arc::clone(driver))?;
                context.refuse_member(&device)?;
                (device, None)
            }
        };
        Ok(Opened { url: url.to_owned(), device, array })
    }

    /// True if the device keeps what was acknowledged when its process is killed. An emulated drive's cache, and a drive in
    /// memory, end with their process; so does what an array has on such a drive.
    fn outlives_process(&self) -> bool {
        let drives = match &self.array {
            Some((_, rest)) => ::array::url::listed(rest).ok().flatten().unwrap_or_default(),
            None => vec![self.url.clone()],
        };
        let volatile = self.device.geometry().volatile_cache;
        drives.iter().filter_map(|url| url.parse().ok()).all(|url: DeviceUrl| !forgets(&url, volatile))
    }

    fn options(&self, args: &ExportArgs) -> ExportOptions {
        let recoverable = self.outlives_process();
        ExportOptions { url: self.url.clone(), queues: args.queues, depth: args.depth, recoverable }
    }

    /// The pages for orders to the array.
    fn pages(&self, args: &ExportArgs) -> Result<Option<ArrayPages>> {
        let Some((address, (array, rest))) = args.http.zip(self.array.as_ref()) else { return Ok(None) };
        let array = OpenArray::new(Arc::clone(array), rest);
        let pages = ArrayPages::serve(address, array).with_context(|| format!("listening on {address}"))?;
        Ok(Some(pages))
    }
}

/// True if a drive forgets with its process. `volatile`: the drive's cache is, or that of a drive of the same array.
fn forgets(url: &DeviceUrl, volatile: bool) -> bool {
    url.is_in_memory() || (url.is_emulated() && volatile)
}

/// Refuses `--http` for what is no array before anything is opened.
fn check_http(args: &ExportArgs, url: &str) -> Result<()> {
    match url.parse()? {
        DeviceUrl::Array(_) => Ok(()),
        _ if args.http.is_none() => Ok(()),
        _ => Err(Failure::usage(format!("--http takes orders to an array, and {url} is none"))),
    }
}

/// Opens the device of a server that was killed, when the server has ended.
fn open_to_recover(context: &Context, args: &ExportArgs, id: UblkId) -> Result<Opened> {
    let recorded = ::export::await_server_end(id, &**context.driver())?;
    let Some(url) = args.device.clone().or(recorded) else {
        return Err(Failure::usage(format!(
            "the device of export {id} is not recorded: name it by --device"
        )));
    };
    check_http(args, &url)?;
    let end = context.now().after(HELD_LIMIT);
    loop {
        match Opened::open(context, &url) {
            // The lock of a process that was killed goes a little later than its requests.
            Err(error) if is_held(&error) && context.now() < end => context.sleep(LOOK_INTERVAL),
            opened => return opened,
        }
    }
}

fn is_held(error: &anyhow::Error) -> bool {
    let error = error.chain().find_map(|cause| cause.downcast_ref::<zoned::Error>());
    error.is_some_and(|error| matches!(error.kind(), ErrorKind::Held { .. }))
}

/// Prints the line that scripts and people wait for.
fn print_ready_line(context: &Context, export: &Export, url: &str, pages: Option<&ArrayPages>) -> Result<()> {
    let path = export.path().display().to_string();
    let orders = pages.map(|pages| format!("http://{}", pages.address()));
    if context.json {
        let (id, queues) = (export.id().0, export.queues());
        return output::json(
            &json!({ "id": id, "path": path, "device": url, "queues": queues, "http": orders }),
        );
    }
    let orders = orders.map_or(String::new(), |url| format!("; orders to the array by --url {url}"));
    output::line(format!("ready: {url} as {path}{orders}"))
}

/// Serves the export until a signal asks for its end and nobody uses it any more, or the signal is repeated.
fn serve(end: &mut EndWatch, export: &Export) -> Result<ExitCode> {
    let mut asked: Option<EndRequest> = None;
    loop {
        let request = end.wait(LOOK_INTERVAL);
        asked = request.or(asked);
        if export.is_over() {
            export.stop(true)?;
            return Err(Failure::refused(format!(
                "{} was stopped by somebody else",
                export.path().display()
            )));
        }
        let Some(last) = asked else { continue };
        match export.stop(matches!(last, EndRequest::Repeated(_))) {
            Ok(()) => return Ok(ExitCode::SUCCESS),
            Err(error) if error.kind() == ErrorKind::InUse => {
                if request.is_some() {
                    tracing::warn!(%error, "the export ends when its users have; another signal ends it at once");
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn list(context: &Context) -> Result<ExitCode> {
    let exports = ::export::list()?;
    if context.json {
        output::json(&json!(exports))?;
        return Ok(ExitCode::SUCCESS);
    }
    let unknown = || "-".to_owned();
    let row = |export: &ExportInfo| {
        let state = match export.state {
            ServerState::Served => "served",
            ServerState::Recoverable => "killed: --recover or --stop",
            ServerState::Dead => "dead: --stop",
        };
        vec![
            export.id.to_string(),
            export.path.clone(),
            state.to_owned(),
            export.server.map_or_else(unknown, |pid| pid.to_string()),
            ByteSize(export.size).to_string(),
            export.device.clone().unwrap_or_else(unknown),
            if export.users.is_empty() { unknown() } else { export.users.join(", ") },
        ]
    };
    let header = ["id", "path", "state", "server", "size", "device", "used"];
    output::table(&header, &["id", "server", "size"], exports.iter().map(row).collect())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_emulated_drives_forget_with_their_process() {
        let forgets = |url: &str, volatile| forgets(&url.parse().expect(url), volatile);
        assert!(forgets("emu:mem", false) && forgets("emu:drive.img", true));
        assert!(!forgets("emu:drive.img", false));
        assert!(!forgets("nvme:/dev/ng0n1", true) && !forgets("blk:/dev/sda", true));
    }
}
