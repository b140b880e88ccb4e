//! The parts of the output of `cargo metadata` that the chores need.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The prefix of the names of Furrow's packages.
pub const PREFIX: &str = "furrow-";

/// The workspace.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    /// Furrow's crates by name, without the prefix.
    pub crates: BTreeMap<String, Crate>,
    /// For every package in the dependency graph, Furrow's or not: the names of the packages that it depends
    /// on outside its tests.
    pub graph: BTreeMap<String, BTreeSet<String>>,
}

/// One of our crates.
#[derive(Clone, Debug, Default)]
pub struct Crate {
    /// The names of the packages that the crate's manifest lists, those for tests and build scripts included.
    pub uses: BTreeSet<String>,
    /// The root source files of the crate's libraries, programs and build scripts.
    pub roots: Vec<PathBuf>,
    /// The root source files of the crate's tests, benches and examples.
    pub checks: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDep>,
}

#[derive(Deserialize)]
struct NodeDep {
    pkg: String,
    dep_kinds: Vec<DepKind>,
}

#[derive(Deserialize)]
struct DepKind {
    kind: Option<String>,
}

impl Workspace {
    /// Reads the metadata of the workspace that this crate was built in.
    pub fn load() -> Result<Workspace> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        // The platform filter keeps cargo from fetching the packages of every other platform.
        let output = Command::new(&cargo)
            .args(["metadata", "--format-version=1", "--filter-platform", &host_platform()?])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .with_context(|| format!("cannot run {cargo} metadata"))?;
        ensure!(
            output.status.success(),
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Workspace::parse(&output.stdout)
    }

    /// Reads cargo's JSON.
    pub fn parse(json: &[u8]) -> Result<Workspace> {
        let metadata: Metadata =
            serde_json::from_slice(json).context("cargo metadata gave unexpected JSON")?;
        let names: BTreeMap<&str, &str> =
            metadata.packages.iter().map(|package| (package.id.as_str(), package.name.as_str())).collect();
        let mut workspace = Workspace::default();
        for package in &metadata.packages {
            if !metadata.workspace_members.contains(&package.id) {
                continue;
            }
            let built = |target: &&Target| {
                !target.kind.iter().any(|kind| matches!(kind.as_str(), "test" | "bench" | "example"))
            };
            let (roots, checks): (Vec<&Target>, Vec<&Target>) = package.targets.iter().partition(built);
            let paths = |targets: Vec<&Target>| targets.iter().map(|t| t.src_path.clone()).collect();
            workspace.crates.insert(
                short(&package.name).to_owned(),
                Crate {
                    uses: package.dependencies.iter().map(|dependency| dependency.name.clone()).collect(),
                    roots: paths(roots),
                    checks: paths(checks),
                },
            );
        }
        for node in &metadata.resolve.nodes {
            let name = |id: &str| names.get(id).map_or_else(|| id.to_owned(), |name| (*name).to_owned());
            let outside_tests =
                |dep: &&NodeDep| dep.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"));
            let entry = workspace.graph.entry(name(&node.id)).or_default();
            entry.extend(node.deps.iter().filter(outside_tests).map(|dep| name(&dep.pkg)));
        }
        Ok(workspace)
    }

    /// Every package that `package` depends on, directly or through others, outside its tests.
    pub fn dependencies_of(&self, package: &str) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut next = vec![package];
        while let Some(name) = next.pop() {
            for dependency in self.graph.get(name).into_iter().flatten() {
                if seen.insert(dependency.as_str()) {
                    next.push(dependency);
                }
            }
        }
        seen
    }
}

/// The platform for which the compiler builds by default.
fn host_platform() -> Result<String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output =
        Command::new(&rustc).arg("-vV").output().with_context(|| format!("cannot run {rustc} -vV"))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .with_context(|| format!("{rustc} -vV names no host"))
}

/// A package's name without Furrow's prefix.
pub fn short(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}
