//! Runs every input of a corpus, which once reached new code or broke something, through its target.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};

use fuzz::TARGETS;

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_input_of_every_corpus_passes_its_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for target in TARGETS {
        let inputs = files(&root.join("corpus").join(target.name));
        assert!(inputs.len() >= 3, "{}: the corpus has only {} inputs", target.name, inputs.len());
        let golden = target.golden.iter().flat_map(|directory| files(&root.join("..").join(directory)));
        for input in inputs.into_iter().chain(golden) {
            let bytes = std::fs::read(&input).unwrap();
            let result = std::panic::catch_unwind(|| (target.run)(&bytes));
            assert!(result.is_ok(), "{} fails on {}", target.name, input.display());
        }
    }
}

#[test]
fn no_corpus_is_without_a_target() {
    for directory in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")) {
        let name = directory.file_name().unwrap().to_str().unwrap();
        assert!(fuzz::find(name).is_some(), "{name} is no target");
    }
}
