//! Reads and writes files of the kernel that contain one word.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Writes a word to a file of the kernel.
pub fn put(path: impl AsRef<Path>, word: impl ToString) -> Result<()> {
    let (path, word) = (path.as_ref(), word.to_string());
    fs::write(path, &word).with_context(|| format!("cannot write {word} to {}", path.display()))
}

/// Reads the word in a file of the kernel.
pub fn get(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The entries of a directory, by name; empty if there is no such directory.
pub fn list(path: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The last component of a path.
pub fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
