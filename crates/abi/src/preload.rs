//! Starting unmodified programs with a library of ours preloaded.
//!
//! A preloaded library that does not fit fails silently or crashes. So a program is first started once as a *probe*: the library's
//! constructor writes an announcement to the pipe that `FURROW_HANDSHAKE_FD` names, and ends the process before `main`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{Read, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};

/// Environment variable with the file descriptor to which the library announces itself. Set for probes only.
const HANDSHAKE_VARIABLE: &str = "FURROW_HANDSHAKE_FD";
/// Longest time until a probe has run the program's constructors.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest number of bytes of a library's announcement.
const ANNOUNCEMENT_MAX: u64 = 4096;

/// The mode bits of a program that runs with the rights of its file's owner or group.
const SET_ID: u32 = 0o6000;
/// Bytes of an ELF file in which its program headers lie.
const ELF_HEAD: u64 = 64 << 10;

/// Why a program cannot be started with the library. The text says what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PreloadError(String);

impl PreloadError {
    /// An error with its whole message.
    pub fn new(text: impl Into<String>) -> PreloadError {
        PreloadError(text.into())
    }
}

/// A library that programs preload.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// The library's file name.
    pub file: &'static str,
    /// The environment variable with the path of the library. The variable takes precedence over the default paths.
    pub variable: &'static str,
    /// The package that builds the library.
    pub package: &'static str,
}

impl Library {
    /// The library's path: `given`, or what the variable says, or beside this program, in `../lib`, or in `..`.
    pub fn find(&self, given: Option<&Path>) -> Result<PathBuf, PreloadError> {
        let Library { file, variable, package } = self;
        let named = given.map(Path::to_owned).or_else(|| env::var_os(variable).map(PathBuf::from));
        if let Some(named) = named {
            return named.canonicalize().map_err(|error| {
                PreloadError::new(format!("the library {}: {error}; see {variable}", named.display()))
            });
        }
        let exe = env::current_exe().and_then(|exe| exe.canonicalize());
        let Some(dir) = exe.as_ref().ok().and_then(|exe| exe.parent()) else {
            let text = format!("the path of this program is unknown: set {variable} to {file}");
            return Err(PreloadError::new(text));
        };
        let places = [dir.join(file), dir.join("../lib").join(file), dir.join("..").join(file)];
        places.iter().find_map(|place| place.canonicalize().ok()).ok_or_else(|| {
            PreloadError::new(format!(
                "{file} is neither in {} nor in its ../lib: build it with `cargo build -p {package}`, or set {variable}",
                dir.display()
            ))
        })
    }

    /// Fails if the library at `path` is of another version than this program.
    pub fn check_version(&self, path: &Path, library: &str, program: &str) -> Result<(), PreloadError> {
        if library == program {
            return Ok(());
        }
        Err(PreloadError::new(format!(
            "{} is version {library}, and this program is {program}: install both from one build, or set {}",
            path.display(),
            self.variable
        )))
    }
}

/// The value of LD_PRELOAD: the library, then the libraries that the caller's LD_PRELOAD names.
pub fn preload_value(library: &Path) -> Result<OsString, PreloadError> {
    if library.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'$')) {
        return Err(PreloadError::new(format!(
            "the library's path {} has a space, a colon or a dollar sign, which LD_PRELOAD cannot carry: move it",
            library.display()
        )));
    }
    let mut value = library.as_os_str().to_owned();
    if let Some(more) = env::var_os("LD_PRELOAD").filter(|more| !more.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(more);
    }
    Ok(value)
}

/// Fails if the dynamic loader would ignore LD_PRELOAD for `program`: it is linked statically, or runs with another user's rights. A file
/// that is no ELF file, such as a script, is not judged.
pub fn check_takes_preload(program: &Path) -> Result<(), PreloadError> {
    let reading = |e: std::io::Error| PreloadError::new(format!("{}: {e}", program.display()));
    let refuse = |what: &str| {
        let text = format!("{} {what}, so that no library can be preloaded", program.display());
        Err(PreloadError::new(text))
    };
    let mut file = File::open(program).map_err(reading)?;
    if file.metadata().map_err(reading)?.mode() & SET_ID != 0 {
        return refuse("is set-user-id or set-group-id");
    }
    let mut head = Vec::new();
    file.by_ref().take(ELF_HEAD).read_to_end(&mut head).map_err(reading)?;
    match names_loader(&head) {
        Some(false) => refuse("is linked statically"),
        Some(true) | None => Ok(()),
    }
}

/// Whether an ELF file names a dynamic loader (a program header of the type PT_INTERP); `None` if `head` begins no 64-bit ELF file.
fn names_loader(head: &[u8]) -> Option<bool> {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, len: usize| {
        let bytes = head.get(at..at.checked_add(len)?)?;
        Some(bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    // Magic, 64 bits, little-endian.
    head.strip_prefix(b"\x7fELF\x02\x01")?;
    let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let header = |n: u64| usize::try_from(first.checked_add(n.checked_mul(size)?)?).ok();
    let types = (0..count).map(|n| header(n).and_then(|at| number(at, 4)));
    Some(types.flatten().any(|of_header| of_header == PT_INTERP))
}

/// Starts `program` once as a probe, reads the library's announcement and gives it to `read`, which returns `None` for a text that is
/// no announcement.
pub fn probe<T>(
    program: &Path,
    library: &Path,
    preload: &OsStr,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, PreloadError> {
    let starting = |e: &dyn fmt::Display| PreloadError::new(format!("starting {}: {e}", program.display()));
    let (mut reader, writer) = pipe().map_err(|e| starting(&e))?;
    fcntl_setfd(&writer, FdFlags::empty()).map_err(|e| starting(&e))?;
    let mut child = Command::new(program)
        // With `--help` the program does no harm if the library is not loaded.
        .arg("--help")
        .env("LD_PRELOAD", preload)
        .env(HANDSHAKE_VARIABLE, writer.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| starting(&e))?;
    drop(writer);
    let mut line = String::new();
    if wait_readable(&reader) {
        // The read ends when the probe ends, which is right after its announcement.
        let _not_text = reader.by_ref().take(ANNOUNCEMENT_MAX).read_to_string(&mut line);
    }
    let loader_error = kill_probe(&mut child);
    read(&line).ok_or_else(|| {
        PreloadError::new(format!(
            "{} did not load the library {}{}{}; is it linked statically, or set-user-id, or of another machine?",
            program.display(),
            library.display(),
            if loader_error.is_empty() { "" } else { ": " },
            loader_error
        ))
    })
}

/// Waits until the pipe has data or its other end is closed.
fn wait_readable(pipe: &std::io::PipeReader) -> bool {
    let timeout = Timespec { tv_sec: PROBE_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
    let mut polled = [PollFd::new(pipe, PollFlags::IN)];
    poll(&mut polled, Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// Ends a probe. Returns the dynamic loader's error message, if the loader printed one.
fn kill_probe(child: &mut Child) -> String {
    let _ended_already = child.kill();
    let mut text = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _not_text = stderr.take(ANNOUNCEMENT_MAX).read_to_string(&mut text);
    }
    let _ended_already = child.wait();
    text.lines().find(|line| line.contains("ld.so")).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of an ELF file with program headers of the given types.
    fn elf(types: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = u8::try_from(types.len()).unwrap();
        for of_header in types {
            file.extend(of_header.to_le_bytes());
            file.extend([0; 52]);
        }
        file
    }

    #[test]
    fn a_static_program_is_told_from_a_dynamic_one() {
        assert_eq!(names_loader(&elf(&[6, 3, 1])), Some(true));
        assert_eq!(names_loader(&elf(&[1, 1])), Some(false));
        assert_eq!(names_loader(b"#!/bin/sh\n"), None);
        assert_eq!(names_loader(b"\x7fELF\x02\x01"), None, "cut off");
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(names_loader(&this), Some(true));
    }

    #[test]
    fn a_program_with_another_user_s_rights_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let program = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(check_takes_preload(program.path()), Ok(()));
        program.as_file().set_permissions(std::fs::Permissions::from_mode(0o4755)).unwrap();
        let error = check_takes_preload(program.path()).unwrap_err().to_string();
        assert!(error.contains("set-user-id"), "{error}");
    }
}
