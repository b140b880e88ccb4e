//! Files with secrets.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::Error;

/// The longest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 10;

/// Permission bits that let others than the file's owner use it.
const OTHERS: u32 = 0o077;

/// The bytes of a file that others may read.
pub(super) fn read_public(path: &Path) -> Result<Vec<u8>, Error> {
    read(path, false)
}

/// The bytes of a file that only its owner may use.
pub(super) fn read_secret(path: &Path) -> Result<Vec<u8>, Error> {
    read(path, true)
}

fn read(path: &Path, secret: bool) -> Result<Vec<u8>, Error> {
    let fault = |why: String| Error::CredentialFile { path: path.to_owned(), why };
    let file = File::open(path).map_err(|error| fault(format!("cannot be opened: {error}")))?;
    let metadata = file.metadata().map_err(|error| fault(format!("cannot be looked at: {error}")))?;
    if !metadata.is_file() {
        return Err(fault("is no file".to_owned()));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if secret && mode & OTHERS != 0 {
        return Err(fault(format!("has mode {mode:03o}: others than the owner may use it; run chmod 600")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| fault(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(fault(format!("is longer than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

/// User and password from the first line of a file, `USER:PASSWORD`.
pub(super) fn read_user(path: &Path) -> Result<(String, String), Error> {
    let bytes = read_secret(path)?;
    let line = std::str::from_utf8(&bytes).ok().and_then(|text| text.lines().next());
    let parts = line.and_then(|line| line.split_once(':'));
    match parts {
        Some((user, password)) if !user.is_empty() && !password.is_empty() => {
            Ok((user.to_owned(), password.to_owned()))
        }
        _ => Err(Error::CredentialFile {
            path: path.to_owned(),
            why: "has no first line USER:PASSWORD".to_owned(),
        }),
    }
}
