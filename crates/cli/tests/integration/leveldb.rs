//! Tests of `furrow leveldb` with Debian's python3-plyvel.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{done, library_folder, refused, run, stderr_of};

const PYTHON: &str = "/usr/bin/python3";

fn library() -> PathBuf {
    library_folder().join("libfurrow_leveldb.so")
}

/// A directory with a drive's file and a root.
struct World(tempfile::TempDir);

impl World {
    fn new() -> World {
        let world = World(tempfile::tempdir().expect("a directory"));
        std::fs::create_dir(world.root()).expect("a root");
        world
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }

    fn url(&self) -> String {
        format!("emu:{}?zones=64&zone-size=4MiB", self.0.path().join("drive.img").display())
    }

    fn leveldb(&self, program: &[&str]) -> Output {
        let (library, root) = (library().display().to_string(), self.root().display().to_string());
        let mut args = vec!["leveldb", "--library", &library, "--root", &root, "--"];
        args.extend(program);
        run(Some(&self.url()), &args)
    }

    fn python(&self, script: &str) -> Output {
        let script = format!("import plyvel, sys; root = {:?}\n{script}", self.root());
        self.leveldb(&[PYTHON, "-c", &script])
    }
}

#[test]
fn a_program_s_databases_lie_on_the_drive_and_its_exit_code_is_its_own() {
    let world = World::new();
    let output = world.python("plyvel.DB(root + '/db', create_if_missing=True).put(b'a', b'b')\nsys.exit(7)");
    assert_eq!(output.status.code(), Some(7), "{}", stderr_of(&output));
    let listed = done(&run(Some(&world.url()), &["fs", "ls", "/db"]));
    assert!(listed.contains("CURRENT") && listed.contains("MANIFEST-"), "{listed}");
    assert_eq!(done(&world.python("print(plyvel.DB(root + '/db').get(b'a'))")), "b'b'\n");
}

#[test]
fn a_database_of_the_host_moves_to_the_drive_as_its_error_says() {
    let world = World::new();
    let db = world.root().join("db");
    let make = format!("import plyvel; plyvel.DB({db:?}, create_if_missing=True).put(b'a', b'b')");
    done(&Command::new(PYTHON).args(["-c", &make]).output().unwrap());
    let get = "print(plyvel.DB(root + '/db').get(b'a'))";
    let output = world.python(get);
    let said = stderr_of(&output);
    let advice = said.split('`').nth(1).unwrap_or_else(|| panic!("no command in: {said}"));
    let command = advice.replacen("furrow", env!("CARGO_BIN_EXE_furrow"), 1);
    done(&Command::new("sh").args(["-c", &command]).output().unwrap());
    std::fs::rename(&db, db.with_file_name("old")).unwrap();
    assert_eq!(done(&world.python(get)), "b'b'\n");
}

#[test]
fn a_program_that_cannot_preload_the_library_is_refused() {
    let world = World::new();
    refused(&world.leveldb(&["no-such-program"]), 2, &["no-such-program", "PATH"]);
    let set_id = world.0.path().join("set-id");
    std::fs::copy("/bin/true", &set_id).unwrap();
    done(&Command::new("chmod").arg("u+s").arg(&set_id).output().unwrap());
    refused(&world.leveldb(&[set_id.to_str().unwrap()]), 1, &["set-user-id"]);
    let args = ["leveldb", "--library", "/no/such.so", "--root", "/", "--", "true"];
    refused(&run(Some("emu:mem"), &args), 1, &["/no/such.so", "FURROW_LEVELDB_LIBRARY"]);
    let not_one = "/usr/lib/x86_64-linux-gnu/libleveldb.so.1d";
    if Path::new(not_one).exists() {
        let args = ["leveldb", "--library", not_one, "--root", "/", "--", "true"];
        refused(&run(Some("emu:mem"), &args), 1, &["did not load the library"]);
    }
}
