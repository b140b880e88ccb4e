//! The directories with the pages of counters by which processes make way for each other's logs.
//!
//! ```text
//!   DIR/boot-1f6c9a02/joined/drive-fe00.page     programs that were started with --join
//!   DIR/boot-1f6c9a02/run-1234/drive-fe00.page   the program with the process number 1234, and its children
//!   DIR/boot-1f6c9a02/run-1234/matched           which globs of that run matched a file, with --join too
//! ```
//!
//! The times in a page are of a clock that begins anew at each boot, so a page is that of one boot.
//!
//! `DIR` is what FURROW_PRIO_DIR says, or /run/furrow-prio for root, or furrow-prio in XDG_RUNTIME_DIR, or /tmp/furrow-prio-UID. It belongs to one user: whoever can
//! write a page can hold a program's bulk, and end the program by making the page shorter.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use anyhow::{Context as _, Result};
use pathprio::{page, settings};

use crate::exit::Failure;

const JOINED: &str = "joined";
const OF_RUN: &str = "run-";
const OF_BOOT: &str = "boot-";

/// The directories for a program that this process becomes.
#[derive(PartialEq, Eq, Debug)]
pub struct Directories {
    /// The directory of pages.
    pub pages: PathBuf,
    /// The run's own directory. The next run removes it when no process that holds a page in it is left, or, with `--join`, when the first process has ended.
    pub run: PathBuf,
}

/// Makes the directories.
pub fn prepare(join: bool) -> Result<Directories> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    prepare_in(&top_directory()?, &boot, join)
}

/// `boot`: the number that the kernel gave this boot.
fn prepare_in(top: &Path, boot: &str, join: bool) -> Result<Directories> {
    let boot = format!("{OF_BOOT}{}", boot.get(..8).unwrap_or("unknown"));
    make_own(top)?;
    remove_other_boots(top, &boot);
    let top = top.join(boot);
    make_own(&top)?;
    remove_ended(&top);
    let run = top.join(format!("{OF_RUN}{}", std::process::id()));
    // A run that had this process's number may have left its directory.
    let _none_there = fs::remove_dir_all(&run);
    make_own(&run)?;
    if !join {
        return Ok(Directories { pages: run.clone(), run });
    }
    let pages = top.join(JOINED);
    make_own(&pages)?;
    check_pages(&pages)?;
    Ok(Directories { pages, run })
}

fn top_directory() -> Result<PathBuf> {
    if let Some(named) = env::var_os("FURROW_PRIO_DIR") {
        return std::path::absolute(named).context("FURROW_PRIO_DIR");
    }
    let uid = rustix::process::getuid();
    if uid.is_root() {
        return Ok("/run/furrow-prio".into());
    }
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    Ok(match runtime {
        Some(dir) => dir.join("furrow-prio"),
        None => PathBuf::from(format!("/tmp/furrow-prio-{}", uid.as_raw())),
    })
}

/// Makes a directory that only its owner may use. Fails if the directory is another user's.
fn make_own(dir: &Path) -> Result<()> {
    let shown = dir.display();
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Failure::refused(format!(
                "making the directory of counter pages {shown}: {error}; FURROW_PRIO_DIR names another place"
            )));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(dir).with_context(|| format!("{shown}"))?;
    if !found.is_dir() || found.uid() != rustix::process::getuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(Failure::refused(format!(
            "{shown} is no directory that this user alone may write: remove it, or name another with FURROW_PRIO_DIR"
        )));
    }
    Ok(())
}

/// Fails if a page is damaged or of another version: programs of this version could not join those that use it.
fn check_pages(dir: &Path) -> Result<()> {
    for path in pages_of(dir) {
        let bytes = fs::read(&path).with_context(|| format!("{}", path.display()))?;
        if let Err(error) = page::check_file(&bytes) {
            return Err(Failure::refused(format!("{} {error}", path.display())));
        }
    }
    Ok(())
}

fn remove_other_boots(top: &Path, boot: &str) {
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(OF_BOOT) && name != boot) {
            let _used_by_another = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes the directories of runs of which no process is left.
fn remove_ended(top: &Path) {
    let Ok(entries) = fs::read_dir(top) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix(OF_RUN)?.parse::<u32>().ok());
        let Some(first) = run else { continue };
        let slots = pages_of(&entry.path()).into_iter().filter_map(|page| fs::read(page).ok());
        let mut processes = slots.flat_map(|page| page::processes_of_file(&page));
        if !is_alive(first) && !processes.any(is_alive) {
            // A process that has used logs alone has no slot: its pages stay mapped, and only new processes are apart from it.
            let _used_by_another = fs::remove_dir_all(entry.path());
        }
    }
}

fn pages_of(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_page = |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with(settings::PAGE_SUFFIX));
    entries.filter(is_page).collect()
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_file() -> Vec<u8> {
        let mut page = page::Page::header(1).to_vec();
        page.resize(page::PAGE_BYTES, 0);
        page
    }

    #[test]
    fn pages_of_ended_runs_are_removed_and_those_of_living_ones_stay() {
        let top = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let dirs = [format!("run-{own}"), "run-4194303".into(), "run-4194302".into(), "joined".into()];
        let [mine, ended, with_child, joined] = dirs.map(|name| top.path().join(name));
        for dir in [&mine, &ended, &with_child, &joined] {
            fs::create_dir(dir).unwrap();
        }
        let mut page = page::Page::header(1).to_vec();
        page.extend(own.to_ne_bytes());
        page.resize(page::PAGE_BYTES, 0);
        fs::write(with_child.join("drive-1.page"), &page).unwrap();
        remove_ended(top.path());
        assert_eq!([mine, ended, with_child, joined].map(|dir| dir.exists()), [true, false, true, true]);
    }

    #[test]
    fn pages_of_another_boot_or_of_a_former_process_of_this_number_are_not_used() {
        let top = tempfile::tempdir().unwrap();
        let before = ["11111111-0", "22222222-0"].map(|boot| {
            let joined = prepare_in(top.path(), boot, true).unwrap().pages;
            let page = joined.join("drive-1.page");
            fs::write(&page, page_file()).unwrap();
            page
        });
        assert_eq!(before.map(|page| page.exists()), [false, true]);
        let of_run = prepare_in(top.path(), "22222222-0", false).unwrap();
        fs::write(of_run.pages.join("drive-1.page"), "").unwrap();
        assert_eq!(prepare_in(top.path(), "22222222-0", false).unwrap(), of_run);
        assert!(!of_run.pages.join("drive-1.page").exists());
        assert!(
            prepare_in(top.path(), "", false)
                .unwrap()
                .pages
                .ends_with(format!("boot-unknown/run-{}", std::process::id()))
        );
    }

    #[test]
    fn a_page_of_another_version_or_a_damaged_one_is_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut page = page_file();
        fs::write(dir.path().join("drive-1.page"), &page).unwrap();
        check_pages(dir.path()).unwrap();
        page[8] = 2;
        fs::write(dir.path().join("drive-1.page"), &page).unwrap();
        let error = check_pages(dir.path()).unwrap_err().to_string();
        assert!(error.contains("drive-1.page is a page of version 2"), "{error}");
        page.truncate(100);
        page[8] = 1;
        for damaged in [&page, &vec![0xff; page::PAGE_BYTES]] {
            fs::write(dir.path().join("drive-1.page"), damaged).unwrap();
            let error = check_pages(dir.path()).unwrap_err().to_string();
            assert!(error.contains("drive-1.page is no page of counters, or damaged"), "{error}");
        }
    }
}
