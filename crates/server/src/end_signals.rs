//! The signals that ask a process to end.

use std::io;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout};

/// Time after the first signal from which a signal counts as repeated. A service manager may send two signals within
/// milliseconds.
const REPEATED_SIGNAL_AFTER: Duration = Duration::from_secs(1);

/// SIGTERM, SIGINT and SIGHUP. SIGHUP is left out if the process was started with SIGHUP ignored, as by nohup.
pub(crate) struct EndSignals {
    term: Signal,
    int: Signal,
    hangup: Option<Signal>,
    first: Option<Instant>,
}

/// A request to end, by the signal of this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndRequest {
    /// The first signal.
    First(&'static str),
    /// A signal that came a second or more after the first one.
    Repeated(&'static str),
}

impl EndSignals {
    /// Takes the signals from now on: they do not end the process by themselves any more. Called within a runtime.
    pub(crate) fn listen() -> io::Result<EndSignals> {
        let hangup = if is_hangup_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        let (term, int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(EndSignals { term, int, hangup, first: None })
    }

    /// Waits for the next request. Signals that come less than a second after the first one are passed over.
    pub(crate) async fn next(&mut self) -> EndRequest {
        loop {
            let EndSignals { term, int, hangup, .. } = self;
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
                Some(_) = async { hangup.as_mut()?.recv().await } => "SIGHUP",
            };
            if let Some(request) = request_of(&mut self.first, name, Instant::now()) {
                return request;
            }
        }
    }
}

/// The request that a signal makes at the time `now`; `None` for a signal within a second of the first one. `name` is the signal's
/// name, and `first` the time of the process's first signal, which the call sets.
fn request_of(first: &mut Option<Instant>, name: &'static str, now: Instant) -> Option<EndRequest> {
    match *first {
        None => {
            *first = Some(now);
            Some(EndRequest::First(name))
        }
        Some(first) if now.duration_since(first) < REPEATED_SIGNAL_AFTER => None,
        Some(_) => Some(EndRequest::Repeated(name)),
    }
}

/// Waits for requests to end, in a process without a runtime of its own.
pub struct EndWatch {
    runtime: Runtime,
    signals: EndSignals,
}

impl EndWatch {
    /// Takes the signals from now on: they do not end the process by themselves any more.
    ///
    /// # Errors
    /// The host's, if there is no descriptor left.
    pub fn begin() -> io::Result<EndWatch> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = runtime.block_on(async { EndSignals::listen() })?;
        Ok(EndWatch { runtime, signals })
    }

    /// Waits for the next request; `None` after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<EndRequest> {
        let next = self.signals.next();
        self.runtime.block_on(async { timeout(limit, next).await.ok() })
    }
}

/// Whether the process was started with SIGHUP ignored.
fn is_hangup_ignored() -> bool {
    const HANGUP_BIT: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & HANGUP_BIT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_within_a_second_of_the_first_asks_for_nothing() {
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut first = None;
        let mut request = |name, milliseconds| request_of(&mut first, name, at(milliseconds));
        assert_eq!(request("SIGTERM", 0), Some(EndRequest::First("SIGTERM")));
        assert_eq!(request("SIGTERM", 8), None);
        assert_eq!(request("SIGHUP", 999), None);
        assert_eq!(request("SIGINT", 1000), Some(EndRequest::Repeated("SIGINT")));
        assert_eq!(request("SIGTERM", 1001), Some(EndRequest::Repeated("SIGTERM")));
    }
}
