//! The command `furrow fs cp`.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::fs::{Bytes, CreateOptions, ErrorKind, Fs};
use anyhow::{Context as _, Result};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::exit::Failure;
use crate::fs::mkdir::{is_directory, make};
use crate::fs::path::{Place, join};
use crate::{output, progress, size};

/// Bytes of a file that are copied at once.
const BYTES_PER_CHUNK: usize = 1 << 20;

/// `furrow fs cp`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  furrow fs cp -d emu:drive.img notes.txt fs:/notes.txt\n  \
    furrow fs cp -d emu:drive.img -r fs:/db ./copy-of-db")]
pub struct CpArgs {
    /// The sources, and the target last. A path on the drive begins with fs: as in fs:/dir/file
    #[arg(required = true, num_args = 2.., value_name = "FROM... TO")]
    places: Vec<Place>,
    #[command(flatten)]
    device: DeviceArg,
    /// Copy directories with all their files.
    #[arg(short, long)]
    recursive: bool,
    /// Say what would be copied and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// A source of a copy: fills a buffer and returns how many bytes it filled: 0 at the end.
type Source<'a> = Box<dyn FnMut(&mut [u8]) -> Result<usize> + 'a>;

struct Copier<'a> {
    context: &'a Context,
    fs: &'a Fs,
    bar: ProgressBar,
    dry_run: bool,
    files: u64,
    bytes: u64,
}

/// Copies files. Each file takes its target's place when all of it is copied: a copy that fails leaves the target as it was.
pub fn run(context: &Context, args: &CpArgs) -> Result<ExitCode> {
    let Some((to, from)) = args.places.split_last() else {
        return Err(Failure::usage("fs cp takes a source and a target"));
    };
    if !args.places.iter().any(|place| matches!(place, Place::Drive(_))) {
        return Err(Failure::usage(
            "no path lies on the drive: write it with fs: in front, as in fs:/dir/file",
        ));
    }
    let writes = matches!(to, Place::Drive(_)) && !args.dry_run;
    let fs = context.mount(&args.device, !writes)?;
    let bar = progress::bytes(0, "copying");
    let mut copier = Copier { context, fs: &fs, bar, dry_run: args.dry_run, files: 0, bytes: 0 };
    let into = copier.is_directory(to);
    let copied = from.iter().try_for_each(|place| {
        if from.len() > 1 && !into {
            return Err(Failure::usage("several sources need a directory that exists as their target"));
        }
        let target = if into { child(to, place.name())? } else { to.clone() };
        if target == *place || copier.is_directory(place) && lies_in(&target, place) {
            return Err(Failure::usage(format!("{place} would be copied onto itself, to {target}")));
        }
        copier.copy(place, &target, args.recursive)
    });
    copier.bar.finish_and_clear();
    let (files, bytes) = (copier.files, copier.bytes);
    if writes {
        // An error of the unmount is reported only if no file's copy failed; files copied before an error stay.
        let unmounted = context.wait(fs.sync()).and_then(|()| context.wait(fs.unmount()));
        copied?;
        unmounted?;
    } else {
        copied?;
    }
    if context.json {
        output::json(&json!({ "files": files, "bytes": bytes, "dry_run": args.dry_run }))?;
    } else {
        let verb = if args.dry_run { "would copy" } else { "copied" };
        output::line(format!("{verb} {files} files, {}", size::show(Bytes(bytes))))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn child(parent: &Place, name: Option<String>) -> Result<Place> {
    let name = name.context("the source has no name to copy it under")?;
    Ok(match parent {
        Place::Host(path) => Place::Host(path.join(name)),
        Place::Drive(path) => Place::Drive(join(path, &name)),
    })
}

/// Whether a place on the drive lies below a directory.
fn lies_in(place: &Place, directory: &Place) -> bool {
    match (place, directory) {
        (Place::Drive(place), Place::Drive(directory)) => place.starts_with(&join(directory, "")),
        _ => false,
    }
}

impl Copier<'_> {
    fn is_directory(&self, place: &Place) -> bool {
        match place {
            Place::Host(path) => path.is_dir(),
            Place::Drive(path) => is_directory(self.fs, path),
        }
    }

    fn copy(&mut self, from: &Place, to: &Place, recursive: bool) -> Result<()> {
        if !self.is_directory(from) {
            return self.copy_file(from, to);
        }
        if !recursive {
            return Err(Failure::usage(format!("{from} is a directory: add -r to copy it")));
        }
        self.make_directory(to)?;
        for name in self.entries(from)? {
            self.copy(&child(from, Some(name.clone()))?, &child(to, Some(name))?, recursive)?;
        }
        Ok(())
    }

    fn entries(&self, place: &Place) -> Result<Vec<String>> {
        let mut names = match place {
            Place::Host(path) => host_entries(path)?,
            Place::Drive(path) => self.fs.read_dir(path)?.into_iter().map(|entry| entry.name).collect(),
        };
        names.sort();
        Ok(names)
    }

    fn make_directory(&self, place: &Place) -> Result<()> {
        match place {
            _ if self.dry_run => Ok(()),
            Place::Host(path) => {
                std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))
            }
            Place::Drive(path) => {
                make(self.context, self.fs, path).map_err(|error| advise_mkdir(error, path))
            }
        }
    }

    fn copy_file(&mut self, from: &Place, to: &Place) -> Result<()> {
        let (mut read, length) = open_source(self.context, self.fs, from)?;
        self.bar.inc_length(length);
        self.files += 1;
        if self.dry_run {
            self.bytes += length;
            return output::line(format!("{from} -> {to}"));
        }
        let mut buffer = vec![0; BYTES_PER_CHUNK];
        let mut each = |write: &mut dyn FnMut(&[u8]) -> Result<()>| -> Result<()> {
            loop {
                let n = read(&mut buffer)?;
                let Some(data) = buffer.get(..n).filter(|data| !data.is_empty()) else {
                    return Ok(());
                };
                write(data)?;
                self.bar.inc(n as u64);
                self.bytes += n as u64;
            }
        };
        match to {
            Place::Host(path) => write_host(path, &mut each),
            Place::Drive(path) => write_drive(self.context, self.fs, path, length, &mut each)
                .map_err(|error| advise_mkdir(error, path)),
        }
    }
}

/// Opens a file to copy; returns its length too.
fn open_source<'a>(context: &'a Context, fs: &Fs, from: &Place) -> Result<(Source<'a>, u64)> {
    match from {
        Place::Host(path) => {
            let path = path.clone();
            let mut file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
            let length = file.metadata()?.len();
            let read =
                move |into: &mut [u8]| file.read(into).with_context(|| format!("reading {}", path.display()));
            Ok((Box::new(read), length))
        }
        Place::Drive(path) => {
            let reader = fs.open(path)?;
            let length = reader.size().0;
            let mut at = Bytes::ZERO;
            let read = move |into: &mut [u8]| {
                let n = context.wait(reader.read_at(at, into))?;
                at = at.plus(Bytes(n as u64));
                Ok(n)
            };
            Ok((Box::new(read), length))
        }
    }
}

/// Reads a copy's source to its end and hands each chunk to a writer.
type ForEachChunk<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

/// Writes a file of this machine. A regular file is written under another name and renamed when it is whole.
fn write_host(path: &Path, each: ForEachChunk<'_>) -> Result<()> {
    let named = || format!("writing {}", path.display());
    // A pipe or a terminal, as /dev/stdout may be, is written directly, without a rename.
    let is_special = path.metadata().is_ok_and(|found| !found.is_file());
    let part = match path.file_name() {
        Some(name) if !is_special => {
            let mut part = name.to_owned();
            part.push(format!(".{}.part", std::process::id()));
            path.with_file_name(part)
        }
        _ => path.to_owned(),
    };
    let mut file = File::create(&part).with_context(named)?;
    let written = each(&mut |data| file.write_all(data).with_context(named));
    if is_special {
        return written;
    }
    let whole = written
        .and_then(|()| file.sync_all().with_context(named))
        .and_then(|()| std::fs::rename(&part, path).with_context(named));
    if whole.is_err() {
        // The error of the copy is reported; the partial file may be gone already.
        let _gone = std::fs::remove_file(&part);
    }
    whole
}

/// Writes a file of the drive under another name, and renames it when it is whole and synced.
fn write_drive(context: &Context, fs: &Fs, path: &str, length: u64, each: ForEachChunk<'_>) -> Result<()> {
    if is_directory(fs, path) {
        return Err(::fs::Error::new(ErrorKind::IsADirectory, "creating").into());
    }
    let part = format!("{path}.{}.part", std::process::id());
    let options = CreateOptions { preallocate: Bytes(length), ..CreateOptions::default() };
    let writer = context.wait(fs.create(&part, &options))?;
    let written = each(&mut |data| Ok(context.wait(writer.append(data))?))
        .and_then(|()| Ok(context.wait(writer.sync())?));
    let closed = context.wait(writer.close());
    let whole = written.and_then(|()| Ok(closed?)).and_then(|()| Ok(context.wait(fs.rename(&part, path))?));
    if whole.is_err() {
        // The error of the copy is reported, and a failure to remove the partial file is not.
        let _kept = context.wait(fs.unlink(&part));
    }
    whole
}

/// Adds advice to an error where a directory above the path is missing.
fn advise_mkdir(error: anyhow::Error, path: &str) -> anyhow::Error {
    let missing =
        error.downcast_ref::<::fs::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound);
    match path.rsplit_once('/') {
        Some((parent, _)) if missing => {
            error.context(format!("make its directory: furrow fs mkdir -p {parent}"))
        }
        _ => error,
    }
}

fn host_entries(path: &Path) -> Result<Vec<String>> {
    let named = || format!("listing {}", path.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).with_context(named)? {
        let name = entry.with_context(named)?.file_name();
        names.push(name.into_string().map_err(|name| {
            anyhow::anyhow!("{} is not UTF-8: the drive takes only such names", PathBuf::from(name).display())
        })?);
    }
    Ok(names)
}
