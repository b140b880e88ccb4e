//! Errors of an exploration that could not run. Defects that an exploration finds are in the report.

use std::path::PathBuf;

/// The result of a crash exploration.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that keeps an exploration from running.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace file cannot be read or written.
    #[error("cannot {0} {1}: {2}")]
    File(&'static str, PathBuf, #[source] std::io::Error),
    /// The file is not a trace of a workload.
    #[error("this is no usable trace: {0}")]
    Trace(&'static str),
    /// The trace has an operation that its drive refuses.
    #[error("the trace does not replay: {0}; record it again with this build")]
    Replay(String),
    /// The workload failed without any power cut.
    #[error("the workload failed before any power cut: {0}")]
    Workload(String),
    /// The name of a crash state cannot be parsed.
    #[error("'{0}' names no state: they look like 0.120.e5 or 0.120.s5x")]
    StateId(String),
    /// The name of a crash state does not fit the workload.
    #[error("state {0} does not exist in this workload")]
    NoState(String),
    /// The crash state belongs to another workload than the trace.
    #[error(
        "state {0} is of another workload than the trace, which holds workload {1}: name the trace that was saved with the state"
    )]
    OtherWorkload(String, u64),
    /// A crash state of the target `engine` was named without its trace.
    #[error("state {0} of the engine needs the trace that was saved when it was found: add --trace FILE")]
    NeedsTrace(String),
    /// The target takes no trace file.
    #[error(
        "workloads of the array, and of fs and log on it, are functions of the seed alone: leave --trace out"
    )]
    NoTrace,
    /// The target runs on one drive only.
    #[error("the target {0} runs on one drive: take fs, log, engine or leveldb on an array")]
    NotOnArray(String),
    /// Only the target `array` can cut the power during one kind of work alone.
    #[error("the target {0} takes all cuts: --during goes with --target array")]
    NoCutsDuring(String),
    /// None of many workloads does the work during which the power is to be cut.
    #[error("no {0} is under way at any cut of {1} workloads")]
    NothingDuring(String, u64),
    /// The name of an array's work cannot be parsed.
    #[error("'{0}' is never under way: take rebuild, restore, move, reclaim, appends or reset")]
    During(String),
    /// The target's name cannot be parsed.
    #[error("'{0}' is no target: take fs, log, waltz, array, stage, prio, groups, tables, engine or leveldb")]
    Target(String),
}
