//! Settings from the environment: which names of an unmodified program lie on which drive.

use std::ffi::OsString;

use bytesize::ByteSize;

use crate::names::Root;

/// Environment variable with the URL of the drive.
const DEVICE: &str = "FURROW_LEVELDB";
/// Environment variable with the directory whose names lie on the drive.
const ROOT: &str = "FURROW_LEVELDB_ROOT";
/// Environment variable that says where a flush of a log ends: `buffer` or `drive`.
const FLUSH: &str = "FURROW_LEVELDB_FLUSH";
/// Environment variable with the size of most tables.
const TABLE_SIZE: &str = "FURROW_LEVELDB_TABLE_SIZE";
/// Environment variable with the path of this library, for `furrow leveldb`.
const LIBRARY: &str = "FURROW_LEVELDB_LIBRARY";

/// Settings of this process's LevelDB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// The URL of the drive.
    pub device: String,
    /// The directory whose names lie on the drive.
    pub root: Root,
    /// Whether each flush of a log hands the log's buffer to the drive. LevelDB flushes its log after every write.
    pub flush_to_drive: bool,
    /// The size of most tables in bytes; 0 if it is not known.
    pub table_size: u64,
}

/// Why the settings are refused: names the variable, its value and what it wants.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SettingsError(String);

impl Settings {
    /// The settings in this process's environment; `None` if no variable is set.
    pub fn from_environment() -> Result<Option<Settings>, SettingsError> {
        Settings::read(&std::env::vars_os().collect::<Vec<_>>())
    }

    fn read(variables: &[(OsString, OsString)]) -> Result<Option<Settings>, SettingsError> {
        let refuse = |text: String| Err(SettingsError(text));
        let mut device = None;
        let mut root = None;
        let mut flush = None;
        let mut table_size = None;
        for (name, value) in variables {
            let name = name.to_string_lossy();
            let slot = match &*name {
                DEVICE => &mut device,
                ROOT => &mut root,
                FLUSH => &mut flush,
                TABLE_SIZE => &mut table_size,
                LIBRARY => continue,
                _ if name.starts_with(DEVICE) => {
                    return refuse(format!(
                        "{name} in the environment is not known: there are {DEVICE}, {ROOT}, {FLUSH} and {TABLE_SIZE}"
                    ));
                }
                _ => continue,
            };
            *slot = Some(value.to_str().ok_or_else(|| SettingsError(format!("{name} is not UTF-8")))?);
        }
        let (device, root) = match (device, root) {
            (None, None) if flush.is_none() && table_size.is_none() => return Ok(None),
            (Some(device), Some(root)) => (device, root),
            (Some(device), None) => {
                return refuse(format!(
                    "{DEVICE}={device} names a drive, and {ROOT} no directory: set it to the directory whose names lie \
                     on the drive"
                ));
            }
            (None, _) => {
                return refuse(format!(
                    "{ROOT}, {FLUSH} or {TABLE_SIZE} is set, and {DEVICE} names no drive"
                ));
            }
        };
        if device.is_empty() {
            return refuse(format!(
                "{DEVICE} is empty: it wants a drive's URL, as `furrow device list` shows them"
            ));
        }
        let Some(root_directory) = Root::parse(root) else {
            return refuse(format!(
                "{ROOT}={root}: it wants the path of a directory, from / on and without .."
            ));
        };
        let flush_to_drive = match flush {
            None | Some("buffer") => false,
            Some("drive") => true,
            Some(other) => return refuse(format!("{FLUSH}={other}: it wants buffer or drive")),
        };
        let table_size = match table_size.map(|size| (size, size.parse())) {
            None => 0,
            Some((_, Ok(ByteSize(size)))) => size,
            Some((other, Err(_))) => {
                return refuse(format!("{TABLE_SIZE}={other}: it wants a size, such as 16000KiB"));
            }
        };
        Ok(Some(Settings { device: device.to_owned(), root: root_directory, flush_to_drive, table_size }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        let variables: Vec<_> = set.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Settings::read(&variables)
    }

    #[test]
    fn a_drive_and_a_root_make_settings() {
        assert_eq!(read(&[("PATH", "/bin"), ("FURROW_DEVICE", "emu:mem")]), Ok(None));
        let settings = read(&[(DEVICE, "emu:mem"), (ROOT, "/data/")]).unwrap().unwrap();
        assert_eq!(settings.device, "emu:mem");
        assert_eq!(settings.root, Root::parse("/data").unwrap());
        assert_eq!((settings.flush_to_drive, settings.table_size), (false, 0));
        let settings = read(&[(DEVICE, "emu:mem"), (ROOT, "/"), (FLUSH, "drive")]).unwrap().unwrap();
        assert!(settings.flush_to_drive);
        let settings = read(&[(DEVICE, "emu:mem"), (ROOT, "/"), (TABLE_SIZE, "15MiB")]).unwrap().unwrap();
        assert_eq!(settings.table_size, 15 << 20);
    }

    #[test]
    fn nonsense_is_refused_with_its_variable() {
        for (set, named) in [
            (&[(DEVICE, "emu:mem")][..], ROOT),
            (&[(ROOT, "/data")], DEVICE),
            (&[(FLUSH, "drive")], DEVICE),
            (&[(TABLE_SIZE, "2MiB")], DEVICE),
            (&[(DEVICE, "emu:mem"), (ROOT, "/a"), (TABLE_SIZE, "large")], "FURROW_LEVELDB_TABLE_SIZE=large"),
            (&[(DEVICE, ""), (ROOT, "/data")], DEVICE),
            (&[(DEVICE, "emu:mem"), (ROOT, "data")], "FURROW_LEVELDB_ROOT=data"),
            (&[(DEVICE, "emu:mem"), (ROOT, "")], "FURROW_LEVELDB_ROOT="),
            (&[(DEVICE, "emu:mem"), (ROOT, "/a/../b")], "FURROW_LEVELDB_ROOT=/a/../b"),
            (&[(DEVICE, "emu:mem"), (ROOT, "/a"), (FLUSH, "disk")], "FURROW_LEVELDB_FLUSH=disk"),
            (&[(DEVICE, "emu:mem"), (ROOT, "/a"), ("FURROW_LEVELDB_ROT", "/b")], "FURROW_LEVELDB_ROT"),
        ] {
            let error = read(set).expect_err("nonsense").to_string();
            assert!(error.contains(named), "{set:?}: {error}");
        }
    }
}
