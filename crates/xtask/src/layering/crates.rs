//! The rules for crates: who may depend on whom, where unsafe code may live, which crates may use tokio.
//!
//! ARCHITECTURE.md draws the layers; [`LAYERS`] is the same as a table. A crate may use the crates in its
//! line of the table and all crates below those.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::metadata::{PREFIX, Workspace, short};

/// Each crate, and the crates directly below it.
pub const LAYERS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("sys", &["units"]),
    ("zoned", &["units", "sys"]),
    ("turns", &["units"]),
    ("replica", &["units"]),
    ("placement", &["replica"]),
    ("zk", &["turns"]),
    ("prio", &["units", "sys"]),
    ("pathprio", &["zoned"]),
    ("hook", &["pathprio"]),
    ("array", &["zoned"]),
    ("fs", &["zoned"]),
    ("export", &["zoned"]),
    ("mounts", &["array", "fs"]),
    ("logs", &["mounts", "prio"]),
    ("logs-c", &["logs"]),
    ("abi", &["mounts"]),
    ("rocks", &["abi"]),
    ("kv", &["fs", "rocks"]),
    ("plugin", &["abi", "rocks", "kv"]),
    ("leveldb", &["abi"]),
    ("level", &["abi"]),
    ("shard", &["replica", "kv", "rocks", "fs"]),
    ("peers", &["shard"]),
    ("server", &["kv", "replica"]),
    ("sim", &["array", "rocks", "kv", "level", "turns", "prio", "shard", "placement"]),
    ("bench", &["array", "server", "sim"]),
    ("figures", &["bench"]),
    ("demo", &["units"]),
    ("cli", &["array", "export", "node", "sim", "figures", "demo", "pathprio", "zk"]),
    ("node", &["shard", "peers", "placement", "server"]),
    ("fuzz", &["array", "node", "sim", "pathprio", "zk"]),
    ("xtask", &[]),
    ("guest", &["fs", "prio", "xtask"]),
];

/// The only crates that may contain unsafe code.
pub const CRATES_WITH_UNSAFE: &[&str] =
    &["sys", "mounts", "abi", "rocks", "leveldb", "level", "hook", "logs-c"];

/// The one further file with unsafe code: a bench counts allocations, and an allocator is unsafe to write.
pub const FILE_WITH_UNSAFE: &str = "crates/bench/benches/contract.rs";

/// The async runtime's crate, and other crates that need an async runtime.
pub const RUNTIME_CRATES: &[&str] = &["tokio", "axum", "hyper", "async-std", "smol"];

/// The only crates that may name the async runtime.
pub const RUNTIME_USERS: &[&str] = &["server", "peers", "placement", "node"];

/// The crates that may link the async runtime: those that use it, those that start the server, and the simulator, which uses what is pure of `placement`.
pub const RUNTIME_LINKED: &[&str] =
    &["peers", "placement", "server", "node", "sim", "bench", "figures", "cli", "fuzz"];

/// Every broken rule of the crates, as a sentence.
pub fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for (name, krate) in &workspace.crates {
        let Some(below) = crates_below(name) else {
            problems.push(format!("crate {name} is not in the table: add it to LAYERS in crates/xtask"));
            continue;
        };
        for used in krate.uses.iter().filter(|used| used.starts_with(PREFIX)).map(|used| short(used)) {
            if used != name && !below.contains(used) {
                problems.push(format!("{name} uses {used}, which does not lie below it"));
            }
        }
        for used in krate.uses.iter().filter(|used| RUNTIME_CRATES.contains(&used.as_str())) {
            if !RUNTIME_USERS.contains(&name.as_str()) {
                problems.push(format!("{name} names {used}: only {RUNTIME_USERS:?} may"));
            }
        }
        if !RUNTIME_LINKED.contains(&name.as_str())
            && workspace.dependencies_of(&format!("{PREFIX}{name}")).contains("tokio")
        {
            problems.push(format!("{name} links tokio through a dependency: only {RUNTIME_LINKED:?} may"));
        }
        if !CRATES_WITH_UNSAFE.contains(&name.as_str()) {
            for root in &krate.roots {
                let text =
                    fs::read_to_string(root).with_context(|| format!("cannot read {}", root.display()))?;
                if !forbids_unsafe(&text) {
                    problems.push(format!("{} lacks #![forbid(unsafe_code)]", root.display()));
                }
            }
            for file in source_files(&krate.checks)?.iter().filter(|file| !file.ends_with(FILE_WITH_UNSAFE)) {
                let text =
                    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
                if has_unsafe(&text) {
                    problems
                        .push(format!("{} has unsafe code: only {CRATES_WITH_UNSAFE:?} may", file.display()));
                }
            }
        }
    }
    Ok(problems)
}

/// All crates below the crate `name`; none for a crate that the table does not have.
pub fn crates_below(name: &str) -> Option<BTreeSet<&'static str>> {
    let (_, direct) = LAYERS.iter().find(|(layer, _)| *layer == name)?;
    let mut all = BTreeSet::new();
    for layer in *direct {
        all.insert(*layer);
        all.extend(crates_below(layer)?);
    }
    Some(all)
}

/// The source files of a crate's tests, benches and examples: the roots, and the files beside and below them.
fn source_files(roots: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut folders: Vec<PathBuf> = roots.iter().filter_map(|root| Some(root.parent()?.to_owned())).collect();
    folders.sort();
    folders.dedup();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.insert(path);
            }
        }
    }
    Ok(files)
}

/// Whether a line that is no comment begins unsafe code.
fn has_unsafe(source: &str) -> bool {
    let begins = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait", "#[unsafe("];
    source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .any(|line| begins.iter().any(|begin| line.contains(begin)))
}

fn forbids_unsafe(source: &str) -> bool {
    source.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Crate;

    fn workspace(name: &str, uses: &[&str]) -> Workspace {
        let mut workspace = Workspace::default();
        let uses: BTreeSet<String> = uses.iter().map(|used| (*used).to_owned()).collect();
        workspace.graph.insert(format!("{PREFIX}{name}"), uses.clone());
        workspace.crates.insert(name.to_owned(), Crate { uses, ..Crate::default() });
        workspace
    }

    #[test]
    fn a_dependency_that_points_up_is_found() {
        let problems = check(&workspace("zoned", &["furrow-units", "furrow-fs"])).unwrap();
        assert_eq!(problems, ["zoned uses fs, which does not lie below it"]);
    }

    #[test]
    fn a_dependency_that_skips_a_layer_downwards_is_fine() {
        assert_eq!(check(&workspace("kv", &["furrow-units", "furrow-zoned"])).unwrap(), [""; 0]);
    }

    #[test]
    fn the_runtime_below_the_server_is_found() {
        let problems = check(&workspace("kv", &["tokio"])).unwrap();
        assert_eq!(problems.len(), 2, "named and linked: {problems:?}");
    }

    #[test]
    fn a_runtime_behind_a_foreign_crate_is_found() {
        let mut workspace = workspace("fs", &["nice"]);
        workspace.graph.insert("nice".into(), ["tokio".to_owned()].into());
        assert_eq!(check(&workspace).unwrap().len(), 1);
    }

    #[test]
    fn unsafe_code_in_a_test_is_found_and_the_bench_s_allocator_is_let_be() {
        let folder = std::env::temp_dir().join(format!("furrow-layering-{}", std::process::id()));
        let benches = folder.join("crates/bench/benches");
        fs::create_dir_all(benches.join("common")).unwrap();
        let code = ["unsafe", " { go() }"].concat();
        let files = [benches.join("contract.rs"), benches.join("common/mod.rs")];
        files.iter().for_each(|file| fs::write(file, &code).unwrap());
        let mut workspace = workspace("bench", &[]);
        workspace.crates.get_mut("bench").unwrap().checks = files[..1].to_vec();
        let problems = check(&workspace).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("common/mod.rs"), "{problems:?}");
    }

    #[test]
    fn a_crate_that_the_table_does_not_know_is_found() {
        assert!(check(&workspace("novel", &[])).unwrap()[0].contains("not in the table"));
    }

    #[test]
    fn the_table_has_no_circle() {
        for (name, _) in LAYERS {
            assert!(!crates_below(name).unwrap().contains(name));
        }
    }
}
