//! Functions that the tests of LevelDB's programs share.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

/// Debian's Python, for which python3-plyvel is.
const PYTHON: &str = "/usr/bin/python3";
const APT_COMMAND: &str = "apt-get install libleveldb-dev python3-plyvel";

/// Builds the library with the test's profile, because `cargo test` does not build a library that no test links.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // Without --bins: the program that other tests run stays as it is.
        let args = ["programs", "--offline", "--profile"];
        let profile = if cfg!(debug_assertions) { "test" } else { "release" };
        let built = Command::new(env!("CARGO")).args(args).arg(profile).output().unwrap();
        assert!(built.status.success(), "building the library: {}", output_text(&built));
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        deps.parent().unwrap().join("libfurrow_leveldb.so")
    })
}

/// A program's exit status, stdout and stderr as one text, for messages of failed tests.
pub fn output_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// An emulated drive in a file, and a directory of the host whose names lie on it.
pub struct Drive {
    dir: TempDir,
    parameters: &'static str,
}

impl Drive {
    pub fn new() -> Drive {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("root")).unwrap();
        Drive { dir, parameters: "zones=64&zone-size=4MiB" }
    }

    /// A drive without a volatile cache: as of a real drive, and not of an emulated one otherwise, the end of the process takes nothing
    /// that the drive has acknowledged.
    pub fn without_cache() -> Drive {
        Drive { parameters: "zones=64&zone-size=4MiB&cache=none", ..Drive::new() }
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// A directory of the host beside the root.
    pub fn elsewhere(&self) -> &Path {
        self.dir.path()
    }

    /// `program` with the library preloaded.
    pub fn program(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        let url = format!("emu:{}?{}", self.dir.path().join("drive.img").display(), self.parameters);
        command.env("FURROW_LEVELDB", url).env("FURROW_LEVELDB_ROOT", self.root());
        command.env("LD_PRELOAD", library());
        command
    }

    /// Python with the library preloaded. The script has plyvel, `os`, `root` and `elsewhere`.
    pub fn python(&self, script: &str) -> Command {
        self.script(self.program(PYTHON), script)
    }

    /// Python without the library.
    pub fn python_on_host(&self, script: &str) -> Command {
        self.script(Command::new(PYTHON), script)
    }

    fn script(&self, mut python: Command, script: &str) -> Command {
        let head = format!(
            "import os, sys\ntry:\n import plyvel\nexcept ImportError:\n sys.exit('install it: {APT_COMMAND}')\n\
             root, elsewhere = {:?}, {:?}\n",
            self.root(),
            self.elsewhere()
        );
        python.arg("-c").arg(head + script);
        python
    }

    /// Whether the root's directory on the host is empty.
    pub fn host_is_empty(&self) -> bool {
        std::fs::read_dir(self.root()).unwrap().next().is_none()
    }
}

/// Runs a command that must succeed. Returns its stdout.
pub fn run_successfully(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail or print an error. Returns all that it printed.
pub fn run(mut command: Command) -> String {
    output_text(&command.output().unwrap())
}

/// Compiles a test program of `tests/programs` with `compiler`. `more` are arguments after the source.
pub fn compile(compiler: &str, source: &str, output: &str, more: &[&str]) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(output);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let compiled =
        Command::new(compiler).args(["-O1", "-Wall", "-o"]).arg(&to).arg(from).args(more).output().unwrap();
    assert!(compiled.status.success(), "{source}: {}; {APT_COMMAND}", output_text(&compiled));
    to
}
