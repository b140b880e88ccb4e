//! Opens a device by its URL, serves its data, and closes it.

use std::io::Write;
use std::sync::Arc;

use fs::{FormatOptions, Fs, MountOptions};
use kv::{Engine, EngineOptions, Limits, RocksStore, RocksStoreOptions};
use units::{Bytes, Driver, RealDriver, block_on};
use zoned::{DeviceUrl, ZoneState, ZonedDevice};

use crate::array::OpenArray;
use crate::backing::Backing;
use crate::engines::Engines;
use crate::error::{Error, Result};
use crate::options::{Durability, ServeOptions};
use crate::server::{Server, Sockets};

/// Runs the server until SIGTERM, SIGINT, SIGHUP or SHUTDOWN, then writes all data out and closes the device.
///
/// Prints one line that begins with `ready` to the standard output when clients are served.
///
/// # Errors
/// Settings out of range, a device that cannot be opened or holds other data, a port that is taken.
pub fn run(options: ServeOptions) -> Result<()> {
    // Bind the ports before the device is opened, so that a port in use leaves no new drive file behind.
    let sockets = Sockets::bind(&options)?;
    let driver: Arc<dyn Driver> = RealDriver::new();
    let failed = |doing, detail: String| Error::Device { doing, device: options.device.clone(), detail };
    let OpenDrive { fs, array } = open_drive(&options, &driver)?;
    let served = serve(&fs, array, sockets, &options);
    let unmounted = block_on(&*driver, fs.unmount()).map_err(|error| failed("unmounting", error.to_string()));
    served.and(unmounted)
}

/// A mounted drive. [`Fs::unmount`] closes it.
pub struct OpenDrive {
    /// The file system.
    pub fs: Fs,
    /// The array, if the drive is one.
    pub array: Option<OpenArray>,
}

/// Opens the device of `options` and mounts its file system. A blank emulated drive gets a file system, unless the options
/// forbid it.
///
/// # Errors
/// A device that cannot be opened or holds other data.
pub fn open_drive(options: &ServeOptions, driver: &Arc<dyn Driver>) -> Result<OpenDrive> {
    let (device, array) = open(options, driver)?;
    Ok(OpenDrive { fs: mount(&device, options)?, array })
}

/// An open device, and the array if the device is one.
type OpenDevice = (Arc<dyn ZonedDevice>, Option<OpenArray>);

/// Opens the device. Creates the drive file of an emulated drive, if blank drives are formatted and the size fits.
fn open(options: &ServeOptions, driver: &Arc<dyn Driver>) -> Result<OpenDevice> {
    let failed = |doing, detail: String| Error::Device { doing, device: options.device.clone(), detail };
    let opening = |error: zoned::Error| failed("opening", error.to_string());
    let url: DeviceUrl = options.device.parse().map_err(opening)?;
    if let DeviceUrl::Array(rest) = &url {
        let opened = ::array::url::assemble(rest, driver).map_err(opening)?;
        return Ok((opened.device, Some(OpenArray::new(opened.array, rest))));
    }
    if !options.format_if_blank {
        return Ok((url.open(Arc::clone(driver)).map_err(opening)?, None));
    }
    if !url.exists() {
        let geometry = url.options().and_then(|settings| settings.geometry()).map_err(opening)?;
        Fs::check_format(&geometry, &format_options())
            .map_err(|error| failed("making a file system on", error.to_string()))?;
    }
    Ok((url.open_or_create(Arc::clone(driver)).map_err(opening)?, None))
}

fn format_options() -> FormatOptions {
    FormatOptions { label: "furrow serve".into(), ..FormatOptions::default() }
}

fn mount(device: &Arc<dyn ZonedDevice>, options: &ServeOptions) -> Result<Fs> {
    let driver = device.driver();
    let failed = |doing, detail: String| Error::Device { doing, device: options.device.clone(), detail };
    let zones = device.report_all().map_err(|error| failed("reporting the zones of", error.to_string()))?;
    let blank = zones
        .iter()
        .all(|zone| matches!(zone.state, ZoneState::Empty | ZoneState::Conventional | ZoneState::Offline));
    if blank {
        if !options.format_if_blank {
            let detail = "the device is blank: make a file system with `furrow fs mkfs`".to_owned();
            return Err(failed("mounting", detail));
        }
        // A blank real drive is not formatted: it may be another drive than the operator meant.
        if !::array::url::is_emulated(&options.device) {
            let detail =
                "the drive is blank, and a real drive is formatted by `furrow fs mkfs` only".to_owned();
            return Err(failed("mounting", detail));
        }
        tracing::info!(device = options.device, "the drive is blank: making a file system");
        block_on(&**driver, Fs::format(device, &format_options()))
            .map_err(|error| failed("making a file system on", error.to_string()))?;
    }
    let mount_options = MountOptions { cache: Bytes(options.cache), ..MountOptions::default() };
    block_on(&**driver, Fs::mount(Arc::clone(device), &mount_options))
        .map_err(|error| failed("mounting", error.to_string()))
}

fn serve(fs: &Fs, array: Option<OpenArray>, sockets: Sockets, options: &ServeOptions) -> Result<()> {
    let store_options = RocksStoreOptions {
        write_buffer: options.write_buffer,
        block_cache: options.block_cache,
        wal: options.wal,
    };
    let store = RocksStore::open(fs, &options.db_path, &store_options)?;
    let value = usize::try_from(options.max_value).unwrap_or(usize::MAX);
    let engine_options = EngineOptions {
        durability: match options.durability {
            Durability::Sync => kv::Durability::Sync,
            Durability::Async => kv::Durability::Async,
        },
        limits: Limits { value, ..Limits::default() },
        ..EngineOptions::default()
    };
    let engine = Engine::start(Arc::new(store), Arc::clone(fs.driver()), engine_options);
    let started = Server::start_on(
        sockets,
        Engines::One(engine.clone()),
        Backing { fs: Some(fs.clone()), array },
        options.clone(),
    )
    .and_then(|server| {
        server.stop_on_signals()?;
        Ok(server)
    });
    let server = match started {
        Ok(server) => server,
        Err(error) => {
            engine.close()?;
            return Err(error);
        }
    };
    print_ready_line(&server, options);
    server.wait()
}

/// Prints the `ready` line that scripts and people wait for. A closed standard output does not stop the server.
fn print_ready_line(server: &Server, options: &ServeOptions) {
    let promise = match options.durability {
        Durability::Sync => "durability sync: acknowledged is durable",
        Durability::Async => "durability async: a power cut may cost the last second of acknowledged writes",
    };
    let pages = server.http_address().map_or(String::new(), |at| format!("; status on http://{at}/"));
    let (device, address, wal) = (&options.device, server.address(), options.wal);
    let line = format!("ready: {device} on {address}, log {wal}, {promise}{pages}");
    tracing::info!("{line}");
    let mut out = std::io::stdout();
    let _closed = writeln!(out, "{line}").and_then(|()| out.flush());
}
