//! `furrow fs cp`

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::fs::{Bytes, CreateOptions, ErrorKind, Fs, Kind};
use anyhow::{Context as _, Result};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::exit::Failure;
use crate::fs::path::{Place, join};
use crate::{output, progress, size};

/// Bytes copied at once.
const CHUNK: usize = 1 << 20;

/// `furrow fs cp`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  furrow fs cp -d emu:drive.img notes.txt fs:/notes.txt\n  \
    furrow fs cp -d emu:drive.img -r fs:/db ./copy-of-db")]
pub struct CpArgs {
    /// What to copy, and where to last. A path on the drive begins with fs: as in fs:/dir/file
    #[arg(required = true, num_args = 2.., value_name = "FROM... TO")]
    places: Vec<Place>,
    #[command(flatten)]
    device: DeviceArg,
    /// Copy directories with what is in them.
    #[arg(short, long)]
    recursive: bool,
    /// Say what would be copied and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Fills a buffer, gives how much it filled: nothing at the end.
type Source<'a> = Box<dyn FnMut(&mut [u8]) -> Result<usize> + 'a>;

struct Copier<'a> {
    context: &'a Context,
    fs: &'a Fs,
    bar: ProgressBar,
    dry_run: bool,
    files: u64,
    bytes: u64,
}

/// Copies.
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
        copier.copy(place, &target, args.recursive)
    });
    copier.bar.finish_and_clear();
    let (files, bytes) = (copier.files, copier.bytes);
    if writes {
        // What was copied before an error stays; the error comes first.
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

impl Copier<'_> {
    fn is_directory(&self, place: &Place) -> bool {
        match place {
            Place::Host(path) => path.is_dir(),
            Place::Drive(path) => self.fs.stat(path).is_ok_and(|stat| stat.kind == Kind::Directory),
        }
    }

    fn copy(&mut self, from: &Place, to: &Place, recursive: bool) -> Result<()> {
        if !self.is_directory(from) {
            return self.copy_file(from, to);
        }
        if !recursive {
            return Err(Failure::usage(format!("{} is a directory: add -r to copy it", words(from))));
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
        if self.dry_run {
            return Ok(());
        }
        match place {
            Place::Host(path) => {
                std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))?;
            }
            Place::Drive(path) => match self.context.wait(self.fs.mkdir(path)) {
                Err(error) if error.kind() == ErrorKind::Exists => {}
                result => result?,
            },
        }
        Ok(())
    }

    fn copy_file(&mut self, from: &Place, to: &Place) -> Result<()> {
        let (context, fs) = (self.context, self.fs);
        let (mut read, length): (Source<'_>, u64) = match from {
            Place::Host(path) => {
                let mut file =
                    std::fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
                let length = file.metadata()?.len();
                let path = path.clone();
                let read = move |into: &mut [u8]| {
                    file.read(into).with_context(|| format!("reading {}", path.display()))
                };
                (Box::new(read), length)
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
                (Box::new(read), length)
            }
        };
        self.bar.inc_length(length);
        self.files += 1;
        if self.dry_run {
            self.bytes += length;
            return output::line(format!("{} -> {}", words(from), words(to)));
        }
        let mut buffer = vec![0; CHUNK];
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
            Place::Host(path) => {
                let named = || format!("writing {}", path.display());
                let mut file = std::fs::File::create(path).with_context(named)?;
                each(&mut |data| file.write_all(data).with_context(named))?;
                file.sync_all().with_context(named)?;
            }
            Place::Drive(path) => {
                let options = CreateOptions { preallocate: Bytes(length), ..CreateOptions::default() };
                let writer = context.wait(fs.create(path, &options))?;
                let copied = each(&mut |data| Ok(context.wait(writer.append(data))?))
                    .and_then(|()| Ok(context.wait(writer.sync())?));
                let closed = context.wait(writer.close());
                copied?;
                closed?;
            }
        }
        Ok(())
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

fn words(place: &Place) -> String {
    match place {
        Place::Host(path) => path.display().to_string(),
        Place::Drive(path) => format!("fs:{path}"),
    }
}
