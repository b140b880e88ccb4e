//! The credentials for the command `snapshot`.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The longest file of credentials that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4096;

/// Permission bits that let others than the file's owner read or write it.
const OTHERS: u32 = 0o077;

/// User and password of ZooKeeper's scheme `digest`. Neither is ever printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(String);

impl Credentials {
    /// Takes the credentials from the first line of a file, `user:password`.
    ///
    /// # Errors
    /// A sentence: a file that cannot be read, that others than its owner may read, that is empty or longer than 4 KiB; a line that is not
    /// `user:password` in printable ASCII without spaces (AdminServer splits the header at spaces).
    pub fn read(path: &Path) -> Result<Credentials, String> {
        let shown = path.display();
        let mut file =
            File::open(path).map_err(|error| format!("cannot open the credentials {shown}: {error}"))?;
        let metadata =
            file.metadata().map_err(|error| format!("cannot look at the credentials {shown}: {error}"))?;
        if !metadata.is_file() {
            return Err(format!("the credentials {shown} are no file"));
        }
        let mode = metadata.permissions().mode();
        if mode & OTHERS != 0 {
            return Err(format!(
                "the credentials {shown} have mode {:03o}: others than the owner may use them; run chmod 600 {shown}",
                mode & 0o777
            ));
        }
        let mut text = String::new();
        file.by_ref()
            .take(MAX_FILE_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|error| format!("cannot read the credentials {shown}: {error}"))?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(format!("the credentials {shown} are longer than {MAX_FILE_BYTES} bytes"));
        }
        Credentials::parse(text.lines().next().unwrap_or_default())
            .map_err(|why| format!("the first line of the credentials {shown} {why}"))
    }

    fn parse(line: &str) -> Result<Credentials, &'static str> {
        let Some((user, password)) = line.split_once(':') else {
            return Err("is not USER:PASSWORD");
        };
        if user.is_empty() || password.is_empty() {
            return Err("lacks the user or the password: write USER:PASSWORD");
        }
        if !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(
                "has a space or a character outside ASCII, which AdminServer cannot take in a header",
            );
        }
        Ok(Credentials(line.to_owned()))
    }

    /// Credentials of a line that a test knows to be right.
    #[cfg(test)]
    pub(crate) fn for_test(line: &str) -> Credentials {
        Credentials::parse(line).unwrap()
    }

    /// The value of the header `Authorization`.
    pub(super) fn header(&self) -> String {
        format!("digest {}", self.0)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(text: &str, mode: u32) -> Result<Credentials, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Credentials::read(&path)
    }

    #[test]
    fn the_first_line_of_the_owners_file_is_taken_and_never_shown() {
        let credentials = file("super:a:b\nmore\n", 0o600).unwrap();
        assert_eq!(credentials.header(), "digest super:a:b");
        assert_eq!(format!("{credentials:?}"), "Credentials(..)");
    }

    #[test]
    fn each_fault_of_the_file_is_a_sentence() {
        for (text, mode, word) in [
            ("super:secret", 0o644, "chmod 600"),
            ("super:secret", 0o660, "chmod 600"),
            ("", 0o600, "USER:PASSWORD"),
            ("super", 0o600, "USER:PASSWORD"),
            ("super:", 0o600, "lacks"),
            ("super:a b", 0o600, "space"),
            ("super:\u{e4}", 0o600, "ASCII"),
        ] {
            let error = file(text, mode).unwrap_err();
            assert!(error.contains(word) && !error.contains("secret"), "{error}");
        }
        assert!(file(&"x".repeat(5000), 0o600).unwrap_err().contains("longer"));
        assert!(
            Credentials::read(Path::new("/nonexistent/credentials")).unwrap_err().contains("cannot open")
        );
        assert!(Credentials::read(Path::new("/")).unwrap_err().contains("no file"));
    }
}
