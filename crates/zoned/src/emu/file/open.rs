//! Opens and creates drive files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use zerocopy::{FromBytes, IntoBytes};

use crate::emu::file::drive::{Drive, Table};
use crate::emu::file::format::{ENTRY_SIZE, Entry, HOLDER_OFFSET, Header, TableEntry};
use crate::emu::zone::Zone;
use crate::emu::{Emu, EmuOptions, Media, Timing};
use crate::{Driver, Error, ErrorKind, Result, ZoneState};

/// Bytes of the drive file's start that are read for the header.
const HEADER_LEN: usize = 128;

impl Emu {
    /// Opens the drive in the file at `path`. A missing or empty file is created with `options`; without options a
    /// missing file is [`ErrorKind::NotFound`]. An existing file keeps its settings, and `options` that contradict
    /// them are refused.
    ///
    /// Dropping the drive acts as a power cut: unflushed data is lost. Only one handle of one process may have a drive
    /// open; opening it again gives [`ErrorKind::Held`].
    pub fn open_file(path: &Path, options: Option<EmuOptions>, driver: Arc<dyn Driver>) -> Result<Arc<Emu>> {
        let wanted = options.clone();
        let check = move |found: &EmuOptions| wanted.as_ref().map_or(Ok(()), |w| w.agrees_with(found));
        let create = options.is_some();
        Emu::open_checked(path, options.unwrap_or_default(), create, driver, &check)
    }

    /// Like [`Emu::open_file`], but `check` decides whether the settings of an existing file are accepted. Without
    /// `create` no file is created.
    pub(crate) fn open_checked(
        path: &Path,
        options: EmuOptions,
        create: bool,
        driver: Arc<dyn Driver>,
        check: &dyn Fn(&EmuOptions) -> Result<(), String>,
    ) -> Result<Arc<Emu>> {
        let name: Arc<str> = Arc::from(format!("emu:{}", path.display()));
        let host = |what: &str, e: io::Error| {
            Error::new(ErrorKind::Host, &name, "open").because(format!("{what}: {e}"))
        };
        let invalid = |why: String| Error::new(ErrorKind::Invalid, &name, "open").because(why);
        let damaged = |what: String| {
            Error::new(ErrorKind::Damaged, &name, "open")
                .because(format!("{what}: restore the file from a backup, or remove it and make a new drive"))
        };
        if !create && !is_drive_file(path) {
            let advice = "there is no drive file of that name; `furrow fs mkfs` and `furrow serve` make one";
            return Err(Error::new(ErrorKind::NotFound, &name, "open").because(advice));
        }
        let options = EmuOptions { name: name.to_string(), track_power_cuts: false, ..options };
        if !path.exists() {
            options.geometry()?;
            create_at(path, &Header::new(&options, random_uuid(&*driver)))
                .map_err(|e| host("making the drive file", e))?;
        }
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => {
                host("opening the drive file: to read it too takes write permission, to lock it", e)
            }
            _ => host("opening the drive file", e),
        })?;
        lock_file(&file).map_err(|holder| match holder {
            Holder::Process(pid) => Error::new(ErrorKind::Held { pid }, &name, "open")
                .because("stop that process, or use another file"),
            Holder::Failed(e) => host("locking the drive file", e),
        })?;
        let len = file.metadata().map_err(|e| host("asking for the file's length", e))?.len();
        let header = if len == 0 {
            // The user has created an empty file: it gets a header like a missing one.
            options.geometry()?;
            let header = Header::new(&options, random_uuid(&*driver));
            write_header(&file, &header).map_err(|e| host("making the drive file", e))?;
            header
        } else {
            let mut bytes = [0; HEADER_LEN];
            let whole = file.read_exact_at(&mut bytes, 0);
            whole.map_err(|e| invalid(format!("{len} bytes are too few for a drive file ({e})")))?;
            Header::decode(&bytes).map_err(|damage| {
                let ours = Header::has_magic(&bytes);
                if ours { damaged(damage.0) } else { invalid(damage.0) }
            })?
        };
        let found = EmuOptions {
            seed: options.seed,
            latency: options.latency,
            profile: options.profile,
            dilation: options.dilation,
            reorder: options.reorder,
            ..header.options(name.to_string())
        };
        check(&found).map_err(invalid)?;
        let geometry = found.geometry()?;
        let want = header.file_len();
        let len = file.metadata().map_err(|e| host("asking for the file's length", e))?.len();
        if len < want {
            return Err(damaged(format!("the drive file is cut short: {len} bytes of {want}")));
        }
        file.write_all_at(&u64::from(std::process::id()).to_le_bytes(), HOLDER_OFFSET)
            .map_err(|e| host("noting who holds the drive", e))?;
        let table = read_table(&file, &header, &found).map_err(|problem| match problem {
            Problem::Host(e) => host("reading the zone table", e),
            Problem::Damage(what) => damaged(what),
        })?;
        let zones = table.iter().map(zone_of).collect();
        let drive = Drive {
            file,
            header,
            touched: Mutex::default(),
            unflushed: AtomicU64::new(0),
            table: Mutex::new(Table { zones: table, failed: false }),
            locked_by: std::process::id(),
        };
        let timing = Timing::of(&found, &geometry);
        let mut media = Media::from_zones(Arc::new(geometry), &found, zones);
        media.drive = Some(Arc::new(drive));
        Ok(Arc::new(Emu::over(media, timing, driver)))
    }
}

impl EmuOptions {
    /// Checks that a drive file with the settings `found` agrees with these options; else names the first
    /// contradiction.
    pub(crate) fn agrees_with(&self, found: &EmuOptions) -> Result<(), String> {
        let limit = |n: Option<u32>| n.map_or("none".to_string(), |n| n.to_string());
        let cache = |of: &EmuOptions| if of.volatile_cache { "volatile" } else { "none" }.to_string();
        let pairs = [
            ("block-size", self.block_size.to_string(), found.block_size.to_string()),
            ("zones", self.zones.to_string(), found.zones.to_string()),
            ("conventional", self.conventional.to_string(), found.conventional.to_string()),
            ("zone-size", format!("{:?}", self.zone_size), format!("{:?}", found.zone_size)),
            ("zone-capacity", format!("{:?}", self.zone_capacity), format!("{:?}", found.zone_capacity)),
            ("max-open", limit(self.max_open), limit(found.max_open)),
            ("max-active", limit(self.max_active), limit(found.max_active)),
            ("max-append", format!("{:?}", self.max_append), format!("{:?}", found.max_append)),
            ("cache", cache(self), cache(found)),
        ];
        match pairs.into_iter().find(|(_, wanted, found)| wanted != found) {
            Some((name, wanted, found)) => Err(contradiction_text(name, &wanted, &found)),
            None => Ok(()),
        }
    }
}

/// The message for a wanted setting that differs from the drive file's.
pub(crate) fn contradiction_text(name: &str, wanted: &str, found: &str) -> String {
    format!(
        "{name}={wanted} was asked for, but the drive file has {found}: leave {name} out, or use another file"
    )
}

/// True if `path` is a drive file. An empty file does not count.
pub(crate) fn is_drive_file(path: &Path) -> bool {
    // If the metadata cannot be read, opening the file reports the error.
    std::fs::metadata(path).map_or_else(|e| e.kind() != io::ErrorKind::NotFound, |found| found.len() > 0)
}

enum Holder {
    Process(u32),
    Failed(io::Error),
}

/// Locks a drive file. The kernel releases the lock when the process ends.
fn lock_file(file: &File) -> Result<(), Holder> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = [0; 8];
            // The holder's process id is for messages only; 0 if the holder has not written it yet.
            let _not_written_yet = file.read_exact_at(&mut pid, HOLDER_OFFSET);
            Err(Holder::Process(u32::try_from(u64::from_le_bytes(pid)).unwrap_or(0)))
        }
        Err(e) => Err(Holder::Failed(e.into())),
    }
}

fn random_uuid(driver: &dyn Driver) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.copy_from_slice([driver.random(), driver.random()].as_bytes());
    uuid
}

/// Creates a drive file under a temporary name and links it to `path` once complete. A file that another process has
/// linked meanwhile stays.
fn create_at(path: &Path, header: &Header) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".new-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&temporary)?;
    let made = write_header(&file, header).and_then(|()| match std::fs::hard_link(&temporary, path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let removed = std::fs::remove_file(&temporary);
    made.and(removed)
}

fn write_header(file: &File, header: &Header) -> io::Result<()> {
    file.set_len(header.file_len())?;
    file.write_all_at(header.as_bytes(), 0)?;
    file.sync_all()
}

enum Problem {
    Host(io::Error),
    Damage(String),
}

fn read_table(file: &File, header: &Header, options: &EmuOptions) -> Result<Vec<TableEntry>, Problem> {
    let mut bytes = vec![0; header.table_len()];
    file.read_exact_at(&mut bytes, header.slot_at(0, 0)).map_err(Problem::Host)?;
    let mut zones = Vec::with_capacity(options.zones as usize);
    for (pair, zone) in bytes.chunks_exact(2 * ENTRY_SIZE as usize).zip(0_u32..) {
        let conventional = zone < options.conventional;
        let fresh = if conventional { ZoneState::Conventional } else { ZoneState::Empty };
        let mut best = TableEntry { state: fresh, sequence: 0, written: 0, resets: 0 };
        let mut damage = Vec::new();
        let mut readable = 0;
        for (slot, index) in pair.chunks_exact(ENTRY_SIZE as usize).zip(0_u64..) {
            let entry = Entry::read_from_bytes(slot).expect("as long as an entry");
            match TableEntry::decode(&entry, &header.uuid, zone, index) {
                Ok(Some(stored)) => {
                    readable += 1;
                    if stored.sequence > best.sequence {
                        best = stored;
                    }
                }
                Ok(None) => readable += 1,
                Err(what) => damage.push(what.0),
            }
        }
        // A power loss of the host may have damaged the slot that was being written: the zone's other slot is
        // used.
        match damage.pop() {
            Some(what) if readable == 0 => return Err(Problem::Damage(what)),
            Some(what) => tracing::warn!(zone, "{what}; the other one is used"),
            None => {}
        }
        let most = if conventional { 0 } else { options.zone_capacity.0 };
        let worn = matches!(best.state, ZoneState::ReadOnly | ZoneState::Offline);
        if best.written > most || (!worn && conventional != (best.state == ZoneState::Conventional)) {
            let (state, written) = (best.state, best.written);
            return Err(Problem::Damage(format!("zone {zone} cannot be {state:?} with {written} blocks")));
        }
        zones.push(best);
    }
    Ok(zones)
}

fn zone_of(stored: &TableEntry) -> Zone {
    let mut zone = Zone::new(stored.state == ZoneState::Conventional);
    zone.state = stored.state;
    zone.written = stored.written;
    zone.stored = stored.written;
    zone.resets = stored.resets;
    zone
}
