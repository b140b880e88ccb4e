//! The process's limit on file descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{Error, Result};

/// File descriptors besides those of clients: of the device, logs, listeners and the HTTP port.
const RESERVED_DESCRIPTORS: u64 = 128;

/// Raises the process's limit on file descriptors so that `clients` can be connected at a time.
///
/// # Errors
/// The system does not allow a limit that is high enough.
pub(crate) fn raise_descriptor_limit(clients: usize) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if let Some(needed) = needed_limit(clients, limit.current, limit.maximum)? {
        setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
            .map_err(std::io::Error::from)?;
    }
    Ok(())
}

/// The new limit on file descriptors, if the `current` one is too low for `clients`. `None` as a limit means no limit.
fn needed_limit(clients: usize, current: Option<u64>, maximum: Option<u64>) -> Result<Option<u64>> {
    let needed = clients as u64 + RESERVED_DESCRIPTORS;
    if let Some(maximum) = maximum.filter(|maximum| *maximum < needed) {
        return Err(Error::Options(format!(
            "--max-clients {clients} takes {needed} file descriptors, and this process may open {maximum}: give at \
             most {}, or raise the limit (ulimit -Hn)",
            maximum.saturating_sub(RESERVED_DESCRIPTORS)
        )));
    }
    Ok(current.is_some_and(|current| current < needed).then_some(needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_the_system_allows() {
        assert_eq!(needed_limit(1000, Some(1024), Some(4096)).expect("allowed"), Some(1128));
        assert_eq!(needed_limit(1000, Some(1128), Some(1128)).expect("allowed"), None);
        assert_eq!(needed_limit(100_000, None, None).expect("allowed"), None);
        let error = needed_limit(5000, Some(1024), Some(4096)).expect_err("refused").to_string();
        assert!(error.contains("--max-clients 5000") && error.contains("give at most 3968"), "{error}");
    }
}
