//! The machine and the program of a measurement.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// The machine and the program of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The processor's model name.
    pub processor: String,
    /// Number of processors that this process may use.
    pub cores: usize,
    /// Whether the program was optimised: without, numbers of the real clock mean nothing.
    pub optimised: bool,
    /// The commit of the program's source tree; `FURROW_COMMIT`, if that was set at build time.
    pub commit: Option<String>,
}

impl Host {
    /// The machine and the program that run this code.
    pub fn here() -> Host {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = text.lines().find(|line| line.starts_with("model name"));
        let processor =
            model.and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name.trim());
        Host {
            processor: processor.to_string(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            optimised: !cfg!(debug_assertions),
            commit: option_env!("FURROW_COMMIT")
                .map(str::to_owned)
                .or_else(|| head_commit(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.git")))),
        }
    }
}

/// The commit of a git directory's HEAD. In a worktree, `git` is a file that names the worktree's git directory.
fn head_commit(git: &Path) -> Option<String> {
    let text = |path: PathBuf| std::fs::read_to_string(path).ok();
    let own = match text(git.to_owned()) {
        Some(file) => git.parent()?.join(file.trim().strip_prefix("gitdir: ")?),
        None => git.to_owned(),
    };
    let head = text(own.join("HEAD"))?;
    let Some(branch) = head.trim().strip_prefix("ref: ") else {
        return Some(head.trim().to_owned());
    };
    let common = text(own.join("commondir")).map_or_else(|| own.clone(), |common| own.join(common.trim()));
    let read = |name: &str| text(common.join(name));
    let packed = || {
        let refs = read("packed-refs")?;
        let line = refs.lines().find(|line| line.split_once(' ').is_some_and(|(_, name)| name == branch))?;
        line.split_once(' ').map(|(commit, _)| commit.to_owned())
    };
    read(branch).map(|commit| commit.trim().to_owned()).or_else(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_of_a_checkout_and_of_a_worktree_is_found() {
        let dir = std::env::temp_dir().join(format!("furrow-host-{}", std::process::id()));
        let (main, tree) = (dir.join("main/.git"), dir.join("tree"));
        let own = main.join("worktrees/tree");
        let write = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("room");
            std::fs::write(path, text).expect("room");
        };
        write(main.join("HEAD"), "ref: refs/heads/main\n");
        write(main.join("refs/heads/main"), "aaaa\n");
        write(main.join("packed-refs"), "# pack-refs\nbbbb refs/heads/side\n");
        write(own.join("HEAD"), "ref: refs/heads/side\n");
        write(own.join("commondir"), "../..\n");
        write(tree.join(".git"), &format!("gitdir: {}\n", own.display()));
        assert_eq!(head_commit(&main).as_deref(), Some("aaaa"));
        assert_eq!(head_commit(&tree.join(".git")).as_deref(), Some("bbbb"));
        assert_eq!(head_commit(&dir.join("none/.git")), None);
        std::fs::remove_dir_all(dir).expect("it is there");
    }
}
