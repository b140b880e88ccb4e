//! Where a measurement was taken.

use serde::Serialize;

/// The machine and the program.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The processor, as the kernel calls it.
    pub processor: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Whether the program was optimised: other numbers mean nothing.
    pub optimised: bool,
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
        }
    }
}
