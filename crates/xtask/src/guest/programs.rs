//! Programs of the host that are copied into the guest, with their libraries.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::initrd::Initrd;
use super::kernel;

/// The file of Furrow's RocksDB plug-in, in the directory of the `furrow` program.
const PLUGIN_FILE: &str = "libfurrow_rocksdb.so";

/// The file of the library that `furrow prio run` preloads, in the same directory.
const PRIO_FILE: &str = "libfurrow_prio.so";

/// The file of Furrow's LevelDB library, in the same directory.
const LEVELDB_FILE: &str = "libfurrow_leveldb.so";

/// Files of the host, with their paths in the guest.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    files: BTreeMap<String, PathBuf>,
}

impl Programs {
    /// Adds a program to the guest's /bin: given by a path, or by a name to be found in `built` or on the
    /// search path.
    pub fn add(&mut self, program: &str, built: &Path) -> Result<()> {
        let path = find(program, built)?;
        let name = path.file_name().and_then(|name| name.to_str()).context("a program without a name")?;
        self.add_as(&format!("/bin/{name}"), &path)
    }

    /// Adds the `furrow` program, its RocksDB plug-in, and the stock programs that the tests start.
    pub fn add_furrow(&mut self, built: &Path) -> Result<()> {
        self.add("furrow", built)?;
        for name in ["db_bench", "ldb", "sst_dump"] {
            self.add(name, built)?;
        }
        self.add_as(&format!("/bin/{PLUGIN_FILE}"), &built.join(PLUGIN_FILE))
    }

    /// Adds the `furrow` program, its LevelDB library, and test programs of LevelDB, which the host's compiler makes.
    pub fn add_furrow_and_leveldb(&mut self, built: &Path) -> Result<()> {
        self.add("furrow", built)?;
        self.add_as(&format!("/bin/{LEVELDB_FILE}"), &built.join(LEVELDB_FILE))?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../leveldb/tests/programs");
        for name in ["synced", "fill"] {
            let program = built.join(format!("leveldb-{name}"));
            let source = sources.join(format!("{name}.c"));
            // Another machine may be about to start with the same program.
            let new = tempfile::NamedTempFile::new_in(built)?.into_temp_path();
            let flags = ["-O1", "-Wall", "-o"];
            kernel::run(Command::new("gcc").args(flags).arg(&new).arg(&source).arg("-lleveldb"))?;
            new.persist(&program)?;
            self.add_as(&format!("/bin/leveldb-{name}"), &program)?;
        }
        Ok(())
    }

    /// Adds the `furrow` program, the library of `furrow prio run`, and the writer process of logs in files.
    pub fn add_furrow_and_prio(&mut self, built: &Path) -> Result<()> {
        self.add("furrow", built)?;
        self.add("furrow-prio-writer", built)?;
        self.add_as(&format!("/bin/{PRIO_FILE}"), &built.join(PRIO_FILE))
    }

    /// Adds a file of the host under the given name, with the libraries that it loads.
    pub fn add_as(&mut self, name: &str, path: &Path) -> Result<()> {
        if self.files.insert(name.to_owned(), path.to_owned()).is_some() {
            return Ok(());
        }
        for library in libraries(path)? {
            let name = library.to_str().context("a library's path is no UTF-8")?.to_owned();
            self.files.insert(name, library);
        }
        Ok(())
    }

    /// Writes all files into an initrd, without debugging information. `stripped`: directory that keeps the
    /// stripped copies.
    pub fn write<W: Write>(&self, initrd: &mut Initrd<W>, stripped: &Path) -> Result<()> {
        for (name, path) in &self.files {
            initrd.file(name, &strip(path, stripped)?)?;
        }
        Ok(())
    }
}

/// Path of a program.
fn find(program: &str, built: &Path) -> Result<PathBuf> {
    if program.contains('/') {
        return fs::canonicalize(program).with_context(|| format!("there is no program {program}"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    std::iter::once(built.to_owned())
        .chain(places)
        .map(|place| place.join(program))
        .find(|path| path.is_file())
        .with_context(|| format!("{program} is neither in {} nor on the search path", built.display()))
}

/// The shared libraries that a program loads, the dynamic loader included. A script or a static program has
/// none.
fn libraries(path: &Path) -> Result<Vec<PathBuf>> {
    let done = Command::new("ldd").arg(path).output().context("cannot run ldd")?;
    if !done.status.success() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        if line.contains("not found") {
            bail!("{} lacks a library here: {}", path.display(), line.trim());
        }
        let file = line.split_once("=> ").map_or(line, |(_, file)| file).split_whitespace().next();
        if let Some(file) = file.filter(|file| file.starts_with('/')) {
            found.push(PathBuf::from(file));
        }
    }
    Ok(found)
}

/// The copy of a program without debugging information, made once for each build of the program.
fn strip(path: &Path, cache: &Path) -> Result<PathBuf> {
    const MIN_BYTES_TO_STRIP: u64 = 8 << 20;
    let meta = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if meta.len() < MIN_BYTES_TO_STRIP {
        return Ok(path.to_owned());
    }
    fs::create_dir_all(cache)?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let made = meta.modified()?.duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    let to = cache.join(format!("{name}-{}-{made}", meta.len()));
    if !to.exists() {
        // Removes stripped copies of older builds of a program.
        for entry in fs::read_dir(cache)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&format!("{name}-")) {
                fs::remove_file(entry.path()).ok();
            }
        }
        let new = tempfile::NamedTempFile::new_in(cache)?;
        kernel::run(Command::new("strip").args(["--strip-debug", "-o"]).args([new.path(), path]))?;
        new.persist(&to)?;
    }
    Ok(to)
}
