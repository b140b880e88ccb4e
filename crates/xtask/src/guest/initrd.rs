//! The guest's initial RAM disk: a cpio archive in the kernel's "newc" format.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

use anyhow::{Context, Result, ensure};

const MODE_DIRECTORY: u32 = 0o040_755;
const MODE_REGULAR_FILE: u32 = 0o100_000;
const MODE_SYMBOLIC_LINK: u32 = 0o120_777;

/// Writes one cpio archive. Adding a file also adds the directories above it.
pub struct Initrd<W> {
    to: W,
    directories: BTreeSet<String>,
    entries: u32,
}

impl<W: Write> Initrd<W> {
    /// An archive that is written to `to`.
    pub fn new(to: W) -> Initrd<W> {
        Initrd { to, directories: BTreeSet::new(), entries: 0 }
    }

    /// Adds a directory, and those above it.
    pub fn directory(&mut self, path: &str) -> Result<()> {
        let mut name = String::new();
        for part in Path::new(path).components() {
            let Component::Normal(part) = part else { continue };
            if !name.is_empty() {
                name.push('/');
            }
            name.push_str(part.to_str().context("a path in the initrd is no UTF-8")?);
            if self.directories.insert(name.clone()) {
                self.entry(&name, MODE_DIRECTORY, &[])?;
            }
        }
        Ok(())
    }

    /// Adds a file with the given bytes.
    pub fn bytes(&mut self, path: &str, data: &[u8], executable: bool) -> Result<()> {
        self.parents(path)?;
        self.entry(
            path.trim_start_matches('/'),
            MODE_REGULAR_FILE | if executable { 0o755 } else { 0o644 },
            data,
        )
    }

    /// Adds a copy of the host's file `from`; a symbolic link is followed.
    pub fn file(&mut self, path: &str, from: &Path) -> Result<()> {
        let data = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        let mode = std::fs::metadata(from)?.permissions().mode();
        self.bytes(path, &data, mode & 0o111 != 0)
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.parents(path)?;
        self.entry(path.trim_start_matches('/'), MODE_SYMBOLIC_LINK, target.as_bytes())
    }

    /// Ends the archive.
    pub fn finish(mut self) -> Result<W> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn parents(&mut self, path: &str) -> Result<()> {
        match Path::new(path).parent().and_then(Path::to_str) {
            Some(parent) => self.directory(parent),
            None => Ok(()),
        }
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) -> Result<()> {
        self.entries += 1;
        let size = u32::try_from(data.len()).ok();
        ensure!(size.is_some(), "{name} is too large for an initrd");
        let fields = [
            self.entries,
            mode,
            0, // uid
            0, // gid
            1, // links
            0, // modification time
            size.unwrap_or_default(),
            0, // device numbers, of the file and of what it stands for
            0,
            0,
            0,
            u32::try_from(name.len() + 1).unwrap_or(u32::MAX),
            0, // checksum: not in this form
        ];
        let mut head = String::from("070701");
        for field in fields {
            head.push_str(&format!("{field:08x}"));
        }
        self.to.write_all(head.as_bytes())?;
        self.to.write_all(name.as_bytes())?;
        self.to.write_all(&[0])?;
        self.pad(head.len() + name.len() + 1)?;
        self.to.write_all(data)?;
        self.pad(data.len())?;
        Ok(())
    }

    fn pad(&mut self, length: usize) -> io::Result<()> {
        let zeros = [0; 3];
        self.to.write_all(zeros.get(..length.wrapping_neg() % 4).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn cpio_reads_what_is_written() {
        let mut initrd = Initrd::new(Vec::new());
        initrd.bytes("/a/b/one", b"first", true).unwrap();
        initrd.bytes("/a/two", b"", false).unwrap();
        initrd.link("/a/three", "b/one").unwrap();
        let archive = initrd.finish().unwrap();
        assert_eq!(archive.len() % 4, 0);
        let Ok(mut cpio) = Command::new("cpio")
            .args(["--list", "--verbose", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            return eprintln!("SKIPPED: no cpio here");
        };
        cpio.stdin.take().unwrap().write_all(&archive).unwrap();
        let listed = cpio.wait_with_output().unwrap();
        assert!(listed.status.success());
        let listed = String::from_utf8(listed.stdout).unwrap();
        let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 5, "{listed}");
        assert_eq!((lines[2][0], lines[2][4], lines[2][8]), ("-rwxr-xr-x", "5", "a/b/one"), "{listed}");
        assert!(listed.contains("a/three -> b/one"), "{listed}");
    }
}
