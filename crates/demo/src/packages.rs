//! The package lists of this machine: records that every Debian machine has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// The directory of apt's lists.
const APT_LISTS: &str = "/var/lib/apt/lists";

/// The program that decompresses apt's files.
const APT_HELPER: &str = "/usr/lib/apt/apt-helper";

/// Package records by key, `pkg:NAME:VERSION:ARCHITECTURE`.
pub type Records = BTreeMap<String, String>;

/// Loads every record of apt's package lists; fetches the lists if there are none.
///
/// # Errors
///
/// A machine without apt or lists.
pub fn load() -> Result<Records> {
    let mut files = list_files(Path::new(APT_LISTS))?;
    if files.is_empty() {
        fetch_lists()?;
        files = list_files(Path::new(APT_LISTS))?;
    }
    ensure!(!files.is_empty(), "there are no package lists in {APT_LISTS}, and apt-get update brought none");
    let mut records = Records::new();
    for file in &files {
        let output = Command::new(APT_HELPER)
            .arg("cat-file")
            .arg(file)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("running {APT_HELPER}, which comes with apt"))?;
        ensure!(
            output.status.success(),
            "{APT_HELPER} cannot read {}: {}",
            file.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        parse_list(&String::from_utf8_lossy(&output.stdout), &mut records);
    }
    ensure!(!records.is_empty(), "the package lists in {APT_LISTS} hold no record");
    Ok(records)
}

fn list_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("listing {} (the demo needs a Debian machine)", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = [".lz4", ".gz", ".xz", ".zst", ".bz2"].iter().find_map(|end| name.strip_suffix(end));
        if stem.unwrap_or(&name).ends_with("_Packages") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn fetch_lists() -> Result<()> {
    let updated = Command::new("apt-get")
        .args(["-qq", "update"])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()
        .context("running apt-get")?;
    if updated.success() {
        return Ok(());
    }
    bail!("there are no package lists yet: run, as root, apt-get update")
}

/// Adds the records of one package list: paragraphs, separated by empty lines.
fn parse_list(list: &str, records: &mut Records) {
    for record in list.split("\n\n") {
        let field = |name: &str| record.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        if let Some(name) = field("Package") {
            let (version, architecture) =
                (field("Version").unwrap_or("-"), field("Architecture").unwrap_or("-"));
            records.insert(format!("pkg:{name}:{version}:{architecture}"), record.trim_end().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_paragraph_is_a_record() {
        let mut records = Records::new();
        parse_list(
            "Package: a\nVersion: 1:2-3\nArchitecture: all\nDescription: x\n more\n\nPackage: b\n\n\n",
            &mut records,
        );
        let keys: Vec<&str> = records.keys().map(String::as_str).collect();
        assert_eq!(keys, ["pkg:a:1:2-3:all", "pkg:b:-:-"]);
        assert!(records["pkg:a:1:2-3:all"].ends_with(" more"));
    }
}
