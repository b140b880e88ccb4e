//! Parameters in the query of a device URL.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Bytes, Error, ErrorKind, Goal, Result, Share, Stage, ZonedDevice};

/// The error for an invalid URL.
pub(super) fn invalid(url: &str, why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, &Arc::from(url), "URL").because(why)
}

/// The parameter of a stage before the drive, with its description.
pub(super) const STAGE: (&str, &str) =
    ("stage", "writes so far ahead of a zone's write pointer wait for the blocks below them: 1MiB");

/// The parameter of a scheduler before the drive, with its description.
pub(super) const LOG_TARGET: (&str, &str) = (
    "log-target",
    "a scheduler before the drive lets flushes, compactions and reclaim go at a rate at which logs and reads take so many percent of their time alone: 120, the default; none: no scheduler",
);

/// The goal of a drive's scheduler, in percent of a log's latency alone, where a URL gives none.
const DEFAULT_LOG_TARGET: u32 = 120;

/// The devices before a drive that a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Before {
    /// The window of the stage.
    pub stage: Option<Bytes>,
    /// The goal of the scheduler, in percent of a log's latency alone. `None`: no scheduler.
    pub log_target: Option<u32>,
}

impl Before {
    /// The devices that the parameters name.
    pub(super) fn parse(url: &str, parameters: &BTreeMap<&'static str, String>) -> Result<Before> {
        let stage = parameters.get(STAGE.0).map(|text| Stage::window(text)).transpose();
        let stage = stage.map_err(|why| invalid(url, why))?;
        let log_target = match parameters.get(LOG_TARGET.0).map(String::as_str) {
            None => Some(DEFAULT_LOG_TARGET),
            Some("none") => None,
            Some(text) => match text.strip_suffix('%').unwrap_or(text).parse::<u32>() {
                Ok(percent) if (100..=100_000).contains(&percent) => Some(percent),
                _ => {
                    let why = format!("log-target={text}: a percentage from 100 on is needed, or none");
                    return Err(invalid(url, why));
                }
            },
        };
        Ok(Before { stage, log_target })
    }

    /// The value of `log-target` in a URL; `None` for the default.
    pub(super) fn log_target_text(self) -> Option<String> {
        match self.log_target {
            Some(DEFAULT_LOG_TARGET) => None,
            Some(percent) => Some(percent.to_string()),
            None => Some("none".to_owned()),
        }
    }

    /// The drive, whose times are stretched `dilation` times, behind these devices.
    pub(super) fn drive(
        self,
        mut drive: Arc<dyn ZonedDevice>,
        dilation: u32,
    ) -> Result<Arc<dyn ZonedDevice>> {
        if let Some(percent) = self.log_target {
            let goal = Goal { log_target: f64::from(percent) / 100.0, ..Goal::default() };
            drive = Share::over_dilated(drive, goal, dilation);
        }
        match self.stage {
            None => Ok(drive),
            Some(window) => Stage::over(drive, window),
        }
    }
}

/// Parses a URL's query `key=value&key=value`; refuses unknown keys.
pub(super) fn parameters(
    url: &str,
    query: &str,
    known: &'static [(&'static str, &'static str)],
) -> Result<BTreeMap<&'static str, String>> {
    let mut parameters = BTreeMap::new();
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some((key, _)) = known.iter().find(|(name, _)| *name == key) else {
            let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(invalid(url, format!("unknown parameter {key}; known are {}", known.join(", "))));
        };
        if parameters.insert(*key, value.to_string()).is_some() {
            return Err(invalid(url, format!("{key} is given twice")));
        }
    }
    Ok(parameters)
}
