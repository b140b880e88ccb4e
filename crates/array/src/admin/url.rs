//! `array:` URLs. An array is named by its members, by a file that lists them, or by its own name:
//!
//! | URL | members |
//! |---|---|
//! | `array:URL,URL,...` | these, in any order; one of them may be missing, and another process may hold an idle spare |
//! | `array:PATH` | those that the file lists, one URL on a line; `#` begins a comment |
//! | `array:NAME` | the drives of this machine that are members of the array with this label or UUID |
//!
//! Settings come last: `array:PATH?appends=auto` ([`OpenOptions::appends`]), `array:PATH?stage=1MiB` ([`Stage`]). Functions here that take the part of a URL
//! after `array:` take it with its settings.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use units::block_on;
use zoned::contents::{Signature, peek};
use zoned::discover::Machine;
use zoned::{DeviceUrl, Driver, Error, ErrorKind, Result, Stage, ZonedDevice};

use crate::admin::status::status_of_members;
use crate::admin::url_settings::{is_url_list, split, url_error};
use crate::array::Array;
use crate::degraded::errors::Retries;
use crate::format::superblock::MemberInfo;
use crate::member::member_drive::MemberDrive;
use crate::{OpenOptions, Status};

/// Opens the members that `rest`, the part of an array's URL after `array:`, names. Missing members are skipped with
/// a warning: the array may work without one. So is an idle spare that another process holds.
///
/// Errors: [`ErrorKind::Held`] and other errors of a drive that is present and cannot be opened;
/// [`ErrorKind::Invalid`] if a URL is invalid or named twice; [`ErrorKind::NotFound`] if nothing has this name.
pub fn members(rest: &str, driver: &Arc<dyn Driver>) -> Result<Vec<Arc<dyn ZonedDevice>>> {
    let (named, _) = split(rest)?;
    match listed(rest)? {
        Some(urls) => open_all(named, &urls, driver),
        None => members_of_named_array(named, driver),
    }
}

/// The members' URLs in `rest`, in order; `None` if `rest` is the name of an array. Opens no drive.
///
/// Errors: those of [`members`] that need no drive.
pub fn listed(rest: &str) -> Result<Option<Vec<String>>> {
    let (rest, _) = split(rest)?;
    let urls: Vec<String> = if is_url_list(rest) {
        rest.split(',').map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect()
    } else if is_member_list_file(rest) {
        let text = std::fs::read_to_string(rest).map_err(|error| {
            url_error(ErrorKind::Host, rest, format!("reading the list of members: {error}"))
        })?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    } else {
        return Ok(None);
    };
    if urls.is_empty() {
        return Err(url_error(
            ErrorKind::Invalid,
            rest,
            "the URL names no members: array:URL,URL,URL".to_owned(),
        ));
    }
    let mut seen = BTreeSet::new();
    for url in &urls {
        if url.starts_with("array:") {
            return Err(url_error(ErrorKind::Unsupported, url, "an array of arrays is not built".to_owned()));
        }
        url.parse::<DeviceUrl>()?;
        if !seen.insert(without_settings(url)) {
            return Err(url_error(ErrorKind::Invalid, rest, format!("{url} is named twice")));
        }
    }
    Ok(Some(urls))
}

/// A drive's URL without the settings that only its creation uses.
fn without_settings(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// True if the URL is that of an emulated drive, or of an array of emulated drives: it cannot hold foreign data.
pub fn is_emulated(url: &str) -> bool {
    match url.parse() {
        Ok(DeviceUrl::Array(rest)) => {
            matches!(listed(&rest), Ok(Some(urls)) if urls.iter().all(|url| is_emulated(url)))
        }
        Ok(url) => url.is_emulated(),
        Err(_) => false,
    }
}

/// Refuses a URL that a list of members cannot hold.
///
/// Errors: [`ErrorKind::Invalid`] if the list would be read back differently.
pub fn listable(url: &str) -> Result<()> {
    if url.trim() == url && !url.contains(['#', '\n', '\r']) {
        return Ok(());
    }
    let why = format!(
        "{url:?} in a list of members would be read as another drive: no '#', line break, or space at an end; rename the \
         drive's file"
    );
    Err(Error::new(ErrorKind::Invalid, &Arc::from(url), "list").because(why))
}

/// Adds a new member to the list if `rest` is a file that lists the members: the next mount needs the drive to go on
/// with its rebuild. True if `rest` is such a file.
///
/// Errors: [`ErrorKind::Host`] if the file cannot be written; those of [`listable`].
pub fn remember(rest: &str, url: &str) -> Result<bool> {
    let (rest, _) = split(rest)?;
    if !is_member_list_file(rest) {
        return Ok(false);
    }
    listable(url)?;
    let same = |known: &String| without_settings(known) == without_settings(url);
    if listed(rest)?.is_some_and(|urls| urls.iter().any(same)) {
        return Ok(true);
    }
    let add = || {
        let mut file = std::fs::OpenOptions::new().append(true).open(rest)?;
        file.write_all(format!("\n{url}\n").as_bytes())?;
        file.sync_all()
    };
    add().map(|()| true).map_err(|error| {
        url_error(
            ErrorKind::Host,
            rest,
            format!("adding {url} to the list of members: {error}; add it by hand"),
        )
    })
}

/// Removes an idle spare that was given up from the list if `rest` is a file that lists the members. `drive`: the name of the spare's
/// drive. Comments and the other lines stay. True if the file listed the drive.
///
/// Errors: [`ErrorKind::Host`] if the file cannot be read or written.
pub fn forget(rest: &str, drive: &str) -> Result<bool> {
    let (rest, _) = split(rest)?;
    if !is_member_list_file(rest) {
        return Ok(false);
    }
    let names_drive = |line: &&str| {
        without_settings(line.split('#').next().unwrap_or_default().trim()) == without_settings(drive)
    };
    let remove = || -> std::io::Result<bool> {
        let text = std::fs::read_to_string(rest)?;
        let kept: String = text.split_inclusive('\n').filter(|line| !names_drive(line)).collect();
        if kept == text {
            return Ok(false);
        }
        // The new list takes the place of the old one as a whole: a crash leaves one of them.
        let list = std::fs::canonicalize(rest)?;
        let mut new = list.clone().into_os_string();
        new.push(".new");
        let mut file = std::fs::File::create(&new)?;
        file.set_permissions(std::fs::metadata(&list)?.permissions())?;
        file.write_all(kept.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &list)?;
        Ok(true)
    };
    remove().map_err(|error| {
        let why = format!("removing {drive} from the list of members: {error}; remove it by hand");
        url_error(ErrorKind::Host, rest, why)
    })
}

/// An open array, and the device for its clients.
#[derive(Clone, Debug)]
pub struct OpenedArray {
    /// The array, which takes orders. Zones are written through `device` only.
    pub array: Arc<Array>,
    /// The array itself, or the [`Stage`] before it that the URL asks for.
    pub device: Arc<dyn ZonedDevice>,
}

/// Opens the array that `rest` names, with the settings in `rest`.
///
/// Errors: those of [`members`] and [`Array::open`]; [`ErrorKind::Invalid`] for bad settings, or a stage whose window is shorter than a
/// block.
pub fn assemble(rest: &str, driver: &Arc<dyn Driver>) -> Result<OpenedArray> {
    let (_, settings) = split(rest)?;
    let devices = members(rest, driver)?;
    let array = block_on(&**driver, Array::open(devices, settings.options))?;
    let device = Arc::clone(&array) as Arc<dyn ZonedDevice>;
    let device = match settings.stage {
        Some(window) => Stage::over(device, window)?,
        None => device,
    };
    Ok(OpenedArray { array, device })
}

/// The settings of the mount in `rest`, the part of an array's URL after `array:`.
///
/// Errors: [`ErrorKind::Invalid`] for an unknown setting or a bad value.
pub fn open_options(rest: &str) -> Result<OpenOptions> {
    Ok(split(rest)?.1.options)
}

/// Opens the array that `rest` names as a device: `zoned` calls this for `array:` URLs after [`zoned::register_array_opener`].
pub fn open(rest: &str, driver: Arc<dyn Driver>) -> Result<Arc<dyn ZonedDevice>> {
    Ok(assemble(rest, &driver)?.device)
}

/// True if `rest` is a file that lists the members.
pub fn is_member_list_file(rest: &str) -> bool {
    split(rest).is_ok_and(|(named, _)| !is_url_list(named) && Path::new(named).is_file())
}

fn open_all(rest: &str, urls: &[String], driver: &Arc<dyn Driver>) -> Result<Vec<Arc<dyn ZonedDevice>>> {
    let (mut devices, mut missing) = (Vec::new(), Vec::new());
    let mut closed: Option<(&str, Error)> = None;
    for url in urls {
        match zoned::open(url, Arc::clone(driver)) {
            Ok(device) => devices.push(device),
            Err(error) if is_missing(error.kind()) => {
                tracing::warn!(url, %error, "a member is missing");
                missing.push(url.as_str());
            }
            // At most one drive is left out: an idle spare that another process holds.
            Err(error) if matches!(error.kind(), ErrorKind::Held { .. }) && closed.is_none() => {
                closed = Some((url.as_str(), error));
            }
            Err(error) => return Err(closed.map_or(error, |(_, first)| first)),
        }
    }
    if let Some((url, error)) = closed {
        if !has_all_good_members(&devices, driver) {
            return Err(error);
        }
        tracing::warn!(url, %error, "all members are there without this drive, an idle spare: left out");
    }
    if devices.is_empty() {
        let why = format!("none of its members is there: {}", missing.join(", "));
        return Err(url_error(ErrorKind::NotFound, rest, why));
    }
    Ok(devices)
}

/// True if all drives that an array does not list as failed are among `devices`, and so is the new drive of an interrupted rebuild.
fn has_all_good_members(devices: &[Arc<dyn ZonedDevice>], driver: &Arc<dyn Driver>) -> bool {
    let (mut present, mut needed) = (0, 0);
    for device in devices {
        let Ok(status) = block_on(&**driver, status_of_drive(device)) else { continue };
        // A spare's mark is as old as the spare.
        if status.spares.iter().all(|spare| spare.device.is_none()) {
            present += 1;
            let counts = |member: &&MemberInfo| !member.failed || member.rebuilding;
            needed = needed.max(status.superblock.members.iter().filter(counts).count());
        }
    }
    present > 0 && present >= needed
}

/// True if the error means that the drive is not present. An error of the host (no file descriptors, no memory) says
/// nothing of the drive, and an array that is opened without a drive fails it for good.
fn is_missing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Gone)
}

/// A drive with the signature of an array's member: its URL, and the device if it could be opened.
type FoundDrive = (String, Result<Arc<dyn ZonedDevice>>);

/// The drives of this machine that are members of the array with this label or UUID. Drives in use by the kernel are
/// skipped.
fn members_of_named_array(name: &str, driver: &Arc<dyn Driver>) -> Result<Vec<Arc<dyn ZonedDevice>>> {
    let mut found: Vec<FoundDrive> = Vec::new();
    for drive in Machine::here().zoned_drives().into_iter().filter(|drive| drive.uses.is_empty()) {
        let claims = peek(&Path::new("/dev").join(&drive.name))
            .is_ok_and(|contents| contents.signatures.contains(&Signature::FurrowArray));
        if let Some(url) = drive.urls.first().filter(|_| claims) {
            found.push((url.clone(), zoned::open(url, Arc::clone(driver))));
        }
    }
    select_members(name, found, driver)
}

/// The status that the superblock of one drive gives. Transient errors are retried.
async fn status_of_drive(device: &Arc<dyn ZonedDevice>) -> Result<Status> {
    let mut retries = Retries::default();
    loop {
        match status_of_members(&[MemberDrive::new(Arc::clone(device))]).await {
            Err(error) if retries.wait(&**device.driver(), &error).await => {}
            result => return result,
        }
    }
}

/// The found drives that are members of the array with this label or UUID. A drive that cannot be opened or read is
/// skipped with a warning, because its array is unknown. If the array then lacks a drive, and the skipped drive is
/// held by another process or cannot be read now, that error is returned: an array that is opened without a member
/// fails it for good.
fn select_members(
    name: &str,
    found: Vec<FoundDrive>,
    driver: &Arc<dyn Driver>,
) -> Result<Vec<Arc<dyn ZonedDevice>>> {
    let (mut members, mut closed) = (Vec::new(), Vec::new());
    let (mut arrays, mut good, mut spares) = (BTreeSet::new(), 0, 0);
    for (url, device) in found {
        let device = match device {
            Ok(device) => device,
            Err(error) => {
                tracing::warn!(url, %error, "a drive with the signature of an array's member cannot be opened: left out");
                closed.push((url, error));
                continue;
            }
        };
        let status = match block_on(&**driver, status_of_drive(&device)) {
            Ok(status) => status,
            // The drive is no member of an array, or of an array of an unknown format.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => continue,
            Err(error) => {
                tracing::warn!(url, %error, "the array of a drive cannot be read: left out");
                closed.push((url, error));
                continue;
            }
        };
        let superblock = &status.superblock;
        if superblock.label == name || superblock.uuid.to_string().eq_ignore_ascii_case(name) {
            arrays.insert(superblock.uuid);
            let is_spare = status.spares.iter().any(|spare| spare.device.is_some());
            spares += usize::from(is_spare);
            // A spare's mark is as old as the spare.
            let known_good = superblock.members.iter().filter(|member| !member.failed && !is_spare).count();
            good = good.max(known_good);
            members.push(device);
        }
    }
    if (members.is_empty() || members.len() - spares < good)
        && let Some(at) = closed.iter().position(|(_, error)| !is_missing(error.kind()))
    {
        return Err(closed.swap_remove(at).1);
    }
    match arrays.len() {
        0 => {
            let mut why = format!(
                "there is no file {name} that lists its members, and no drive of this machine is a member of an array \
                 of this name; or name the members, array:URL,URL,URL"
            );
            for (url, error) in closed {
                why.push_str(&format!("; {url} may be one, and cannot be opened: {error}"));
            }
            Err(url_error(ErrorKind::NotFound, name, why))
        }
        1 => Ok(members),
        _ => {
            let list: Vec<String> = arrays.iter().map(ToString::to_string).collect();
            let why = format!("{} arrays have this name: use one's UUID: {}", list.len(), list.join(", "));
            Err(url_error(ErrorKind::Invalid, name, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use zoned::emu::{Emu, EmuOptions};
    use zoned::{Buf, BufMut, Durability, Geometry, Io, Lba, Op};

    use super::*;
    use crate::CreateOptions;

    /// A drive whose next reads fail with an error of the host.
    #[derive(Debug)]
    struct FailingReads(Arc<dyn ZonedDevice>, AtomicU32);

    impl ZonedDevice for FailingReads {
        fn geometry(&self) -> &Geometry {
            self.0.geometry()
        }

        fn submit(&self, op: Op) -> Io {
            let fails = matches!(op, Op::Read { .. })
                && self
                    .1
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok();
            match fails {
                true => Io::ready(Err(Error::new(ErrorKind::Host, &Arc::from("emu:busy"), op.name()))),
                false => self.0.submit(op),
            }
        }

        fn driver(&self) -> &Arc<dyn Driver> {
            self.0.driver()
        }
    }

    #[test]
    fn a_transient_read_error_is_retried_and_a_persistent_one_is_returned() {
        let driver: Arc<dyn Driver> = units::VirtualDriver::new(1);
        let drives: Vec<Arc<dyn ZonedDevice>> = (0..4)
            .map(|n| {
                let options = EmuOptions { name: format!("emu:{n}"), zones: 8, ..EmuOptions::default() };
                Emu::memory(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>
            })
            .collect();
        let options = CreateOptions { label: "barn".into(), ..CreateOptions::default() };
        block_on(&*driver, crate::create(&drives, &options)).expect("created");
        let members = |reads: u32| {
            let busy = Arc::new(FailingReads(Arc::clone(&drives[3]), AtomicU32::new(reads)));
            let others = drives.iter().take(3).map(Arc::clone);
            let found =
                others.chain([busy as Arc<dyn ZonedDevice>]).map(|drive| ("emu:x".to_owned(), Ok(drive)));
            select_members("barn", found.collect(), &driver)
        };
        assert_eq!(members(3).expect("it passes").len(), 4);
        let error = members(u32::MAX).expect_err("without it the array would fail it for good");
        assert_eq!(error.kind(), ErrorKind::Host, "{error}");
        assert!(error.to_string().contains("emu:busy"), "{error}");
    }

    #[test]
    fn members_are_listed_in_the_url_or_in_a_file() {
        let folder = std::env::temp_dir().join(format!("furrow-array-url-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("barn").display().to_string();
        std::fs::write(&file, "# of the barn\nemu:a?zones=8\n\n  blk:/dev/b # the second\n").expect("a file");
        let found = listed(&file).expect("a list").expect("of URLs");
        assert_eq!(found, ["emu:a?zones=8", "blk:/dev/b"]);
        assert!(remember(&file, "emu:c").expect("added") && remember(&file, "emu:c?zones=8").expect("there"));
        assert!(remember(&file, "emu:a").expect("a drive that is replaced by itself"));
        assert_eq!(
            listed(&file).expect("a list").expect("of URLs"),
            ["emu:a?zones=8", "blk:/dev/b", "emu:c"]
        );
        for url in ["emu:d#2", "emu:d\nblk:/dev/e", "emu:d\r", " emu:d"] {
            let error = remember(&file, url).expect_err(url);
            assert!(
                error.kind() == ErrorKind::Invalid && error.to_string().contains("another drive"),
                "{error}"
            );
        }
        assert_eq!(listed(&file).expect("a list").expect("of URLs").len(), 3, "nothing was written");
        assert!(forget(&file, "emu:c").expect("removed") && !forget(&file, "emu:c").expect("not listed"));
        let text = std::fs::read_to_string(&file).expect("the list");
        assert_eq!(text, "# of the barn\nemu:a?zones=8\n\n  blk:/dev/b # the second\n\n");
        assert!(forget(&file, "blk:/dev/b").expect("removed"));
        assert_eq!(listed(&file).expect("a list").expect("of URLs"), ["emu:a?zones=8"]);
        assert!(!forget("emu:a,emu:b", "emu:b").expect("no file"));
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(listed("emu:a, emu:b").expect("a list").expect("of URLs"), ["emu:a", "emu:b"]);
        assert_eq!(listed("barn").expect("a name"), None);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(&file, "emu:a\n").expect("a file");
        let set = format!("{file}?appends=auto");
        assert!(is_member_list_file(&set) && remember(&set, "emu:b").expect("added"));
        assert_eq!(listed(&set).expect("a list").expect("of URLs"), ["emu:a", "emu:b"]);
        assert!(forget(&set, "emu:b").expect("removed"));
        std::fs::remove_dir_all(&folder).expect("removed");
        assert!(is_emulated("array:emu:a,emu:b?zones=8?appends=auto"));
        assert!(!remember("emu:a,emu:b", "emu:c").expect("no file"));
        assert!(is_emulated("emu:a") && is_emulated("array:emu:a,emu:b"));
        assert!(!is_emulated("array:emu:a,blk:/dev/b") && !is_emulated("array:barn") && !is_emulated("barn"));
    }

    #[test]
    fn an_idle_spare_that_another_process_holds_is_left_out() {
        let folder = std::env::temp_dir().join(format!("furrow-array-held-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let driver: Arc<dyn Driver> = units::RealDriver::new();
        let settings = "?zones=8&zone-size=2MiB&zone-capacity=2MiB";
        let urls: Vec<String> =
            (0..5).map(|n| format!("emu:{}{settings}", folder.join(format!("{n}.img")).display())).collect();
        {
            let drives: Vec<Arc<dyn ZonedDevice>> = urls
                .iter()
                .map(|url| zoned::open_or_create(url, Arc::clone(&driver)).expect("a drive file"))
                .collect();
            let members = &drives[..4];
            block_on(&*driver, crate::create(members, &CreateOptions::default())).expect("created");
            let array = block_on(&*driver, Array::open(members.to_vec(), OpenOptions::default()));
            let spare = Arc::clone(&drives[4]);
            block_on(&*driver, array.expect("opened").add_spare(spare)).expect("a spare");
        }
        let list = urls.join(",");
        // A drive file that is open takes no second opening, whichever process asks.
        let hold = |n: usize| zoned::open(&urls[n], Arc::clone(&driver)).expect("not in use");
        let spare = hold(4);
        assert_eq!(members(&list, &driver).expect("the members are there").len(), 4);
        let array = assemble(&list, &driver).expect("opened without its spare").array;
        let spares = array.status().spares;
        assert!(spares.len() == 1 && spares[0].device.is_none(), "the spare stays listed: {spares:?}");
        drop((array, spare));
        assert_eq!(members(&list, &driver).expect("all drives").len(), 5);
        let member = hold(2);
        let error = members(&list, &driver).expect_err("without a member the array would fail it for good");
        assert!(matches!(error.kind(), ErrorKind::Held { .. }), "{error}");
        let spare = hold(4);
        let error = members(&list, &driver).expect_err("two drives are held");
        assert!(matches!(error.kind(), ErrorKind::Held { .. }), "{error}");
        drop((member, spare));
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_staged_array_takes_writes_ahead_of_the_pointer_and_a_bad_window_loses_nothing() {
        let folder = std::env::temp_dir().join(format!("furrow-array-staged-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let driver: Arc<dyn Driver> = units::VirtualDriver::new(1);
        let url = |n| format!("emu:{}?zones=8&zone-size=2MiB", folder.join(format!("{n}.img")).display());
        let list = (0..3).map(url).collect::<Vec<_>>().join(",");
        {
            let drives: Vec<Arc<dyn ZonedDevice>> = list
                .split(',')
                .map(|url| zoned::open_or_create(url, Arc::clone(&driver)).expect("a drive file"))
                .collect();
            block_on(&*driver, crate::create(&drives, &CreateOptions::default())).expect("created");
        }
        let block = |n: u64| Buf::copy_from(&[n as u8 + 1; 4096]);
        {
            let staged = open(&format!("{list}?stage=16KiB"), Arc::clone(&driver)).expect("opened");
            assert!(staged.details().contains(&("stage", "16384 bytes ahead of the write pointer".into())));
            let ahead = [3, 1, 2].map(|n| staged.write(Lba(n), block(n), Durability::Cached));
            let beyond =
                staged.write(Lba(4), block(4), Durability::Cached).wait().expect_err("a window ahead");
            assert_eq!(beyond.kind(), ErrorKind::NotAtWritePointer, "{beyond}");
            staged.write(Lba(0), block(0), Durability::Durable).wait().expect("written");
            ahead.into_iter().for_each(|io| io.wait().expect("written"));
        }
        for (window, part) in
            [("0", "a size above 0"), ("x", "a size above 0"), ("1KiB", "at least a block of 4096")]
        {
            let error = open(&format!("{list}?stage={window}"), Arc::clone(&driver)).expect_err(window);
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(part), "{error}");
        }
        let plain = open(&list, Arc::clone(&driver)).expect("opened");
        let ahead = plain.write(Lba(9), block(9), Durability::Cached).wait().expect_err("without a stage");
        assert_eq!(ahead.kind(), ErrorKind::NotAtWritePointer, "{ahead}");
        let found = plain.read(Lba(0), BufMut::zeroed(4 * 4096)).wait().expect("read");
        (0..4).for_each(|n| assert!(found[n * 4096..][..4096] == *block(n as u64), "block {n}"));
        drop(plain);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_url_without_members_is_refused_with_advice() {
        for (rest, part) in [
            (",", "names no members"),
            ("emu:a,emu:a?zones=8", "named twice"),
            ("emu:a,array:b", "array of arrays"),
            ("emu:a,b", "did you mean emu:b"),
        ] {
            let text = listed(rest).expect_err(rest).to_string();
            assert!(text.contains(part), "{rest}: {text}");
        }
        let driver: Arc<dyn Driver> = units::VirtualDriver::new(1);
        let text = members("no-such-array", &driver).expect_err("no such").to_string();
        assert!(text.contains("no file") && text.contains("array:URL"), "{text}");
        let text = members("emu:/no/such/a,emu:/no/such/b", &driver).expect_err("none").to_string();
        assert!(text.contains("none of its members"), "{text}");
    }

    #[test]
    fn a_drive_that_cannot_be_opened_stops_only_an_array_that_may_need_it() {
        let driver: Arc<dyn Driver> = units::VirtualDriver::new(1);
        let drives: Vec<Arc<dyn ZonedDevice>> = (0..4)
            .map(|n| {
                let options = EmuOptions { name: format!("emu:{n}"), zones: 8, ..EmuOptions::default() };
                Emu::memory(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>
            })
            .collect();
        let options = CreateOptions { label: "barn".into(), ..CreateOptions::default() };
        block_on(&*driver, crate::create(&drives, &options)).expect("created");
        let found = |count: usize, error: Option<ErrorKind>| -> Vec<FoundDrive> {
            let error = error.map(|kind| Err(Error::new(kind, &Arc::from("emu:x"), "open")));
            let drives = drives.iter().take(count).map(|drive| Ok(Arc::clone(drive)));
            error.into_iter().chain(drives).map(|device| ("emu:x".to_owned(), device)).collect()
        };
        for (count, error, wanted) in [
            (4, None, Ok(4)),
            (4, Some(ErrorKind::Gone), Ok(4)),
            (4, Some(ErrorKind::Held { pid: 7 }), Ok(4)),
            (3, Some(ErrorKind::Gone), Ok(3)),
            // The drive that process 7 holds may be the array's fourth member.
            (3, Some(ErrorKind::Held { pid: 7 }), Err(ErrorKind::Held { pid: 7 })),
            (3, Some(ErrorKind::Host), Err(ErrorKind::Host)),
            (0, Some(ErrorKind::Denied), Err(ErrorKind::Denied)),
            (0, Some(ErrorKind::Gone), Err(ErrorKind::NotFound)),
        ] {
            let members = select_members("barn", found(count, error), &driver);
            let members = members.map(|members| members.len()).map_err(|error| error.kind());
            assert_eq!(members, wanted, "{count} {error:?}");
        }
        let text =
            select_members("barn", found(0, Some(ErrorKind::Gone)), &driver).expect_err("none").to_string();
        assert!(text.contains("emu:x may be one"), "{text}");
    }
}
