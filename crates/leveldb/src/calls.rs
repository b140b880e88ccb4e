//! The functions of `cpp/leveldb_abi.h`, which the C++ half calls. Each function only converts arguments and results.

use std::env;
use std::ffi::{c_char, c_void};
use std::os::unix::ffi::OsStringExt;

use abi::{Failure, FurrowStatus, StatusCode, bytes, run_infallible_entry, run_without_drive};

use crate::names::Place;
use crate::own_copy;
use crate::settings::Settings;

/// The settings of this process's LevelDB, owned by C++.
pub struct FurrowLevelDb(Settings);

/// Reads the settings from the environment. Writes null if no variable is set.
///
/// # Safety
/// `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_leveldb_settings(out: *mut *mut FurrowLevelDb) -> FurrowStatus {
    run_without_drive(|| {
        let settings = Settings::from_environment()
            .map_err(|error| Failure::new(StatusCode::Invalid, error.to_string()))?;
        let settings = settings
            .map_or(std::ptr::null_mut(), |settings| Box::into_raw(Box::new(FurrowLevelDb(settings))));
        // SAFETY: the caller guarantees that `out` can be written.
        unsafe { *out = settings };
        Ok(())
    })
}

/// The URL of the drive; `len` gets its length in bytes.
///
/// # Safety
/// `settings` is alive, and `len` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_leveldb_device(
    settings: *const FurrowLevelDb,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: the caller guarantees that `settings` is alive.
    let device = unsafe { &(*settings).0.device };
    // SAFETY: the caller guarantees that `len` can be written.
    unsafe { *len = device.len() };
    device.as_ptr().cast()
}

/// 1 if each flush of a log hands the log's buffer to the drive.
///
/// # Safety
/// `settings` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_leveldb_flushes(settings: *const FurrowLevelDb) -> u8 {
    // SAFETY: the caller guarantees that `settings` is alive.
    u8::from(unsafe { &*settings }.0.flush_to_drive)
}

/// The size of most tables in bytes; 0 if it is not known.
///
/// # Safety
/// `settings` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_leveldb_table_size(settings: *const FurrowLevelDb) -> u64 {
    // SAFETY: the caller guarantees that `settings` is alive.
    unsafe { &*settings }.0.table_size
}

/// Calls `on_drive` with a name's path on the drive; does not call it for a name of the host.
///
/// # Safety
/// `settings` is alive, `name` has `len` readable bytes, and `on_drive` may be called with `context` and does not throw.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_leveldb_place(
    settings: *const FurrowLevelDb,
    name: *const c_char,
    len: usize,
    context: *mut c_void,
    on_drive: extern "C" fn(*mut c_void, *const c_char, usize),
) -> FurrowStatus {
    run_without_drive(|| {
        // SAFETY: the caller guarantees that `settings` is alive and that `name` has `len` readable bytes.
        let (settings, name) = unsafe { (&(*settings).0, bytes(name, len)) };
        // Without a current directory, a relative name is taken from the host's root.
        let directory = || env::current_dir().unwrap_or_default().into_os_string().into_vec();
        match settings.root.place(name, directory) {
            Place::Host => {}
            Place::Drive(path) => on_drive(context, path.as_ptr().cast(), path.len()),
            Place::Ambiguous => {
                let shown = String::from_utf8_lossy(name);
                let root = String::from_utf8_lossy(&settings.root.on_host(b"/")).into_owned();
                let text = format!(
                    "{shown}: names below FURROW_LEVELDB_ROOT={root} are taken as they are: write it without '..'"
                );
                return Err(Failure::new(StatusCode::Invalid, text));
            }
        }
        Ok(())
    })
}

/// 1 if this process's program has LevelDB linked into itself.
#[unsafe(no_mangle)]
pub extern "C" fn furrow_leveldb_is_linked_in() -> u8 {
    run_infallible_entry(0, || u8::from(own_copy::is_linked_in()))
}
