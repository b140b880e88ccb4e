//! Where a measurement was taken.

use std::path::Path;

use serde::Serialize;

/// The machine and the program.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The processor, as the kernel calls it.
    pub processor: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Whether the program was optimised: other numbers mean nothing on a real clock.
    pub optimised: bool,
    /// The commit that the source tree of the program is at; the one in `FURROW_COMMIT` where that was set when it
    /// was built.
    pub commit: Option<String>,
}

impl Host {
    /// This machine.
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
                .or_else(|| head(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.git")))),
        }
    }
}

/// What a git directory's HEAD is at.
fn head(git: &Path) -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(git.join(name)).ok();
    let head = read("HEAD")?;
    let Some(branch) = head.trim().strip_prefix("ref: ") else {
        return Some(head.trim().to_owned());
    };
    let packed = || {
        let refs = read("packed-refs")?;
        let line = refs.lines().find(|line| line.split_once(' ').is_some_and(|(_, name)| name == branch))?;
        line.split_once(' ').map(|(commit, _)| commit.to_owned())
    };
    read(branch).map(|commit| commit.trim().to_owned()).or_else(packed)
}
