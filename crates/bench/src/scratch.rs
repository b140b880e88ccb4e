//! Temporary directories of a measurement.

use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// A temporary directory that is removed when its handle is dropped; its name is a prefix and the process id.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes `dir/PREFIX<pid>`.
    ///
    /// # Errors
    /// [`Error::Settings`] where the directory cannot be made.
    pub fn new(dir: &Path, prefix: &str) -> Result<Scratch> {
        let path = dir.join(format!("{prefix}{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| refusal(&path, &error.to_string()))?;
        Ok(Scratch(path))
    }

    /// Removes the scratch directories of processes that have ended, killed perhaps.
    ///
    /// # Errors
    /// [`Error::Settings`] where the directory cannot be read, or its name is not UTF-8.
    pub fn sweep(dir: &Path, prefix: &str) -> Result<()> {
        if dir.to_str().is_none() {
            return Err(refusal(dir, "the name is not UTF-8"));
        }
        let processes = Path::new("/proc");
        for entry in std::fs::read_dir(dir).map_err(|error| refusal(dir, &error.to_string()))?.flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
            let Some(process) = process else { continue };
            let gone = processes.join("self").exists() && !processes.join(process.to_string()).exists();
            if gone || process == std::process::id() {
                // A directory of another user cannot be removed.
                let _stays_behind = std::fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }

    /// The directory's path; `sweep` checked that it is UTF-8.
    pub fn path(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _stays_behind = std::fs::remove_dir_all(&self.0);
    }
}

fn refusal(dir: &Path, why: &str) -> Error {
    Error::settings(format!("the scratch directory {}: {why}; name another one", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRATCH: &str = "furrow-scratch-";

    #[test]
    fn files_of_ended_processes_are_removed_and_no_others() {
        let scratch = std::env::temp_dir().join(format!("furrow-sweep-{}", std::process::id()));
        // The first name has a process id above any that exists.
        let names = [format!("{SCRATCH}4294967295"), format!("{SCRATCH}1"), format!("{SCRATCH}x")];
        for name in &names {
            std::fs::create_dir_all(scratch.join(name)).expect("a directory");
        }
        Scratch::sweep(&scratch, SCRATCH).expect("swept");
        let left: Vec<bool> = names.iter().map(|name| scratch.join(name).exists()).collect();
        std::fs::remove_dir_all(&scratch).expect("it goes");
        assert_eq!(left, [false, true, true]);
    }
}
