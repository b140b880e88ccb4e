//! The files that a demonstration makes, in a directory of its own. It replaces those of an earlier run, and refuses a
//! file that no demonstration made.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use serde_json::{Map, Value};

/// The file that names the demonstration's files, each with its inode, or with null from the moment before it is made until its
/// inode is known.
const FILE_LIST: &str = "made-by-furrow-demo.json";

/// The directory of a demonstration and the list of files made in it.
#[derive(Debug)]
pub struct OwnFiles {
    directory: PathBuf,
    made: Mutex<Map<String, Value>>,
}

impl OwnFiles {
    /// Opens the directory, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// Errors of the directory; the refusal of a list that cannot be read.
    pub fn in_directory(directory: PathBuf) -> Result<OwnFiles> {
        fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        let list = directory.join(FILE_LIST);
        let made = match fs::read(&list) {
            Ok(text) => {
                serde_json::from_slice(&text).with_context(|| format!("reading {}", list.display()))?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Map::new(),
            Err(error) => return Err(error).with_context(|| format!("reading {}", list.display())),
        };
        Ok(OwnFiles { directory, made: Mutex::new(made) })
    }

    /// The path of a file that is going to be made. A file of an earlier run is removed.
    ///
    /// # Errors
    /// A refusal where a file exists that no demonstration made.
    pub fn claim(&self, name: &str) -> Result<PathBuf> {
        self.refuse_foreign(name)?;
        self.remove(name)?;
        self.record(name, Value::Null)?;
        Ok(self.path(name))
    }

    /// Records the inode of a claimed file that is made: from now on only this very file may be replaced.
    ///
    /// # Errors
    ///
    /// Errors of the file and of the list.
    pub fn made(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        let inode = fs::metadata(&path).with_context(|| format!("reading {}", path.display()))?.ino();
        self.record(name, inode.into())
    }

    /// Removes a file of a demonstration, which may be gone already.
    ///
    /// # Errors
    ///
    /// Errors of the removal; the refusal of a file that no demonstration made.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.refuse_foreign(name)?;
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// The path of a file in the demonstration's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Fails where a file exists and is not the one in the list of the demonstration's files.
    fn refuse_foreign(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        let inode = match fs::symlink_metadata(&path) {
            Ok(found) => found.ino(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        match self.made.lock().get(name) {
            Some(Value::Null) => Ok(()),
            Some(known) if known.as_u64() == Some(inode) => Ok(()),
            _ => bail!(
                "{} was not made by this demo and is not overwritten: move it away, or name another --directory",
                path.display()
            ),
        }
    }

    fn record(&self, name: &str, inode: Value) -> Result<()> {
        let mut made = self.made.lock();
        made.insert(name.to_owned(), inode);
        write(&self.directory.join(FILE_LIST), &made)
    }
}

fn write(list: &Path, made: &Map<String, Value>) -> Result<()> {
    let text = serde_json::to_string_pretty(made)?;
    fs::write(list, text).with_context(|| format!("writing {}", list.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_an_earlier_run_is_replaced_and_any_other_refused() {
        let directory = tempfile::TempDir::new().unwrap();
        let open = || OwnFiles::in_directory(directory.path().join("demo")).unwrap();
        let path = open().path("a.img");
        fs::write(&path, "a user's").unwrap();
        let error = open().claim("a.img").unwrap_err().to_string();
        assert!(error.contains("a.img was not made by this demo"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"a user's");

        fs::remove_file(&path).unwrap();
        let files = open();
        files.claim("a.img").unwrap();
        fs::write(&path, "the demo's").unwrap();
        files.made("a.img").unwrap();
        open().claim("a.img").unwrap();
        assert!(!path.exists());

        // The claim belongs to a run that was killed before it knew the inode.
        fs::write(&path, "the demo's").unwrap();
        open().claim("a.img").unwrap();

        // The user replaced the demonstration's file by another file of the same name.
        fs::write(&path, "the demo's").unwrap();
        open().made("a.img").unwrap();
        let other = directory.path().join("other");
        fs::write(&other, "a user's").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(open().claim("a.img").is_err() && open().remove("a.img").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"a user's");
    }
}
