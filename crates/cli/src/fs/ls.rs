//! The command `furrow fs ls`.

use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use ::fs::{FileKind, Fs, Stat};
use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::fs::path::{absolute, join};
use crate::{output, size};

/// `furrow fs ls`
#[derive(Debug, Args)]
pub struct LsArgs {
    /// The directory or file.
    #[arg(default_value = "/")]
    path: String,
    #[command(flatten)]
    device: DeviceArg,
    /// List the directories below too.
    #[arg(short, long)]
    recursive: bool,
}

/// Lists files and directories of the drive.
pub fn run(context: &Context, args: &LsArgs) -> Result<ExitCode> {
    let fs = context.mount(&args.device, true)?;
    let path = absolute(&args.path);
    let mut found = Vec::new();
    let stat = fs.stat(&path)?;
    if stat.kind == FileKind::Directory {
        collect_entries(&fs, &path, args.recursive, &mut found)?;
    } else {
        found.push((path, stat));
    }
    if context.json {
        let entries = found.iter().map(|(path, stat)| {
            json!({
                "path": path, "kind": word(stat.kind), "bytes": stat.size.0, "ino": stat.ino,
                "links": stat.links, "modified_ms": stat.modified_ms,
            })
        });
        output::json(&entries.collect())?;
    } else {
        let rows = found.iter().map(|(path, stat)| {
            let size = match stat.kind {
                FileKind::Directory => format!("{} entries", stat.size.0),
                FileKind::Data | FileKind::Log | FileKind::ParallelLog => size::show(stat.size),
            };
            vec![word(stat.kind).to_owned(), size, time_text(stat.modified_ms), path.clone()]
        });
        output::table(&["kind", "size", "modified", "path"], &["size"], rows.collect())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn collect_entries(fs: &Fs, path: &str, recursive: bool, found: &mut Vec<(String, Stat)>) -> Result<()> {
    for entry in fs.read_dir(path)? {
        let path = join(path, &entry.name);
        let stat = fs.stat(&path)?;
        found.push((path.clone(), stat));
        if recursive && stat.kind == FileKind::Directory {
            collect_entries(fs, &path, recursive, found)?;
        }
    }
    Ok(())
}

/// The file's kind as a word.
pub fn word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Data => "data",
        FileKind::Log => "log",
        FileKind::ParallelLog => "parallel-log",
        FileKind::Directory => "dir",
    }
}

fn time_text(ms: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}
